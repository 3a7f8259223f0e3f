/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads that somebody waits for together; see drive.h.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "expertfs/drive_parts.h"

/* A read. */
struct pieces {
	struct pieces *next;
	unsigned number;
	uint32_t n, came; /* pieces; those that have come, without a gap before them */
	struct piece p[];
};

struct read_batch {
	pthread_mutex_t lock;
	pthread_cond_t done;
	const struct urgency *urgency;
	struct pieces *pieces;
	unsigned reads;
	uint32_t pending;
	const struct piece *awaited; /* by read_batch_came() */
	_Atomic int err;             /* also read without the lock */
	struct read_fault fault;
};

struct read_batch *read_batch_new(const struct urgency *u)
{
	struct read_batch *b = calloc(1, sizeof(*b));

	if (b) {
		b->urgency = u;
		pthread_mutex_init(&b->lock, NULL);
		pthread_cond_init(&b->done, NULL);
	}
	return b;
}

void batch_tell(struct piece *p, int err, struct drive *d)
{
	struct read_batch *b = p->batch;

	pthread_mutex_lock(&b->lock);
	if (err && !b->err) {
		b->fault = (struct read_fault){ d, p->offset };
		b->err = err;
	}
	p->came = !err;
	if (--b->pending == 0 || b->awaited == p || (err && b->awaited))
		pthread_cond_signal(&b->done);
	pthread_mutex_unlock(&b->lock);
}

static struct pieces *read_numbered(struct read_batch *b, unsigned number)
{
	struct pieces *all = b->pieces;

	while (all && all->number != number)
		all = all->next;
	return all;
}

uint64_t read_batch_came(struct read_batch *b, unsigned read, uint64_t have)
{
	uint64_t came = have;
	struct pieces *all;

	pthread_mutex_lock(&b->lock);
	all = read_numbered(b, read);
	while (all && came <= have) {
		while (all->came < all->n && all->p[all->came].came)
			all->came++;
		came = (uint64_t)all->came * PIECE_BYTES;
		if (came > have || b->err || !b->pending)
			break;
		b->awaited = &all->p[all->came];
		pthread_cond_wait(&b->done, &b->lock);
		b->awaited = NULL;
	}
	pthread_mutex_unlock(&b->lock);
	return came > have ? came : have;
}

int read_batch_wait(struct read_batch *b, struct read_fault *fault)
{
	int err;

	pthread_mutex_lock(&b->lock);
	while (b->pending)
		pthread_cond_wait(&b->done, &b->lock);
	err = b->err;
	if (fault)
		*fault = b->fault;
	pthread_mutex_unlock(&b->lock);
	pthread_cond_destroy(&b->done);
	pthread_mutex_destroy(&b->lock);
	while (b->pieces) {
		struct pieces *next = b->pieces->next;
		free(b->pieces);
		b->pieces = next;
	}
	free(b);
	return err;
}

bool batch_failed(struct read_batch *b)
{
	return atomic_load(&b->err) != 0;
}

void read_batch_add(struct read_batch *b, struct drive *d, uint64_t offset, uint64_t length,
		    void *buf)
{
	uint64_t n = (length + PIECE_BYTES - 1) / PIECE_BYTES;
	struct pieces *all = malloc(sizeof(*all) + n * sizeof(all->p[0]));

	pthread_mutex_lock(&b->lock);
	if (all) {
		all->number = b->reads++;
		all->n = (uint32_t)n;
		all->came = 0;
		all->next = b->pieces;
		b->pieces = all;
		b->pending += (uint32_t)n;
	} else if (!b->err) {
		b->fault = (struct read_fault){ d, offset };
		b->err = -ENOMEM;
	}
	pthread_mutex_unlock(&b->lock);
	if (!all)
		return;
	for (uint64_t i = 0, at = 0; i < n; i++, at += PIECE_BYTES)
		all->p[i] = (struct piece){ .batch = b,
					    .urgency = b->urgency,
					    .buf = (char *)buf + at,
					    .offset = offset + at,
					    .length = length - at < PIECE_BYTES
							      ? (uint32_t)(length - at)
							      : PIECE_BYTES };
	drive_enqueue(d, all->p, n);
}
