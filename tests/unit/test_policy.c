/* SPDX-License-Identifier: Apache-2.0
 *
 * Cache policies: random operations against a slow and obvious model, traces whose result is known,
 * and the things that the contract of policy.h promises one by one.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "cachepolicy/policy.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static struct cp_cache *new_cache(const char *name, uint64_t capacity, uint32_t layers,
				  uint32_t experts)
{
	struct cp_config cfg = { .capacity = capacity, .layers = layers, .experts = experts };
	struct cp_cache *c = NULL;

	assert_non_null(cp_policy_find(name));
	assert_int_equal(cp_create(cp_policy_find(name), &cfg, &c), 0);
	return c;
}

/* xorshift64*: the same sequence everywhere. */
static uint64_t random_state;

static uint32_t rnd(uint32_t below)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return (uint32_t)((random_state * 2685821657736338717ull) >> 33) % below;
}

/* -- the model: LRU as one would say it, with linear searches
 * -------------------------------------- */

#define MODEL_MAX 64

struct model {
	uint32_t layers, experts;
	uint64_t capacity, clock;
	uint64_t bytes[MODEL_MAX]; /* 0: not resident */
	uint64_t stamp[MODEL_MAX]; /* time of the last use */
	uint32_t pins[MODEL_MAX];
	bool member[MODEL_MAX];
	struct cp_stats counts;
};

static uint64_t model_used(const struct model *m)
{
	uint64_t used = 0;

	for (size_t i = 0; i < MODEL_MAX; i++)
		used += m->bytes[i];
	return used;
}

static bool model_index(const struct model *m, cp_key key, size_t *i)
{
	*i = (size_t)(key >> 16) * m->experts + (key & 0xffff);
	return key >> 16 < m->layers && (key & 0xffff) < m->experts;
}

/* Resident, not pinned, (no) member; the one with the oldest stamp, or MODEL_MAX. */
static size_t model_oldest(const struct model *m, bool member)
{
	size_t oldest = MODEL_MAX;

	for (size_t i = 0; i < MODEL_MAX; i++)
		if (m->bytes[i] && !m->pins[i] && m->member[i] == member &&
		    (oldest == MODEL_MAX || m->stamp[i] < m->stamp[oldest]))
			oldest = i;
	return oldest;
}

static void model_event(struct model *m, const struct cp_use *uses, size_t n)
{
	size_t i;

	/* The members of the event before were in use until now. */
	while ((i = model_oldest(m, true)) != MODEL_MAX) {
		m->stamp[i] = ++m->clock;
		m->member[i] = false;
	}
	memset(m->member, 0, sizeof(m->member));
	m->counts.events++;
	for (size_t k = 0; k < n; k++) {
		if (!model_index(m, uses[k].key, &i) || m->member[i])
			continue;
		m->member[i] = true;
		m->counts.uses++;
		if (m->bytes[i]) {
			m->counts.hits++;
			m->stamp[i] = ++m->clock;
		}
	}
}

static int model_admit(struct model *m, cp_key key, uint64_t bytes)
{
	size_t i;

	if (!model_index(m, key, &i) || bytes == 0)
		return -EINVAL;
	if (m->bytes[i])
		return -EEXIST;
	if (bytes > m->capacity || model_used(m) > m->capacity - bytes)
		return -ENOSPC;
	m->bytes[i] = bytes;
	m->stamp[i] = ++m->clock;
	m->counts.admissions++;
	return 0;
}

static bool model_unpin(struct model *m, cp_key key)
{
	size_t i;

	if (!model_index(m, key, &i) || !m->pins[i])
		return false;
	if (--m->pins[i] == 0)
		m->stamp[i] = ++m->clock;
	return true;
}

static bool model_remove(struct model *m, cp_key key)
{
	size_t i;

	if (!model_index(m, key, &i) || !m->bytes[i])
		return false;
	m->bytes[i] = 0;
	m->pins[i] = 0;
	m->counts.evictions++;
	return true;
}

/* -- the cache against the model
 * ------------------------------------------------------------------- */

static void assert_same(struct cp_cache *c, const struct model *m)
{
	uint64_t entries = 0, pinned = 0;
	size_t oldest = model_oldest(m, false);
	struct cp_stats s;
	cp_key key;

	for (size_t i = 0; i < (size_t)m->layers * m->experts; i++) {
		bool resident = cp_resident(
			c, cp_key_of((unsigned)i / m->experts, (unsigned)i % m->experts));
		if (resident != (m->bytes[i] != 0))
			fail_msg("entry %zu is %sresident", i, resident ? "" : "not ");
		entries += resident;
		pinned += m->pins[i] != 0;
	}
	if (cp_victim(c, &key) != (oldest != MODEL_MAX))
		fail_msg("there is %s victim", oldest == MODEL_MAX ? "no" : "a");
	if (oldest != MODEL_MAX &&
	    key != cp_key_of((unsigned)oldest / m->experts, (unsigned)oldest % m->experts))
		fail_msg("the victim is %u/%u, not entry %zu", key >> 16, key & 0xffff, oldest);
	cp_stats(c, &s);
	assert_int_equal(s.capacity, m->capacity);
	assert_int_equal(s.used, model_used(m));
	assert_int_equal(s.entries, entries);
	assert_int_equal(s.pinned, pinned);
	assert_int_equal(s.events, m->counts.events);
	assert_int_equal(s.uses, m->counts.uses);
	assert_int_equal(s.hits, m->counts.hits);
	assert_int_equal(s.admissions, m->counts.admissions);
	assert_int_equal(s.evictions, m->counts.evictions);
	assert_true(cp_fits(c, 0) == (s.used <= s.capacity));
}

static cp_key random_key(const struct model *m)
{
	/* One in twenty lies outside the model. */
	if (rnd(20) == 0)
		return rnd(2) ? cp_key_of(m->layers + rnd(3), rnd(m->experts))
			      : cp_key_of(rnd(m->layers), m->experts + rnd(3));
	return cp_key_of(rnd(m->layers), rnd(m->experts));
}

/* What the daemon does for each event (the head of policy.h), held against the model step by step.
 */
static void serve_event(struct cp_cache *c, struct model *m)
{
	struct cp_use uses[12];
	size_t n = rnd(COUNT(uses) + 1), i;
	unsigned layer = rnd(m->layers);

	for (size_t k = 0; k < n; k++)
		uses[k] = (struct cp_use){ rnd(30) ? cp_key_of(layer, rnd(m->experts))
						   : random_key(m),
					   1 };
	cp_event(c, m->clock, uses, n);
	model_event(m, uses, n);
	for (size_t k = 0; k < n; k++) {
		uint64_t bytes = 1 + rnd(40);
		cp_key key;
		if (cp_resident(c, uses[k].key))
			continue;
		while (!cp_fits(c, bytes) && cp_victim(c, &key)) {
			assert_true(model_index(m, key, &i));
			assert_true(!m->pins[i] && !m->member[i]);
			assert_true(cp_remove(c, key));
			assert_true(model_remove(m, key));
		}
		assert_int_equal(cp_admit(c, uses[k].key, bytes),
				 model_admit(m, uses[k].key, bytes));
	}
}

static void random_step(struct cp_cache *c, struct model *m)
{
	cp_key key = random_key(m);
	uint64_t bytes = rnd(50);
	bool inside;
	size_t i;

	inside = model_index(m, key, &i);
	switch (rnd(20)) {
	case 0 ... 6:
		serve_event(c, m);
		break;
	case 7 ... 9:
		assert_int_equal(cp_admit(c, key, bytes), model_admit(m, key, bytes));
		break;
	case 10 ... 12:
		cp_touch(c, m->clock, key);
		if (inside && m->bytes[i])
			m->stamp[i] = ++m->clock;
		break;
	case 13 ... 14:
		assert_int_equal(cp_pin(c, key), inside && m->bytes[i]);
		if (inside && m->bytes[i])
			m->pins[i]++;
		break;
	case 15 ... 17:
		assert_int_equal(cp_unpin(c, key), model_unpin(m, key));
		break;
	case 18:
		assert_int_equal(cp_remove(c, key), model_remove(m, key));
		break;
	default:
		if (rnd(8) == 0) {
			m->capacity = rnd(6) ? rnd(900) : 0;
			cp_resize(c, m->capacity);
		}
	}
}

static void random_operations(void **state)
{
	static const uint32_t shapes[][2] = { { 1, 1 }, { 1, 12 }, { 6, 8 }, { 8, 8 } };

	(void)state;
	for (size_t shape = 0; shape < COUNT(shapes); shape++) {
		struct model m = { .layers = shapes[shape][0],
				   .experts = shapes[shape][1],
				   .capacity = 300 };
		struct cp_cache *c = new_cache("lru", m.capacity, m.layers, m.experts);
		random_state = 20240229 + shape;
		for (int step = 0; step < 250000; step++) {
			random_step(c, &m);
			assert_same(c, &m);
		}
		assert_true(m.counts.hits > 1000 && m.counts.evictions > 1000);
		cp_destroy(c);
	}
}

/* -- traces whose result is known
 * ------------------------------------------------------------------ */

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

/* The event-atomic toy trace of arXiv 2608.07911 (its repository shijiuzhang/moe-cache-eval, commit
 * b8c702f, paper/artifacts/event-atomic-toy-trace-v1): 3 layers of 4 experts, 5 steps, 2 slots a
 * layer. Published: 30 accesses, 12 hits, 18 misses, 12 evictions. Expert 0 stays, the other one
 * changes. */
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
	struct cp_cache *c = new_cache("lru", 1, 1, 2);
	unsigned misses[2];

	(void)state;
	replay(c, events, 2, misses);
	assert_int_equal(misses[0], 2);
	assert_int_equal(misses[1], 1);
	cp_destroy(c);
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

/* -- the contract, point by point
 * ------------------------------------------------------------------ */

static void registry(void **state)
{
	const char *const *names = cp_policy_names();
	size_t n = 0;

	(void)state;
	for (; names[n]; n++) {
		assert_non_null(cp_policy_find(names[n]));
		assert_string_equal(cp_policy_find(names[n])->name, names[n]);
	}
	assert_true(n >= 1);
	assert_string_equal(names[0], "lru");
	assert_null(cp_policy_find("LRU"));
	assert_null(cp_policy_find(""));
	assert_null(cp_policy_find("lru "));
}

static void geometry(void **state)
{
	static const struct cp_config bad[] = {
		{ 1, 0, 1 },
		{ 1, 1, 0 },
		{ 1, 0x10001, 1 },
		{ 1, 1, 0x10001 },
		{ 1, 0x10000, 0x10000 },
	};
	struct cp_cache *c = NULL;

	(void)state;
	for (size_t i = 0; i < COUNT(bad); i++)
		assert_int_equal(cp_create(cp_policy_find("lru"), &bad[i], &c), -EINVAL);
	cp_destroy(NULL);
	c = new_cache("lru", 10, 1, 0x10000);
	assert_int_equal(cp_admit(c, cp_key_of(0, 0xffff), 1), 0);
	assert_true(cp_resident(c, cp_key_of(0, 0xffff)));
	assert_int_equal(cp_admit(c, cp_key_of(1, 0), 1), -EINVAL);
	cp_destroy(c);
}

static void nothing_fits_into_nothing(void **state)
{
	static const struct event events[] = { { 0, 2, { 0, 1 } }, { 0, 2, { 0, 1 } } };
	struct cp_cache *c = new_cache("lru", 0, 1, 4);
	unsigned misses[2];

	(void)state;
	replay(c, events, 2, misses);
	assert_int_equal(misses[0] + misses[1], 4);
	assert_int_equal(cp_admit(c, 0, 1), -ENOSPC);
	assert_int_equal(cp_admit(c, 0, 0), -EINVAL);
	assert_int_equal(cp_admit(c, 0, UINT64_MAX), -ENOSPC);
	assert_true(cp_fits(c, 0));
	assert_false(cp_fits(c, 1));
	cp_destroy(c);
}

/* Sums of sizes near 2^64 do not wrap round into "fits". */
static void huge_sizes(void **state)
{
	struct cp_cache *c = new_cache("lru", UINT64_MAX, 1, 4);

	(void)state;
	assert_int_equal(cp_admit(c, 0, UINT64_MAX - 1), 0);
	assert_int_equal(cp_admit(c, 1, 2), -ENOSPC);
	assert_false(cp_fits(c, UINT64_MAX));
	assert_int_equal(cp_admit(c, 1, 1), 0);
	assert_false(cp_fits(c, 1));
	cp_resize(c, 5);
	assert_false(cp_fits(c, 0));
	assert_int_equal(cp_admit(c, 2, 1), -ENOSPC);
	cp_destroy(c);
}

/* An event ends with the next one, be it empty; then its members may go. */
static void an_empty_event_ends_the_running_one(void **state)
{
	struct cp_cache *c = new_cache("lru", 2, 1, 4);
	struct cp_use uses[] = { { 0, 1 }, { 1, 3 } };
	cp_key key;

	(void)state;
	assert_int_equal(cp_admit(c, 0, 1), 0);
	assert_true(cp_victim(c, &key));
	cp_event(c, 1, uses, 2);
	assert_int_equal(cp_admit(c, 1, 1), 0);
	assert_false(cp_victim(c, &key));
	cp_event(c, 2, NULL, 0);
	assert_true(cp_victim(c, &key));
	assert_int_equal(key, 0);
	cp_destroy(c);
}

static void pins_nest(void **state)
{
	struct cp_cache *c = new_cache("lru", 3, 1, 4);
	struct cp_stats s;
	cp_key key;

	(void)state;
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
	assert_true(cp_unpin(c, 0));
	assert_false(cp_unpin(c, 0));
	/* A pinned entry can be taken out, and comes back without its pins. */
	assert_true(cp_pin(c, 1));
	assert_true(cp_remove(c, 1));
	assert_false(cp_unpin(c, 1));
	assert_int_equal(cp_admit(c, 1, 1), 0);
	cp_stats(c, &s);
	assert_int_equal(s.pinned, 0);
	cp_destroy(c);
}

/* 20,000 entries of which all old ones are pinned: finding the victim must not look at them. A walk
 * would take 4e9 steps here, many seconds; a relink takes milliseconds. */
static void victim_does_not_walk(void **state)
{
	enum { LAYERS = 80, EXPERTS = 250, ENTRIES = LAYERS * EXPERTS, ROUNDS = 200000 };
	struct cp_cache *c = new_cache("lru", ENTRIES, LAYERS, EXPERTS);
	clock_t start = clock();

	(void)state;
	for (unsigned i = 0; i < ENTRIES; i++) {
		assert_int_equal(cp_admit(c, cp_key_of(i / EXPERTS, i % EXPERTS), 1), 0);
		if (i < ENTRIES - 10)
			assert_true(cp_pin(c, cp_key_of(i / EXPERTS, i % EXPERTS)));
	}
	for (int i = 0; i < ROUNDS; i++) {
		cp_key key;
		assert_true(cp_victim(c, &key));
		assert_true(cp_remove(c, key));
		assert_int_equal(cp_admit(c, key, 1), 0);
	}
	assert_true(clock() - start < 4 * CLOCKS_PER_SEC);
	cp_destroy(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(registry),
		cmocka_unit_test(geometry),
		cmocka_unit_test(nothing_fits_into_nothing),
		cmocka_unit_test(huge_sizes),
		cmocka_unit_test(an_empty_event_ends_the_running_one),
		cmocka_unit_test(pins_nest),
		cmocka_unit_test(published_trace),
		cmocka_unit_test(members_do_not_evict_each_other),
		cmocka_unit_test(hand_worked_trace),
		cmocka_unit_test(victim_does_not_walk),
		cmocka_unit_test(random_operations),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
