/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and proving one expert; see loader.h.
 */
#include "expertfs/loader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "expertfs/fail.h"

#define TRIES       2
#define PROVE_BYTES (1u << 20)

/* The extents of one copy: they lie side by side. Returns how many. */
static uint32_t copy_extents(const struct extent_list *l, unsigned copy,
			     const struct extent **first)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < l->n; i++) {
		if (l->x[i].copy != copy)
			continue;
		if (n++ == 0)
			*first = &l->x[i];
	}
	return n;
}

static int say_bad(const struct loader *l, const struct store_expert *e, const struct extent *x,
		   int err, char *why)
{
	const char *path = drive_path(l->drive[x->drive]);

	if (err)
		return fail(why, EIO, "expert %u/%u: reading %s at %" PRIu64 ": %s", e->layer,
			    e->expert, path, x->offset, strerror(-err));
	return fail(why, EIO,
		    "expert %u/%u: the checksum of %" PRIu64 " bytes at %" PRIu64 " in %s is wrong",
		    e->layer, e->expert, x->length, x->offset, path);
}

static int read_extents(const struct loader *l, const struct store_expert *e,
			const struct extent *x, uint32_t n, const struct urgency *u, char *dst,
			char *why)
{
	struct read_batch *b = read_batch_new(u);
	int err;

	if (!b)
		return fail(why, ENOMEM, "out of memory");
	for (uint32_t i = 0; i < n; i++)
		read_batch_add(b, l->drive[x[i].drive], x[i].offset, shard_round_up(x[i].length),
			       dst + x[i].expert_offset);
	err = read_batch_wait(b);
	if (err)
		return say_bad(l, e, x, err, why);
	for (uint32_t i = 0; i < n; i++)
		if (payload_check(dst + x[i].expert_offset, x[i].length) != x[i].check)
			return say_bad(l, e, &x[i], 0, why);
	memset(dst + e->bytes, 0, shard_round_up(e->bytes) - e->bytes);
	return 0;
}

static const struct urgency demand = { DRIVE_DEMAND };

int load_expert(const struct loader *l, uint32_t index, const struct urgency *u, void *dst,
		char *why)
{
	const struct store_expert *e = &l->store->expert[index];
	const struct extent *x = NULL;
	struct place p;
	int err = -EIO;
	uint32_t n;

	store_take(l->store, index, &p);
	for (unsigned copy = 0; err && (n = copy_extents(p.packed, copy, &x)) > 0; copy++)
		for (int try = 0; err && try < TRIES; try++)
			err = read_extents(l, e, x, n, u, dst, why);
	store_give(l->store, &p);
	return err;
}

void loader_raise(const struct loader *l, const struct urgency *u)
{
	for (uint32_t i = 0; i <= STORE_DRIVES_MAX; i++)
		if (l->drive[i])
			drive_raise(l->drive[i], u);
}

static int prove_extent(const struct loader *l, const struct store_expert *e,
			const struct extent *x, void *buf, char *why)
{
	XXH3_state_t *hash = XXH3_createState();
	int err = 0;

	if (!hash)
		return fail(why, ENOMEM, "out of memory");
	XXH3_64bits_reset(hash);
	for (uint64_t at = 0; at < x->length && !err; at += PROVE_BYTES) {
		uint64_t left = x->length - at, n = left < PROVE_BYTES ? left : PROVE_BYTES;
		struct read_batch *b = read_batch_new(&demand);
		if (!b) {
			err = -ENOMEM;
			break;
		}
		read_batch_add(b, l->drive[x->drive], x->offset + at, shard_round_up(n), buf);
		err = read_batch_wait(b);
		if (!err)
			XXH3_64bits_update(hash, buf, n);
	}
	if (err || XXH3_64bits_digest(hash) != x->check)
		err = say_bad(l, e, x, err, why);
	XXH3_freeState(hash);
	return err;
}

/* A buffer of at least n bytes, when one of the READ_BUFFERS is free. NULL: out of memory. */
static void *take_buffer(const struct loader *l, uint64_t n)
{
	void *buf;

	while (sem_wait(l->buffers) != 0)
		; /* EINTR */
	if (posix_memalign(&buf, SHARD_ALIGN, shard_round_up(n)) == 0)
		return buf;
	sem_post(l->buffers);
	return NULL;
}

static void give_buffer(const struct loader *l, void *buf)
{
	free(buf);
	sem_post(l->buffers);
}

int prove_expert(const struct loader *l, uint32_t index, unsigned *copy, char *why)
{
	const struct store_expert *e = &l->store->expert[index];
	const struct extent *x = NULL;
	void *buf = take_buffer(l, PROVE_BYTES < e->bytes ? PROVE_BYTES : e->bytes);
	struct place p;
	int err = -EIO;
	uint32_t n;

	if (!buf)
		return fail(why, ENOMEM, "out of memory");
	store_take(l->store, index, &p);
	for (unsigned c = 0; err && (n = copy_extents(p.packed, c, &x)) > 0; c++) {
		*copy = c;
		for (int try = 0; err && try < TRIES; try++) {
			err = 0;
			for (uint32_t i = 0; i < n && !err; i++)
				err = prove_extent(l, e, &x[i], buf, why);
		}
	}
	store_give(l->store, &p);
	give_buffer(l, buf);
	return err;
}

/* Bytes start to end of the expert into buf, where they begin at start. */
static int read_range(const struct loader *l, const struct extent_list *list, unsigned copy,
		      uint64_t start, uint64_t end, char *buf)
{
	const struct extent *x = NULL;
	uint32_t n = copy_extents(list, copy, &x);
	struct read_batch *b = read_batch_new(&demand);

	if (!b)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t from = x[i].expert_offset > start ? x[i].expert_offset : start;
		uint64_t to = x[i].expert_offset + x[i].length;
		to = to < end ? to : end;
		if (from < to)
			read_batch_add(b, l->drive[x[i].drive],
				       x[i].offset + (from - x[i].expert_offset),
				       shard_round_up(to - from), buf + (from - start));
	}
	return read_batch_wait(b);
}

void read_expert(const struct loader *l, uint32_t index, unsigned copy, uint64_t offset,
		 size_t size, read_use *use, void *arg)
{
	const struct store_expert *e = &l->store->expert[index];
	uint64_t start = offset & ~(uint64_t)(SHARD_ALIGN - 1), end;
	struct place p;
	char *buf;
	int err = -ENOMEM;

	if (offset >= e->bytes || size == 0) {
		use(arg, NULL, 0);
		return;
	}
	end = size < e->bytes - offset ? offset + size : e->bytes;
	buf = take_buffer(l, end - start);
	if (buf) {
		store_take(l->store, index, &p);
		err = read_range(l, p.packed, copy, start, end, buf);
		store_give(l->store, &p);
	}
	if (err)
		use(arg, NULL, err);
	else
		use(arg, buf + (offset - start), (ssize_t)(end - offset));
	if (buf)
		give_buffer(l, buf);
}
