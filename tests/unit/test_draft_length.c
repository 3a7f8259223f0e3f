/* SPDX-License-Identifier: Apache-2.0
 *
 * How many tokens to guess: against made-up machines on which guessing pays or does not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/draft_length.h"
#include "engine/sampler.h"

/* A step of k guesses takes `step` + k * `guess` seconds; each guess is right with probability
 * `right`, if the one before was. */
struct machine {
	double step, guess, right;
	double faster; /* what a token takes off the time of all steps, as a filling cache does */
	struct rng rng;
};

struct run {
	int tokens, by_length[32];
	double seconds;
};

static void run(struct machine *m, struct draft_length *d, int tokens, struct run *out)
{
	*out = (struct run){ 0 };
	while (out->tokens < tokens) {
		int k = draft_length_next(d), made = 1;
		while (made <= k && rng_unit(&m->rng) < m->right)
			made++;
		double seconds = m->step + k * m->guess;
		draft_length_step(d, made, seconds);
		m->step -= m->faster * made;
		out->tokens += made;
		out->by_length[k] += made;
		out->seconds += seconds;
	}
}

static struct machine machine(double step, double guess, double right)
{
	struct machine m = { step, guess, right, 0, { { 0 } } };

	rng_seed(&m.rng, 5);
	return m;
}

static void lengths_stay_within_the_most(void **state)
{
	const struct {
		int max, longest;
	} cases[] = { { 0, 0 }, { 1, 1 }, { 3, 2 }, { 4, 4 }, { 7, 4 }, { 8, 8 }, { 15, 8 } };

	(void)state;
	for (int i = 0; i < 7; i++) {
		struct machine m = machine(1, 0, 1); /* a guess costs nothing and is right */
		struct draft_length d;
		struct run r;
		draft_length_init(&d, cases[i].max);
		run(&m, &d, 3000, &r);
		for (int k = cases[i].longest + 1; k < 32; k++)
			assert_int_equal(r.by_length[k], 0);
		run(&m, &d, 3000, &r);
		assert_int_equal(draft_length_of(d.best), cases[i].longest);
		assert_true(r.by_length[cases[i].longest] > 2500);
	}
}

/* Every row that is checked brings its own experts from the drive. */
static void none_where_a_guess_costs_as_much_as_a_token(void **state)
{
	struct machine m = machine(1, 0.9, 0.7);
	struct draft_length d;
	struct run r;

	(void)state;
	draft_length_init(&d, 8);
	run(&m, &d, 150, &r);
	assert_int_equal(r.by_length[2] + r.by_length[4] + r.by_length[8], 0);
	assert_true(r.by_length[1] < 25);
	assert_true(d.rate[0] > d.rate[1] && d.rate[1] > 0);
	run(&m, &d, 10000, &r);
	assert_true(r.by_length[0] > 9000);
	assert_true(r.tokens / r.seconds > 0.98);
	assert_true(r.by_length[1] > 100); /* but it is asked now and then */
}

static void the_best_length_is_found_and_kept(void **state)
{
	struct machine m = machine(1, 0.15, 0.75);
	struct draft_length d;
	struct run r;

	(void)state;
	draft_length_init(&d, 8);
	run(&m, &d, 400, &r);
	run(&m, &d, 10000, &r);
	/* Expected tokens a second: 1, 1.52, 1.78, 1.91, 1.68 by length. */
	assert_true(r.by_length[2] + r.by_length[4] > 9000);
	assert_true(r.tokens / r.seconds > 1.7);
}

static void a_change_is_noticed(void **state)
{
	struct machine m = machine(1, 0.9, 0.7);
	struct draft_length d;
	struct run r;

	(void)state;
	draft_length_init(&d, 8);
	run(&m, &d, 3000, &r);
	assert_int_equal(d.best, 0);
	m.guess = 0.05; /* everything is in memory now */
	run(&m, &d, 1500, &r);
	assert_true(d.best > 0);
	m.guess = 2;
	run(&m, &d, 2500, &r);
	run(&m, &d, 500, &r);
	assert_true(r.by_length[0] > 450);
}

/* While steps become faster by themselves the later turn looks better; and even is not better. */
static void a_drift_decides_nothing(void **state)
{
	struct machine m = machine(1, 0, 0);
	struct draft_length d;
	struct run r;

	(void)state;
	m.faster = 0.02; /* 1 second to 0.36 in the 32 tokens of a trial */
	draft_length_init(&d, 8);
	run(&m, &d, 32, &r);
	assert_int_equal(d.best, 0);
	assert_int_equal(r.by_length[1], 16);
}

static void a_clock_that_stands_still_is_survived(void **state)
{
	struct machine m = machine(0, 0, 0.5);
	struct draft_length d;
	struct run r;

	(void)state;
	draft_length_init(&d, 8);
	run(&m, &d, 1000, &r);
	assert_int_equal(d.best, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lengths_stay_within_the_most),
		cmocka_unit_test(none_where_a_guess_costs_as_much_as_a_token),
		cmocka_unit_test(the_best_length_is_found_and_kept),
		cmocka_unit_test(a_change_is_noticed),
		cmocka_unit_test(a_drift_decides_nothing),
		cmocka_unit_test(a_clock_that_stands_still_is_survived),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
