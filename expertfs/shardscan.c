/* SPDX-License-Identifier: Apache-2.0
 *
 * Scanning a shard; see shardscan.h.
 */
#include "expertfs/shardscan.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expertfs/fail.h"
#include "expertfs/store.h"

#define SEARCH_BYTES (1u << 20) /* read at once where no head is where one should be */

static int read_failed(const struct shard_scan *s, uint64_t at, ssize_t got, char *why)
{
	if (got < 0)
		return fail(why, errno, "%s: reading at %" PRIu64 ": %s", s->path, at,
			    strerror(errno));
	return fail(why, EIO, "%s: it ended at %" PRIu64 " while it was read", s->path, at);
}

/* n bytes, or as many as there are before the end: at least a block. */
static int read_at(const struct shard_scan *s, void *buf, uint64_t n, uint64_t at, uint64_t *got_n,
		   char *why)
{
	uint64_t done = 0;

	while (done < n) {
		ssize_t got = pread(s->fd, (char *)buf + done, n - done, (off_t)(at + done));
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 || (got == 0 && done < SHARD_ALIGN))
			return read_failed(s, at + done, got, why);
		if (got == 0)
			break;
		done += (uint64_t)got;
	}
	*got_n = done;
	return 0;
}

int shard_scan_open(struct shard_scan *s, const char *path, char *why)
{
	char block[SHARD_ALIGN];
	struct stat st;
	uint64_t got;
	int err;

	*s = (struct shard_scan){ .fd = -1, .path = strdup(path) };
	if (!s->path)
		return fail(why, ENOMEM, "out of memory");
	s->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (s->fd < 0 || fstat(s->fd, &st) != 0)
		return fail(why, errno, "%s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return fail(why, EBADMSG, "%s is not a shard: not a file", path);
	s->bytes = (uint64_t)st.st_size;
	if (s->bytes < SHARD_ALIGN)
		return fail(why, EBADMSG, "%s is not a shard: it has only %" PRIu64 " bytes", path,
			    s->bytes);
	err = read_at(s, block, sizeof(block), 0, &got, why);
	if (err)
		return err;
	memcpy(&s->head, block, sizeof(s->head));
	if (!shard_head_valid(&s->head))
		return fail(why, EBADMSG, "%s is damaged: its first block is not that of a shard",
			    path);
	s->end = SHARD_ALIGN;
	return 0;
}

void shard_scan_close(struct shard_scan *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
	free(s->path);
	free(s->record);
	s->path = NULL;
	s->record = NULL;
	s->n = s->room = 0;
}

/* Is it a head of this store, in front of a payload that the file has? */
static bool head_fits(const struct shard_scan *s, const void *block, uint64_t at,
		      struct record_head *h)
{
	memcpy(h, block, sizeof(*h));
	return record_head_is(h, s->head.store_id) && h->layer <= UINT16_MAX &&
	       h->expert <= UINT16_MAX && h->copy <= UINT16_MAX &&
	       h->expert_bytes <= STORE_EXPERT_BYTES_MAX && h->part_offset % SHARD_ALIGN == 0 &&
	       at + record_bytes(h->part_bytes) <= s->bytes;
}

static int add_record(struct shard_scan *s, const struct record_head *h, uint64_t at, char *why)
{
	if (s->n == s->room) {
		uint32_t room = s->room ? 2 * s->room : 256;
		struct shard_record *grown =
			room > s->room ? realloc(s->record, room * sizeof(*grown)) : NULL;
		if (!grown)
			return fail(why, ENOMEM, "out of memory for the records of %s", s->path);
		s->record = grown;
		s->room = room;
	}
	s->record[s->n++] = (struct shard_record){ .layer = (uint16_t)h->layer,
						   .expert = (uint16_t)h->expert,
						   .copy = (uint16_t)h->copy,
						   .drive = (uint16_t)s->head.drive,
						   .part = h->part,
						   .parts = h->parts,
						   .generation = h->generation,
						   .expert_bytes = h->expert_bytes,
						   .part_offset = h->part_offset,
						   .part_bytes = h->part_bytes,
						   .check = h->payload_check,
						   .offset = at + SHARD_ALIGN };
	s->end = at + record_bytes(h->part_bytes);
	return 0;
}

static bool all_zero(const char *block)
{
	return block[0] == 0 && memcmp(block, block + 1, SHARD_ALIGN - 1) == 0;
}

/* The next place at or behind `at` that may hold data: what was punched out is not read. */
static uint64_t skip_hole(const struct shard_scan *s, uint64_t at)
{
	off_t data = lseek(s->fd, (off_t)at, SEEK_DATA);

	if (data < 0)
		return errno == ENXIO ? s->bytes : at;
	return (uint64_t)data & ~(uint64_t)(SHARD_ALIGN - 1);
}

/* From a block that is no head, to the next one, to the end, or to the end of what fits into buf:
 * *at goes there. */
static int search(struct shard_scan *s, char *buf, uint64_t *at, char *why)
{
	struct record_head h;
	uint64_t got = 0, next = skip_hole(s, *at);
	int err;

	if (next > *at) {
		*at = next;
		return 0;
	}
	err = read_at(s, buf, s->bytes - *at < SEARCH_BYTES ? s->bytes - *at : SEARCH_BYTES, *at,
		      &got, why);
	for (uint64_t i = 0; !err && i + SHARD_ALIGN <= got; i += SHARD_ALIGN, *at += SHARD_ALIGN) {
		if (head_fits(s, buf + i, *at, &h))
			return 0;
		if (all_zero(buf + i))
			continue;
		if (s->damaged == 0)
			s->damaged_at = *at;
		s->damaged += SHARD_ALIGN;
	}
	return err;
}

int shard_scan_records(struct shard_scan *s, char *why)
{
	char *buf = malloc(SEARCH_BYTES);
	uint64_t at = SHARD_ALIGN, got;
	struct record_head h;
	int err = 0;

	if (!buf)
		return fail(why, ENOMEM, "out of memory");
	while (!err && at + SHARD_ALIGN <= s->bytes) {
		err = read_at(s, buf, SHARD_ALIGN, at, &got, why);
		if (err)
			break;
		if (head_fits(s, buf, at, &h)) {
			err = add_record(s, &h, at, why);
			at += record_bytes(h.part_bytes);
		} else {
			err = search(s, buf, &at, why);
		}
	}
	free(buf);
	return err;
}

int shard_prove(struct shard_scan *s, proof_tick *tick, shard_bad *bad, void *arg, char *why)
{
	int err = 0, fd = proof_open(s->path);
	void *buf = NULL;

	if (fd < 0)
		return fail(why, -fd, "%s: %s", s->path, strerror(-fd));
	if (posix_memalign(&buf, SHARD_ALIGN, PROOF_BYTES) != 0)
		err = fail(why, ENOMEM, "out of memory");
	for (uint32_t i = 0; i < s->n && !err; i++) {
		struct shard_record *r = &s->record[i];
		err = proof_range(fd, r->offset, r->part_bytes, r->check, buf, tick, arg);
		if (err == 0 || err == -ECANCELED || err == -ENOMEM)
			continue;
		r->bad = true;
		bad(arg, s, r, err);
		err = 0;
	}
	if (err)
		fail(why, -err, "%s: %s", s->path,
		     err == -ECANCELED ? "interrupted" : strerror(-err));
	free(buf);
	close(fd);
	return err;
}
