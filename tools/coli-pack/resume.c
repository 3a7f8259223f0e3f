/* SPDX-License-Identifier: Apache-2.0
 *
 * Scanning the shards of an interrupted pack. See resume.h.
 */
#include "tools/coli-pack/resume.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expertfs/fail.h"
#include "tools/coli-pack/textfile.h"

/* True if the record at the expert's place is the expert's and its head is whole. */
static bool read_head(const struct plan *p, const struct output *o, uint32_t e,
		      struct record_head *h)
{
	const struct shard_out *s = &o->shard[p->place[e].drive];
	uint64_t bytes = plan_layout_of(p, e)->bytes;

	return text_read_at(s->fd, s->writing, h, sizeof(*h), p->place[e].offset, NULL) == 0 &&
	       record_head_valid(h) && memcmp(h->store_id, o->store_id, STORE_ID_SIZE) == 0 &&
	       h->layer == plan_layer_of(p, e)->layer && h->expert == plan_number_of(p, e) &&
	       h->parts == 1 && h->copy == 0 && h->expert_bytes == bytes && h->part_bytes == bytes;
}

static bool payload_holds(const struct plan *p, const struct output *o, uint32_t e, void *buf,
			  uint64_t check)
{
	const struct shard_out *s = &o->shard[p->place[e].drive];
	uint64_t bytes = plan_layout_of(p, e)->bytes, at = p->place[e].offset + SHARD_ALIGN;
	bool ok = text_read_at(s->fd, s->writing, buf, bytes, at, NULL) == 0 &&
		  payload_check(buf, bytes) == check;

	posix_fadvise(s->fd, (off_t)at, (off_t)bytes, POSIX_FADV_DONTNEED);
	return ok;
}

/* One drive: sets *count to its whole records. */
static int scan_drive(const struct plan *p, const struct output *o, const struct state *s,
		      uint32_t drive, bool *written, uint64_t *check, void *buf, uint32_t *count,
		      char *why)
{
	const struct shard_out *shard = &o->shard[drive];
	uint64_t end = SHARD_ALIGN;
	struct record_head h;
	struct stat st;
	uint32_t e;

	if (fstat(shard->fd, &st) != 0)
		return fail(why, errno, "cannot look at %s: %s", shard->writing, strerror(errno));
	for (e = drive; e < p->experts; e += p->drives) {
		uint64_t next = p->place[e].offset + record_bytes(plan_layout_of(p, e)->bytes);
		if (next > (uint64_t)st.st_size || !read_head(p, o, e, &h))
			break;
		if (next > s->durable[drive] && !payload_holds(p, o, e, buf, h.payload_check))
			break;
		written[e] = true;
		check[e] = h.payload_check;
		end = next;
		++*count;
	}
	/* Also the last below the mark: should the drive have lost what it promised, it shows here.
	 */
	while (end > SHARD_ALIGN && end <= s->durable[drive]) {
		e -= p->drives;
		if (payload_holds(p, o, e, buf, check[e]))
			break;
		written[e] = false;
		end = p->place[e].offset;
		--*count;
	}
	if ((uint64_t)st.st_size > end && ftruncate(shard->fd, (off_t)end) != 0)
		return fail(why, errno, "cannot truncate %s: %s", shard->writing, strerror(errno));
	return 0;
}

int64_t resume_scan(const struct plan *p, const struct output *o, const struct state *s,
		    bool *written, uint64_t *check, char *why)
{
	uint64_t largest = 1;
	uint32_t found = 0;
	int err = 0;

	for (int i = 0; i < p->layouts; i++)
		if (p->layout[i].bytes > largest)
			largest = p->layout[i].bytes;
	void *buf = malloc(largest);
	if (!buf)
		return fail(why, ENOMEM, "out of memory for an expert");
	for (uint32_t d = 0; d < o->drives && err == 0; d++)
		err = scan_drive(p, o, s, d, written, check, buf, &found, why);
	free(buf);
	return err ? err : (int64_t)found;
}
