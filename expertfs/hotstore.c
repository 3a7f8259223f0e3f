/* SPDX-License-Identifier: Apache-2.0
 *
 * Open and release, room and eviction; see hotstore.h.
 *
 *	hotstore_open --- resident -------------------------------> opened()
 *	      |      \--- loading: joins slot->waiters                  ^
 *	      |       \-- cold: hot_admit, job --> loader thread: load, freeze, register
 *	      +---------- no room:         job --> loader thread: prove_expert
 *
 * While an expert is open unkept it is not admitted, and while it is held all opens get its
 * backing: the kernel refuses (EIO) a direct handle beside a passthrough handle on one inode, and
 * since it acts on our replies in the openers' own time, only never having both outstanding is safe.
 *
 * A reader may close an expert and keep its mapping, which the kernel does not tell. So what is to
 * go is asked first whether it is idle (backing_idle()): if it is, its memory serves the next
 * expert; if not, evicting it would free nothing, and it stays, pinned, until the mapping has ended.
 */
#include "expertfs/hotstore.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/clock.h"
#include "expertfs/fail.h"
#include "expertfs/hot_parts.h"

/* Memory that lies ready while the store fills: as much as a token's layer asks for at once. */
#define READY_MAX 8

void hot_set_state(struct hotstore *h, struct slot *s, enum hot_state state)
{
	h->stats.resident += (state == HOT_RESIDENT) - (uint64_t)(s->state == HOT_RESIDENT);
	h->stats.loading += (state == HOT_LOADING) - (uint64_t)(s->state == HOT_LOADING);
	s->state = state;
}

void hot_hold(struct hotstore *h, struct slot *s, bool kept, int n)
{
	bool before = s->handles || s->unkept;

	if (kept)
		s->handles += (uint32_t)n;
	else
		s->unkept += (uint32_t)n;
	h->stats.held += (s->handles || s->unkept) - (uint64_t)before;
}

/* -- room ---------------------------------------------------------------------------------------- */

void hot_recycle(struct hotstore *h, struct evicted *gone, uint64_t bytes, struct backing *spare)
{
	while (gone) {
		struct evicted *next = gone->next;
		struct backing *b = &gone->backing;
		bool idle = backing_source_proves(h->cfg.source); /* hot_evict() has proved it */
		if (idle && spare && spare->fd < 0 && b->mapped == shard_round_up(bytes) &&
		    backing_thaw(b, bytes, h->cfg.fuse_fd) == 0) {
			*spare = *b;
			*b = (struct backing){ .fd = -1 };
		} else if (idle && pool_wants(h->pool, b->mapped) &&
			   backing_thaw(b, b->bytes, h->cfg.fuse_fd) == 0) {
			pool_give(h->pool, b);
		}
		backing_drop(b, h->cfg.fuse_fd);
		free(gone);
		gone = next;
	}
}

/* Still mapped, it stays; that is looked at again from time to time. */
static void keep_mapped(struct hotstore *h, uint32_t index)
{
	h->slot[index].mapped = true;
	h->mapped[h->n_mapped++] = index;
	cp_pin(h->cache, key_of(h, index));
}

void hot_look_at_mapped(struct hotstore *h)
{
	for (uint32_t i = 0; i < h->n_mapped;) {
		uint32_t index = h->mapped[i];
		struct slot *s = &h->slot[index];
		if (s->handles == 0 && !backing_idle(h->cfg.source, &s->backing)) {
			i++;
			continue;
		}
		s->mapped = false;
		h->mapped[i] = h->mapped[--h->n_mapped];
		cp_unpin(h->cache, key_of(h, index));
	}
}

bool hot_evict(struct hotstore *h, uint32_t index, struct evicted **gone)
{
	struct slot *s = &h->slot[index];
	struct evicted *v;

	if (backing_source_proves(h->cfg.source) && !backing_idle(h->cfg.source, &s->backing)) {
		if (!s->mapped)
			keep_mapped(h, index);
		return false;
	}
	v = malloc(sizeof(*v));
	if (!v)
		return false;
	*v = (struct evicted){ .next = *gone, .backing = s->backing };
	*gone = v;
	s->backing = (struct backing){ .fd = -1 };
	hot_set_state(h, s, HOT_COLD);
	h->stats.prefetch_wasted += s->guessed;
	s->guessed = false;
	cp_remove(h->cache, key_of(h, index));
	return true;
}

bool hot_has_room(struct hotstore *h, uint64_t cost)
{
	return cp_fits(h->cache, cost) || pool_bytes(h->pool) >= cost;
}

/* Until the expert fits: takes what lies ready, or evicts. False if what is left is held, loading,
 * pinned or mapped, if the policy would rather not keep it, or memory is out. Lock held.
 *
 * The policy lets no member of the running layer event go. A long prompt may ask one layer for more
 * experts than there is room for, one after the other, and those that it has released are worth
 * less than a second read of each that comes: then the event is ended. */
static bool make_room(struct hotstore *h, uint32_t want, enum effort effort, struct backing *spare,
		      struct evicted **gone)
{
	uint64_t bytes = expert_of(h, want)->bytes, cost = backing_cost(h->cfg.source, bytes);
	bool looked = h->n_mapped == 0;
	cp_key key;

	if (cost > h->capacity)
		return false;
	while (!cp_fits(h->cache, cost)) {
		if (spare->fd < 0 && pool_yield(h->pool, bytes, spare)) {
			hot_set_room(h);
			continue;
		}
		if (effort == TAKE_FREE)
			return false;
		if (cp_victim_for(h->cache, key_of(h, want), &key)) {
			uint32_t index = hot_index_of(h, key);
			if (!hot_evict(h, index, gone) && !h->slot[index].mapped)
				return false;
			continue;
		}
		if (cp_victim(h->cache, &key))
			return false; /* some may go, but the policy would rather not keep this one */
		if (!looked) {
			hot_look_at_mapped(h);
			looked = true;
			continue;
		}
		if (effort != END_EVENT)
			return false;
		cp_event(h->cache, clock_ns(), NULL, 0);
		effort = MAY_EVICT;
	}
	return true;
}

bool hot_admit(struct hotstore *h, uint32_t index, enum drive_class class, enum effort effort,
	       struct backing *spare, struct evicted **gone)
{
	uint64_t cost = backing_cost(h->cfg.source, expert_of(h, index)->bytes);
	struct slot *s = &h->slot[index];
	cp_key key = key_of(h, index);

	if (s->unkept || !make_room(h, index, effort, spare, gone) ||
	    cp_admit(h->cache, key, cost) != 0) {
		if (spare->fd >= 0)
			pool_return(h->pool, spare);
		hot_set_room(h);
		return false;
	}
	cp_pin(h->cache, key);
	hot_set_state(h, s, HOT_LOADING);
	s->urgency.class = class;
	return true;
}

void hot_let_go(struct hotstore *h, struct evicted *gone)
{
	uint64_t bytes = 0;

	if (!gone)
		return;
	for (const struct evicted *v = gone; v; v = v->next)
		bytes += backing_cost(h->cfg.source, v->backing.bytes);
	h->leaving += bytes;
	hot_set_room(h);
	pthread_mutex_unlock(&h->lock);
	hot_recycle(h, gone, 0, NULL);
	pthread_mutex_lock(&h->lock);
	h->leaving -= bytes;
	hot_set_ready(h);
}

/* -- open and release ---------------------------------------------------------------------------- */

/* A cold expert is asked for: decides under the lock how it is served, then starts that. */
static void start_miss(struct hotstore *h, uint32_t index, struct waiter *w, struct job *j)
{
	struct slot *s = &h->slot[index];
	struct evicted *gone = NULL;

	*j = (struct job){ .index = index, .kind = JOB_FILL, .spare.fd = -1 };
	if (hot_admit(h, index, DRIVE_DEMAND, END_EVENT, &j->spare, &gone)) {
		s->waiters = w;
	} else {
		h->stats.unkept++;
		hot_hold(h, s, false, 1);
		j->kind = JOB_PROVE;
		j->unkept = w;
		hot_let_go(h, gone); /* went in vain */
		gone = NULL;
	}
	pthread_mutex_unlock(&h->lock);
	/* Before the new one takes its memory. */
	hot_recycle(h, gone, expert_of(h, index)->bytes, &j->spare);
	hot_push(h, QUEUE_DEMAND, j);
}

/* On its way: a load that nobody waited for becomes urgent. Lock held; it is given back. */
static void join_load(struct hotstore *h, uint32_t index, struct waiter *w)
{
	struct slot *s = &h->slot[index];
	bool raise = s->urgency.class != DRIVE_DEMAND;

	w->next = s->waiters;
	s->waiters = w;
	s->urgency.class = DRIVE_DEMAND;
	h->stats.prefetch_used += s->guessed;
	s->guessed = false;
	pthread_mutex_unlock(&h->lock);
	if (raise)
		loader_raise(h->cfg.loader, &s->urgency);
}

/* Not in memory: who asks waits. Lock held; it is given back. */
static void miss(struct hotstore *h, uint32_t index, void *who, uint64_t now)
{
	struct hot_open o = { .index = index, .err = -ENOMEM };
	bool cold = h->slot[index].state == HOT_COLD;
	struct waiter *w = malloc(sizeof(*w));
	struct job *j = cold ? malloc(sizeof(*j)) : NULL;

	h->stats.misses++;
	rates_count(&h->rates, now, false);
	if (!w || (cold && !j)) {
		pthread_mutex_unlock(&h->lock);
		free(w);
		free(j);
		h->cfg.opened(who, &o);
		return;
	}
	*w = (struct waiter){ .who = who, .since = now };
	if (cold)
		start_miss(h, index, w, j); /* unlocks */
	else
		join_load(h, index, w); /* unlocks */
}

/* Lock held. */
static void count_open(struct hotstore *h, uint32_t index, uint64_t now)
{
	h->stats.opens++;
	hot_count_use(h, index, now);
	cp_open(h->cache, now, (struct cp_use){ .key = key_of(h, index), .weight = 1 });
}

static void count_hit(struct hotstore *h, struct slot *s, uint64_t now)
{
	h->stats.hits++;
	rates_count(&h->rates, now, true);
	h->stats.prefetch_used += s->guessed;
	s->guessed = false;
}

void hotstore_open(struct hotstore *h, uint32_t index, void *who)
{
	struct slot *s = &h->slot[index];
	struct hot_open o = { .index = index, .kept = true };
	uint64_t now = clock_ns();

	pthread_mutex_lock(&h->lock);
	count_open(h, index, now);
	if (s->state != HOT_RESIDENT) {
		miss(h, index, who, now); /* unlocks */
		return;
	}
	count_hit(h, s, now);
	if (s->handles == 0)
		cp_pin(h->cache, key_of(h, index));
	hot_hold(h, s, true, 1);
	o.backing_id = s->backing.id;
	pthread_mutex_unlock(&h->lock);
	h->cfg.opened(who, &o);
}

int hotstore_use(struct hotstore *h, uint32_t index)
{
	struct slot *s = &h->slot[index];
	uint64_t now = clock_ns();

	pthread_mutex_lock(&h->lock);
	bool resident = s->state == HOT_RESIDENT;
	if (resident) {
		count_open(h, index, now);
		count_hit(h, s, now);
	}
	pthread_mutex_unlock(&h->lock);
	return resident ? 0 : -ENXIO;
}

void hotstore_release(struct hotstore *h, uint32_t index, bool kept)
{
	struct slot *s = &h->slot[index];

	pthread_mutex_lock(&h->lock);
	hot_hold(h, s, kept, -1);
	if (kept && s->handles == 0)
		cp_unpin(h->cache, key_of(h, index));
	pthread_mutex_unlock(&h->lock);
}

const void *hotstore_bytes(struct hotstore *h, uint32_t index)
{
	const void *map;

	/* It is fixed while the caller holds it open. But that it was made before, by another thread,
	 * only the kernel's messages tell, and they order nothing here. */
	pthread_mutex_lock(&h->lock);
	map = h->slot[index].backing.map;
	pthread_mutex_unlock(&h->lock);
	return map;
}

/* -- start and end ------------------------------------------------------------------------------- */

/* The size that most experts of the store have, if any has the majority. */
static uint64_t common_size(const struct store *s)
{
	uint64_t common = 0, votes = 0;

	for (uint32_t i = 0; i < s->experts; i++) {
		if (votes == 0)
			common = s->expert[i].bytes;
		votes = s->expert[i].bytes == common ? votes + 1 : votes - 1;
	}
	return common;
}

void hot_set_room(struct hotstore *h)
{
	uint64_t taken = pool_bytes(h->pool) + h->leaving;

	cp_resize(h->cache, h->capacity > taken ? h->capacity - taken : 0);
}

void hot_set_ready(struct hotstore *h)
{
	uint64_t cost = backing_cost(h->cfg.source, h->common), n = 0;
	struct cp_stats st;

	cp_stats(h->cache, &st);
	if (h->capacity > st.used + h->leaving)
		n = (h->capacity - st.used - h->leaving) / cost;
	pool_resize(h->pool, n < READY_MAX ? (uint32_t)n : READY_MAX);
	hot_set_room(h);
}

static int allocate(struct hotstore *h)
{
	const struct store *s = h->cfg.loader->store;
	struct cp_config pc = { .capacity = h->cfg.capacity,
				.layers = s->layers_end,
				.experts = s->experts_per_layer };
	int err;

	h->slot = calloc(s->experts, sizeof(*h->slot));
	h->mapped = calloc(s->experts, sizeof(*h->mapped));
	if (!h->slot || !h->mapped)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->experts; i++)
		h->slot[i].backing.fd = -1;
	err = cp_create_spec(h->cfg.policy, &pc, &h->cache);
	if (err)
		return err;
	h->common = common_size(s);
	h->pool = pool_new(h->cfg.source, h->common, 0);
	if (!h->pool)
		return -ENOMEM;
	hot_set_ready(h);
	return 0;
}

int hotstore_create(const struct hotstore_config *cfg, struct hotstore **out, char *why)
{
	struct hotstore *h = calloc(1, sizeof(*h));
	int err;

	if (!h)
		return fail(why, ENOMEM, "out of memory");
	h->cfg = *cfg;
	h->capacity = cfg->capacity;
	h->half_life = 16.0 * cfg->loader->store->experts;
	snprintf(h->stats.spec, sizeof(h->stats.spec), "%s", cfg->policy);
	for (int q = 0; q < QUEUES; q++)
		h->queue[q].tail = &h->queue[q].head;
	pthread_mutex_init(&h->lock, NULL);
	pthread_cond_init(&h->wanted, NULL);
	if (allocate(h) != 0) {
		hotstore_destroy(h);
		return fail(why, ENOMEM, "out of memory for the tables of %u experts",
			    cfg->loader->store->experts);
	}
	for (err = 0; !err && h->threads < LOADERS; h->threads += !err)
		err = pthread_create(&h->thread[h->threads], NULL, hot_loader_main, h);
	if (err) {
		hotstore_destroy(h);
		return fail(why, err, "cannot start a loader thread: %s", strerror(err));
	}
	*out = h;
	return 0;
}

void hotstore_destroy(struct hotstore *h)
{
	if (!h)
		return;
	pthread_mutex_lock(&h->lock);
	h->stop = true;
	pthread_cond_broadcast(&h->wanted);
	pthread_mutex_unlock(&h->lock);
	for (int i = 0; i < h->threads; i++)
		pthread_join(h->thread[i], NULL);
	hot_drop_jobs(h);
	pool_free(h->pool);
	for (uint32_t i = 0; h->slot && i < h->cfg.loader->store->experts; i++)
		backing_drop(&h->slot[i].backing, h->cfg.fuse_fd);
	cp_destroy(h->cache);
	pthread_cond_destroy(&h->wanted);
	pthread_mutex_destroy(&h->lock);
	free(h->mapped);
	free(h->slot);
	free(h);
}
