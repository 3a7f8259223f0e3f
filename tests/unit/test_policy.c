/* SPDX-License-Identifier: Apache-2.0
 *
 * Cache policies: what policy.h promises, point by point and of every policy, and event-atomic
 * replay against traces whose result is known. What each policy decides is in test_policy_lists.c
 * and test_policy_scores.c.
 */
#include "tests/unit/policy_model.h"

#include <time.h>

/* All policies, and some with parameters. Each test takes them in turn. */
static const char *specs[64];

static void collect_specs(void)
{
	size_t n = 0;

	for (const char *const *name = cp_policy_names(); *name; name++)
		specs[n++] = *name;
	specs[n++] = "lfru:weight=1,half_life=2";
	specs[n++] = "quota:arc";
	specs[n++] = "quota:lfru:weight=0";
}

/* -- traces whose result is known ------------------------------------------------------------------ */

struct event {
	unsigned layer, n;
	unsigned expert[4];
};

/* Serves the events one after the other, every expert one slot; returns the misses of each. */
static void replay(struct cp_cache *c, const struct event *events, size_t n, unsigned *misses)
{
	for (size_t e = 0; e < n; e++) {
		struct cp_use uses[4];
		cp_key victim;
		misses[e] = 0;
		for (unsigned k = 0; k < events[e].n; k++)
			uses[k] = (struct cp_use){ cp_key_of(events[e].layer, events[e].expert[k]),
						   1 };
		cp_event(c, e, uses, events[e].n);
		for (unsigned k = 0; k < events[e].n; k++) {
			if (cp_resident(c, uses[k].key))
				continue;
			misses[e]++;
			while (!cp_fits(c, 1) && cp_victim(c, &victim))
				assert_true(cp_remove(c, victim));
			cp_admit(c, uses[k].key, 1);
		}
	}
}

/* The event-atomic toy trace of arXiv 2608.07911 (its repository shijiuzhang/moe-cache-eval,
 * commit b8c702f, paper/artifacts/event-atomic-toy-trace-v1): 3 layers of 4 experts, 5 steps, 2
 * slots a layer. Published: 30 accesses, 12 hits, 18 misses, 12 evictions. Expert 0 stays, the
 * other one changes. */
static const unsigned toy_second[5] = { 1, 2, 1, 3, 1 };

static void toy_trace(uint64_t slots, bool cache_per_layer)
{
	struct cp_cache *cache[3];
	uint64_t uses = 0, hits = 0, evictions = 0;
	unsigned caches = cache_per_layer ? 3 : 1;

	for (unsigned i = 0; i < caches; i++)
		cache[i] = new_cache("lru", slots, 3, 4);
	for (unsigned step = 0; step < 5; step++) {
		for (unsigned layer = 0; layer < 3; layer++) {
			struct event e = { layer, 2, { 0, toy_second[step] } };
			unsigned misses;
			replay(cache[layer % caches], &e, 1, &misses);
			assert_int_equal(misses, step == 0 ? 2 : 1);
		}
	}
	for (unsigned i = 0; i < caches; i++) {
		struct cp_stats s;
		cp_stats(cache[i], &s);
		uses += s.uses;
		hits += s.hits;
		evictions += s.evictions;
		cp_destroy(cache[i]);
	}
	assert_int_equal(uses, 30);
	assert_int_equal(hits, 12);
	assert_int_equal(evictions, 12);
}

static void published_trace(void **state)
{
	(void)state;
	toy_trace(2, true);
	/* One cache of all six slots gives the same: by hand, the oldest is each time the layer's
	 * own second expert of the step before. */
	toy_trace(6, false);
}

/* The same repository's tests/test_cache_controller.py,
 * test_event_atomic_does_not_evict_unserved_resident: {0,1} twice with one slot misses 3 times.
 * Serving one by one would miss all 4, since 1 would push 0 out. */
static void members_do_not_evict_each_other(void **state)
{
	static const struct event events[] = { { 0, 2, { 0, 1 } }, { 0, 2, { 0, 1 } } };
	unsigned misses[2];

	(void)state;
	for (const char **spec = specs; *spec; spec++) {
		struct cp_cache *c = new_cache(*spec, 1, 1, 2);

		replay(c, events, 2, misses);
		assert_int_equal(misses[0], 2);
		assert_int_equal(misses[1], 1);
		cp_destroy(c);
	}
}

/* By hand, 3 slots, one layer:    kept after it, oldest first
 *	{0,1,2}   all missed       0 1 2
 *	{1}       hit              0 2 1
 *	{3,0}     3 missed         1 0 3     2 went: the oldest that is no member
 *	{2}       missed           0 3 2     1 went
 *	{1,3,3}   1 missed         2 3 1     0 went; 3 counts once */
static void hand_worked_trace(void **state)
{
	static const struct event events[] = {
		{ 0, 3, { 0, 1, 2 } }, { 0, 1, { 1 } },       { 0, 2, { 3, 0 } },
		{ 0, 1, { 2 } },       { 0, 3, { 1, 3, 3 } },
	};
	static const unsigned expected[] = { 3, 0, 1, 1, 1 };
	struct cp_cache *c = new_cache("lru", 3, 1, 4);
	unsigned misses[COUNT(events)];
	struct cp_stats s;

	(void)state;
	replay(c, events, COUNT(events), misses);
	for (size_t e = 0; e < COUNT(events); e++)
		assert_int_equal(misses[e], expected[e]);
	assert_false(cp_resident(c, cp_key_of(0, 0)));
	cp_stats(c, &s);
	assert_int_equal(s.uses, 9);
	assert_int_equal(s.hits, 3);
	cp_destroy(c);
}

/* -- the contract, point by point ---------------------------------------------------------------- */

static void registry(void **state)
{
	const char *const *names = cp_policy_names();
	size_t n = 0;

	(void)state;
	for (; names[n]; n++) {
		const struct cp_policy *policy = cp_policy_find(names[n]);

		assert_non_null(policy);
		assert_true(strlen(cp_policy_about(policy)) > 0);
		for (const struct cp_param *p = cp_policy_params(policy); p->name; p++)
			assert_true(p->low <= p->start && p->start <= p->high && p->about);
		for (size_t k = 0; k < n; k++)
			assert_string_not_equal(names[k], names[n]);
	}
	assert_true(n >= 12);
	assert_string_equal(names[0], "lru");
	assert_null(cp_policy_find("LRU"));
	assert_null(cp_policy_find(""));
	assert_null(cp_policy_find("lru "));
	assert_null(cp_policy_find("belady")); /* no daemon can see ahead */
}

static void spec_syntax(void **state)
{
	static const struct {
		const char *spec;
		int err;
	} cases[] = {
		{ "lru", 0 },
		{ "lfru:weight=0.25", 0 },
		{ "lfru:weight=0.25,half_life=3", 0 },
		{ "lfru:half_life=1e2,weight=1", 0 },
		{ "quota", 0 },
		{ "quota:2q", 0 },
		{ "quota:2q:in=0.5,out=1", 0 },
		{ "", -ENOENT },
		{ "fifo", -ENOENT },
		{ ":", -ENOENT },
		{ "lru2", -ENOENT },
		{ "quota:", -ENOENT },
		{ "quota:fifo", -ENOENT },
		{ "lru:", -EINVAL },
		{ "lru:weight=1", -EINVAL },
		{ "lfru:", -EINVAL },
		{ "lfru:weight", -EINVAL },
		{ "lfru:weight=", -EINVAL },
		{ "lfru:weight=x", -EINVAL },
		{ "lfru:weight=0.5x", -EINVAL },
		{ "lfru:weight=0.5,", -EINVAL },
		{ "lfru:=0.5", -EINVAL },
		{ "lfru:weight=-0.1", -EINVAL },
		{ "lfru:weight=1.01", -EINVAL },
		{ "lfru:weight=nan", -EINVAL },
		{ "lfru:half_life=inf", -EINVAL },
		{ "quota:quota:lru", -EINVAL },
		{ "quota:lfru:weight=2", -EINVAL },
		{ "quota:weight=1", -ENOENT },
	};
	struct cp_config cfg = { .capacity = 10, .layers = 2, .experts = 4 };

	(void)state;
	for (size_t k = 0; k < COUNT(cases); k++) {
		struct cp_cache *c = NULL;

		if (cp_spec_check(cases[k].spec) != cases[k].err)
			fail_msg("%s: %d", cases[k].spec, cp_spec_check(cases[k].spec));
		assert_int_equal(cp_create_spec(cases[k].spec, &cfg, &c), cases[k].err);
		assert_true((c != NULL) == (cases[k].err == 0));
		cp_destroy(c);
	}
}

static void tuning(void **state)
{
	struct cp_cache *c = new_cache("lfru:weight=0.25", 10, 1, 4);
	double value = 0;

	(void)state;
	assert_int_equal(cp_get(c, "weight", &value), 0);
	assert_true(value == 0.25);
	assert_int_equal(cp_set(c, "weight", 0.75), 0);
	assert_int_equal(cp_set(c, "weight", -1), -EINVAL);
	assert_int_equal(cp_set(c, "weight", NAN), -EINVAL);
	assert_int_equal(cp_set(c, "wei", 0), -ENOENT);
	assert_int_equal(cp_get(c, "", &value), -ENOENT);
	assert_int_equal(cp_get(c, "weight", &value), 0);
	assert_true(value == 0.75);
	cp_destroy(c);
	c = new_cache("quota:lruk:k=3", 10, 2, 4);
	assert_int_equal(cp_get(c, "k", &value), 0);
	assert_true(value == 3);
	assert_int_equal(cp_set(c, "k", 1), 0);
	assert_int_equal(cp_set(c, "k", 9), -EINVAL);
	assert_int_equal(cp_set(c, "weight", 0), -ENOENT);
	cp_destroy(c);
}

/* The spec of the policy in use is what it has from then on, also what the spec does not name; what
 * it has learned it keeps. */
static void switching_to_itself(void **state)
{
	static const char *const ways[][2] = {
		{ "lfu:half_life=20", "lfu" },
		{ "quota:lfu:half_life=20", "quota:lfu" },
		{ "lfru:half_life=20,weight=0", "lfru:weight=0" },
	};

	(void)state;
	for (size_t w = 0; w < COUNT(ways); w++) {
		struct cp_cache *c = new_cache(ways[w][0], 2, 1, 4), *other;
		struct cp_use often = { 1, 1 };
		double value, start;
		cp_key key;

		for (int k = 0; k < 9; k++) {
			cp_event(c, 0, &often, 1);
			cp_admit(c, often.key, 1);
		}
		cp_event(c, 0, &(struct cp_use){ 0, 1 }, 1);
		assert_int_equal(cp_admit(c, 0, 1), 0);
		assert_int_equal(cp_switch(c, ways[w][1]), 0);
		other = new_cache(ways[w][1], 2, 1, 4);
		assert_int_equal(cp_get(other, "half_life", &start), 0);
		assert_int_equal(cp_get(c, "half_life", &value), 0);
		assert_true(value == start && start < 20);
		cp_destroy(other);
		/* One without memory would give up 1 now, or 0 unseen. */
		cp_event(c, 0, &(struct cp_use){ 0, 1 }, 1);
		cp_event(c, 0, NULL, 0);
		assert_true(cp_victim(c, &key) && key == 0);
		/* Another one within the quotas is another policy. */
		assert_int_equal(cp_switch(c, "quota:arc"), 0);
		assert_int_equal(cp_get(c, "half_life", &value), -ENOENT);
		assert_int_equal(cp_switch(c, "quota"), 0);
		assert_int_equal(cp_switch(c, "quota:lru"), 0);
		assert_int_equal(cp_switch(c, "lru:weight=1"), -EINVAL);
		cp_destroy(c);
	}
}

static void geometry(void **state)
{
	static const struct cp_config bad[] = {
		{ .capacity = 1, .layers = 0, .experts = 1 },
		{ .capacity = 1, .layers = 1, .experts = 0 },
		{ .capacity = 1, .layers = 0x10001, .experts = 1 },
		{ .capacity = 1, .layers = 1, .experts = 0x10001 },
		{ .capacity = 1, .layers = 0x10000, .experts = 0x10000 },
	};

	(void)state;
	cp_destroy(NULL);
	for (const char **spec = specs; *spec; spec++) {
		struct cp_cache *c = NULL;

		for (size_t i = 0; i < COUNT(bad); i++)
			assert_int_equal(cp_create_spec(*spec, &bad[i], &c), -EINVAL);
		c = new_cache(*spec, 10, 1, 0x10000);
		assert_int_equal(cp_admit(c, cp_key_of(0, 0xffff), 1), 0);
		assert_true(cp_resident(c, cp_key_of(0, 0xffff)));
		assert_int_equal(cp_admit(c, cp_key_of(1, 0), 1), -EINVAL);
		cp_touch(c, 1, cp_key_of(1, 0));
		cp_seed(c, cp_key_of(1, 0), 5);
		assert_false(cp_pin(c, cp_key_of(1, 0)));
		assert_false(cp_remove(c, cp_key_of(1, 0)));
		cp_destroy(c);
	}
}

static void nothing_fits_into_nothing(void **state)
{
	static const struct event events[] = { { 0, 2, { 0, 1 } }, { 0, 2, { 0, 1 } } };
	unsigned misses[2];

	(void)state;
	for (const char **spec = specs; *spec; spec++) {
		struct cp_cache *c = new_cache(*spec, 0, 1, 4);

		replay(c, events, 2, misses);
		assert_int_equal(misses[0] + misses[1], 4);
		assert_int_equal(cp_admit(c, 0, 1), -ENOSPC);
		assert_int_equal(cp_admit(c, 0, 0), -EINVAL);
		assert_int_equal(cp_admit(c, 0, UINT64_MAX), -ENOSPC);
		assert_true(cp_fits(c, 0));
		assert_false(cp_fits(c, 1));
		cp_destroy(c);
	}
}

/* Sums of sizes near 2^64 do not wrap round into "fits". */
static void huge_sizes(void **state)
{
	cp_key key;

	(void)state;
	for (const char **spec = specs; *spec; spec++) {
		struct cp_cache *c = new_cache(*spec, UINT64_MAX, 1, 4);

		assert_int_equal(cp_admit(c, 0, UINT64_MAX - 1), 0);
		assert_int_equal(cp_admit(c, 1, 2), -ENOSPC);
		assert_false(cp_fits(c, UINT64_MAX));
		assert_int_equal(cp_admit(c, 1, 1), 0);
		assert_false(cp_fits(c, 1));
		cp_resize(c, 5);
		assert_false(cp_fits(c, 0));
		assert_int_equal(cp_admit(c, 2, 1), -ENOSPC);
		while (!cp_fits(c, 0) && cp_victim(c, &key))
			cp_remove(c, key);
		assert_true(cp_fits(c, 0));
		cp_destroy(c);
	}
}

/* An event ends with the next one, be it empty; then its members may go. */
static void an_empty_event_ends_the_running_one(void **state)
{
	struct cp_use uses[] = { { 0, 1 }, { 1, 3 } };
	cp_key key;

	(void)state;
	for (const char **spec = specs; *spec; spec++) {
		struct cp_cache *c = new_cache(*spec, 2, 1, 4);

		assert_int_equal(cp_admit(c, 0, 1), 0);
		assert_true(cp_victim(c, &key));
		cp_event(c, 1, uses, 2);
		assert_int_equal(cp_admit(c, 1, 1), 0);
		assert_false(cp_victim(c, &key));
		cp_event(c, 2, NULL, 0);
		assert_true(cp_victim(c, &key));
		cp_destroy(c);
	}
}

/* Told at once, in two parts, or one by one: the same event. */
static void joining(void **state)
{
	static const struct cp_use uses[] = { { 0x10000, 1 }, { 0x10001, 1 }, { 0x10002, 1 } };
	struct cp_stats s;
	cp_key key;

	(void)state;
	for (const char **spec = specs; *spec; spec++) {
		struct cp_cache *c = new_cache(*spec, 4, 2, 4);

		assert_int_equal(cp_admit(c, 0x10001, 1), 0);
		cp_event(c, 1, uses, 1);
		cp_join(c, 2, uses, 2);
		assert_false(cp_victim(c, &key));
		cp_open(c, 3, uses[2]); /* the same layer, not a member yet */
		cp_stats(c, &s);
		assert_int_equal(s.events, 1);
		assert_int_equal(s.uses, 3);
		assert_int_equal(s.hits, 1);
		cp_open(c, 4, uses[2]);                       /* a member: it is asked for anew */
		cp_open(c, 5, (struct cp_use){ 0, 1 });       /* another layer */
		cp_open(c, 6, (struct cp_use){ 0x20000, 1 }); /* outside the model */
		cp_stats(c, &s);
		assert_int_equal(s.events, 3);
		assert_int_equal(s.uses, 5);
		assert_true(cp_victim(c, &key) && key == 0x10001);
		cp_destroy(c);
	}
}

static void pins_nest(void **state)
{
	struct cp_stats s;
	cp_key key;

	(void)state;
	for (const char **spec = specs; *spec; spec++) {
		struct cp_cache *c = new_cache(*spec, 3, 1, 4);

		assert_false(cp_pin(c, 0));
		assert_int_equal(cp_admit(c, 0, 1), 0);
		assert_int_equal(cp_admit(c, 1, 1), 0);
		assert_false(cp_unpin(c, 0));
		assert_true(cp_pin(c, 0));
		assert_true(cp_pin(c, 0));
		assert_true(cp_victim(c, &key));
		assert_int_equal(key, 1);
		assert_true(cp_unpin(c, 0));
		assert_true(cp_victim(c, &key));
		assert_int_equal(key, 1);
		assert_true(cp_pin(c, 1));
		assert_false(cp_victim(c, &key));
		assert_true(cp_unpin(c, 0));
		assert_true(cp_victim(c, &key));
		assert_int_equal(key, 0);
		assert_false(cp_unpin(c, 0));
		/* A pinned entry can be taken out, and comes back without its pins. */
		assert_true(cp_remove(c, 1));
		assert_false(cp_unpin(c, 1));
		assert_int_equal(cp_admit(c, 1, 1), 0);
		cp_stats(c, &s);
		assert_int_equal(s.pinned, 0);
		cp_destroy(c);
	}
}

/* With an order of its own for each, every policy takes over what every other one held. */
static void switching(void **state)
{
	(void)state;
	for (const char **from = specs; *from; from++) {
		for (const char **to = specs; *to; to++) {
			struct model m = { .layers = 4, .experts = 8 };
			struct cp_cache *c = new_cache(*from, 12, m.layers, m.experts);
			struct cp_stats before, after;
			uint32_t seen = 0;
			cp_key key;

			random_state = 5;
			for (int e = 0; e < 60; e++) {
				struct cp_use use = { cp_key_of(rnd(4), random_expert(&m)), 1 };

				cp_event(c, 0, &use, 1);
				while (!cp_fits(c, 1) && cp_victim(c, &key))
					cp_remove(c, key);
				cp_admit(c, use.key, 1);
				if (e == 50)
					cp_pin(c, use.key);
			}
			cp_stats(c, &before);
			assert_int_equal(cp_switch(c, "fifo"), -ENOENT);
			assert_int_equal(cp_switch(c, "lfru:weight=7"), -EINVAL);
			assert_string_equal(cp_name(c), (*from)[0] == 'q' ? "quota" : cp_name(c));
			assert_int_equal(cp_switch(c, *to), 0);
			assert_int_equal(strncmp(cp_name(c), *to, strlen(cp_name(c))), 0);
			cp_stats(c, &after);
			assert_memory_equal(&before, &after, sizeof(before));
			/* All that may go can be had from it, once. */
			cp_event(c, 0, NULL, 0);
			while (cp_victim(c, &key)) {
				assert_true(cp_remove(c, key));
				seen++;
			}
			assert_int_equal(seen, before.entries - before.pinned);
			cp_destroy(c);
		}
	}
}

/* A few in much room, each used again and again: there is a victim as long as one may go. */
static void all_were_hit(void **state)
{
	(void)state;
	for (const char **spec = specs; *spec; spec++) {
		struct cp_cache *c = new_cache(*spec, 400, 1, 8);
		cp_key key;

		for (int round = 0; round < 4; round++)
			for (uint16_t x = 0; x < 4; x++) {
				struct cp_use use = { cp_key_of(0, x), 1 };

				cp_event(c, 0, &use, 1);
				cp_admit(c, use.key, 1);
			}
		cp_event(c, 0, NULL, 0);
		for (int left = 4; left > 0; left--) {
			assert_true(cp_victim(c, &key));
			assert_true(cp_remove(c, key));
		}
		assert_false(cp_victim(c, &key));
		cp_destroy(c);
	}
}

/* LRU's order survives in every policy, which knows nothing better yet. W-TinyLFU fills its main part
 * with the oldest. */
static void switching_keeps_the_order(void **state)
{
	(void)state;
	for (const char **to = specs; *to; to++) {
		struct cp_cache *c;
		cp_key key;

		if (strcmp(*to, "wtinylfu") == 0)
			continue;
		c = new_cache("lru", 4, 1, 8);
		for (cp_key i = 0; i < 4; i++)
			assert_int_equal(cp_admit(c, i, 1), 0);
		cp_touch(c, 0, 1);
		assert_int_equal(cp_switch(c, "clock"), 0);
		assert_int_equal(cp_switch(c, *to), 0);
		for (size_t k = 0; k < 4; k++) {
			assert_true(cp_victim(c, &key));
			if (key != ((const cp_key[]){ 0, 2, 3, 1 })[k])
				fail_msg("%s gives up %u as number %zu", *to, key, k);
			assert_true(cp_remove(c, key));
		}
		cp_destroy(c);
	}
}

/* What the catalog knows counts as uses, resident or not, for those that count. */
static void seeding(void **state)
{
	static const char *const counting[] = { "lfu", "lfru:weight=0", "hotset:share=0.5",
						"quota:lfu" };
	cp_key key;

	(void)state;
	for (size_t k = 0; k < COUNT(counting); k++) {
		struct cp_cache *c = new_cache(counting[k], 2, 1, 4);

		cp_seed(c, 0, 9);
		cp_seed(c, 1, NAN);
		cp_seed(c, 1, -1);
		cp_seed(c, 1, HUGE_VAL);
		assert_int_equal(cp_admit(c, 0, 1), 0);
		assert_int_equal(cp_admit(c, 1, 1), 0);
		cp_touch(c, 0, 1);
		assert_true(cp_victim(c, &key) && key == 1);
		cp_seed(c, 1, 90);
		assert_true(cp_victim(c, &key));
		cp_destroy(c);
	}
}

/* 20,000 entries of which all old ones are pinned: finding the victim must not look at them. A
 * walk would take 4e9 steps here, many seconds; a relink takes milliseconds. */
static void victim_does_not_walk(void **state)
{
	enum { LAYERS = 80, EXPERTS = 250, ENTRIES = LAYERS * EXPERTS, ROUNDS = 200000 };

	(void)state;
	for (const char **spec = specs; *spec; spec++) {
		struct cp_cache *c = new_cache(*spec, ENTRIES, LAYERS, EXPERTS);
		clock_t start = clock();

		for (unsigned i = 0; i < ENTRIES; i++) {
			cp_key key = cp_key_of(i / EXPERTS, i % EXPERTS);

			assert_int_equal(cp_admit(c, key, 1), 0);
			if (i < ENTRIES - 10)
				assert_true(cp_pin(c, key));
		}
		for (int i = 0; i < ROUNDS; i++) {
			cp_key key;

			assert_true(cp_victim(c, &key));
			assert_true(cp_remove(c, key));
			assert_int_equal(cp_admit(c, key, 1), 0);
		}
		if (clock() - start > 4 * CLOCKS_PER_SEC)
			fail_msg("%s took %.1f s", *spec,
				 (double)(clock() - start) / CLOCKS_PER_SEC);
		cp_destroy(c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(registry),
		cmocka_unit_test(spec_syntax),
		cmocka_unit_test(tuning),
		cmocka_unit_test(geometry),
		cmocka_unit_test(nothing_fits_into_nothing),
		cmocka_unit_test(huge_sizes),
		cmocka_unit_test(an_empty_event_ends_the_running_one),
		cmocka_unit_test(joining),
		cmocka_unit_test(pins_nest),
		cmocka_unit_test(switching),
		cmocka_unit_test(all_were_hit),
		cmocka_unit_test(switching_keeps_the_order),
		cmocka_unit_test(switching_to_itself),
		cmocka_unit_test(seeding),
		cmocka_unit_test(published_trace),
		cmocka_unit_test(members_do_not_evict_each_other),
		cmocka_unit_test(hand_worked_trace),
		cmocka_unit_test(victim_does_not_walk),
	};
	collect_specs();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
