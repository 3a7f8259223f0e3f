/* SPDX-License-Identifier: Apache-2.0
 *
 * The sampler: its generator against published values, its choices against the distribution.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "engine/sampler.h"

#define N 8

static const float logits[N] = { 1, 3, 2, 3, -1, 0, 2.5f, -4 };
static const bool all[N] = { true, true, true, true, true, true, true, true };

static struct sampler *make(double temperature, int top_k, double top_p, uint64_t seed,
			    const bool *allowed)
{
	const struct sampler_options o = { temperature, top_k, top_p, seed };
	struct sampler *s;

	assert_int_equal(sampler_new(&o, allowed, N, &s, NULL), 0);
	return s;
}

/* First outputs for the state 1, 2, 3, 4 as the authors' C code gives them; and of splitmix64 for
 * seed 0, which fills the state. */
static void generator_gives_the_published_numbers(void **state)
{
	const uint64_t want[] = { 11520, 0, 1509978240, 1215971899390074240 };
	struct rng r = { { 1, 2, 3, 4 } };

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_true(rng_next(&r) == want[i]);
	rng_seed(&r, 0);
	assert_true(r.s[0] == 0xe220a8397b1dcdafu);
	assert_true(r.s[1] == 0x6e789e6aa1b965f4u);
	assert_true(r.s[2] == 0x06c45d188009454fu);
	assert_true(r.s[3] == 0xf88bb8a8724c81ecu);
}

static void unit_lies_within_zero_and_one(void **state)
{
	struct rng r;
	double sum = 0;

	(void)state;
	rng_seed(&r, 7);
	for (int i = 0; i < 100000; i++) {
		double u = rng_unit(&r);
		assert_true(u >= 0 && u < 1);
		sum += u;
	}
	assert_true(fabs(sum / 100000 - 0.5) < 0.005);
}

static void without_temperature_the_first_of_the_likeliest(void **state)
{
	const bool some[N] = { true, false, true, false, true, true, true, true };
	struct sampler *s = make(0, 0, 1, 5, all);

	(void)state;
	assert_int_equal(sampler_pick(s, logits), 1); /* 1 and 3 are equal */
	sampler_free(s);
	s = make(0, 0, 1, 5, some);
	assert_int_equal(sampler_pick(s, logits), 6);
	sampler_free(s);
}

static void count(struct sampler *s, int draws, double *share)
{
	memset(share, 0, N * sizeof(*share));
	for (int i = 0; i < draws; i++) {
		int id = sampler_pick(s, logits);
		assert_true(id >= 0 && id < N);
		share[id] += 1.0 / draws;
	}
	sampler_free(s);
}

/* Shares of the tokens in keep against the softmax over them at this temperature. */
static void check_shares(const double *share, double temperature, unsigned keep)
{
	double sum = 0;

	for (int i = 0; i < N; i++)
		sum += keep >> i & 1 ? exp(logits[i] / temperature) : 0;
	for (int i = 0; i < N; i++) {
		double want = keep >> i & 1 ? exp(logits[i] / temperature) / sum : 0;
		if (want == 0)
			assert_true(share[i] == 0);
		else
			assert_true(fabs(share[i] - want) < 0.01);
	}
}

static void draws_follow_the_distribution(void **state)
{
	const bool some[N] = { true, true, false, true, true, true, false, true };
	double share[N];

	(void)state;
	count(make(1, 0, 1, 1, all), 60000, share);
	check_shares(share, 1, 0xff);
	count(make(2.5, 0, 1, 2, all), 60000, share);
	check_shares(share, 2.5, 0xff);
	count(make(1, 0, 1, 3, some), 60000, share);
	check_shares(share, 1, 0xff & ~(1u << 2 | 1u << 6));
}

static void top_k_keeps_the_k_likeliest(void **state)
{
	double share[N];

	(void)state;
	count(make(1, 3, 1, 1, all), 60000, share);
	check_shares(share, 1, 1u << 1 | 1u << 3 | 1u << 6);
	count(make(3, 1, 1, 1, all), 1000, share); /* of the equal 1 and 3 the lower */
	check_shares(share, 3, 1u << 1);
	count(make(1, 100, 1, 1, all), 60000, share);
	check_shares(share, 1, 0xff);
}

/* exp of the logits: 20.1 20.1 12.2 7.4 2.7 1 0.4 0.02, sum 63.9; so 1 and 3 hold 0.629, with 6
 * 0.819. */
static void top_p_keeps_the_fewest_that_reach_p(void **state)
{
	double share[N];

	(void)state;
	count(make(1, 0, 0.62, 1, all), 60000, share);
	check_shares(share, 1, 1u << 1 | 1u << 3);
	count(make(1, 0, 0.64, 1, all), 60000, share);
	check_shares(share, 1, 1u << 1 | 1u << 3 | 1u << 6);
	count(make(1, 0, 0, 1, all), 1000, share);
	check_shares(share, 1, 1u << 1);
	/* After top-k, of what is left: 1, 3 and 6 hold 52.4 of which 1 and 3 are 0.767. */
	count(make(1, 3, 0.76, 1, all), 60000, share);
	check_shares(share, 1, 1u << 1 | 1u << 3);
	count(make(1, 3, 0.78, 1, all), 60000, share);
	check_shares(share, 1, 1u << 1 | 1u << 3 | 1u << 6);
}

#define LARGE 3000

/* A flat distribution makes top-p look at many more candidates than the first few. */
static void top_p_of_a_flat_distribution(void **state)
{
	static float flat[LARGE];
	static bool allowed[LARGE];
	static int seen[LARGE];
	const struct sampler_options o = { 1, 0, 0.5, 9 };
	struct sampler *s;
	int kinds = 0;

	(void)state;
	for (int i = 0; i < LARGE; i++) {
		flat[i] = (float)(i % 2) * 1e-4f; /* odd ones are likelier */
		allowed[i] = true;
	}
	assert_int_equal(sampler_new(&o, allowed, LARGE, &s, NULL), 0);
	for (int i = 0; i < 4000; i++) {
		int id = sampler_pick(s, flat);
		assert_int_equal(id % 2, 1);
		kinds += seen[id]++ == 0;
	}
	assert_true(kinds > LARGE / 2 - 200 && kinds <= LARGE / 2);
	sampler_free(s);
}

static void a_seed_gives_the_same_tokens_again(void **state)
{
	struct sampler *a = make(1, 0, 0.95, 123, all), *b = make(1, 0, 0.95, 123, all),
		       *c = make(1, 0, 0.95, 124, all);
	int differ = 0;

	(void)state;
	for (int i = 0; i < 200; i++) {
		int x = sampler_pick(a, logits);
		assert_int_equal(x, sampler_pick(b, logits));
		differ += x != sampler_pick(c, logits);
	}
	assert_true(differ > 50);
	sampler_free(a);
	sampler_free(b);
	sampler_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(generator_gives_the_published_numbers),
		cmocka_unit_test(unit_lies_within_zero_and_one),
		cmocka_unit_test(without_temperature_the_first_of_the_likeliest),
		cmocka_unit_test(draws_follow_the_distribution),
		cmocka_unit_test(top_k_keeps_the_k_likeliest),
		cmocka_unit_test(top_p_keeps_the_fewest_that_reach_p),
		cmocka_unit_test(top_p_of_a_flat_distribution),
		cmocka_unit_test(a_seed_gives_the_same_tokens_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
