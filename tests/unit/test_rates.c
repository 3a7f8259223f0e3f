/* SPDX-License-Identifier: Apache-2.0
 *
 * The last minute against a plain list of all that was counted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "expertfs/rates.h"

#define S 1000000000u

static void expect(const struct rates *r, uint64_t now, uint64_t opens, uint64_t hits)
{
	uint64_t o, h;

	rates_minute(r, now, &o, &h);
	assert_int_equal(o, opens);
	assert_int_equal(h, hits);
}

static void test_empty(void **state)
{
	struct rates r = { 0 };

	(void)state;
	expect(&r, 0, 0, 0);
	expect(&r, 7ull * S, 0, 0);
	expect(&r, UINT64_MAX, 0, 0);
}

/* Counted until the 60th second begins. */
static void test_edges(void **state)
{
	struct rates r = { 0 };
	const uint64_t start = 1000ull * S + 999999999u;

	(void)state;
	rates_count(&r, start, true);
	rates_count(&r, start, false);
	expect(&r, start, 2, 1);
	expect(&r, 1059ull * S + 999999999u, 2, 1);
	expect(&r, 1060ull * S, 0, 0);
	expect(&r, 5000ull * S, 0, 0);
	rates_count(&r, 1059ull * S, true);
	expect(&r, 1059ull * S, 3, 2);
	expect(&r, 1060ull * S, 1, 1);
	rates_count(&r, 1060ull * S, true); /* the same place of the ring as 1000 */
	expect(&r, 1060ull * S, 2, 2);
}

/* The first minute after boot, in which the ring reaches back before zero. */
static void test_early(void **state)
{
	struct rates r = { 0 };

	(void)state;
	rates_count(&r, 0, true);
	rates_count(&r, 3ull * S, false);
	expect(&r, 3ull * S, 2, 1);
	expect(&r, 59ull * S, 2, 1);
	expect(&r, 60ull * S, 1, 0);
	expect(&r, 63ull * S, 0, 0);
}

/* Threads read the clock before they take the lock. */
static void test_backwards(void **state)
{
	struct rates r = { 0 };

	(void)state;
	rates_count(&r, 100ull * S, true);
	rates_count(&r, 99ull * S, true);
	rates_count(&r, 0, false);
	expect(&r, 100ull * S, 3, 2);
	expect(&r, 90ull * S, 3, 2);
	expect(&r, 160ull * S, 0, 0);
}

static void test_random(void **state)
{
	enum { N = 20000 };
	static uint64_t at[N], hit[N];
	struct rates r = { 0 };
	uint64_t now = 17ull * S, x = 1;

	(void)state;
	for (unsigned i = 0; i < N; i++) {
		uint64_t opens = 0, hits = 0;
		x = x * 6364136223846793005u + 1442695040888963407u;
		/* Mostly some milliseconds, now and then a pause of up to two minutes. */
		now += (x >> 33) % (i % 100 ? 40000000u : 120ull * S);
		at[i] = now / S;
		hit[i] = x >> 63;
		rates_count(&r, now, hit[i]);
		for (unsigned j = i + 1; j-- > 0 && at[j] + 60 > at[i];) {
			opens++;
			hits += hit[j];
		}
		expect(&r, now, opens, hits);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty),  cmocka_unit_test(test_edges),
		cmocka_unit_test(test_early),  cmocka_unit_test(test_backwards),
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
