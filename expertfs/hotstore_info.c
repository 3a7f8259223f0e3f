/* SPDX-License-Identifier: Apache-2.0
 *
 * What the hot store counts and shows; see hotstore.h.
 *
 * Heat is a count of uses that fades: it halves each time the store has seen 16 opens for each
 * expert it has. So it is measured in work, not in hours, and a night without any changes nothing.
 */
#include <math.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "expertfs/clock.h"
#include "expertfs/hot_parts.h"

#define SNAPSHOT_PIECE 128 /* experts looked at under one hold of the lock: a microsecond or two */

/* Heat as of so many opens. */
static double heat_now(const struct hotstore *h, const struct slot *s, uint64_t opens)
{
	uint64_t age = opens - s->heat_at;

	return s->heat == 0 || age == 0 ? s->heat : s->heat * exp2(-(double)age / h->half_life);
}

void hot_count_use(struct hotstore *h, uint32_t index, uint64_t now)
{
	struct slot *s = &h->slot[index];
	struct timespec t;

	s->heat = heat_now(h, s, h->stats.opens) + 1;
	s->heat_at = h->stats.opens;
	s->uses++;
	clock_gettime(CLOCK_REALTIME_COARSE, &t);
	s->last_use = (uint64_t)t.tv_sec;
	if (h->used)
		h->used(h->used_arg, now, index);
}

void hotstore_watch(struct hotstore *h, void (*used)(void *arg, uint64_t now_ns, uint32_t index),
		    void *arg)
{
	pthread_mutex_lock(&h->lock);
	h->used = used;
	h->used_arg = arg;
	pthread_mutex_unlock(&h->lock);
}

static void describe(const struct hotstore *h, uint32_t index, struct hot_info *out)
{
	const struct slot *s = &h->slot[index];

	*out = (struct hot_info){ .state = s->state,
				  .pinned = s->pinned,
				  .held = s->handles || s->unkept,
				  .heat = heat_now(h, s, h->stats.opens),
				  .uses = s->uses,
				  .loads = s->loads,
				  .last_use = s->last_use,
				  .load_ns = s->load_ns };
}

void hotstore_info(struct hotstore *h, uint32_t index, struct hot_info *out)
{
	pthread_mutex_lock(&h->lock);
	describe(h, index, out);
	pthread_mutex_unlock(&h->lock);
}

/* one() for each expert, some at a time under the lock. */
static void visit_all(struct hotstore *h,
		      void (*one)(const struct hotstore *h, uint32_t index, void *out), void *out)
{
	uint32_t n = h->cfg.loader->store->experts;

	for (uint32_t i = 0; i < n;) {
		uint32_t end = n - i < SNAPSHOT_PIECE ? n : i + SNAPSHOT_PIECE;
		pthread_mutex_lock(&h->lock);
		for (; i < end; i++)
			one(h, i, out);
		pthread_mutex_unlock(&h->lock);
		sched_yield(); /* who waits for the lock would seldom get it otherwise */
	}
}

static void put_info(const struct hotstore *h, uint32_t index, void *out)
{
	describe(h, index, (struct hot_info *)out + index);
}

void hotstore_snapshot(struct hotstore *h, struct hot_info *info)
{
	visit_all(h, put_info, info);
}

static void put_loads(const struct hotstore *h, uint32_t index, void *out)
{
	((uint64_t *)out)[index] = h->slot[index].loads;
}

void hotstore_loads(struct hotstore *h, uint64_t *loads)
{
	visit_all(h, put_loads, loads);
}

void hotstore_seed(struct hotstore *h, uint32_t index, const struct hot_info *info)
{
	struct slot *s = &h->slot[index];

	pthread_mutex_lock(&h->lock);
	s->heat = info->heat;
	s->heat_at = h->stats.opens;
	s->uses = info->uses;
	s->loads = info->loads;
	s->last_use = info->last_use;
	s->load_ns = info->load_ns;
	cp_seed(h->cache, key_of(h, index), info->heat);
	pthread_mutex_unlock(&h->lock);
}

void hotstore_stats(struct hotstore *h, struct hotstore_stats *out)
{
	uint64_t used = backing_source_used(h->cfg.source), owned;

	pthread_mutex_lock(&h->lock);
	*out = h->stats;
	cp_stats(h->cache, &out->policy);
	out->policy.evictions -= h->never_came;
	out->mapped = h->n_mapped;
	out->pinned_bytes = h->pinned_bytes;
	out->capacity = h->capacity;
	out->ready_bytes = pool_bytes(h->pool);
	rates_minute(&h->rates, clock_ns(), &out->opens_1m, &out->hits_1m);
	out->load_ms_p50 = histogram_ms(&h->latency, 0.50);
	out->load_ms_p95 = histogram_ms(&h->latency, 0.95);
	out->load_ms_p99 = histogram_ms(&h->latency, 0.99);
	pthread_mutex_unlock(&h->lock);
	/* What the tmpfs holds beyond what is ours was dropped and is mapped still. */
	owned = out->policy.used + out->ready_bytes;
	out->mapped_bytes = used > owned ? used - owned : 0;
}
