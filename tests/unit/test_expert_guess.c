/* SPDX-License-Identifier: Apache-2.0
 *
 * The guess behind the policy `expert`, against the same arithmetic as one would write it down:
 * in doubles, with true logarithms, all sets of the past as they were, rates as rates, and every
 * number made anew from them. cachepolicy/expert_guess.h says what is computed.
 */
#include "tests/unit/policy_model.h"

#include "cachepolicy/expert_guess.h"
#include "cachepolicy/expert_lanes.h"

enum { MOST = 328, LAYERS = 3, PAST = 64 };

struct layer {
	double visits, heat_sum;
	double heat[MOST], rate[GUESS_RATES][MOST], echo[MOST];
	bool set[PAST + 1][MOST]; /* [0]: the last visit */
	long start[PAST + 1];     /* of each visit's members in the ring */
	long end;
};

struct slow_guess {
	int layers, experts;
	struct layer layer[LAYERS];
	double weight[GUESS_INPUTS], slope2[GUESS_INPUTS], visits;
	double in[MOST][GUESS_INPUTS];
};

static int size_of(const struct slow_guess *s, const bool *set)
{
	int n = 0;

	for (int x = 0; x < s->experts; x++)
		n += set[x];
	return n;
}

static void slow_create(struct slow_guess *s, int layers, int experts)
{
	static const double start[GUESS_INPUTS] = { 0.15, 0.1, 0.25, 0.45, 0.2, 0 };

	memset(s, 0, sizeof(*s));
	s->layers = layers;
	s->experts = experts;
	for (int k = 0; k < GUESS_INPUTS; k++) {
		s->weight[k] = start[k];
		s->slope2[k] = 1;
	}
}

static void slow_inputs(const struct layer *l, int x, double *in)
{
	for (int r = 0; r < GUESS_RATES; r++)
		in[r] = fmax(log(l->rate[r][x]), -7);
	in[GUESS_ECHO] = l->echo[x];
	in[GUESS_LAST] = l->set[0][x];
	in[GUESS_BIAS] = 1;
}

static double slow_odds(const struct slow_guess *s, const double *in)
{
	double odds = 0;

	for (int k = 0; k < GUESS_INPUTS; k++)
		odds += s->weight[k] * in[k];
	return odds;
}

static void slow_learn(struct slow_guess *s, const struct layer *l, const bool *set)
{
	double slope[GUESS_INPUTS] = { 0 };
	int parts = s->visits < 256 || s->experts < 32 ? 1 : s->experts / 32;
	int part = (int)fmod(s->visits, parts);
	int first = part * s->experts / parts / LANES * LANES;
	int end = part + 1 < parts ? (part + 1) * s->experts / parts / LANES * LANES : s->experts;

	for (int x = first; x < end; x++) {
		double in[GUESS_INPUTS], odds, error;

		slow_inputs(l, x, in);
		odds = fmin(fmax(slow_odds(s, in), -12), 12);
		error = set[x] - 1 / (1 + exp(-odds));
		for (int k = 0; k < GUESS_INPUTS; k++)
			slope[k] += error * in[k] * sqrt(s->experts) / (end - first);
	}
	for (int k = 0; k < GUESS_INPUTS; k++) {
		s->slope2[k] = 0.999 * s->slope2[k] + slope[k] * slope[k];
		s->weight[k] += 0.03 * slope[k] / sqrt(s->slope2[k]);
		s->weight[k] = fmin(fmax(s->weight[k], -8), 8);
	}
}

static void slow_echo(const struct slow_guess *s, struct layer *l)
{
	double share[MOST] = { 0 }, sum = 1, most = 0, both[PAST + 1] = { 0 };
	int here = size_of(s, l->set[0]);

	for (int v = 1; v <= PAST; v++)
		for (int x = 0; x < s->experts; x++)
			both[v] += l->set[0][x] && l->set[v][x];
	for (int v = 1; v <= PAST; v++)
		most = fmax(most, both[v]);
	for (int v = 1; v <= PAST && most > 0; v++) {
		int there = size_of(s, l->set[v]);
		double closeness;

		/* There is room for 8 members an expert of the layer. */
		if (3 * both[v] < most ||
		    (v > 1 && l->end - l->start[v - 2] > 8 * (long)s->experts))
			continue;
		closeness = pow(both[v], 3) / ((double)here * there * fmax(here, there));
		sum += closeness;
		for (int x = 0; x < s->experts; x++)
			share[x] += l->set[v - 1][x] ? closeness : 0;
	}
	for (int x = 0; x < s->experts; x++)
		l->echo[x] = log((share[x] + (double)here / s->experts) / sum);
}

/* Members of a visit lie in a row: where the ring ends before, its last places stay empty. */
static void place(const struct slow_guess *s, struct layer *l, int n)
{
	long room = 8 * (long)s->experts, at = l->end % room;

	if (at == 0 && l->end > 0)
		at = room;
	if (n > room - at)
		l->end += room - at;
	memmove(l->start + 1, l->start, PAST * sizeof(l->start[0]));
	l->start[0] = l->end;
	l->end += n;
}

/* What guess_use() for each of the set and guess_close() do. */
static void slow_visit(struct slow_guess *s, int layer, const bool *set)
{
	struct layer *l = &s->layer[layer];
	static const double shares[] = { 0.52, 0.0669670, 0.0069075 };
	double before = l->visits + (l->heat_sum > 0 ? 16 : 0);
	double mean = (double)size_of(s, set) / s->experts;

	if (l->visits > 0)
		slow_learn(s, l, set);
	for (int x = 0; x < s->experts; x++) {
		double start = mean;

		if (l->heat_sum > 0)
			start = fmin(0.9, mean * s->experts * l->heat[x] / l->heat_sum);
		for (int r = 0; r < GUESS_RATES; r++) {
			double share = fmax(shares[r], 1 / (before + 4)), *rate = &l->rate[r][x];

			if (l->visits <= 0)
				*rate = fmax(start, mean / 10);
			/* A use is added to no less than the least. */
			*rate *= 1 - share;
			if (set[x])
				*rate = fmax(*rate, exp(-7)) + share;
		}
	}
	memmove(l->set[1], l->set[0], PAST * sizeof(l->set[0]));
	memcpy(l->set[0], set, sizeof(l->set[0]));
	slow_echo(s, l); /* the members of this visit are not in the ring yet */
	place(s, l, size_of(s, set));
	l->visits++;
	s->visits++;
}

/* A set that has to do with the one before, so that there is something to learn. */
static void random_set(const struct slow_guess *s, int layer, int n, bool *set)
{
	const struct layer *l = &s->layer[layer];

	memset(set, 0, MOST * sizeof(set[0]));
	for (int x = 0; x < s->experts; x++)
		set[x] = l->set[0][x] ? rnd(3) == 0 : l->set[3][x] && rnd(4) == 0;
	while (size_of(s, set) < n)
		set[rnd(rnd((uint32_t)s->experts) + 1)] = true;
}

static void compare(const struct guess *g, const struct slow_guess *s, uint32_t layer)
{
	static float all[MOST + LANES];
	static const float nothing[MOST + LANES];

	guess_layer_log_odds(g, layer, nothing, all);
	for (int x = 0; x < s->experts; x++) {
		float in[GUESS_INPUTS];
		double slow[GUESS_INPUTS];

		guess_inputs(g, layer, (uint32_t)x, in);
		slow_inputs(&s->layer[layer], x, slow);
		for (int k = 0; k < GUESS_INPUTS; k++)
			assert_true(fabs(in[k] - slow[k]) < 0.02);
		assert_true(all[x] == guess_log_odds(g, layer, (uint32_t)x));
		assert_true(fabs(all[x] - slow_odds(s, slow)) < 0.15);
	}
	for (int k = 0; k < GUESS_INPUTS; k++)
		assert_true(fabs(g->weight[k] - s->weight[k]) < 0.05);
}

static void run(int layers, int experts, int typical, int visits, bool seeded)
{
	static struct slow_guess s;
	struct guess g;

	slow_create(&s, layers, experts);
	assert_int_equal(guess_create(&g, (uint32_t)layers, (uint32_t)experts), 0);
	for (int x = 0; x < experts && seeded; x++)
		if (rnd(3)) {
			double heat = rnd(1000) / 100.0 + 0.01;

			s.layer[0].heat[x] = (float)heat;
			s.layer[0].heat_sum += heat;
			guess_seed(&g, 0, (uint32_t)x, heat);
		}
	assert_int_equal(guess_knows(&g, 0), seeded);
	for (int v = 0; v < visits; v++) {
		uint32_t layer = rnd((uint32_t)layers);
		bool set[MOST];
		int n = rnd(20) ? typical : (int)rnd((uint32_t)experts) + 1;

		random_set(&s, (int)layer, n, set);
		for (int x = 0; x < experts; x++) {
			if (!set[x])
				continue;
			guess_use(&g, layer, (uint32_t)x);
			if (rnd(50) == 0)
				assert_true(guess_preview(&g));
		}
		assert_int_equal(g.n, size_of(&s, set));
		guess_close(&g);
		assert_int_equal(guess_last_size(&g, layer), size_of(&s, set));
		slow_visit(&s, (int)layer, set);
		if (v < 300 || v % 97 == 0)
			compare(&g, &s, layer);
	}
	guess_destroy(&g);
}

static void arithmetic(void **state)
{
	(void)state;
	random_state = 7;
	run(3, 13, 3, 4000, false);
	run(2, 64, 8, 4000, true);
	run(3, 77, 6, 4000, true);
	run(1, 1, 1, 200, false);
	/* In parts of a tenth that were rounded up to lanes, the last one would have no experts. */
	run(1, 324, 8, 600, false);
}

/* The floats that stand for the decay are brought back in time: 14,400 visits for the fast one,
 * 144,000 for the slow one. */
static void long_life(void **state)
{
	(void)state;
	random_state = 8;
	run(1, 9, 2, 160000, false);
}

/* A preview says what the close will say, of those that were not chosen. */
static void preview(void **state)
{
	struct guess g;

	(void)state;
	random_state = 9;
	assert_int_equal(guess_create(&g, 2, 20), 0);
	for (int v = 0; v < 500; v++) {
		uint32_t layer = rnd(2), x = rnd(20), other = (x + 1 + rnd(19)) % 20;
		float before, weights[GUESS_INPUTS], in[GUESS_INPUTS], later[GUESS_INPUTS];

		guess_use(&g, layer, x);
		assert_true(guess_preview(&g));
		assert_false(guess_preview(&g));
		guess_inputs(&g, layer, other, in);
		before = guess_member_log_odds(&g, x);
		memcpy(weights, g.weight, sizeof(weights));
		guess_close(&g);
		guess_inputs(&g, layer, other, later);
		for (int k = 0; k < GUESS_INPUTS; k++)
			assert_true(fabsf(in[k] - later[k]) < 1e-3f);
		memcpy(g.weight, weights, sizeof(weights));
		assert_true(fabsf(before - guess_log_odds(&g, layer, x)) < 0.01f);
	}
	guess_close(&g);
	guess_destroy(&g);
}

/* A cycle of five sets: after some rounds of it the next set is the most likely one. */
static void repetition(void **state)
{
	struct guess g;

	(void)state;
	assert_int_equal(guess_create(&g, 1, 32), 0);
	for (uint32_t v = 0; v < 100; v++) {
		float lowest_next = INFINITY, highest_other = -INFINITY;

		for (uint32_t k = 0; k < 4; k++)
			guess_use(&g, 0, (v % 5 * 4 + k * k) % 32);
		guess_close(&g);
		for (uint32_t x = 0; x < 32; x++) {
			uint32_t next = (v + 1) % 5 * 4;
			bool is =
				x == next || x == next + 1 || x == next + 4 || x == (next + 9) % 32;
			float odds = guess_log_odds(&g, 0, x);

			if (is)
				lowest_next = fminf(lowest_next, odds);
			else
				highest_other = fmaxf(highest_other, odds);
		}
		if (v >= 20)
			assert_true(lowest_next > highest_other);
	}
	guess_destroy(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arithmetic),
		cmocka_unit_test(long_life),
		cmocka_unit_test(preview),
		cmocka_unit_test(repetition),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
