/* SPDX-License-Identifier: Apache-2.0
 *
 * The policies by name, and the calls through their table. What every policy must hold, whatever it
 * decides, is asserted here, once for all of them; what goes into a cache is checked here as well.
 */
#include "cachepolicy/policies.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static const struct cp_policy *const policies[] = { &cp_lru };
static const char *const names[] = { "lru", NULL };

_Static_assert(sizeof(names) / sizeof(names[0]) == sizeof(policies) / sizeof(policies[0]) + 1,
	       "one name a policy");

const struct cp_policy *cp_policy_find(const char *name)
{
	for (size_t i = 0; names[i]; i++) {
		assert(strcmp(names[i], policies[i]->name) == 0);
		if (strcmp(name, names[i]) == 0)
			return policies[i];
	}
	return NULL;
}

const char *const *cp_policy_names(void)
{
	return names;
}

int cp_create(const struct cp_policy *policy, const struct cp_config *cfg, struct cp_cache **out)
{
	int err;

	/* A key has 16 bits for each of the two. */
	if (cfg->layers < 1 || cfg->layers > 0x10000 || cfg->experts < 1 || cfg->experts > 0x10000)
		return -EINVAL;
	err = policy->create(cfg, out);
	assert(err || (*out)->policy == policy);
	return err;
}

void cp_destroy(struct cp_cache *c)
{
	if (c)
		c->policy->destroy(c);
}

void cp_event(struct cp_cache *c, uint64_t now, const struct cp_use *uses, size_t n)
{
	c->policy->event(c, now, uses, n);
}

bool cp_fits(const struct cp_cache *c, uint64_t bytes)
{
	struct cp_stats s;

	c->policy->stats(c, &s);
	return s.used <= s.capacity && bytes <= s.capacity - s.used;
}

int cp_admit(struct cp_cache *c, cp_key key, uint64_t bytes)
{
	int err = c->policy->admit(c, key, bytes);

	assert(err || (c->policy->resident(c, key) && cp_fits(c, 0)));
	return err;
}

bool cp_victim(struct cp_cache *c, cp_key *key)
{
	bool found = c->policy->victim(c, key);

	assert(!found || c->policy->resident(c, *key));
	return found;
}

void cp_touch(struct cp_cache *c, uint64_t now, cp_key key)
{
	c->policy->touch(c, now, key);
}

bool cp_pin(struct cp_cache *c, cp_key key)
{
	return c->policy->pin(c, key);
}

bool cp_unpin(struct cp_cache *c, cp_key key)
{
	return c->policy->unpin(c, key);
}

bool cp_remove(struct cp_cache *c, cp_key key)
{
	bool removed = c->policy->remove(c, key);

	assert(!c->policy->resident(c, key));
	return removed;
}

bool cp_resident(const struct cp_cache *c, cp_key key)
{
	return c->policy->resident(c, key);
}

void cp_resize(struct cp_cache *c, uint64_t capacity)
{
	c->policy->resize(c, capacity);
}

void cp_stats(const struct cp_cache *c, struct cp_stats *out)
{
	c->policy->stats(c, out);
	assert(out->pinned <= out->entries && out->hits <= out->uses &&
	       out->entries == out->admissions - out->evictions);
}
