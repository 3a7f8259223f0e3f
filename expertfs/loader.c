/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and proving one expert; see loader.h. Which copy is read: loader_copies.c.
 */
#include "expertfs/loader.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "expertfs/fail.h"
#include "expertfs/loader_copies.h"
#include "expertfs/xxh3.h"

static const struct urgency demand = { DRIVE_DEMAND };

struct whole {
	const struct urgency *urgency;
	char *dst;
};

/* Looks at the bytes of each extent as they come, so that little is left to do after the last one.
 * *bad: the first extent whose bytes are not what they should be. */
static int check_coming(struct read_batch *b, const struct copy *c, const char *data,
			const struct extent **bad)
{
	XXH3_state_t *hash = XXH3_createState();

	for (uint32_t i = 0; hash && i < c->n && !*bad; i++) {
		const struct extent *x = &c->x[i];
		/* The read begins with its block. */
		const uint64_t head = x->expert_offset % SHARD_ALIGN, end = head + x->length;
		const char *block = data + x->expert_offset - head;
		uint64_t at = head, to;
		XXH3_64bits_reset(hash);
		for (; at < end && (to = read_batch_came(b, i, at)) > at; at = to) {
			to = to < end ? to : end;
			XXH3_64bits_update(hash, block + at, to - at);
		}
		if (at < end) /* the wait will tell */
			break;
		if (XXH3_64bits_digest(hash) != x->check)
			*bad = x;
	}
	XXH3_freeState(hash);
	return hash ? 0 : -ENOMEM;
}

/* Bytes from..to of an expert, which lie in extent x, on their way into buf, with the rest of their
 * blocks. buf is the place of byte `start`, the first of a block. */
static void add_blocks(struct read_batch *b, const struct job *j, const struct extent *x,
		       uint64_t from, uint64_t to, char *buf, uint64_t start)
{
	uint64_t head = from % SHARD_ALIGN;

	read_batch_add(b, copy_drive(j->l, x), x->offset + (from - x->expert_offset) - head,
		       shard_round_up(head + (to - from)), buf + (from - head - start));
}

/* buf holds the blocks from byte `start` to byte `end` of an expert, and more up to the end of the
 * last one: whatever no extent covers becomes zero. */
static void clear_gaps(const struct copy *c, char *buf, uint64_t start, uint64_t end)
{
	uint64_t at = start;

	for (uint32_t i = 0; i < c->n && at < end; i++) {
		const struct extent *x = &c->x[i];
		uint64_t next = x->expert_offset < end ? x->expert_offset : end;
		if (next > at)
			memset(buf + (at - start), 0, next - at);
		if (x->expert_offset + x->length > at)
			at = x->expert_offset + x->length;
	}
	end = shard_round_up(end);
	if (at < end)
		memset(buf + (at - start), 0, end - at);
}

/* Reads a copy into memory, all of it at once. */
static int read_whole(struct job *j, const struct copy *c, void *arg, char *why)
{
	const struct whole *w = arg;
	uint64_t bytes = j->e->bytes;
	bool prove = copy_must_prove(j->l, c);
	struct read_batch *b = read_batch_new(w->urgency);
	const struct extent *bad = NULL;
	struct read_fault fault = { 0 };
	int err = 0, failed;

	if (!b)
		return job_fault(j, NULL, -ENOMEM, NULL, why);
	for (uint32_t i = 0; i < c->n; i++)
		add_blocks(b, j, &c->x[i], c->x[i].expert_offset,
			   c->x[i].expert_offset + c->x[i].length, w->dst, 0);
	if (prove)
		err = check_coming(b, c, w->dst, &bad);
	failed = read_batch_wait(b, &fault);
	if (failed || err)
		return job_fault(j, NULL, failed ? failed : err, &fault, why);
	err = copy_check_files(j, c, why);
	if (err)
		return err;
	clear_gaps(c, w->dst, 0, bytes);
	if (bad) {
		drive_blame(copy_drive(j->l, bad));
		return job_fault(j, bad, 0, NULL, why);
	}
	if (prove)
		atomic_fetch_or(&c->list->proved, copy_bit(c));
	return 0;
}

int load_expert(const struct loader *l, uint32_t index, const struct urgency *u, void *dst,
		char *why)
{
	struct whole w = { u, dst };
	struct job j;
	unsigned copy;
	int err;

	job_begin(&j, l, index, (enum drive_class)atomic_load(&u->class));
	err = job_try_copies(&j, read_whole, &w, &copy, why);
	job_end(&j);
	return err;
}

void loader_raise(const struct loader *l, const struct urgency *u)
{
	pthread_mutex_lock(&l->store->lock); /* the drives stay */
	for (uint32_t i = 0; i <= STORE_DRIVES_MAX; i++)
		if (l->drive[i])
			drive_raise(l->drive[i], u);
	pthread_mutex_unlock(&l->store->lock);
}

/* Bytes at..at+n of an extent, or up to its end, on their way into buf. NULL: out of memory. */
static struct read_batch *start_part(struct job *j, const struct extent *x, uint64_t at, uint64_t n,
				     char *buf)
{
	struct read_batch *b = read_batch_new(&demand);
	uint64_t left = x->length - at;

	if (b)
		read_batch_add(b, copy_drive(j->l, x), x->offset + at,
			       shard_round_up(left < n ? left : n), buf);
	return b;
}

/* The checksum of one extent through the two halves of a buffer: one is read into while the other
 * is looked at. */
static int prove_extent(struct job *j, const struct extent *x, char *buf, char *why)
{
	uint64_t half = read_buffers_size(j->l->buffers) / 2 & ~(uint64_t)(SHARD_ALIGN - 1);
	XXH3_state_t *hash = XXH3_createState();
	struct read_batch *next = hash ? start_part(j, x, 0, half, buf) : NULL;
	struct read_fault fault = { 0 };
	unsigned side = 0;
	int err = 0;

	if (hash)
		XXH3_64bits_reset(hash);
	for (uint64_t at = 0; at < x->length && !err; at += half, side ^= 1) {
		uint64_t left = x->length - at;
		err = next ? read_batch_wait(next, &fault) : -ENOMEM;
		if (err)
			break;
		next = left > half ? start_part(j, x, at + half, half, buf + (side ^ 1) * half)
				   : NULL;
		XXH3_64bits_update(hash, buf + side * half, left < half ? left : half);
	}
	if (err) {
		err = job_fault(j, NULL, err, &fault, why);
	} else if (XXH3_64bits_digest(hash) != x->check) {
		drive_blame(copy_drive(j->l, x));
		err = job_fault(j, x, 0, NULL, why);
	}
	XXH3_freeState(hash);
	return err;
}

/* Proves a copy through the buffer, unless that was done before and need not be done again. */
static int prove_copy(struct job *j, const struct copy *c, void *buf, char *why)
{
	int err = 0;

	if (!copy_must_prove(j->l, c))
		return copy_check_files(j, c, why);
	for (uint32_t i = 0; i < c->n && !err; i++)
		err = prove_extent(j, &c->x[i], buf, why);
	if (!err)
		atomic_fetch_or(&c->list->proved, copy_bit(c));
	return err;
}

int prove_expert(const struct loader *l, uint32_t index, unsigned *copy, char *why)
{
	char *buf = read_buffers_take(l->buffers);
	struct job j;
	int err;

	job_begin(&j, l, index, DRIVE_DEMAND);
	err = job_try_copies(&j, prove_copy, buf, copy, why);
	job_end(&j);
	read_buffers_give(l->buffers, buf);
	return err;
}

struct range {
	uint64_t start, end; /* of the expert */
	char *buf; /* PROVE_BYTES at least, or the whole expert; start lies at its begin */
};

/* The range out of a copy. */
static int read_range(struct job *j, const struct copy *c, void *arg, char *why)
{
	const struct range *r = arg;
	struct read_batch *b = read_batch_new(&demand);
	struct read_fault fault;
	int err;

	if (!b)
		return job_fault(j, NULL, -ENOMEM, NULL, why);
	for (uint32_t i = 0; i < c->n; i++) {
		const struct extent *x = &c->x[i];
		uint64_t from = x->expert_offset > r->start ? x->expert_offset : r->start;
		uint64_t to = x->expert_offset + x->length;
		to = to < r->end ? to : r->end;
		if (from < to)
			add_blocks(b, j, x, from, to, r->buf, r->start);
	}
	err = read_batch_wait(b, &fault);
	err = err ? job_fault(j, NULL, err, &fault, why) : copy_check_files(j, c, why);
	if (!err)
		clear_gaps(c, r->buf, r->start, r->end);
	return err;
}

/* The same of a copy that nobody has proved yet. */
static int read_proved_range(struct job *j, const struct copy *c, void *arg, char *why)
{
	const struct range *r = arg;
	int err = 0;

	if (j->l->verify != VERIFY_NEVER &&
	    (atomic_load(&j->l->store->doubtful) || !(atomic_load(&c->list->proved) & copy_bit(c))))
		err = prove_copy(j, c, r->buf, why);
	return err ? err : read_range(j, c, arg, why);
}

/* The copy that was proved at open first, then whatever there is. */
static int read_anywhere(struct job *j, unsigned copy, struct range *r, char *why)
{
	struct copy c = copy_numbered(j, copy);

	if (c.x && copy_there(j, &c) && !copy_last_resort(j->l, &c) &&
	    read_proved_range(j, &c, r, why) == 0)
		return 0;
	return job_try_copies(j, read_proved_range, r, &copy, why);
}

void read_expert(const struct loader *l, uint32_t index, unsigned copy, uint64_t offset,
		 size_t size, read_use *use, void *arg)
{
	uint64_t bytes = l->store->expert[index].bytes;
	struct range r = { .start = offset & ~(uint64_t)(SHARD_ALIGN - 1) };
	char why[WHY_MAX];
	struct job j;
	int err;

	if (offset >= bytes || size == 0) {
		use(arg, NULL, 0);
		return;
	}
	size = size < READ_MAX ? size : READ_MAX;
	r.end = size < bytes - offset ? offset + size : bytes;
	r.buf = read_buffers_take(l->buffers);
	job_begin(&j, l, index, DRIVE_DEMAND);
	err = read_anywhere(&j, copy, &r, why);
	job_end(&j);
	if (err)
		use(arg, NULL, err);
	else
		use(arg, r.buf + (offset - r.start), (ssize_t)(r.end - offset));
	read_buffers_give(l->buffers, r.buf);
}
