/* SPDX-License-Identifier: Apache-2.0
 *
 * The cache that all policies share: who is resident, pinned, or a member of the running event,
 * and the counts; the policy below it is told as policies.h says. What must hold whatever a policy
 * decides is asserted here, once for all of them.
 *
 * Every call takes constant time besides what the policy takes, event() for each of its uses.
 */
#include "cachepolicy/policies.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct cp_cache {
	struct cp_order *order;
	struct cp_stats stats;
	uint32_t layers, experts;
	uint32_t first_member, last_member; /* of the running event, in order; CP_NONE if none */
	uint32_t named, named_for;          /* the last answer of victim() while it stands */
	struct cp_entry entry[];
};

/* A key's place in the table. False if it lies outside the geometry. */
static bool index_of(const struct cp_cache *c, cp_key key, uint32_t *index)
{
	uint32_t layer = key >> 16, expert = key & 0xffff;

	if (layer >= c->layers || expert >= c->experts)
		return false;
	*index = layer * c->experts + expert;
	return true;
}

static cp_key key_of(const struct cp_cache *c, uint32_t i)
{
	return cp_key_of(i / c->experts, i % c->experts);
}

static bool find_resident(const struct cp_cache *c, cp_key key, uint32_t *i)
{
	return index_of(c, key, i) && c->entry[*i].resident;
}

static void hold(struct cp_cache *c, uint32_t i)
{
	if (c->order->policy->hold)
		c->order->policy->hold(c->order, i);
}

static void release(struct cp_cache *c, uint32_t i)
{
	c->order->policy->release(c->order, i);
}

static void changed(struct cp_cache *c)
{
	c->named = CP_NONE;
}

static int create(const struct cp_policy *policy, const char *spec, const struct cp_config *cfg,
		  struct cp_cache **out)
{
	uint64_t n = (uint64_t)cfg->layers * cfg->experts;
	struct cp_order shape = { .capacity = cfg->capacity };
	struct cp_cache *c;
	int err;

	/* A key has 16 bits for each of the two; lists need some places more than n. */
	if (cfg->layers < 1 || cfg->layers > 0x10000 || cfg->experts < 1 ||
	    cfg->experts > 0x10000 || n > UINT32_MAX - 16)
		return -EINVAL;
	c = calloc(1, sizeof(*c) + n * sizeof(c->entry[0]));
	if (!c)
		return -ENOMEM;
	c->layers = shape.layers = cfg->layers;
	c->experts = shape.experts = cfg->experts;
	c->stats.capacity = cfg->capacity;
	c->first_member = c->last_member = c->named = CP_NONE;
	shape.n = (uint32_t)n;
	shape.entry = c->entry;
	err = policy ? cp_order_create(policy, NULL, &shape, &c->order)
		     : cp_order_create_spec(spec, &shape, &c->order);
	if (err) {
		free(c);
		return err;
	}
	*out = c;
	return 0;
}

int cp_create(const struct cp_policy *policy, const struct cp_config *cfg, struct cp_cache **out)
{
	return create(policy, NULL, cfg, out);
}

int cp_create_spec(const char *spec, const struct cp_config *cfg, struct cp_cache **out)
{
	int err = cp_spec_check(spec);

	return err ? err : create(NULL, spec, cfg, out);
}

void cp_destroy(struct cp_cache *c)
{
	if (!c)
		return;
	cp_order_destroy(c->order);
	free(c);
}

const char *cp_name(const struct cp_cache *c)
{
	return c->order->policy->name;
}

struct cp_order *cp_order_of(struct cp_cache *c)
{
	return c->order;
}

static void enter(struct cp_cache *c, uint32_t i)
{
	if (c->order->policy->admit)
		c->order->policy->admit(c->order, i);
	if (!cp_held(c->order, i))
		release(c, i);
}

/* The old order is asked for its victims one after the other until it has none left: that is what
 * it knows. What is held is in neither order now, and comes to the new one like the rest. */
int cp_switch(struct cp_cache *c, const char *spec)
{
	struct cp_order *old = c->order, *fresh, shape = *old;
	uint32_t i;
	int err;

	err = cp_spec_check(spec);
	if (err)
		return err;
	changed(c);
	if (cp_order_retune(old, spec))
		return 0;
	err = cp_order_create_spec(spec, &shape, &fresh);
	if (err)
		return err;
	while ((i = old->policy->victim(old, CP_NONE)) != CP_NONE) {
		if (old->policy->hold)
			old->policy->hold(old, i);
		if (old->policy->remove)
			old->policy->remove(old, i);
		c->order = fresh;
		enter(c, i);
	}
	c->order = fresh;
	for (i = 0; i < fresh->n; i++)
		if (c->entry[i].resident && cp_held(fresh, i))
			enter(c, i);
	cp_order_destroy(old);
	return 0;
}

int cp_set(struct cp_cache *c, const char *name, double value)
{
	changed(c);
	return cp_order_set(c->order, name, value);
}

int cp_get(const struct cp_cache *c, const char *name, double *value)
{
	return cp_order_get(c->order, name, value);
}

void cp_seed(struct cp_cache *c, cp_key key, double heat)
{
	uint32_t i;
	bool idle;

	/* Nothing to be learned from no heat, NaN, or more than any count can be. */
	if (!c->order->policy->seed || !index_of(c, key, &i) || !(heat > 0) || heat > 1e15)
		return;
	changed(c);
	idle = c->entry[i].resident && !cp_held(c->order, i);
	if (idle)
		hold(c, i);
	c->order->policy->seed(c->order, i, heat);
	if (idle)
		release(c, i);
}

static void end_event(struct cp_cache *c)
{
	uint32_t next;

	for (uint32_t i = c->first_member; i != CP_NONE; i = next) {
		struct cp_entry *e = &c->entry[i];

		next = e->next_member;
		e->member = false;
		if (e->resident && !e->pins)
			release(c, i);
	}
	c->first_member = c->last_member = CP_NONE;
}

void cp_join(struct cp_cache *c, uint64_t now, const struct cp_use *uses, size_t n)
{
	(void)now;
	changed(c);
	for (size_t k = 0; k < n; k++) {
		struct cp_entry *e;
		uint32_t i;

		if (!index_of(c, uses[k].key, &i) || c->entry[i].member)
			continue;
		e = &c->entry[i];
		if (e->resident && !e->pins)
			hold(c, i);
		e->member = true;
		e->next_member = CP_NONE;
		if (c->last_member == CP_NONE)
			c->first_member = i;
		else
			c->entry[c->last_member].next_member = i;
		c->last_member = i;
		c->stats.uses++;
		c->stats.hits += e->resident;
		if (c->order->policy->use)
			c->order->policy->use(c->order, i, uses[k].weight ? uses[k].weight : 1);
	}
}

void cp_event(struct cp_cache *c, uint64_t now, const struct cp_use *uses, size_t n)
{
	end_event(c);
	c->stats.events++;
	if (c->order->policy->begin)
		c->order->policy->begin(c->order, now);
	cp_join(c, now, uses, n);
}

void cp_open(struct cp_cache *c, uint64_t now, struct cp_use use)
{
	uint32_t i, layer_start = (use.key >> 16) * c->experts;

	if (!index_of(c, use.key, &i))
		return;
	if (c->first_member != CP_NONE && c->first_member - layer_start < c->experts &&
	    !c->entry[i].member)
		cp_join(c, now, &use, 1);
	else
		cp_event(c, now, &use, 1);
}

bool cp_fits(const struct cp_cache *c, uint64_t bytes)
{
	return c->stats.used <= c->stats.capacity && bytes <= c->stats.capacity - c->stats.used;
}

int cp_admit(struct cp_cache *c, cp_key key, uint64_t bytes)
{
	struct cp_entry *e;
	uint32_t i;

	if (!index_of(c, key, &i) || bytes == 0)
		return -EINVAL;
	e = &c->entry[i];
	if (e->resident)
		return -EEXIST;
	if (!cp_fits(c, bytes))
		return -ENOSPC;
	changed(c);
	e->bytes = bytes;
	e->resident = true;
	c->stats.used += bytes;
	c->stats.entries++;
	c->stats.admissions++;
	enter(c, i);
	return 0;
}

static bool victim(struct cp_cache *c, uint32_t want, cp_key *key)
{
	if (c->named == CP_NONE || c->named_for != want) {
		c->named = c->order->policy->victim(c->order, want);
		c->named_for = want;
	}
	if (c->named == CP_NONE)
		return false;
	assert(c->named < c->order->n && c->entry[c->named].resident &&
	       !cp_held(c->order, c->named));
	*key = key_of(c, c->named);
	return true;
}

bool cp_victim(struct cp_cache *c, cp_key *key)
{
	return victim(c, CP_NONE, key);
}

bool cp_victim_for(struct cp_cache *c, cp_key want, cp_key *key)
{
	uint32_t i;

	return victim(c, index_of(c, want, &i) ? i : CP_NONE, key);
}

void cp_touch(struct cp_cache *c, uint64_t now, cp_key key)
{
	uint32_t i;
	bool idle;

	(void)now;
	if (!find_resident(c, key, &i))
		return;
	changed(c);
	idle = !cp_held(c->order, i);
	if (idle)
		hold(c, i);
	if (c->order->policy->use)
		c->order->policy->use(c->order, i, 1);
	if (idle)
		release(c, i);
}

bool cp_pin(struct cp_cache *c, cp_key key)
{
	struct cp_entry *e;
	uint32_t i;

	if (!find_resident(c, key, &i) || c->entry[i].pins == UINT32_MAX)
		return false;
	e = &c->entry[i];
	changed(c);
	if (!cp_held(c->order, i))
		hold(c, i);
	if (e->pins++ == 0)
		c->stats.pinned++;
	return true;
}

bool cp_unpin(struct cp_cache *c, cp_key key)
{
	struct cp_entry *e;
	uint32_t i;

	if (!find_resident(c, key, &i) || c->entry[i].pins == 0)
		return false;
	e = &c->entry[i];
	changed(c);
	if (--e->pins == 0) {
		c->stats.pinned--;
		if (!e->member)
			release(c, i);
	}
	return true;
}

bool cp_remove(struct cp_cache *c, cp_key key)
{
	struct cp_entry *e;
	uint32_t i;

	if (!find_resident(c, key, &i))
		return false;
	e = &c->entry[i];
	changed(c);
	if (!cp_held(c->order, i))
		hold(c, i);
	if (e->pins)
		c->stats.pinned--;
	e->pins = 0;
	e->resident = false;
	c->stats.used -= e->bytes;
	c->stats.entries--;
	c->stats.evictions++;
	if (c->order->policy->remove)
		c->order->policy->remove(c->order, i);
	return true;
}

bool cp_resident(const struct cp_cache *c, cp_key key)
{
	uint32_t i;

	return find_resident(c, key, &i);
}

void cp_resize(struct cp_cache *c, uint64_t capacity)
{
	changed(c);
	c->stats.capacity = c->order->capacity = capacity;
	if (c->order->policy->resize)
		c->order->policy->resize(c->order);
}

void cp_stats(const struct cp_cache *c, struct cp_stats *out)
{
	*out = c->stats;
	assert(out->pinned <= out->entries && out->hits <= out->uses &&
	       out->entries == out->admissions - out->evictions);
}
