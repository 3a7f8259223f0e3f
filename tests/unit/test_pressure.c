/* SPDX-License-Identifier: Apache-2.0
 *
 * When the hot store gives memory back, and when it takes it again: pressure_step() alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "expertfs/pressure.h"

#include <cmocka.h>

#define MIB (1ull << 20)

static struct pressure_state fresh(void)
{
	return (struct pressure_state){ .full = 800 * MIB,
					.capacity = 800 * MIB,
					.reserve = 100 * MIB };
}

static void calm_changes_nothing(void **state)
{
	struct pressure_state s = fresh();

	(void)state;
	for (uint64_t now = 1000; now < 100000; now += 1000)
		assert_false(pressure_step(&s, now, 100 * MIB, false));
	assert_int_equal(s.capacity, 800 * MIB);
}

static void what_is_missing_goes_at_once(void **state)
{
	struct pressure_state s = fresh();

	(void)state;
	assert_true(pressure_step(&s, 5000, 0, false)); /* 100 MiB are missing: an eighth */
	assert_int_equal(s.capacity, 700 * MIB);
	s = fresh();
	s.reserve = 400 * MIB;
	assert_true(pressure_step(&s, 5000, 50 * MIB, false));
	assert_int_equal(s.capacity, 450 * MIB);
}

static void a_stall_counts_whatever_is_left(void **state)
{
	struct pressure_state s = fresh();

	(void)state;
	assert_true(pressure_step(&s, 5000, 8000 * MIB, true));
	assert_int_equal(s.capacity, 700 * MIB);
	/* Not twice within a second. */
	assert_false(pressure_step(&s, 5100, 8000 * MIB, true));
	assert_true(pressure_step(&s, 6000, 8000 * MIB, true));
	assert_int_equal(s.capacity, 600 * MIB);
}

static void it_ends_at_nothing(void **state)
{
	struct pressure_state s = fresh();

	(void)state;
	for (uint64_t now = 1000; now < 20000; now += 1000)
		pressure_step(&s, now, 0, true);
	assert_int_equal(s.capacity, 0);
	assert_false(pressure_step(&s, 21000, 0, true));
}

static void it_grows_back_by_steps_after_a_while(void **state)
{
	struct pressure_state s = fresh();
	uint64_t before = 0, grown = 0, first = 0;

	(void)state;
	pressure_step(&s, 1000, 0, false);
	pressure_step(&s, 2000, 0, false);
	assert_int_equal(s.capacity, 600 * MIB);
	for (uint64_t now = 3000; now < 200000; now += 1000) {
		before = s.capacity;
		if (!pressure_step(&s, now, 1000 * MIB, false))
			continue;
		first = first ? first : now;
		grown++;
		assert_true(s.capacity > before && s.capacity - before <= 51 * MIB);
	}
	assert_true(first >= 2000 + PRESSURE_CALM_MS && first < 4000 + PRESSURE_CALM_MS);
	assert_true(grown >= 4);
	assert_int_equal(s.capacity, 800 * MIB);
}

static void it_does_not_grow_into_the_reserve(void **state)
{
	struct pressure_state s = fresh();

	(void)state;
	pressure_step(&s, 1000, 0, false);
	for (uint64_t now = 2000; now < 200000; now += 1000)
		assert_false(pressure_step(&s, now, 220 * MIB, false));
	assert_int_equal(s.capacity, 700 * MIB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calm_changes_nothing),
		cmocka_unit_test(what_is_missing_goes_at_once),
		cmocka_unit_test(a_stall_counts_whatever_is_left),
		cmocka_unit_test(it_ends_at_nothing),
		cmocka_unit_test(it_grows_back_by_steps_after_a_while),
		cmocka_unit_test(it_does_not_grow_into_the_reserve),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
