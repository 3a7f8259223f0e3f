/* SPDX-License-Identifier: Apache-2.0
 *
 * What a profile compares with: memory is measured with the dense tensors' own bytes, wherever they
 * lie, and not at all if they are so few that they lie in a cache.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sys/mman.h>

#include "engine/limits.h"
#include "tests/unit/tiny_model.h"

#define MANY ((size_t)300 << 20)

static void the_sum_is_one(void **state)
{
	static uint64_t x[96];
	uint64_t want = 0;

	(void)state;
	for (int i = 0; i < 96; i++)
		want += x[i] = (uint64_t)i * 0x9e3779b97f4a7c15u;
	assert_true(limits_sum(x, sizeof(x)) == want);
	assert_true(limits_sum(x, 0) == 0);
}

static void memory_of_tensors_in_several_files(void **state)
{
	struct profile profile = { .on = false };
	char why[1024] = "";
	struct modelfile *m;
	struct compute c;
	struct tiny tiny;
	struct limits l;

	(void)state;
	tiny_make(&tiny, (struct wfmt){ W_Q4, 32 }, 3);
	assert_int_equal(modelfile_load(tiny.dir, &m, why), 0);
	assert_int_equal(compute_init(&c, 2, 256, why), 0);
	/* Behind each of the two there is nothing: pages that may not be read. */
	void *base[2];
	for (int i = 0; i < 2; i++) {
		base[i] = mmap(NULL, MANY + 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		assert_ptr_not_equal(base[i], MAP_FAILED);
		assert_int_equal(mprotect((char *)base[i] + 4096 * i, MANY / 2 + 4096, PROT_READ),
				 0);
	}
	const struct dense d = { .file = m, .base = base };
	for (size_t i = 0; i < m->tensors; i++)
		m->tensor[i].bytes = 0;
	m->tensor[0].part = 1;
	m->tensor[0].offset = 4096 + 64;
	m->tensor[0].bytes = MANY / 2;
	m->tensor[1].offset = 128;
	m->tensor[1].bytes = 100 << 20;
	assert_int_equal(limits_find(&d, &c, &profile, 1e9, &l), 0);
	assert_true(l.most[LIMIT_MEMORY] == 0 && l.most[LIMIT_DRIVE] == 1e9);
	assert_true(l.most[LIMIT_PROCESSOR] > 0);
	m->tensor[1].bytes = MANY / 2;
	assert_int_equal(limits_find(&d, &c, &profile, 1e9, &l), 0);
	assert_true(l.most[LIMIT_MEMORY] > 1e8);
	/* Three passes of two rows: what is not the head is read three times, the head of a prompt
	 * once. */
	for (int i = 0; i < PROFILE_PHASES; i++) {
		profile.phase = (enum profile_phase)i;
		profile.seconds[i][PART_ATTENTION] = 2;
		for (int k = 0; k < 3; k++)
			profile_pass(&profile, 2);
	}
	m->tensor[0].bytes = 4096;
	m->tensor[2].bytes = 8192;
	assert_string_equal(m->tensor[0].name, "lm_head.weight");
	assert_int_equal(limits_find(&d, &c, &profile, 1e9, &l), 0);
	assert_true(l.used[PROFILE_PROMPT][LIMIT_MEMORY] == (4096 + 3 * 8192) / 2.);
	assert_true(l.used[PROFILE_DECODE][LIMIT_MEMORY] == 3 * (4096 + 8192) / 2.);
	double head = (double)m->config.vocab * m->config.hidden;
	assert_true(l.used[PROFILE_DECODE][LIMIT_PROCESSOR] -
			    l.used[PROFILE_PROMPT][LIMIT_PROCESSOR] ==
		    5 * head / 2);
	for (int i = 0; i < 2; i++)
		munmap(base[i], MANY + 4096);
	compute_free(&c);
	modelfile_free(m);
	tiny_remove(&tiny);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_sum_is_one),
		cmocka_unit_test(memory_of_tensors_in_several_files),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
