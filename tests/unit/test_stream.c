/* SPDX-License-Identifier: Apache-2.0
 *
 * Experts as a stream: whatever the daemon says lies in its memory, each expert is handed out once,
 * what is missing goes first, and the numbers stay the same bits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/experts.h"
#include "engine/residency.h"
#include "tests/unit/tiny_model.h"

#define TOKENS 50

struct model {
	struct tiny tiny;
	struct modelfile *file;
};

static const int32_t all[] = {
	0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19
};

static void write_file(const struct model *m, const char *name, const char *text)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/.expertfs/%s", m->tiny.dir, name);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

/* A folder that looks like a mount in this mode. */
static void set_up(struct model *m, const char *mode)
{
	char why[1024] = "", text[128];

	tiny_make(&m->tiny, (struct wfmt){ W_Q4, 32 }, 5);
	if (modelfile_load(m->tiny.dir, &m->file, why))
		fail_msg("%s", why);
	snprintf(text, sizeof(text), "%s/.expertfs", m->tiny.dir);
	assert_int_equal(mkdir(text, 0777), 0);
	snprintf(text, sizeof(text), "{\"mode\": \"%s\", \"hits\": 3, \"misses\": 4}\n", mode);
	write_file(m, "stats.json", text);
}

static void tear_down(struct model *m)
{
	modelfile_free(m->file);
	tiny_remove(&m->tiny);
}

static void a_map_is_read(void **state)
{
	static const char text[] = "# hottest 41.5\n003 0Aa9-JKTj\n017 AAAA\n1000 A0A\n";
	bool in[9], want[9] = { false, true, false, false, false, true, true, true, false };

	(void)state;
	assert_true(residency_parse(text, 3, in, 9));
	assert_memory_equal(in, want, sizeof(in));
	assert_true(residency_parse(text, 17, in, 4));
	assert_true(in[0] && in[3]);
	assert_true(residency_parse(text, 1000, in, 3));
	assert_true(in[0] && !in[1] && in[2]);
	/* No such layer, fewer experts, no map. */
	assert_false(residency_parse(text, 4, in, 1));
	assert_false(residency_parse(text, 100, in, 1));
	assert_false(residency_parse(text, 3, in, 10));
	assert_false(residency_parse("", 0, in, 1));
	assert_false(residency_parse("\n000 ", 0, in, 1));
	assert_false(residency_read("/nonexistent", 0, in, 1));
}

/* Bit e of `resident`: expert e lies in memory. Layers 1 to 3 alike. */
static void write_map(const struct model *m, uint32_t resident)
{
	char text[256] = "# hottest 1\n";

	for (int layer = 1; layer < TINY_LAYERS; layer++) {
		size_t n = strlen(text);
		snprintf(text + n, sizeof(text) - n, "%03d ", layer);
		for (int e = 0; e < TINY_EXPERTS; e++)
			strcat(text, resident >> e & 1 ? "B" : "0");
		strcat(text, "\n");
	}
	write_file(m, "map", text);
}

/* Held without being given back: all missing ones that may be open come, and the few others. */
static void missing_ones_go_first(void **state)
{
	const uint32_t resident = 0x00fff; /* 12 in memory, 8 missing */
	struct experts *x;
	struct expert *held[12];
	struct model m;
	int missing = 0, rest[TINY_EXPERTS] = { 0 };
	char why[1024] = "";

	(void)state;
	set_up(&m, "passthrough");
	write_map(&m, resident);
	assert_int_equal(experts_start(m.file, SERVE_PASSTHROUGH, &x, why), 0);
	experts_ask(x, 2, all, TINY_EXPERTS);
	for (int i = 0; i < 8 + EXPERTS_READY; i++) {
		assert_int_equal(experts_next(x, &held[i], why), 0);
		missing += !(resident >> held[i]->id & 1);
		rest[held[i]->id]++;
	}
	assert_int_equal(missing, 8);
	assert_false(experts_all_here(x));
	for (int i = 0; i < 8 + EXPERTS_READY; i++)
		experts_done(x, held[i]);
	for (int i = 8 + EXPERTS_READY; i < TINY_EXPERTS; i++) {
		assert_int_equal(experts_next(x, &held[0], why), 0);
		rest[held[0]->id]++;
		experts_done(x, held[0]);
	}
	for (int e = 0; e < TINY_EXPERTS; e++)
		assert_int_equal(rest[e], 1);
	assert_true(experts_all_here(x));
	experts_stop(x);
	tear_down(&m);
}

static void run(const struct model *m, float *logits)
{
	const struct engine_options o = { .threads = 2, .ctx = TINY_CTX };
	char why[1024] = "";
	struct engine *e;
	int32_t ids[TOKENS];

	for (int i = 0; i < TOKENS; i++)
		ids[i] = (i * 29 + i * i) % TINY_VOCAB;
	if (engine_open(m->file, &o, &e, why) || engine_feed(e, ids, TOKENS, why) ||
	    engine_logits(e, logits, why))
		fail_msg("%s", why);
	engine_close(e);
}

/* Of 50 tokens, each layer's 20 experts are chosen: more than may be open. What the map says decides
 * in which order they are opened and computed. */
static void same_bits_in_any_order(void **state)
{
	static const char *const modes[] = { "passthrough", "direct" };
	float want[TINY_VOCAB], got[TINY_VOCAB];

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct model m;
		uint32_t seed = 1;
		set_up(&m, modes[i]);
		run(&m, want); /* without a map */
		write_map(&m, 0);
		run(&m, got);
		assert_memory_equal(want, got, sizeof(want));
		for (int round = 0; round < 20; round++) {
			seed = seed * 1664525 + 1013904223;
			write_map(&m, seed >> 8);
			run(&m, got);
			assert_memory_equal(want, got, sizeof(want));
		}
		write_map(&m, ~0u);
		run(&m, got);
		assert_memory_equal(want, got, sizeof(want));
		tear_down(&m);
	}
}

/* In the middle of a layer, from either list. */
static void an_error_in_the_middle(void **state)
{
	(void)state;
	for (uint32_t resident = 0; resident < 2; resident++) {
		struct experts *x;
		struct expert *e;
		struct model m;
		char why[1024] = "", path[512];
		int r = 0;
		set_up(&m, "passthrough");
		write_map(&m, resident ? 0xffff0 : 0x000ff);
		snprintf(path, sizeof(path), "%s/experts/002/013", m.tiny.dir);
		assert_int_equal(truncate(path, 64), 0);
		assert_int_equal(experts_start(m.file, SERVE_PASSTHROUGH, &x, why), 0);
		experts_ask(x, 2, all, TINY_EXPERTS);
		for (int i = 0; i < TINY_EXPERTS && !r; i++) {
			r = experts_next(x, &e, why);
			if (!r)
				experts_done(x, e);
		}
		assert_int_equal(r, -EINVAL);
		assert_non_null(strstr(why, "experts/002/013 has 64 bytes"));
		assert_true(experts_all_here(x));
		experts_ask(x, 3, all, TINY_EXPERTS); /* goes on with another layer */
		for (int i = 0; i < TINY_EXPERTS; i++) {
			assert_int_equal(experts_next(x, &e, why), 0);
			experts_done(x, e);
		}
		experts_stop(x);
		tear_down(&m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_map_is_read),
		cmocka_unit_test(missing_ones_go_first),
		cmocka_unit_test(same_bits_in_any_order),
		cmocka_unit_test(an_error_in_the_middle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
