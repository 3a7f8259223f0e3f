/* SPDX-License-Identifier: Apache-2.0
 *
 * A cache as one would say it, with linear searches, to hold the policies against: shared by the
 * test_policy*.c. What is common to all policies is here; what a policy decides is in the rules
 * that a test hands in. Where cachepolicy/ takes held entries out of its lists, a model leaves
 * them in and looks past them.
 */
#ifndef TESTS_POLICY_MODEL_H
#define TESTS_POLICY_MODEL_H

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cachepolicy/belady.h"
#include "cachepolicy/policy.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* xorshift64*: the same sequence everywhere. */
static uint64_t random_state = 1;

static inline uint32_t rnd(uint32_t below)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return (uint32_t)((random_state * 2685821657736338717ull) >> 33) % below;
}

static inline struct cp_cache *new_cache(const char *spec, uint64_t capacity, uint32_t layers,
					 uint32_t experts)
{
	struct cp_config cfg = { .capacity = capacity, .layers = layers, .experts = experts };
	struct cp_cache *c = NULL;

	assert_int_equal(cp_create_spec(spec, &cfg, &c), 0);
	return c;
}

/* -- the model -------------------------------------------------------------------------------- */

#define MODEL_MAX 64
#define QUEUES    4

/* Experts in the order of their arrival, the oldest first. */
struct queue {
	size_t n;
	int item[MODEL_MAX];
};

struct model;

/* What a policy decides. All but release and victim may be NULL. The meaning is that of the hooks
 * in cachepolicy/policies.h, of which there is no hold(). */
struct rules {
	const char *spec;
	void (*begin)(struct model *m);
	void (*use)(struct model *m, int i, uint32_t weight);
	void (*admit)(struct model *m, int i);
	void (*remove)(struct model *m, int i);
	void (*release)(struct model *m, int i);
	int (*victim)(struct model *m, int want); /* -1: none */
	void (*resize)(struct model *m);
	void (*prepare)(struct model *m), (*finish)(struct model *m); /* of m->more */
};

struct model {
	const struct rules *rules;
	uint32_t layers, experts;
	uint64_t capacity;
	uint64_t size[MODEL_MAX]; /* as last admitted */
	bool resident[MODEL_MAX], member[MODEL_MAX];
	uint32_t pins[MODEL_MAX];
	struct queue members;
	struct cp_stats counts;

	int named, named_for; /* the last answer of the rules, as long as nothing happened; or -1 */

	/* For the rules: */
	struct queue q[QUEUES];
	int where[MODEL_MAX], mark[MODEL_MAX];
	int hand;
	uint64_t clock, stamp[MODEL_MAX];
	double p;
	void *more;
};

static inline int model_n(const struct model *m)
{
	return (int)(m->layers * m->experts);
}

static inline bool held(const struct model *m, int i)
{
	return m->pins[i] || m->member[i];
}

static inline bool may_go(const struct model *m, int i)
{
	return m->resident[i] && !held(m, i);
}

static inline void push(struct queue *q, int i)
{
	q->item[q->n++] = i;
}

/* The place of i, or -1. */
static inline int find(const struct queue *q, int i)
{
	for (size_t k = 0; k < q->n; k++)
		if (q->item[k] == i)
			return (int)k;
	return -1;
}

static inline bool drop(struct queue *q, int i)
{
	int at = find(q, i);

	if (at < 0)
		return false;
	memmove(&q->item[at], &q->item[at + 1], (q->n - (size_t)at - 1) * sizeof(q->item[0]));
	q->n--;
	return true;
}

static inline uint64_t queue_bytes(const struct model *m, const struct queue *q)
{
	uint64_t bytes = 0;

	for (size_t k = 0; k < q->n; k++)
		bytes += m->size[q->item[k]];
	return bytes;
}

/* The oldest that may go, or -1. */
static inline int oldest_free(const struct model *m, const struct queue *q)
{
	for (size_t k = 0; k < q->n; k++)
		if (may_go(m, q->item[k]))
			return q->item[k];
	return -1;
}

static inline uint64_t model_used(const struct model *m)
{
	uint64_t used = 0;

	for (int i = 0; i < model_n(m); i++)
		used += m->resident[i] ? m->size[i] : 0;
	return used;
}

static inline bool model_index(const struct model *m, cp_key key, int *i)
{
	*i = (int)((key >> 16) * m->experts + (key & 0xffff));
	return key >> 16 < m->layers && (key & 0xffff) < m->experts;
}

static inline cp_key model_key(const struct model *m, int i)
{
	return cp_key_of((unsigned)i / m->experts, (unsigned)i % m->experts);
}

static inline void model_join(struct model *m, const struct cp_use *uses, size_t n)
{
	int i;

	m->named = -1;
	for (size_t k = 0; k < n; k++) {
		if (!model_index(m, uses[k].key, &i) || m->member[i])
			continue;
		m->member[i] = true;
		push(&m->members, i);
		m->counts.uses++;
		m->counts.hits += m->resident[i];
		if (m->rules->use)
			m->rules->use(m, i, uses[k].weight);
	}
}

static inline void model_event(struct model *m, const struct cp_use *uses, size_t n)
{
	struct queue members = m->members;

	m->members.n = 0;
	for (size_t k = 0; k < members.n; k++) {
		m->member[members.item[k]] = false;
		if (may_go(m, members.item[k]))
			m->rules->release(m, members.item[k]);
	}
	m->counts.events++;
	if (m->rules->begin)
		m->rules->begin(m);
	model_join(m, uses, n);
}

static inline int model_admit(struct model *m, cp_key key, uint64_t bytes)
{
	int i;

	if (!model_index(m, key, &i) || bytes == 0)
		return -EINVAL;
	if (m->resident[i])
		return -EEXIST;
	if (bytes > m->capacity || model_used(m) > m->capacity - bytes)
		return -ENOSPC;
	m->named = -1;
	m->resident[i] = true;
	m->size[i] = bytes;
	m->counts.admissions++;
	if (m->rules->admit)
		m->rules->admit(m, i);
	if (!held(m, i))
		m->rules->release(m, i);
	return 0;
}

static inline void model_touch(struct model *m, cp_key key)
{
	int i;

	if (!model_index(m, key, &i) || !m->resident[i])
		return;
	m->named = -1;
	if (m->rules->use)
		m->rules->use(m, i, 1);
	if (!held(m, i))
		m->rules->release(m, i);
}

static inline bool model_pin(struct model *m, cp_key key)
{
	int i;

	if (!model_index(m, key, &i) || !m->resident[i])
		return false;
	m->named = -1;
	m->pins[i]++;
	return true;
}

static inline bool model_unpin(struct model *m, cp_key key)
{
	int i;

	if (!model_index(m, key, &i) || !m->pins[i])
		return false;
	m->named = -1;
	if (--m->pins[i] == 0 && !m->member[i])
		m->rules->release(m, i);
	return true;
}

static inline bool model_remove(struct model *m, cp_key key)
{
	int i;

	if (!model_index(m, key, &i) || !m->resident[i])
		return false;
	m->named = -1;
	m->resident[i] = false;
	m->pins[i] = 0;
	m->counts.evictions++;
	if (m->rules->remove)
		m->rules->remove(m, i);
	return true;
}

/* -- a cache and the model side by side -------------------------------------------------------- */

/* Both are asked; both must say the same, and the cache the same again. */
static inline bool both_victim(struct cp_cache *c, struct model *m, cp_key want, cp_key *key)
{
	int i, mine;
	bool inside = model_index(m, want, &i), any;
	cp_key again = 0;

	i = inside ? i : -1;
	if (m->named < 0 || m->named_for != i) {
		m->named = m->rules->victim(m, i);
		m->named_for = i;
	}
	mine = m->named;
	any = cp_victim_for(c, want, key);
	if (any != (mine >= 0))
		fail_msg("%s: there is %s victim", m->rules->spec, mine < 0 ? "no" : "a");
	if (!any)
		return false;
	if (*key != model_key(m, mine))
		fail_msg("%s: the victim is %u/%u, not entry %d", m->rules->spec, *key >> 16,
			 *key & 0xffff, mine);
	if (!may_go(m, mine))
		fail_msg("%s: the victim %d must stay", m->rules->spec, mine);
	assert_true(cp_victim_for(c, want, &again) && again == *key);
	return true;
}

static inline void both_serve(struct cp_cache *c, struct model *m, cp_key key, uint64_t bytes)
{
	cp_key victim;

	if (cp_resident(c, key))
		return;
	while (!cp_fits(c, bytes)) {
		if (!both_victim(c, m, key, &victim))
			break;
		assert_true(cp_remove(c, victim));
		assert_true(model_remove(m, victim));
	}
	assert_int_equal(cp_admit(c, key, bytes), model_admit(m, key, bytes));
}

static inline void assert_same(struct cp_cache *c, const struct model *m)
{
	uint64_t entries = 0, pinned = 0;
	struct cp_stats s;

	for (int i = 0; i < model_n(m); i++) {
		if (cp_resident(c, model_key(m, i)) != m->resident[i])
			fail_msg("%s: entry %d is %sresident", m->rules->spec, i,
				 m->resident[i] ? "not " : "");
		entries += m->resident[i];
		pinned += m->pins[i] != 0;
	}
	cp_stats(c, &s);
	if (s.capacity != m->capacity || s.used != model_used(m) || s.entries != entries ||
	    s.pinned != pinned || s.events != m->counts.events || s.uses != m->counts.uses ||
	    s.hits != m->counts.hits || s.admissions != m->counts.admissions ||
	    s.evictions != m->counts.evictions)
		fail_msg("%s: the counts differ", m->rules->spec);
	assert_true(cp_fits(c, 0) == (s.used <= s.capacity));
}

static inline cp_key random_key(const struct model *m)
{
	/* One in twenty lies outside the model. */
	if (rnd(20) == 0)
		return rnd(2) ? cp_key_of(m->layers + rnd(3), rnd(m->experts))
			      : cp_key_of(rnd(m->layers), m->experts + rnd(3));
	return cp_key_of(rnd(m->layers), rnd(m->experts));
}

/* Popular experts are popular: the lower half of four draws out of five. */
static inline uint32_t random_expert(const struct model *m)
{
	return rnd(5) ? rnd((m->experts + 1) / 2) : rnd(m->experts);
}

/* What the daemon does for each event (the head of policy.h), now and then with a part of it told
 * later. */
static inline void both_event(struct cp_cache *c, struct model *m)
{
	struct cp_use uses[12];
	size_t n = rnd(COUNT(uses) + 1), first;
	unsigned layer = rnd(m->layers);

	for (size_t k = 0; k < n; k++)
		uses[k] = (struct cp_use){ rnd(30) ? cp_key_of(layer, random_expert(m))
						   : random_key(m),
					   1 + (rnd(8) ? 0 : rnd(50)) };
	first = rnd(4) ? n : rnd((uint32_t)n + 1);
	cp_event(c, m->counts.events, uses, first);
	model_event(m, uses, first);
	if (first < n) {
		for (size_t k = 0; k < first; k++)
			both_serve(c, m, uses[k].key, 1 + rnd(40));
		cp_join(c, m->counts.events, &uses[first], n - first);
		model_join(m, &uses[first], n - first);
	}
	for (size_t k = 0; k < n; k++)
		both_serve(c, m, uses[k].key, 1 + rnd(40));
}

static inline void random_step(struct cp_cache *c, struct model *m)
{
	cp_key key = random_key(m), victim;
	uint64_t bytes = rnd(50);

	switch (rnd(24)) {
	case 0 ... 9:
		both_event(c, m);
		break;
	case 10 ... 12:
		assert_int_equal(cp_admit(c, key, bytes), model_admit(m, key, bytes));
		break;
	case 13 ... 14:
		cp_touch(c, m->counts.events, key);
		model_touch(m, key);
		break;
	case 15 ... 16:
		assert_int_equal(cp_pin(c, key), model_pin(m, key));
		break;
	case 17 ... 19:
		assert_int_equal(cp_unpin(c, key), model_unpin(m, key));
		break;
	case 20:
		assert_int_equal(cp_remove(c, key), model_remove(m, key));
		break;
	case 21 ... 22:
		both_victim(c, m, rnd(2) ? key : UINT32_MAX, &victim);
		break;
	default:
		if (rnd(8) == 0) {
			m->capacity = rnd(6) ? rnd(900) : 0;
			cp_resize(c, m->capacity);
			m->named = -1;
			if (m->rules->resize)
				m->rules->resize(m);
		}
	}
}

#define RANDOM_STEPS 250000

/* A million random operations in four shapes; after each the contents and the counts must be
 * equal. */
static inline void hold_against_model(const struct rules *rules)
{
	static const uint32_t shapes[][2] = { { 1, 1 }, { 1, 12 }, { 6, 8 }, { 8, 8 } };

	for (size_t shape = 0; shape < COUNT(shapes); shape++) {
		struct model m = { .rules = rules,
				   .layers = shapes[shape][0],
				   .experts = shapes[shape][1],
				   .capacity = 300,
				   .named = -1,
				   .hand = -1 };
		struct cp_cache *c = new_cache(rules->spec, m.capacity, m.layers, m.experts);

		if (rules->prepare)
			rules->prepare(&m);
		random_state = 20240229 + shape;
		for (int step = 0; step < RANDOM_STEPS; step++) {
			random_step(c, &m);
			assert_same(c, &m);
		}
		assert_true(m.counts.hits > 1000 && m.counts.evictions > 1000);
		cp_destroy(c);
		if (rules->finish)
			rules->finish(&m);
	}
}

static inline void run_model(void **state)
{
	hold_against_model(*state);
}

/* A test that holds a policy against the model of these rules. */
#define MODEL_TEST(name, rules)                                                                    \
	{                                                                                          \
		"model_" name, run_model, NULL, NULL, (void *)(rules)                              \
	}

/* -- sequences worked by hand ------------------------------------------------------------------- */

/* Serves one expert of layer 0 after the other, a letter each, all of one byte. Writes for each
 * "." for a hit and the victim's letter, or "-" if nothing had to go, or "!" if it was not kept. */
static inline void run_letters(struct cp_cache *c, const char *letters, char *out)
{
	for (; *letters; letters++, out++) {
		struct cp_use use = { cp_key_of(0, (unsigned)(*letters - 'a')), 1 };
		cp_key key;

		*out = '.';
		cp_event(c, 0, &use, 1);
		if (cp_resident(c, use.key))
			continue;
		*out = '-';
		while (!cp_fits(c, 1) && cp_victim_for(c, use.key, &key)) {
			assert_true(cp_remove(c, key));
			*out = (char)('a' + key);
		}
		if (cp_admit(c, use.key, 1) != 0)
			*out = '!';
	}
	*out = '\0';
}

static inline void assert_letters(const char *spec, uint64_t capacity, const char *letters,
				  const char *expected)
{
	struct cp_cache *c = new_cache(spec, capacity, 1, 26);
	char out[64];

	run_letters(c, letters, out);
	assert_string_equal(out, expected);
	cp_destroy(c);
}

#endif
