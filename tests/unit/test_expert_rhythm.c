/* SPDX-License-Identifier: Apache-2.0
 *
 * The rhythm of the layers behind the policy `expert`: what it comes to for readers whose rhythm can
 * be said beforehand, and its arithmetic against the same in doubles, from all gaps that were seen.
 */
#include "tests/unit/policy_model.h"

#include "cachepolicy/expert_rhythm.h"

static void visits(struct rhythm *r, const uint32_t *layers, size_t n)
{
	for (size_t k = 0; k < n; k++)
		rhythm_visit(r, layers[k]);
	rhythm_update(r);
}

static void assert_worth(const struct rhythm *r, uint32_t layer, double distance, double within)
{
	double want = pow(distance, -r->nearness), got = rhythm_worth(r, layer);

	if (fabs(got - want) > within * want)
		fail_msg("layer %u: %.4f, not %.4f", layer, got, want);
}

/* One layer after the other, for ever. */
static void one_reader(void **state)
{
	struct rhythm r;

	(void)state;
	assert_int_equal(rhythm_create(&r, 40, 0.7f), 0);
	/* Nothing was seen of them: they come within the round. */
	rhythm_visit(&r, 7);
	rhythm_update(&r);
	assert_worth(&r, 3, 20, 0.01);
	for (uint32_t v = 0; v < 400; v++)
		rhythm_visit(&r, v % 40);
	rhythm_update(&r);
	for (uint32_t l = 0; l < 39; l++)
		assert_worth(&r, l, 1 + l, 0.02);
	/* The last one comes again at once more often than not, or so it was at the start. */
	assert_true(rhythm_worth(&r, 39) > pow(40, -0.7));
	assert_true(rhythm_worth(&r, 39) < pow(20, -0.7));
	/* With another exponent the same distances. */
	rhythm_tune(&r, 1.5f);
	rhythm_update(&r);
	assert_worth(&r, 9, 10, 0.05);
	rhythm_destroy(&r);
}

/* A prompt visits each layer for each of its tokens before it goes on. */
static void prompt(void **state)
{
	struct rhythm r;

	(void)state;
	assert_int_equal(rhythm_create(&r, 20, 0.7f), 0);
	for (uint32_t v = 0; v < 20 * 3 * 30; v++)
		rhythm_visit(&r, v / 30 % 20);
	rhythm_visit(&r, 0);
	rhythm_update(&r);
	/* 29 visits of 30 repeat the one before. */
	for (uint32_t l = 2; l < 19; l++) {
		assert_worth(&r, l, l, 0.1);
		assert_true(rhythm_worth(&r, 0) > rhythm_worth(&r, l));
	}
	for (uint32_t k = 0; k < 10; k++)
		rhythm_visit(&r, 0);
	rhythm_update(&r);
	assert_worth(&r, 0, 0.25, 0.15);
	/* It has gone on: now a round has to pass. */
	rhythm_visit(&r, 1);
	rhythm_update(&r);
	assert_worth(&r, 0, 19, 0.1);
	rhythm_destroy(&r);
}

/* Two readers, the second ten layers behind: to each layer they come after 10 steps of each, that is
 * 20, and after 60, by turns. */
static void by_turns(void **state)
{
	struct rhythm r;

	(void)state;
	assert_int_equal(rhythm_create(&r, 40, 0.7f), 0);
	for (uint32_t v = 0; v < 40 * 8; v++) {
		rhythm_visit(&r, v % 40);
		rhythm_visit(&r, (v + 30) % 40);
	}
	/* The first one was in layer 39 last, then the second in 29. */
	rhythm_update(&r);
	assert_worth(&r, 35, 12, 0.05); /* the second comes there, six layers on */
	assert_worth(&r, 20, 41, 0.05); /* it was there, the first has yet to come round */
	assert_worth(&r, 2, 5, 0.1);
	rhythm_destroy(&r);
}

/* While one reader goes through a prompt, another one makes tokens. */
static void prompt_among_tokens(void **state)
{
	struct rhythm r;

	(void)state;
	assert_int_equal(rhythm_create(&r, 30, 0.7f), 0);
	for (uint32_t v = 0; v < 30 * 40; v++) {
		rhythm_visit(&r, v / 120);
		rhythm_visit(&r, 20 + v % 10);
	}
	rhythm_update(&r);
	/* Layer 9 is visited every second step, 19 others in between: not what comes once in a while. */
	assert_worth(&r, 9, 1, 0.3);
	assert_true(rhythm_worth(&r, 9) > 2 * rhythm_worth(&r, 25));
	assert_worth(&r, 25, 11, 0.2);
	rhythm_destroy(&r);
}

/* -- the same in doubles ----------------------------------------------------------------------- */

enum { LAYERS = 12, AGES = 4 * LAYERS + 1, CLASSES = 14 };

struct slow {
	double after[CLASSES][CLASSES], sum[CLASSES], mean[CLASSES];
	int last;
	long step, visit[LAYERS];
	int gap[LAYERS]; /* class, or -1 */
};

static int slow_class(long gap)
{
	return gap ? 1 + (int)floor(2 * log2((double)gap) + 1e-9) : 0;
}

static void slow_create(struct slow *s)
{
	memset(s, 0, sizeof(*s));
	s->last = -1;
	for (int c = 0; c < CLASSES; c++) {
		s->mean[c] = c ? fmin(pow(2, (c - 1) / 2.0 + 0.25), AGES - 1) : 0;
		s->after[c][0] = c ? 0.1 : 1.8;
		s->after[c][slow_class(LAYERS)] += 2 - s->after[c][0];
		s->sum[c] = 2;
	}
	s->mean[slow_class(LAYERS)] = LAYERS;
	for (int l = 0; l < LAYERS; l++)
		s->gap[l] = -1;
}

static void slow_visit(struct slow *s, int layer)
{
	long gap;
	int c;

	s->step += layer != s->last;
	gap = s->step - s->visit[layer];
	gap = gap < AGES ? gap : AGES - 1;
	c = slow_class(s->gap[layer] < 0 ? LAYERS : gap);
	if (s->gap[layer] >= 0) {
		int before = s->gap[layer];

		for (int k = 0; k < CLASSES; k++)
			s->after[before][k] *= 0.95;
		s->after[before][c]++;
		s->sum[before] = s->sum[before] * 0.95 + 1;
		s->mean[c] += 0.05 * ((double)gap - s->mean[c]);
	}
	s->visit[layer] = s->step;
	s->gap[layer] = c;
	s->last = layer;
}

static double slow_worth(const struct slow *s, int layer, double nearness)
{
	long age = s->step - s->visit[layer];
	double worth = 0, sum = 0;

	if (s->gap[layer] < 0)
		return pow(LAYERS / 2.0, -nearness);
	age = age < AGES ? age : AGES - 1;
	for (int c = 0; c < CLASSES; c++) {
		double share = s->after[s->gap[layer]][c] / s->sum[s->gap[layer]];
		double left = s->mean[c] - (double)age;
		bool shorter = true;

		for (long gap = age; gap < AGES + LAYERS; gap++)
			shorter &= slow_class(gap) != c;
		if (shorter)
			continue;
		share += c == slow_class(LAYERS) ? 0.05 : 0;
		if (left < 0.5)
			left = 0.75 - left / 2;
		sum += share;
		worth += share * pow(c ? floor(2 * left + 0.5) / 2 : 0.25, -nearness);
	}
	return sum > 0 ? worth / sum : pow((double)age + 0.5, -nearness);
}

/* Rows stand as long as shares differ by no more than 0.03, and means by 0.02 of them, which may
 * make half a step of one. */
static void arithmetic(void **state)
{
	struct slow s;
	struct rhythm r;
	double off = 0;
	int n = 0, position[3] = { 0, 4, 7 };

	(void)state;
	random_state = 31;
	slow_create(&s);
	assert_int_equal(rhythm_create(&r, LAYERS, 0.7f), 0);
	for (int v = 0; v < 30000; v++) {
		int reader = (int)rnd(v / 3000 % 3 + 1);

		/* Readers that now and then stay where they are, or jump. */
		if (rnd(20) == 0)
			position[reader] = (int)rnd(LAYERS);
		else if (rnd(4))
			position[reader] = (position[reader] + 1) % LAYERS;
		slow_visit(&s, position[reader]);
		rhythm_visit(&r, (uint32_t)position[reader]);
		if (rnd(3))
			continue;
		rhythm_update(&r);
		for (int l = 0; l < LAYERS; l++) {
			double want = slow_worth(&s, l, 0.7), got = rhythm_worth(&r, (uint32_t)l);

			if (fabs(got - want) > 0.7 * want)
				fail_msg("visit %d, layer %d: %.4f, not %.4f", v, l, got, want);
			off += fabs(got - want) / want;
			n++;
		}
	}
	print_message("off by %.2f %% in the mean\n", 100 * off / n);
	assert_true(off / n < 0.03);
	rhythm_destroy(&r);
}

/* A gap that came once, long ago: what it leaves is nothing in the end, and no worth ever is. */
static void once(void **state)
{
	struct rhythm r;

	(void)state;
	assert_int_equal(rhythm_create(&r, 40, 2), 0);
	for (uint32_t v = 0; v < 40 * 100; v++) {
		if (v % 40 == 5 && v / 40 > 2 && v / 40 < 5)
			continue; /* it misses two rounds */
		rhythm_visit(&r, v % 40);
		rhythm_tune(&r, 2); /* all rows are made anew */
		rhythm_update(&r);
		for (uint32_t c = 0; c < r.classes; c++) {
			for (uint32_t k = 0; k < RHYTHM_CLASSES; k++)
				assert_int_not_equal(fpclassify(r.class[c].after[k]), FP_SUBNORMAL);
			for (uint32_t age = 0; age < r.ages; age++)
				assert_true(r.worth[c * r.stride + age] > 0);
		}
	}
	rhythm_destroy(&r);
}

/* Geometries that no model has. */
static void extremes(void **state)
{
	static const uint32_t layers[] = { 1, 2, 1023, 1024, 65536 };

	(void)state;
	random_state = 32;
	for (size_t k = 0; k < COUNT(layers); k++) {
		struct rhythm r;

		assert_int_equal(rhythm_create(&r, layers[k], 2), 0);
		visits(&r, (uint32_t[]){ 0, 0, 0 }, 3);
		for (uint32_t v = 0; v < 3000; v++) {
			rhythm_visit(&r, rnd(rnd(layers[k]) + 1));
			if (rnd(50))
				continue;
			rhythm_update(&r);
			for (uint32_t l = 0; l < layers[k]; l += 1 + layers[k] / 100) {
				float worth = rhythm_worth(&r, l);

				assert_true(worth > 0 && worth <= 16.1f);
			}
		}
		rhythm_destroy(&r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_reader), cmocka_unit_test(prompt),
		cmocka_unit_test(by_turns),   cmocka_unit_test(prompt_among_tokens),
		cmocka_unit_test(arithmetic), cmocka_unit_test(once),
		cmocka_unit_test(extremes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
