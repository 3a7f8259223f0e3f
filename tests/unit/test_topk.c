/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/topk.h: both rules for ties, against torch.topk (tests/data/topk.txt) and against a sort.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/topk.h"

#define MOST 4096

static float score[MOST];
static struct topk_item work[MOST];
static int32_t want[MOST], got[MOST];
static uint32_t rng = 1;

static uint32_t next(void)
{
	rng = rng * 1664525u + 1013904223u;
	return rng >> 8;
}

/* "length visible k : scores : indices". */
static int read_case(FILE *f, int *length, int *visible, int *k)
{
	if (fscanf(f, "%d %d %d :", length, visible, k) != 3)
		return 0;
	assert_true(*length <= MOST && *visible <= *length && *k <= *visible && *k >= 1);
	for (int i = 0; i < *visible; i++)
		assert_int_equal(fscanf(f, "%f", &score[i]), 1);
	assert_int_equal(fscanf(f, " :"), 0);
	for (int i = 0; i < *k; i++)
		assert_int_equal(fscanf(f, "%d", &want[i]), 1);
	return 1;
}

static void as_torch(void **state)
{
	const char *data = getenv("TEST_DATA");
	int length, visible, k, cases = 0, tied = 0, differ = 0;
	char path[4096];

	(void)state;
	snprintf(path, sizeof(path), "%s/topk.txt", data ? data : "tests/data");
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	for (; read_case(f, &length, &visible, &k); cases++) {
		tied += topk_select(score, visible, length, k, TIES_REFERENCE, work, got);
		assert_memory_equal(got, want, (size_t)k * sizeof(*got));
		topk_select(score, visible, length, k, TIES_LOWER_INDEX, NULL, got);
		differ += memcmp(got, want, (size_t)k * sizeof(*got)) != 0;
	}
	fclose(f);
	assert_int_equal(cases, 240);
	assert_true(tied > 150 && differ > 100); /* or the file would not test what it is for */
}

/* Rank by counting: slow and obvious. */
static int ranks_before(int a, int b)
{
	return score[a] > score[b] || (score[a] == score[b] && a < b);
}

static void lower_index(void **state)
{
	(void)state;
	for (int round = 0; round < 3000; round++) {
		int n = 1 + (int)(next() % 200), k = 1 + (int)(next() % (uint32_t)n), taken = 0;
		bool edge = false;
		for (int i = 0; i < n; i++) {
			score[i] = (float)(int)(next() % 9) - 4;
			if (next() % 3 == 0)
				score[i] *= (float)next() * 1e-3f;
			if (score[i] == 0 && next() % 2)
				score[i] = -0.0f;
			if (next() % 40 == 0)
				score[i] = next() % 2 ? INFINITY : -INFINITY;
		}
		for (int i = 0; i < n; i++) {
			int before = 0;
			for (int j = 0; j < n; j++)
				before += ranks_before(j, i);
			if (before < k)
				want[taken++] = i;
		}
		for (int i = 0, last = 0; i < n; i++) {
			int before = 0;
			for (int j = 0; j < n; j++)
				before += ranks_before(j, i);
			for (last = 0; before == k && last < k; last++)
				edge = edge || score[want[last]] == score[i];
		}
		assert_int_equal(topk_select(score, n, n, k, TIES_LOWER_INDEX, NULL, got), edge);
		assert_memory_equal(got, want, (size_t)k * sizeof(*got));
	}
}

/* Without equal scores the rules agree, whatever stands behind. */
static void no_ties_no_rule(void **state)
{
	(void)state;
	for (int round = 0; round < 300; round++) {
		int n = 2 + (int)(next() % 1000), k = 1 + (int)(next() % (uint32_t)n);
		for (int i = 0; i < n; i++)
			score[i] = (float)(i * 7919 % 100003) - 50000 + (float)i * 1e-3f;
		assert_false(topk_select(score, n, n, k, TIES_LOWER_INDEX, NULL, want));
		assert_false(topk_select(score, n, n + 500, k, TIES_REFERENCE, work, got));
		assert_memory_equal(got, want, (size_t)k * sizeof(*got));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(as_torch),
		cmocka_unit_test(lower_index),
		cmocka_unit_test(no_ties_no_rule),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
