/* SPDX-License-Identifier: Apache-2.0
 *
 * Slots, admission and the loader threads; see hotstore.h.
 *
 *	hotstore_open --- ready ----------------------------------> opened()
 *	      |      \--- loading: joins slot->waiters                  ^
 *	      |       \-- absent: make_room, admit, job --> loader thread: load, freeze, register
 *	      +---------- no room:                  job --> loader thread: prove_expert
 *
 * A slot is pinned in the policy while it is loading or held, so a victim is always ready and idle.
 *
 * While an expert is open unkept it is not admitted, and while it is held all opens get its
 * backing: the kernel refuses (EIO) a direct handle beside a passthrough handle on one inode, and
 * since it acts on our replies in the openers' own time, only never having both outstanding is safe.
 */
#include "expertfs/hotstore.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/clock.h"
#include "expertfs/fail.h"
#include "expertfs/histogram.h"
#include "expertfs/log.h"

enum slot_state { SLOT_ABSENT, SLOT_LOADING, SLOT_READY };

struct waiter {
	struct waiter *next;
	void *who;
	uint64_t since; /* ns */
};

struct slot {
	enum slot_state state;
	uint32_t handles;       /* opens of the backing that were answered and not released */
	uint32_t unkept;        /* opens without a backing, from the ask to the release */
	struct waiter *waiters; /* while loading */
	struct backing backing; /* while ready */
};

struct job {
	struct job *next;
	uint32_t index;
	struct waiter *unkept; /* the one who waits for a proof; NULL: fill the slot */
};

struct hotstore {
	struct hotstore_config cfg;
	pthread_t thread[LOADERS];
	int threads;

	pthread_mutex_t lock; /* all below */
	pthread_cond_t wanted;
	struct cp_cache *cache;
	struct slot *slot;
	struct job *head, **tail;
	bool stop;
	struct hotstore_stats stats;
	struct histogram latency;
};

static const struct store_expert *expert_of(const struct hotstore *h, uint32_t index)
{
	return &h->cfg.loader.store->expert[index];
}

static cp_key key_of(const struct hotstore *h, uint32_t index)
{
	const struct store_expert *e = expert_of(h, index);

	return cp_key_of(e->layer, e->expert);
}

static uint32_t index_of(const struct hotstore *h, cp_key key)
{
	const struct store *s = h->cfg.loader.store;

	return (uint32_t)(store_find(s, key >> 16, key & 0xffff) - s->expert);
}

/* Backings that were evicted under the lock and are freed after it. */
struct evicted {
	struct evicted *next;
	struct backing backing;
};

static void drop_evicted(struct hotstore *h, struct evicted *list)
{
	while (list) {
		struct evicted *next = list->next;
		backing_drop(&list->backing, h->cfg.fuse_fd);
		free(list);
		list = next;
	}
}

/* Moves a ready, idle expert's memory to the list. False: out of memory. Lock held. */
static bool evict(struct hotstore *h, cp_key key, struct evicted **list)
{
	struct slot *s = &h->slot[index_of(h, key)];
	struct evicted *v = malloc(sizeof(*v));

	if (!v)
		return false;
	*v = (struct evicted){ .next = *list, .backing = s->backing };
	*list = v;
	s->backing = (struct backing){ .fd = -1 };
	s->state = SLOT_ABSENT;
	cp_remove(h->cache, key);
	return true;
}

/* Evicts until bytes fit for `want`. False if what is left is held or loading, if the policy would
 * rather not keep it, or memory is out. Lock held.
 *
 * The policy lets no member of the running layer event go. A long prompt may ask one layer for more
 * experts than there is room for, one after the other, and those that it has released are worth
 * less than a second read of each that comes: then the event is ended. */
static bool make_room(struct hotstore *h, cp_key want, uint64_t bytes, struct evicted **list)
{
	bool event_ended = bytes > h->cfg.capacity;
	cp_key key;

	while (!cp_fits(h->cache, bytes)) {
		if (cp_victim_for(h->cache, want, &key)) {
			if (!evict(h, key, list))
				return false;
		} else if (!event_ended) {
			cp_event(h->cache, clock_ns(), NULL, 0);
			event_ended = true;
		} else {
			return false;
		}
	}
	return true;
}

static void push_job(struct hotstore *h, struct job *j)
{
	pthread_mutex_lock(&h->lock);
	*h->tail = j;
	h->tail = &j->next;
	pthread_cond_signal(&h->wanted);
	pthread_mutex_unlock(&h->lock);
}

/* An absent expert is asked for: decides under the lock how it is served, then starts that. */
static void start_miss(struct hotstore *h, uint32_t index, struct waiter *w, struct job *j)
{
	struct slot *s = &h->slot[index];
	uint64_t cost = backing_cost(h->cfg.source, expert_of(h, index)->bytes);
	struct evicted *gone = NULL;

	if (s->unkept == 0 && make_room(h, key_of(h, index), cost, &gone) &&
	    cp_admit(h->cache, key_of(h, index), cost) == 0) {
		cp_pin(h->cache, key_of(h, index));
		s->state = SLOT_LOADING;
		s->waiters = w;
		*j = (struct job){ .index = index };
	} else {
		h->stats.unkept++;
		s->unkept++;
		*j = (struct job){ .index = index, .unkept = w };
	}
	pthread_mutex_unlock(&h->lock);
	drop_evicted(h, gone); /* before the new one takes its memory */
	push_job(h, j);
}

/* Not in memory: who asks waits. Lock held; it is given back. */
static void miss(struct hotstore *h, uint32_t index, void *who, uint64_t now)
{
	struct hot_open o = { .index = index, .err = -ENOMEM };
	struct slot *s = &h->slot[index];
	bool absent = s->state == SLOT_ABSENT;
	struct waiter *w = malloc(sizeof(*w));
	struct job *j = absent ? malloc(sizeof(*j)) : NULL;

	h->stats.misses++;
	if (!w || (absent && !j)) {
		pthread_mutex_unlock(&h->lock);
		free(w);
		free(j);
		h->cfg.opened(who, &o);
		return;
	}
	*w = (struct waiter){ .who = who, .since = now };
	if (absent) {
		start_miss(h, index, w, j); /* unlocks */
		return;
	}
	w->next = s->waiters;
	s->waiters = w;
	pthread_mutex_unlock(&h->lock);
}

void hotstore_open(struct hotstore *h, uint32_t index, void *who)
{
	struct slot *s = &h->slot[index];
	struct hot_open o = { .index = index, .kept = true };
	struct cp_use use = { .key = key_of(h, index), .weight = 1 };
	uint64_t now = clock_ns();

	pthread_mutex_lock(&h->lock);
	h->stats.opens++;
	cp_open(h->cache, now, use);
	if (s->state != SLOT_READY) {
		miss(h, index, who, now); /* unlocks */
		return;
	}
	h->stats.hits++;
	if (s->handles++ == 0)
		cp_pin(h->cache, use.key);
	o.backing_id = s->backing.id;
	pthread_mutex_unlock(&h->lock);
	h->cfg.opened(who, &o);
}

void hotstore_release(struct hotstore *h, uint32_t index, bool kept)
{
	struct slot *s = &h->slot[index];

	pthread_mutex_lock(&h->lock);
	if (!kept)
		s->unkept--;
	else if (--s->handles == 0)
		cp_unpin(h->cache, key_of(h, index));
	pthread_mutex_unlock(&h->lock);
}

const void *hotstore_bytes(struct hotstore *h, uint32_t index)
{
	return h->slot[index].backing.map; /* fixed while the caller holds it open */
}

static const struct urgency demand = { DRIVE_DEMAND };

/* Memory, bytes, proof, registration: everything that a reader needs. */
static int fill(struct hotstore *h, uint32_t index, struct backing *b, char *why)
{
	const struct store_expert *e = expert_of(h, index);
	int err = backing_new(h->cfg.source, e->bytes, b);

	if (err)
		return fail(why, -err, "expert %u/%u: no memory of %llu bytes: %s", e->layer,
			    e->expert, (unsigned long long)e->bytes, strerror(-err));
	err = load_expert(&h->cfg.loader, index, &demand, b->map, why);
	if (!err) {
		err = backing_freeze(b, !h->cfg.passthrough);
		if (!err && h->cfg.passthrough)
			err = backing_register(b, h->cfg.fuse_fd);
		if (err)
			fail(why, -err, "expert %u/%u: cannot be handed to the kernel: %s",
			     e->layer, e->expert, strerror(-err));
	}
	if (err)
		backing_drop(b, h->cfg.fuse_fd);
	return err;
}

/* Makes a loading slot ready or absent again; *o gets what its waiters are told. Lock held. */
static struct waiter *settle(struct hotstore *h, uint32_t index, const struct backing *b,
			     struct hot_open *o)
{
	struct slot *s = &h->slot[index];
	struct waiter *list = s->waiters;

	s->waiters = NULL;
	for (struct waiter *w = list; w; w = w->next) {
		histogram_add(&h->latency, clock_ns() - w->since);
		if (o->err)
			h->stats.errors++;
		else
			s->handles++;
	}
	if (o->err) {
		s->state = SLOT_ABSENT;
		cp_remove(h->cache, key_of(h, index));
	} else {
		s->state = SLOT_READY;
		s->backing = *b;
		o->backing_id = b->id;
	}
	return list;
}

static void answer(struct hotstore *h, struct waiter *list, const struct hot_open *o)
{
	while (list) {
		struct waiter *next = list->next;
		h->cfg.opened(list->who, o);
		free(list);
		list = next;
	}
}

static void run_fill(struct hotstore *h, uint32_t index)
{
	struct hot_open o = { .index = index, .kept = true };
	struct backing b = { .fd = -1 };
	struct waiter *list;
	char why[WHY_MAX];

	o.err = fill(h, index, &b, why);
	if (o.err)
		log_line(LOG_ERR, "%s", why);
	pthread_mutex_lock(&h->lock);
	list = settle(h, index, &b, &o);
	pthread_mutex_unlock(&h->lock);
	answer(h, list, &o);
}

static void run_proof(struct hotstore *h, const struct job *j)
{
	struct hot_open o = { .index = j->index };
	char why[WHY_MAX];

	o.err = prove_expert(&h->cfg.loader, j->index, &o.copy, why);
	if (o.err)
		log_line(LOG_ERR, "%s", why);
	pthread_mutex_lock(&h->lock);
	histogram_add(&h->latency, clock_ns() - j->unkept->since);
	if (o.err) {
		h->stats.errors++;
		h->slot[j->index].unkept--;
	}
	pthread_mutex_unlock(&h->lock);
	answer(h, j->unkept, &o);
}

static void *loader_main(void *arg)
{
	struct hotstore *h = arg;

	for (;;) {
		struct job *j;
		pthread_mutex_lock(&h->lock);
		while (!h->head && !h->stop)
			pthread_cond_wait(&h->wanted, &h->lock);
		j = h->stop ? NULL : h->head;
		if (j) {
			h->head = j->next;
			if (!h->head)
				h->tail = &h->head;
		}
		pthread_mutex_unlock(&h->lock);
		if (!j)
			return NULL;
		if (j->unkept)
			run_proof(h, j);
		else
			run_fill(h, j->index);
		free(j);
	}
}

int hotstore_create(const struct hotstore_config *cfg, struct hotstore **out, char *why)
{
	const struct store *s = cfg->loader.store;
	struct cp_config pc = { .capacity = cfg->capacity,
				.layers = s->layers_end,
				.experts = s->experts_per_layer };
	struct hotstore *h = calloc(1, sizeof(*h));
	int err = 0;

	if (h)
		h->slot = calloc(s->experts, sizeof(*h->slot));
	if (!h || !h->slot || cp_create_spec(cfg->policy, &pc, &h->cache) != 0) {
		if (h)
			free(h->slot);
		free(h);
		return fail(why, ENOMEM, "out of memory for the tables of %u experts", s->experts);
	}
	for (uint32_t i = 0; i < s->experts; i++)
		h->slot[i].backing.fd = -1;
	h->cfg = *cfg;
	snprintf(h->stats.spec, sizeof(h->stats.spec), "%s", cfg->policy);
	h->tail = &h->head;
	pthread_mutex_init(&h->lock, NULL);
	pthread_cond_init(&h->wanted, NULL);
	for (; !err && h->threads < LOADERS; h->threads += !err)
		err = pthread_create(&h->thread[h->threads], NULL, loader_main, h);
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
	while (h->head) { /* jobs that no thread began */
		struct job *j = h->head;
		struct hot_open o = { .index = j->index, .err = -ENODEV };
		h->head = j->next;
		answer(h, j->unkept ? j->unkept : h->slot[j->index].waiters, &o);
		free(j);
	}
	for (uint32_t i = 0; i < h->cfg.loader.store->experts; i++)
		backing_drop(&h->slot[i].backing, h->cfg.fuse_fd);
	cp_destroy(h->cache);
	pthread_cond_destroy(&h->wanted);
	pthread_mutex_destroy(&h->lock);
	free(h->slot);
	free(h);
}

/* "name:key=value,...": each parameter of the policy that runs already. */
static int tune(struct cp_cache *cache, const char *params)
{
	char copy[HOTSTORE_SPEC], *save;
	int err = 0;

	snprintf(copy, sizeof(copy), "%s", params);
	for (char *one = strtok_r(copy, ",", &save); one && !err;
	     one = strtok_r(NULL, ",", &save)) {
		char *value = strchr(one, '=');
		if (!value)
			return -EINVAL;
		*value++ = 0;
		err = cp_set(cache, one, strtod(value, NULL)); /* cp_spec_check() has seen it */
	}
	return err;
}

int hotstore_set_policy(struct hotstore *h, const char *spec)
{
	size_t n = strcspn(spec, ":");
	int err = cp_spec_check(spec);

	if (err || strlen(spec) >= HOTSTORE_SPEC)
		return -EINVAL;
	pthread_mutex_lock(&h->lock);
	if (spec[n] && strncmp(spec, "quota:", 6) != 0 && strlen(cp_name(h->cache)) == n &&
	    strncmp(cp_name(h->cache), spec, n) == 0)
		err = tune(h->cache, spec + n + 1);
	else
		err = cp_switch(h->cache, spec);
	if (!err)
		snprintf(h->stats.spec, sizeof(h->stats.spec), "%s", spec);
	pthread_mutex_unlock(&h->lock);
	return err;
}

void hotstore_stats(struct hotstore *h, struct hotstore_stats *out)
{
	pthread_mutex_lock(&h->lock);
	*out = h->stats;
	cp_stats(h->cache, &out->policy);
	for (uint32_t i = 0; i < h->cfg.loader.store->experts; i++) {
		out->resident += h->slot[i].state == SLOT_READY;
		out->loading += h->slot[i].state == SLOT_LOADING;
		out->held += h->slot[i].handles > 0 || h->slot[i].unkept > 0;
	}
	out->load_ms_p50 = histogram_ms(&h->latency, 0.50);
	out->load_ms_p95 = histogram_ms(&h->latency, 0.95);
	out->load_ms_p99 = histogram_ms(&h->latency, 0.99);
	pthread_mutex_unlock(&h->lock);
}
