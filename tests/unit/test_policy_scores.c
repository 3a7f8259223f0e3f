/* SPDX-License-Identifier: Apache-2.0
 *
 * The policies that score, and those that are made of others, against slow and obvious models of
 * themselves and sequences worked by hand: LFU, LFRU, LRU-K, the hot set, quotas, Belady's MIN.
 * The letters are those of test_policy_lists.c.
 */
#include "tests/unit/policy_model.h"

#include "cachepolicy/policies.h"
#include "cachepolicy/popularity.h"

/* -- decayed counts ----------------------------------------------------------------------------- */

/* Every count halved step by step, as one would do it. */
static void popularity(void **state)
{
	struct cp_order o = { .n = 8, .layers = 3 };
	struct cp_popularity p = { .now = 0 };
	double naive[8] = { 0 }, half_life = 2.5;

	(void)state;
	assert_int_equal(cp_popularity_create(&p, &o), 0);
	assert_true(cp_popularity_log2(&p, 0) == -HUGE_VAL);
	for (int step = 0; step < 20000; step++) {
		int i = (int)rnd(8), k = (int)rnd(8);
		double uses = 1 + rnd(3);

		if (step % 1000 == 0)
			half_life = 0.5 + rnd(100);
		cp_popularity_tick(&p, &o, half_life);
		for (int j = 0; j < 8; j++)
			naive[j] *= exp2(-1 / (half_life * 3));
		cp_popularity_add(&p, (uint32_t)i, uses);
		naive[i] += uses;
		assert_true(fabs(cp_popularity_uses(&p, (uint32_t)k) - naive[k]) <=
			    1e-9 * (naive[k] + 1));
		if (naive[i] > naive[k] * 1.000001)
			assert_true(cp_popularity_log2(&p, (uint32_t)i) >
				    cp_popularity_log2(&p, (uint32_t)k));
	}
	assert_true(cp_popularity_of_weight(1) == 1 && cp_popularity_of_weight(100) == 10);
	cp_popularity_destroy(&p);
}

/* What the models of LFU, LFRU and the hot set know besides the queues. */
struct scored {
	struct cp_order o;
	struct cp_popularity p;
	int64_t level[MODEL_MAX]; /* LFRU: absolute */
	bool fallen[MODEL_MAX];
	uint64_t order[MODEL_MAX]; /* of the release or the fall */
	uint64_t orders;
	int64_t step;
	bool hot[MODEL_MAX];
};

static void scored_prepare(struct model *m)
{
	struct scored *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	s->o = (struct cp_order){ .n = (uint32_t)model_n(m), .layers = m->layers };
	assert_int_equal(cp_popularity_create(&s->p, &s->o), 0);
	m->more = s;
}

static void scored_finish(struct model *m)
{
	cp_popularity_destroy(&((struct scored *)m->more)->p);
	free(m->more);
}

static struct scored *scored_of(const struct model *m)
{
	return m->more;
}

static double rank_of(const struct model *m, int i)
{
	return cp_popularity_log2(&scored_of(m)->p, (uint32_t)i);
}

static void count_use(struct model *m, int i, uint32_t weight)
{
	cp_popularity_add(&scored_of(m)->p, (uint32_t)i, cp_popularity_of_weight(weight));
	m->stamp[i] = ++m->clock;
}

/* Of those that were never used the first one goes first. */
static void count_arrival(struct model *m, int i)
{
	if (!m->stamp[i])
		m->stamp[i] = ++m->clock;
}

static void nothing(struct model *m, int i)
{
	(void)m;
	(void)i;
}

/* -- LFU ---------------------------------------------------------------------------------------- */

static void lfu_begin(struct model *m)
{
	cp_popularity_tick(&scored_of(m)->p, &scored_of(m)->o, 0.7);
}

static int lfu_victim(struct model *m, int want)
{
	int best = -1;

	(void)want;
	for (int i = 0; i < model_n(m); i++)
		if (may_go(m, i) &&
		    (best < 0 || rank_of(m, i) < rank_of(m, best) ||
		     (rank_of(m, i) == rank_of(m, best) && m->stamp[i] < m->stamp[best])))
			best = i;
	return best;
}

static const struct rules lfu = { .spec = "lfu:half_life=0.7",
				  .begin = lfu_begin,
				  .use = count_use,
				  .admit = count_arrival,
				  .release = nothing,
				  .victim = lfu_victim,
				  .prepare = scored_prepare,
				  .finish = scored_finish };

/* -- LFRU: every entry is scored -------------------------------------------------------------------- */

#define LFRU_LOWEST (-48)

/* What falls out of the window, the lowest level first, each in the order in which it was let go. */
static void lfru_begin(struct model *m)
{
	struct scored *s = scored_of(m);
	int next;

	m->clock++;
	cp_popularity_tick(&s->p, &s->o, 0.2);
	s->step = (int64_t)floor(4 * s->p.now);
	do {
		next = -1;
		for (int i = 0; i < model_n(m); i++)
			if (may_go(m, i) && !s->fallen[i] && s->level[i] < s->step + LFRU_LOWEST &&
			    (next < 0 || s->level[i] < s->level[next] ||
			     (s->level[i] == s->level[next] && s->order[i] < s->order[next])))
				next = i;
		if (next >= 0) {
			s->fallen[next] = true;
			s->order[next] = ++s->orders;
		}
	} while (next >= 0);
}

static void lfru_use(struct model *m, int i, uint32_t weight)
{
	cp_popularity_add(&scored_of(m)->p, (uint32_t)i, cp_popularity_of_weight(weight));
}

static void lfru_release(struct model *m, int i)
{
	struct scored *s = scored_of(m);
	double level = floor(4 * rank_of(m, i));

	s->fallen[i] = level < (double)(s->step + LFRU_LOWEST);
	s->level[i] = s->fallen[i] ? 0 : (int64_t)fmin(level, (double)(s->step + 79));
	s->order[i] = ++s->orders;
	m->stamp[i] = m->clock;
}

static int lfru_level(const struct model *m, int i)
{
	const struct scored *s = scored_of(m);

	return s->fallen[i] ? LFRU_LOWEST - 1 : (int)(s->level[i] - s->step);
}

static double lfru_score(const struct model *m, int i)
{
	double age = (double)(m->clock - m->stamp[i] + 1);

	return (1 - 0.4) * lfru_level(m, i) / 4 - 0.4 * log2(age);
}

/* Of equal scores the lower level, then the one that came first. */
static bool lfru_before(const struct model *m, int a, int b)
{
	if (lfru_score(m, a) != lfru_score(m, b))
		return lfru_score(m, a) < lfru_score(m, b);
	if (lfru_level(m, a) != lfru_level(m, b))
		return lfru_level(m, a) < lfru_level(m, b);
	return scored_of(m)->order[a] < scored_of(m)->order[b];
}

/* Of those that have fallen only the first one is looked at. */
static int lfru_victim(struct model *m, int want)
{
	const struct scored *s = scored_of(m);
	int first = -1, best;

	(void)want;
	for (int i = 0; i < model_n(m); i++)
		if (may_go(m, i) && s->fallen[i] && (first < 0 || s->order[i] < s->order[first]))
			first = i;
	best = first;
	for (int i = 0; i < model_n(m); i++)
		if (may_go(m, i) && !s->fallen[i] && (best < 0 || lfru_before(m, i, best)))
			best = i;
	return best;
}

static const struct rules lfru = { .spec = "lfru:weight=0.4,half_life=0.2",
				   .begin = lfru_begin,
				   .use = lfru_use,
				   .release = lfru_release,
				   .victim = lfru_victim,
				   .prepare = scored_prepare,
				   .finish = scored_finish };

/* -- LRU-K ---------------------------------------------------------------------------------------- */

struct history {
	uint64_t last[MODEL_MAX], before[MODEL_MAX];
};

static void lruk_prepare(struct model *m)
{
	m->more = calloc(1, sizeof(struct history));
	assert_non_null(m->more);
}

static void lruk_finish(struct model *m)
{
	free(m->more);
}

static void lruk_use(struct model *m, int i, uint32_t weight)
{
	struct history *h = m->more;

	(void)weight;
	h->before[i] = h->last[i];
	h->last[i] = m->stamp[i] = ++m->clock;
}

static int lruk_victim(struct model *m, int want)
{
	const struct history *h = m->more;
	int best = -1;

	(void)want;
	for (int i = 0; i < model_n(m); i++)
		if (may_go(m, i) &&
		    (best < 0 || h->before[i] < h->before[best] ||
		     (h->before[i] == h->before[best] && m->stamp[i] < m->stamp[best])))
			best = i;
	return best;
}

static const struct rules lruk = { .spec = "lruk:k=2",
				   .use = lruk_use,
				   .admit = count_arrival,
				   .release = nothing,
				   .victim = lruk_victim,
				   .prepare = lruk_prepare,
				   .finish = lruk_finish };

/* -- the hot set ------------------------------------------------------------------------------------ */

static void hotset_begin(struct model *m)
{
	cp_popularity_tick(&scored_of(m)->p, &scored_of(m)->o, 3);
}

/* The least popular of the hot ones that may go, or -1; and what they hold. */
static int least_hot(const struct model *m, uint64_t *bytes)
{
	int least = -1;

	*bytes = 0;
	for (int i = 0; i < model_n(m); i++) {
		if (!may_go(m, i) || !scored_of(m)->hot[i])
			continue;
		*bytes += m->size[i];
		if (least < 0 || rank_of(m, i) < rank_of(m, least))
			least = i;
	}
	return least;
}

static void hotset_release(struct model *m, int i)
{
	struct scored *s = scored_of(m);
	double room = 0.5 * (double)m->capacity - (double)m->size[i];
	uint64_t bytes;
	int least;

	s->hot[i] = false;
	drop(&m->q[0], i);
	while ((least = least_hot(m, &bytes)) >= 0 && (double)bytes > room &&
	       rank_of(m, least) < rank_of(m, i)) {
		s->hot[least] = false;
		push(&m->q[0], least);
	}
	least_hot(m, &bytes);
	s->hot[i] = (double)bytes <= room && rank_of(m, i) > -HUGE_VAL;
	if (!s->hot[i])
		push(&m->q[0], i);
}

static void hotset_remove(struct model *m, int i)
{
	drop(&m->q[0], i);
}

static int hotset_victim(struct model *m, int want)
{
	int i = oldest_free(m, &m->q[0]);
	uint64_t bytes;

	(void)want;
	return i >= 0 ? i : least_hot(m, &bytes);
}

static const struct rules hotset = { .spec = "hotset:share=0.5,half_life=3",
				     .begin = hotset_begin,
				     .use = count_use,
				     .remove = hotset_remove,
				     .release = hotset_release,
				     .victim = hotset_victim,
				     .prepare = scored_prepare,
				     .finish = scored_finish };

/* -- quotas over LRU ---------------------------------------------------------------------------------- */

static void quota_release(struct model *m, int i)
{
	drop(&m->q[0], i);
	push(&m->q[0], i);
}

static int oldest_of_layer(const struct model *m, uint32_t layer)
{
	for (size_t k = 0; k < m->q[0].n; k++)
		if ((uint32_t)m->q[0].item[k] / m->experts == layer && may_go(m, m->q[0].item[k]))
			return m->q[0].item[k];
	return -1;
}

static uint64_t layer_bytes(const struct model *m, uint32_t layer)
{
	uint64_t bytes = 0;

	for (uint32_t i = layer * m->experts; i < (layer + 1) * m->experts; i++)
		bytes += m->resident[i] ? m->size[i] : 0;
	return bytes;
}

static int quota_victim(struct model *m, int want)
{
	uint32_t home = (uint32_t)want / m->experts;
	int best = -1;

	if (want >= 0 && layer_bytes(m, home) >= m->capacity / m->layers)
		best = oldest_of_layer(m, home);
	if (best >= 0)
		return best;
	for (uint32_t layer = 0; layer < m->layers; layer++)
		if (oldest_of_layer(m, layer) >= 0 &&
		    (best < 0 ||
		     layer_bytes(m, layer) > layer_bytes(m, (uint32_t)best / m->experts)))
			best = oldest_of_layer(m, layer);
	return best;
}

static const struct rules quota = { .spec = "quota:lru",
				    .remove = hotset_remove,
				    .release = quota_release,
				    .victim = quota_victim };

/* -- Belady's MIN: the future as a table ------------------------------------------------------------- */

enum { FUTURE = 2000, MOST_USES = 8 };

struct future {
	struct cp_use uses[FUTURE * MOST_USES];
	size_t ends[FUTURE];
	int next[FUTURE + 1]
		[MODEL_MAX]; /* after event e (from 1; 0 is before them): the next use */
};

static int belady_victim(struct model *m, int want)
{
	const int *next = ((struct future *)m->more)->next[m->counts.events];
	int best = -1;

	for (int i = 0; i < model_n(m); i++)
		if (may_go(m, i) && (best < 0 || next[i] > next[best]))
			best = i;
	return best >= 0 && want >= 0 && next[want] > next[best] ? -1 : best;
}

static const struct rules belady = { .spec = "belady",
				     .release = nothing,
				     .victim = belady_victim };

static void make_future(struct future *f, const struct model *m)
{
	size_t n = 0;

	for (int e = 0; e < FUTURE; e++) {
		unsigned layer = rnd(m->layers);

		for (uint32_t k = rnd(MOST_USES + 1); k > 0; k--)
			f->uses[n++] = (struct cp_use){ cp_key_of(layer, random_expert(m)), 1 };
		f->ends[e] = n;
	}
	for (int i = 0; i < MODEL_MAX; i++)
		f->next[FUTURE][i] = FUTURE + 1;
	for (int e = FUTURE; e > 0; e--) {
		memcpy(f->next[e - 1], f->next[e], sizeof(f->next[e]));
		for (size_t k = e > 1 ? f->ends[e - 2] : 0; k < f->ends[e - 1]; k++) {
			int i = -1;

			assert_true(model_index(m, f->uses[k].key, &i));
			f->next[e - 1][i] = e;
		}
	}
}

static void replay_future(struct cp_cache *c, struct model *m, const struct future *f)
{
	size_t start = 0;

	for (int e = 0; e < FUTURE; e++) {
		cp_key key = random_key(m);

		cp_event(c, 0, &f->uses[start], f->ends[e] - start);
		model_event(m, &f->uses[start], f->ends[e] - start);
		for (; start < f->ends[e]; start++)
			both_serve(c, m, f->uses[start].key, 1 + rnd(40));
		if (rnd(4) == 0)
			assert_int_equal(cp_pin(c, key), model_pin(m, key));
		else
			assert_int_equal(cp_unpin(c, key), model_unpin(m, key));
		assert_same(c, m);
	}
}

/* A million events in 500 futures. */
static void model_belady(void **state)
{
	static struct future f;

	(void)state;
	random_state = 77;
	for (int round = 0; round < 500; round++) {
		struct model m = { .rules = &belady,
				   .layers = 1 + rnd(8),
				   .experts = 8,
				   .capacity = rnd(600),
				   .named = -1,
				   .more = &f };
		struct cp_config cfg = { .capacity = m.capacity,
					 .layers = m.layers,
					 .experts = m.experts };
		struct cp_future *future = NULL;
		struct cp_cache *c = NULL;

		make_future(&f, &m);
		assert_int_equal(
			cp_future_create(m.layers, m.experts, f.uses, f.ends, FUTURE, &future), 0);
		assert_int_equal(cp_create_belady(&cfg, future, &c), 0);
		replay_future(c, &m, &f);
		cp_destroy(c);
		cp_future_destroy(future);
	}
}

/* -- sequences worked by hand ------------------------------------------------------------------------- */

static const char textbook[] = "habcadaecdadcbcabhab"; /* see test_policy_lists.c */

static void belady_letters(double forced, const char *expected)
{
	struct cp_config cfg = { .capacity = 3, .layers = 1, .experts = 26 };
	struct cp_use uses[sizeof(textbook) - 1];
	size_t ends[sizeof(textbook) - 1];
	struct cp_future *future = NULL;
	struct cp_cache *c = NULL;
	char out[sizeof(textbook)];

	for (size_t e = 0; textbook[e]; e++) {
		uses[e] = (struct cp_use){ cp_key_of(0, (unsigned)(textbook[e] - 'a')), 1 };
		ends[e] = e + 1;
	}
	assert_int_equal(cp_future_create(1, 26, uses, ends, COUNT(uses), &future), 0);
	assert_int_equal(cp_create_belady(&cfg, future, &c), 0);
	assert_int_equal(cp_set(c, "forced", forced), 0);
	run_letters(c, textbook, out);
	assert_string_equal(out, expected);
	cp_destroy(c);
	cp_future_destroy(future);
}

/* With three frames the optimum has 9 faults there (Silberschatz, Galvin, Gagne). Where it need
 * not keep what it serves, it lets e pass by, which never comes again, and saves the fault of a. */
static void belady_by_hand(void **state)
{
	(void)state;
	belady_letters(1, "---h.b.a..e..d...c..");
	belady_letters(0, "---h.b.!.....d...c..");
}

/* c goes where b was used once and a twice; then c and b in turn, until both have two uses, the
 * second last of a being the oldest. */
static void lruk_by_hand(void **state)
{
	(void)state;
	assert_letters("lruk", 2, "aabcbc", "-.-bca");
	/* k = 1 is LRU. */
	assert_letters("lruk:k=1", 3, textbook, "---h.b.cdae..a.d.c..");
}

/* Without aging four uses of a outweigh one of b, and two as well; with a half-life of one event
 * they are 0.47 when b's one is 0.5. */
static void lfu_by_hand(void **state)
{
	(void)state;
	assert_letters("lfu:half_life=1e6", 2, "aaaabcbcbc", "-...-bcbcb");
	assert_letters("lfu:half_life=1", 2, "aaaabcb", "-...-a.");
}

/* The weight goes from one to the other, at once: with 0 the uses count, with 1 the age. */
static void lfru_by_hand(void **state)
{
	struct cp_cache *c = new_cache("lfru:weight=0,half_life=1000", 3, 1, 26);
	char out[64];
	cp_key key;

	(void)state;
	assert_letters("lfru:weight=1,half_life=1e6", 3, textbook, "---h.b.cdae..a.d.c..");
	run_letters(c, "aaabbc", out);
	cp_event(c, 0, NULL, 0);
	assert_true(cp_victim(c, &key) && key == 2); /* c was used once */
	assert_int_equal(cp_set(c, "weight", 1), 0);
	assert_true(cp_victim(c, &key) && key == 0); /* a longest ago */
	assert_int_equal(cp_set(c, "weight", 1.5), -EINVAL);
	assert_int_equal(cp_set(c, "weight", 0), 0);
	assert_true(cp_victim(c, &key) && key == 2);
	cp_destroy(c);
}

/* More uses than there are levels for count as the most there are. */
static void lfru_at_the_top(void **state)
{
	struct cp_cache *c = new_cache("lfru:weight=0", 2, 1, 4);
	cp_key key;

	(void)state;
	cp_seed(c, 0, 1e14);
	assert_int_equal(cp_admit(c, 0, 1), 0);
	assert_true(cp_victim(c, &key) && key == 0);
	assert_int_equal(cp_admit(c, 1, 1), 0);
	cp_touch(c, 0, 1);
	assert_true(cp_victim(c, &key) && key == 1);
	cp_destroy(c);
}

/* a and b are the hot ones, with room for two; what else comes goes through the other two places. */
static void hotset_by_hand(void **state)
{
	(void)state;
	assert_letters("hotset:share=0.5,half_life=1000", 4, "aabbcdefgabcb", "-.-.--cde..f.");
}

/* A layer at its part gives up its own; one below takes from the one that has most. */
static void quota_by_hand(void **state)
{
	struct cp_cache *c = new_cache("quota:lru", 4, 2, 8);
	cp_key key;

	(void)state;
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(cp_admit(c, cp_key_of(0, i), 1), 0);
	assert_true(cp_victim_for(c, cp_key_of(1, 0), &key) && key == cp_key_of(0, 0));
	assert_true(cp_remove(c, key));
	assert_int_equal(cp_admit(c, cp_key_of(1, 0), 1), 0);
	assert_true(cp_victim_for(c, cp_key_of(1, 1), &key) && key == cp_key_of(0, 1));
	assert_true(cp_remove(c, key));
	assert_int_equal(cp_admit(c, cp_key_of(1, 1), 1), 0);
	assert_true(cp_victim_for(c, cp_key_of(1, 2), &key) && key == cp_key_of(1, 0));
	assert_true(cp_victim_for(c, cp_key_of(0, 7), &key) && key == cp_key_of(0, 2));
	/* Its own are pinned: the other layer's, then. */
	assert_true(cp_pin(c, cp_key_of(0, 2)) && cp_pin(c, cp_key_of(0, 3)));
	assert_true(cp_victim_for(c, cp_key_of(0, 7), &key) && key == cp_key_of(1, 0));
	cp_destroy(c);
}

/* -- the tests ----------------------------------------------------------------------------------------- */

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(popularity),     cmocka_unit_test(belady_by_hand),
		cmocka_unit_test(lruk_by_hand),   cmocka_unit_test(lfu_by_hand),
		cmocka_unit_test(lfru_by_hand),   cmocka_unit_test(lfru_at_the_top),
		cmocka_unit_test(hotset_by_hand), cmocka_unit_test(quota_by_hand),
		MODEL_TEST("lfu", &lfu),          MODEL_TEST("lfru", &lfru),
		MODEL_TEST("lruk", &lruk),        MODEL_TEST("hotset", &hotset),
		MODEL_TEST("quota", &quota),      cmocka_unit_test(model_belady),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
