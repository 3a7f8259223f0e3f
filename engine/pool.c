/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that share out a loop.
 *
 * The loop under way is described by fn, arg and the shares, and is open while `open` holds its number.
 * A thread announces itself in `inside` before it looks at `open`; the caller closes the loop,
 * waits until nobody is inside, and only then describes the next one. So a thread that comes late
 * finds the loop closed and reads nothing of it. All atomics are sequentially consistent:
 * "announce, then look" on one side against "change, then look who is there" on the other is what
 * the ordering must hold for.
 *
 * Each thread has a share of the items, which it takes in ascending order, and takes what is left of
 * the others' when it is through: neighbouring items are neighbouring memory, which a processor reads
 * ahead of, and threads seldom touch the same counter.
 */
#include "engine/pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/fail.h"

/* Looks before an idle thread goes to sleep: some 20 microseconds, as long as waking one takes. */
#define SPINS 500

struct share {
	_Alignas(64) atomic_int next; /* item to be taken next */
	int end;
};

struct worker {
	struct pool *pool;
	int number;
	pthread_t thread;
};

struct pool {
	/* What the caller writes and what workers write begin a cache line each. */
	_Alignas(64) atomic_uint open; /* number of the open loop, 0: none */
	unsigned loops;                /* the caller's count, never 0 while a loop is open */
	pool_fn *fn;
	void *arg;
	struct share *share; /* a thread each */
	struct worker *worker;
	int threads, started;           /* started: workers, numbers 1 .. started */
	_Alignas(64) atomic_int inside; /* workers that may be looking at the loop */
	atomic_int asleep;              /* workers waiting for `work` */
	pthread_cond_t work, left;
	pthread_mutex_t lock;
	atomic_bool awaited; /* the caller waits for `left` */
	atomic_bool stop;
};

static void pause_briefly(void)
{
#ifdef __x86_64__
	__builtin_ia32_pause();
#endif
}

static void take_items(struct pool *p, int thread)
{
	for (int k = 0; k < p->threads; k++) {
		struct share *s = &p->share[(thread + k) % p->threads];
		/* Looking first leaves the counter where it is. */
		for (int i; atomic_load(&s->next) < s->end &&
			    (i = atomic_fetch_add(&s->next, 1)) < s->end;)
			p->fn(p->arg, i, thread);
	}
}

/* True if there is something else to do than wait. */
static bool called(struct pool *p, unsigned seen)
{
	unsigned open = atomic_load(&p->open);

	return (open && open != seen) || atomic_load(&p->stop);
}

static void wait_for_work(struct pool *p, unsigned seen)
{
	for (int i = 0; i < SPINS; i++) {
		if (called(p, seen))
			return;
		pause_briefly();
	}
	pthread_mutex_lock(&p->lock);
	atomic_fetch_add(&p->asleep, 1);
	while (!called(p, seen))
		pthread_cond_wait(&p->work, &p->lock);
	atomic_fetch_sub(&p->asleep, 1);
	pthread_mutex_unlock(&p->lock);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct pool *p = w->pool;
	unsigned seen = 0;

	for (;;) {
		wait_for_work(p, seen);
		if (atomic_load(&p->stop))
			return NULL;
		atomic_fetch_add(&p->inside, 1);
		unsigned open = atomic_load(&p->open);
		if (open) {
			take_items(p, w->number);
			seen = open;
		}
		if (atomic_fetch_sub(&p->inside, 1) == 1 && atomic_load(&p->awaited)) {
			pthread_mutex_lock(&p->lock);
			pthread_cond_signal(&p->left);
			pthread_mutex_unlock(&p->lock);
		}
	}
}

static void wait_until_left(struct pool *p)
{
	for (int i = 0; i < SPINS; i++) {
		if (!atomic_load(&p->inside))
			return;
		pause_briefly();
	}
	pthread_mutex_lock(&p->lock);
	atomic_store(&p->awaited, true);
	while (atomic_load(&p->inside))
		pthread_cond_wait(&p->left, &p->lock);
	atomic_store(&p->awaited, false);
	pthread_mutex_unlock(&p->lock);
}

void pool_run(struct pool *p, int items, pool_fn *fn, void *arg)
{
	if (items < 2 || p->threads < 2) {
		for (int i = 0; i < items; i++)
			fn(arg, i, 0);
		return;
	}
	p->fn = fn;
	p->arg = arg;
	for (int k = 0; k < p->threads; k++) {
		atomic_store(&p->share[k].next, (int)((int64_t)items * k / p->threads));
		p->share[k].end = (int)((int64_t)items * (k + 1) / p->threads);
	}
	p->loops = p->loops + 1 ? p->loops + 1 : 1;
	atomic_store(&p->open, p->loops);
	if (atomic_load(&p->asleep)) {
		pthread_mutex_lock(&p->lock);
		pthread_cond_broadcast(&p->work);
		pthread_mutex_unlock(&p->lock);
	}
	take_items(p, 0);
	atomic_store(&p->open, 0);
	wait_until_left(p);
}

int pool_start(int threads, struct pool **out, char *why)
{
	struct pool *p = aligned_alloc(64, (sizeof(*p) + 63) / 64 * 64);
	int r = 0;

	*out = NULL;
	if (!p)
		return fail(why, ENOMEM, "no memory for %d threads", threads);
	memset(p, 0, sizeof(*p));
	p->threads = threads;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->work, NULL);
	pthread_cond_init(&p->left, NULL);
	p->worker = calloc((size_t)threads, sizeof(*p->worker));
	p->share = aligned_alloc(64, (size_t)threads * sizeof(*p->share));
	if (!p->worker || !p->share)
		r = ENOMEM;
	while (!r && p->started < threads - 1) {
		struct worker *w = &p->worker[p->started];
		*w = (struct worker){ .pool = p, .number = p->started + 1 };
		r = pthread_create(&w->thread, NULL, work, w);
		p->started += r == 0;
	}
	if (r) {
		pool_stop(p);
		return fail(why, r, "cannot start %d threads: %s", threads, strerror(r));
	}
	*out = p;
	return 0;
}

void pool_stop(struct pool *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	atomic_store(&p->stop, true);
	pthread_cond_broadcast(&p->work);
	pthread_mutex_unlock(&p->lock);
	for (int i = 0; i < p->started; i++)
		pthread_join(p->worker[i].thread, NULL);
	free(p->worker);
	free(p->share);
	pthread_cond_destroy(&p->left);
	pthread_cond_destroy(&p->work);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
