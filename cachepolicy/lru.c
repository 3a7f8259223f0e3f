/* SPDX-License-Identifier: Apache-2.0
 *
 * LRU: the least recently used expert goes first.
 *
 * One table holds an entry for each expert of the model, resident or not: 32 bytes each, so 0.6 MB
 *for 75 layers of 256. An expert that is resident is in one of three places:
 *
 *	idle    a list in order of use, the oldest first: the head is the victim
 *	event   a list of the members of the running event
 *	no list while it is pinned
 *
 * so the victim is found without looking past anything that must stay, and no call but
 * event(), which looks at each of its uses once, does more than relink one entry.
 *
 * A member of an event counts as in use until the next event begins: then the whole event list
 * goes to the end of the idle list, behind what was prefetched meanwhile. In the same way a pinned
 * entry is the most recent one when its last pin goes.
 */
#include "cachepolicy/policies.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

struct entry {
	uint64_t bytes;      /* 0 if not resident */
	uint64_t event;      /* number of the last event that named it, from 1 */
	uint32_t prev, next; /* in the idle or the event list; of no meaning while in neither */
	uint32_t pins;
	cp_key key;
};

struct lru {
	struct cp_cache base;
	struct cp_config cfg;
	struct cp_stats stats; /* stats.events is the number of the running event */
	uint32_t idle, event;  /* the heads: two entries more at the end of the table */
	struct entry table[];  /* layers * experts + 2 */
};

static struct lru *lru_of(struct cp_cache *c)
{
	return (struct lru *)c;
}

static const struct lru *const_lru_of(const struct cp_cache *c)
{
	return (const struct lru *)c;
}

static struct entry *find_resident(struct lru *l, cp_key key)
{
	uint32_t i;

	return cp_index(&l->cfg, key, &i) && l->table[i].bytes ? &l->table[i] : NULL;
}

static bool in_event(const struct lru *l, const struct entry *e)
{
	return e->event && e->event == l->stats.events;
}

static void unlink_entry(struct lru *l, struct entry *e)
{
	l->table[e->prev].next = e->next;
	l->table[e->next].prev = e->prev;
}

/* Links an entry that is in no list as the most recent one of the list where it belongs. */
static void link_entry(struct lru *l, struct entry *e)
{
	uint32_t i = (uint32_t)(e - l->table);
	uint32_t head = in_event(l, e) ? l->event : l->idle;

	e->next = head;
	e->prev = l->table[head].prev;
	l->table[e->prev].next = i;
	l->table[head].prev = i;
}

static void make_empty(struct lru *l, uint32_t head)
{
	l->table[head].prev = l->table[head].next = head;
}

/* The event list, in its order, to the recent end of the idle list. */
static void end_event(struct lru *l)
{
	struct entry *idle = &l->table[l->idle], *event = &l->table[l->event];

	if (event->next == l->event)
		return;
	l->table[idle->prev].next = event->next;
	l->table[event->next].prev = idle->prev;
	l->table[event->prev].next = l->idle;
	idle->prev = event->prev;
	make_empty(l, l->event);
}

static int lru_create(const struct cp_config *cfg, struct cp_cache **out)
{
	uint64_t n = (uint64_t)cfg->layers * cfg->experts;
	struct lru *l;

	if (n > UINT32_MAX - 2)
		return -EINVAL;
	l = calloc(1, sizeof(*l) + (n + 2) * sizeof(l->table[0]));
	if (!l)
		return -ENOMEM;
	l->base.policy = &cp_lru;
	l->cfg = *cfg;
	l->stats.capacity = cfg->capacity;
	for (uint32_t i = 0; i < n; i++)
		l->table[i].key = cp_key_of(i / cfg->experts, i % cfg->experts);
	l->idle = (uint32_t)n;
	l->event = (uint32_t)n + 1;
	make_empty(l, l->idle);
	make_empty(l, l->event);
	*out = &l->base;
	return 0;
}

static void lru_destroy(struct cp_cache *c)
{
	free(lru_of(c));
}

static void lru_event(struct cp_cache *c, uint64_t now, const struct cp_use *uses, size_t n)
{
	struct lru *l = lru_of(c);

	(void)now; /* the order of the calls is all that LRU needs */
	end_event(l);
	l->stats.events++;
	for (size_t k = 0; k < n; k++) {
		struct entry *e;
		uint32_t i;

		if (!cp_index(&l->cfg, uses[k].key, &i))
			continue;
		e = &l->table[i];
		if (in_event(l, e))
			continue;
		e->event = l->stats.events;
		l->stats.uses++;
		if (!e->bytes)
			continue;
		l->stats.hits++;
		if (!e->pins) {
			unlink_entry(l, e);
			link_entry(l, e);
		}
	}
}

static int lru_admit(struct cp_cache *c, cp_key key, uint64_t bytes)
{
	struct lru *l = lru_of(c);
	struct entry *e;
	uint32_t i;

	if (!cp_index(&l->cfg, key, &i) || bytes == 0)
		return -EINVAL;
	e = &l->table[i];
	if (e->bytes)
		return -EEXIST;
	if (l->stats.used > l->stats.capacity || bytes > l->stats.capacity - l->stats.used)
		return -ENOSPC;
	e->bytes = bytes;
	link_entry(l, e);
	l->stats.used += bytes;
	l->stats.entries++;
	l->stats.admissions++;
	return 0;
}

static bool lru_victim(struct cp_cache *c, cp_key *key)
{
	struct lru *l = lru_of(c);
	uint32_t oldest = l->table[l->idle].next;

	if (oldest == l->idle)
		return false;
	assert(l->table[oldest].bytes && !l->table[oldest].pins);
	*key = l->table[oldest].key;
	return true;
}

static void lru_touch(struct cp_cache *c, uint64_t now, cp_key key)
{
	struct lru *l = lru_of(c);
	struct entry *e = find_resident(l, key);

	(void)now;
	if (!e || e->pins)
		return;
	unlink_entry(l, e);
	link_entry(l, e);
}

static bool lru_pin(struct cp_cache *c, cp_key key)
{
	struct lru *l = lru_of(c);
	struct entry *e = find_resident(l, key);

	if (!e || e->pins == UINT32_MAX)
		return false;
	if (e->pins++ == 0) {
		unlink_entry(l, e);
		l->stats.pinned++;
	}
	return true;
}

static bool lru_unpin(struct cp_cache *c, cp_key key)
{
	struct lru *l = lru_of(c);
	struct entry *e = find_resident(l, key);

	if (!e || e->pins == 0)
		return false;
	if (--e->pins == 0) {
		link_entry(l, e);
		l->stats.pinned--;
	}
	return true;
}

static bool lru_remove(struct cp_cache *c, cp_key key)
{
	struct lru *l = lru_of(c);
	struct entry *e = find_resident(l, key);

	if (!e)
		return false;
	if (e->pins)
		l->stats.pinned--;
	else
		unlink_entry(l, e);
	l->stats.used -= e->bytes;
	l->stats.entries--;
	l->stats.evictions++;
	e->bytes = 0;
	e->pins = 0;
	return true;
}

static bool lru_resident(const struct cp_cache *c, cp_key key)
{
	const struct lru *l = const_lru_of(c);
	uint32_t i;

	return cp_index(&l->cfg, key, &i) && l->table[i].bytes;
}

static void lru_resize(struct cp_cache *c, uint64_t capacity)
{
	lru_of(c)->stats.capacity = capacity;
}

static void lru_stats(const struct cp_cache *c, struct cp_stats *out)
{
	*out = const_lru_of(c)->stats;
}

const struct cp_policy cp_lru = {
	.name = "lru",
	.create = lru_create,
	.destroy = lru_destroy,
	.event = lru_event,
	.admit = lru_admit,
	.victim = lru_victim,
	.touch = lru_touch,
	.pin = lru_pin,
	.unpin = lru_unpin,
	.remove = lru_remove,
	.resident = lru_resident,
	.resize = lru_resize,
	.stats = lru_stats,
};
