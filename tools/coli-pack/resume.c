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

struct scan {
	const struct plan *p;
	const struct output *o;
	struct state *state;
	bool *there;
	uint64_t *check;
	void *buf; /* the largest part */
};

static uint64_t end_of(const struct part *x)
{
	return x->offset + record_bytes(x->bytes);
}

/* True if the record at the part's place is the part's and its head is whole. */
static bool read_head(const struct scan *s, const struct part *x, struct record_head *h)
{
	const struct shard_out *f = &s->o->shard[x->drive];

	return text_read_at(f->fd, shard_out_name(f), h, sizeof(*h), x->offset, NULL) == 0 &&
	       record_head_is(h, s->o->store_id) &&
	       h->layer == plan_layer_of(s->p, x->expert)->layer &&
	       h->expert == plan_number_of(s->p, x->expert) && h->part == x->part &&
	       h->parts == x->parts && h->copy == x->copy && h->generation == 0 &&
	       h->expert_bytes == plan_layout_of(s->p, x->expert)->bytes &&
	       h->part_offset == x->first && h->part_bytes == x->bytes;
}

static bool payload_holds(const struct scan *s, const struct part *x, uint64_t check)
{
	const struct shard_out *f = &s->o->shard[x->drive];
	uint64_t at = x->offset + SHARD_ALIGN;
	bool ok = text_read_at(f->fd, shard_out_name(f), s->buf, x->bytes, at, NULL) == 0 &&
		  payload_check(s->buf, x->bytes) == check;

	posix_fadvise(f->fd, (off_t)at, (off_t)x->bytes, POSIX_FADV_DONTNEED);
	return ok;
}

/* Forward: on each drive, the records that are there until the first that is not. size[]: of the
 * shards; end[]: becomes the end of the whole records. */
static void find_records(struct scan *s, const uint64_t *size, uint64_t *end)
{
	const struct placement *p = &s->p->place;
	struct record_head h;

	for (uint32_t i = 0; i < placement_parts(p); i++) {
		const struct part *x = &p->part[i];
		if (end[x->drive] != x->offset) /* an earlier one is missing */
			continue;
		if (end_of(x) > size[x->drive] || !read_head(s, x, &h))
			continue;
		if (end_of(x) > s->state->durable[x->drive] &&
		    !payload_holds(s, x, h.payload_check))
			continue;
		s->there[i] = true;
		s->check[i] = h.payload_check;
		end[x->drive] = end_of(x);
	}
}

/* Backward: also the last record below the mark is proved. Should the drive have lost what it
 * promised, it shows here. */
static void prove_last(struct scan *s, uint64_t *end)
{
	const struct placement *p = &s->p->place;

	for (uint32_t i = placement_parts(p); i-- > 0;) {
		const struct part *x = &p->part[i];
		if (!s->there[i] || end_of(x) != end[x->drive] ||
		    end[x->drive] > s->state->durable[x->drive] || payload_holds(s, x, s->check[i]))
			continue;
		s->there[i] = false;
		end[x->drive] = x->offset;
	}
}

static int cut_shard(const struct shard_out *f, uint64_t size, uint64_t end, char *why)
{
	if (size > end && ftruncate(f->fd, (off_t)end) != 0)
		return fail(why, errno, "cannot truncate %s: %s", shard_out_name(f),
			    strerror(errno));
	return 0;
}

static int scan_shards(struct scan *s, uint64_t *size, uint64_t *end, char *why)
{
	struct stat st;
	int err = 0;

	for (uint32_t d = 0; d < s->o->drives; d++) {
		if (fstat(s->o->shard[d].fd, &st) != 0)
			return fail(why, errno, "cannot look at %s: %s", s->o->shard[d].writing,
				    strerror(errno));
		size[d] = (uint64_t)st.st_size;
		end[d] = SHARD_ALIGN;
	}
	find_records(s, size, end);
	prove_last(s, end);
	for (uint32_t d = 0; d < s->o->drives && err == 0; d++) {
		err = cut_shard(&s->o->shard[d], size[d], end[d], why);
		if (s->state->durable[d] > end[d])
			s->state->durable[d] = end[d];
	}
	return err;
}

static int64_t count_written(const struct scan *s, bool *written)
{
	const struct placement *p = &s->p->place;
	int64_t found = 0;

	for (uint32_t e = 0; e < p->experts; e++) {
		written[e] = true;
		for (uint32_t i = p->start[e]; i < p->start[e + 1]; i++)
			written[e] &= s->there[i];
		found += written[e];
	}
	return found;
}

int64_t resume_scan(const struct plan *p, const struct output *o, struct state *state, bool *there,
		    uint64_t *check, bool *written, char *why)
{
	struct scan s = { .p = p, .o = o, .state = state, .there = there, .check = check };
	uint64_t largest = 1, *size = calloc(o->drives, sizeof(*size));
	uint64_t *end = calloc(o->drives, sizeof(*end));

	for (uint32_t i = 0; i < placement_parts(&p->place); i++)
		if (p->place.part[i].bytes > largest)
			largest = p->place.part[i].bytes;
	s.buf = malloc(largest);
	int err = s.buf && size && end ? scan_shards(&s, size, end, why)
				       : fail(why, ENOMEM, "out of memory for an expert");
	free(s.buf);
	free(size);
	free(end);
	return err ? err : count_written(&s, written);
}
