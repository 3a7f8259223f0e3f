/* SPDX-License-Identifier: Apache-2.0
 *
 * The ready backings and the thread that touches new ones; see pool.h.
 */
#include "expertfs/pool.h"

#include <pthread.h>
#include <stdlib.h>

#include "expertfs/shard.h"

#define POOL_MAX 16 /* as many as can be loaded at the same time (LOADERS) */

struct pool {
	const struct backing_source *source;
	uint64_t bytes; /* of an expert, in whole 4 KiB pages */
	pthread_t thread;
	bool started;

	pthread_mutex_t lock; /* all below */
	pthread_cond_t wanted;
	struct backing ready[POOL_MAX];
	uint32_t n, making, count; /* ready, being touched, and how many there should be */
	bool stop;
};

static void *pool_main(void *arg)
{
	struct pool *p = arg;

	pthread_mutex_lock(&p->lock);
	for (;;) {
		struct backing b;
		int err;
		while (!p->stop && p->n + p->making >= p->count)
			pthread_cond_wait(&p->wanted, &p->lock);
		if (p->stop)
			break;
		p->making++;
		pthread_mutex_unlock(&p->lock);
		err = backing_new(p->source, p->bytes, &b);
		pthread_mutex_lock(&p->lock);
		p->making--;
		if (!err && p->n < p->count && !p->stop) {
			p->ready[p->n++] = b;
		} else if (!err) { /* the count has shrunk meanwhile */
			pthread_mutex_unlock(&p->lock);
			backing_drop(&b, -1);
			pthread_mutex_lock(&p->lock);
		} else { /* no memory: a miss will find that out for itself */
			p->count = p->n;
		}
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

struct pool *pool_new(const struct backing_source *source, uint64_t bytes, uint32_t count)
{
	struct pool *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->source = source;
	p->bytes = shard_round_up(bytes);
	p->count = count < POOL_MAX ? count : POOL_MAX;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->wanted, NULL);
	p->started = pthread_create(&p->thread, NULL, pool_main, p) == 0;
	if (!p->started) {
		pool_free(p);
		return NULL;
	}
	return p;
}

void pool_free(struct pool *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_broadcast(&p->wanted);
	pthread_mutex_unlock(&p->lock);
	if (p->started)
		pthread_join(p->thread, NULL);
	while (p->n)
		backing_drop(&p->ready[--p->n], -1);
	pthread_cond_destroy(&p->wanted);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

uint64_t pool_bytes(struct pool *p)
{
	uint64_t bytes;

	pthread_mutex_lock(&p->lock);
	bytes = p->count * backing_cost(p->source, p->bytes);
	pthread_mutex_unlock(&p->lock);
	return bytes;
}

bool pool_take(struct pool *p, uint64_t bytes, struct backing *out)
{
	bool have;

	if (shard_round_up(bytes) != p->bytes)
		return false;
	pthread_mutex_lock(&p->lock);
	have = p->n > 0;
	if (have) {
		*out = p->ready[--p->n];
		out->bytes = bytes;
		pthread_cond_signal(&p->wanted);
	}
	pthread_mutex_unlock(&p->lock);
	return have;
}

bool pool_yield(struct pool *p, uint64_t bytes, struct backing *out)
{
	bool yields;

	pthread_mutex_lock(&p->lock);
	yields =
		p->n > 0 ? p->count > 0 && shard_round_up(bytes) == p->bytes : p->count > p->making;
	if (yields && p->n > 0) {
		*out = p->ready[--p->n];
		out->bytes = bytes;
	}
	p->count -= yields;
	pthread_mutex_unlock(&p->lock);
	return yields;
}

void pool_return(struct pool *p, struct backing *b)
{
	pthread_mutex_lock(&p->lock);
	p->count++;
	p->ready[p->n++] = *b; /* has its place: it was among them a moment ago */
	pthread_mutex_unlock(&p->lock);
	*b = (struct backing){ .fd = -1 };
}

/* Lock held. */
static bool wants(const struct pool *p, uint64_t mapped)
{
	return mapped == p->bytes && p->n + p->making < p->count;
}

bool pool_wants(struct pool *p, uint64_t mapped)
{
	bool yes;

	pthread_mutex_lock(&p->lock);
	yes = wants(p, mapped);
	pthread_mutex_unlock(&p->lock);
	return yes;
}

bool pool_give(struct pool *p, struct backing *b)
{
	bool taken;

	pthread_mutex_lock(&p->lock);
	taken = wants(p, b->mapped);
	if (taken)
		p->ready[p->n++] = *b;
	pthread_mutex_unlock(&p->lock);
	if (taken)
		*b = (struct backing){ .fd = -1 };
	return taken;
}

void pool_resize(struct pool *p, uint32_t count)
{
	struct backing drop[POOL_MAX];
	uint32_t n = 0;

	pthread_mutex_lock(&p->lock);
	p->count = count < POOL_MAX ? count : POOL_MAX;
	while (p->n > p->count)
		drop[n++] = p->ready[--p->n];
	pthread_cond_signal(&p->wanted);
	pthread_mutex_unlock(&p->lock);
	while (n)
		backing_drop(&drop[--n], -1);
}
