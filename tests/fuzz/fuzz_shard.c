/* SPDX-License-Identifier: Apache-2.0
 *
 * Shards without a catalog: their records, and the experts that can be made of them. The input is
 * heads only: that of the shard, then those of records, which get magic, identity and checksum, and
 * lie where the one before ends.
 */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "expertfs/fail.h"
#include "expertfs/shardsets.h"

#define PART_MAX ((uint64_t)1 << 30) /* a longer one is cut off by the next record */
#define RECORDS  512                 /* of an input, at most */

static void write_at(int fd, const void *from, size_t n, uint64_t at)
{
	if (pwrite(fd, from, n, (off_t)at) != (ssize_t)n)
		abort();
}

static const char *make_shard(const uint8_t *data, size_t size)
{
	const char *path = fuzz_file(data, 0, 0, ".shard");
	int fd = open(path, O_RDWR | O_CLOEXEC);
	uint64_t at = SHARD_ALIGN;
	struct shard_head head = { 0 };
	struct record_head r;

	if (fd < 0)
		abort();
	memcpy(&head, data, size < sizeof(head) ? size : sizeof(head));
	shard_head_seal(&head);
	write_at(fd, &head, sizeof(head), 0);
	data += size < sizeof(head) ? size : sizeof(head);
	size -= size < sizeof(head) ? size : sizeof(head);
	for (int i = 0; i < RECORDS && size >= sizeof(r); i++) {
		memcpy(&r, data, sizeof(r));
		memcpy(r.store_id, head.store_id, sizeof(r.store_id));
		record_head_seal(&r);
		write_at(fd, &r, sizeof(r), at);
		at += record_bytes(r.part_bytes <= PART_MAX ? r.part_bytes : 0);
		data += sizeof(r);
		size -= sizeof(r);
	}
	if (ftruncate(fd, (off_t)at) != 0)
		abort();
	close(fd);
	return path;
}

static void check(const struct found *f, uint64_t file_bytes)
{
	for (uint32_t i = 0; i < f->n; i++) {
		const struct extent_list *l = f->expert[i].list;
		uint64_t at = 0;
		for (uint32_t k = 0; l && k < l->n; k++) {
			const struct extent *x = &l->x[k];
			bool next = k > 0 && x->copy != x[-1].copy;
			if (next && (at != f->expert[i].bytes || x->copy != x[-1].copy + 1))
				abort();
			at = next ? 0 : at;
			if (x->expert_offset != at || x->offset > file_bytes ||
			    x->length > file_bytes - x->offset)
				abort();
			at += x->length;
		}
		if (l && at != f->expert[i].bytes)
			abort();
	}
}

static void count(void *arg, struct shard_record *r)
{
	*(uint64_t *)arg += r->part_bytes > 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct shard_scan s;
	struct found found;
	char why[WHY_MAX];
	uint64_t contested = 0;

	if (shard_scan_open(&s, make_shard(data, size), why) == 0 &&
	    shard_scan_records(&s, why) == 0) {
		shard_contested(s.record, s.n, count, &contested);
		if (contested > s.n || shard_sets(s.record, s.n, &found) != 0)
			abort();
		check(&found, s.bytes);
		shard_sets_free(&found);
	}
	shard_scan_close(&s);
	return 0;
}
