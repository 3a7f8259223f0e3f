/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool that opens experts: what it hands out, how many it holds open, and that every error and
 * every cancelling leaves nothing open behind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "engine/experts.h"
#include "tests/unit/tiny_model.h"

struct model {
	struct tiny tiny;
	struct modelfile *file;
	struct experts *experts;
};

static const int32_t all[] = {
	0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19
};

static void set_up(struct model *m, enum serve_mode mode)
{
	char why[1024] = "";

	tiny_make(&m->tiny, (struct wfmt){ W_Q8, 32 }, 8);
	if (modelfile_load(m->tiny.dir, &m->file, why) ||
	    experts_start(m->file, mode, &m->experts, why))
		fail_msg("%s", why);
}

static void tear_down(struct model *m)
{
	experts_stop(m->experts);
	modelfile_free(m->file);
	tiny_remove(&m->tiny);
}

/* Open descriptors of this process. */
static int descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void check_bytes(const struct model *m, int layer, const struct expert *e)
{
	const struct expert_layout *l = m->file->layer_layout[layer];
	char path[512];
	static char want[1 << 16];

	snprintf(path, sizeof(path), "%s/experts/%03d/%03d", m->tiny.dir, layer, e->id);
	FILE *f = fopen(path, "r");
	assert_int_equal(fread(want, 1, sizeof(want), f), l->bytes);
	fclose(f);
	assert_memory_equal(e->gate.codes, want, l->matrix[EXPERT_GATE].bytes);
	assert_memory_equal(e->up.codes, want + l->matrix[EXPERT_UP].offset,
			    l->matrix[EXPERT_UP].bytes);
	assert_memory_equal(e->down.codes, want + l->matrix[EXPERT_DOWN].offset,
			    l->matrix[EXPERT_DOWN].bytes);
	assert_true(e->gate.rows == 20 && e->gate.cols == 40 && e->down.rows == 40 &&
		    e->down.cols == 20);
}

static void each_once_and_the_right_one(void **state)
{
	(void)state;
	for (int mode = SERVE_PLAIN; mode <= SERVE_DIRECT; mode++) {
		struct model m;
		struct experts_stats stats;
		uint64_t opened = 0;
		set_up(&m, (enum serve_mode)mode);
		int before = descriptors();
		for (int round = 0; round < 200; round++) {
			int layer = 1 + round % 3, n = 1 + round % 20, seen[20] = { 0 };
			experts_ask(m.experts, layer, all, n);
			for (int i = 0; i < n; i++) {
				struct expert *e;
				assert_int_equal(experts_next(m.experts, &e, NULL), 0);
				assert_true(e->id < n && !seen[e->id]++);
				if (round % 50 == 0)
					check_bytes(&m, layer, e);
				assert_true(descriptors() - before <= EXPERTS_OPEN);
				experts_done(m.experts, e);
			}
			opened += (uint64_t)n;
		}
		experts_get_stats(m.experts, &stats);
		assert_true(stats.opened == opened);
		assert_true(stats.bytes == opened * m.file->largest_expert);
		assert_int_equal(descriptors(), before);
		tear_down(&m);
	}
}

/* As many as may be open at all, held at once. */
static void all_slots_held(void **state)
{
	struct model m;
	struct expert *held[EXPERTS_OPEN];

	(void)state;
	set_up(&m, SERVE_PLAIN);
	for (int round = 0; round < 100; round++) {
		experts_ask(m.experts, 3, all, EXPERTS_OPEN);
		for (int i = 0; i < EXPERTS_OPEN; i++)
			assert_int_equal(experts_next(m.experts, &held[i], NULL), 0);
		assert_true(experts_all_here(m.experts));
		for (int i = 0; i < EXPERTS_OPEN; i++)
			experts_done(m.experts, held[i]);
	}
	tear_down(&m);
}

static void an_error_lets_go_of_all(void **state)
{
	struct model m;
	struct expert *e;
	char path[512], why[1024] = "";
	bool kept = false; /* in some round the broken one is not the first to come */
	int r = 0;

	(void)state;
	set_up(&m, SERVE_PLAIN);
	int before = descriptors();
	snprintf(path, sizeof(path), "%s/experts/002/013", m.tiny.dir);
	assert_int_equal(truncate(path, 64), 0);
	for (int round = 0; round < 20; round++) {
		experts_ask(m.experts, 2, all, 20);
		for (int i = 0; i < 20 && !r; i++) {
			r = experts_next(m.experts, &e, why);
			if (!r && i == 0)
				kept = true; /* handed out and not done: let go of as well */
			else if (!r)
				experts_done(m.experts, e);
		}
		assert_int_equal(r, -EINVAL);
		assert_non_null(strstr(why, "experts/002/013 has 64 bytes"));
		assert_int_equal(descriptors(), before);
		r = 0;
	}
	assert_true(kept);
	experts_ask(m.experts, 1, all, 20); /* and another layer still works */
	for (int i = 0; i < 20; i++) {
		assert_int_equal(experts_next(m.experts, &e, why), 0);
		experts_done(m.experts, e);
	}
	tear_down(&m);
}

static void cancelling_and_stopping_at_any_time(void **state)
{
	struct model m;
	struct expert *e;

	(void)state;
	set_up(&m, SERVE_DIRECT);
	int before = descriptors();
	for (int round = 0; round < 100; round++) {
		experts_ask(m.experts, 1, all, 20);
		for (int i = 0; i < round % 10; i++)
			assert_int_equal(experts_next(m.experts, &e, NULL), 0);
		experts_cancel(m.experts);
		assert_int_equal(descriptors(), before);
	}
	experts_ask(m.experts, 1, all, 20);
	tear_down(&m); /* in the middle */
	assert_int_equal(descriptors(), before);
	experts_stop(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_once_and_the_right_one),
		cmocka_unit_test(all_slots_held),
		cmocka_unit_test(an_error_lets_go_of_all),
		cmocka_unit_test(cancelling_and_stopping_at_any_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
