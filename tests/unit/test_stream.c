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
#include <string.h>

#include "engine/engine.h"
#include "engine/experts.h"
#include "engine/lookahead.h"
#include "engine/residency.h"
#include "tests/unit/tiny_model.h"

#define TOKENS 50
#define NAMED  ((TINY_TOPK + 1) / 2) /* in a guess about a token */

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
	char text[256], line[TINY_EXPERTS + 1] = "";

	for (int e = 0; e < TINY_EXPERTS; e++)
		line[e] = resident >> e & 1 ? 'B' : '0';
	snprintf(text, sizeof(text), "# hottest 1\n001 %s\n002 %s\n003 %s\n", line, line, line);
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

/* At once, or token by token. */
static void feed(const struct model *m, enum lookahead_mode mode, int piece, float *logits,
		 struct lookahead_stats *out)
{
	const struct engine_options o = { .threads = 2, .ctx = TINY_CTX, .lookahead = mode };
	struct engine_stats stats;
	char why[1024] = "";
	struct engine *e;
	int32_t ids[TOKENS];
	int r;

	for (int i = 0; i < TOKENS; i++)
		ids[i] = (i * 29 + i * i) % TINY_VOCAB;
	r = engine_open(m->file, &o, &e, why);
	for (int i = 0; i < TOKENS && !r; i += piece)
		r = engine_feed(e, ids + i, piece, why);
	if (r || engine_logits(e, logits, why))
		fail_msg("%s", why);
	engine_get_stats(e, &stats);
	*out = stats.lookahead;
	engine_close(e);
}

static void run(const struct model *m, float *logits)
{
	struct lookahead_stats stats;

	feed(m, LOOKAHEAD_AUTO, TOKENS, logits, &stats);
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

/* Mappings of this model's expert files in this process. */
static int mappings(const struct model *m)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[1024], part[512];
	int n = 0;

	assert_non_null(f);
	snprintf(part, sizeof(part), "%s/experts/", m->tiny.dir);
	while (fgets(line, sizeof(line), f))
		n += strstr(line, part) != NULL;
	fclose(f);
	return n;
}

static void use_all(struct experts *x, int layer)
{
	struct expert *e;
	int seen[TINY_EXPERTS] = { 0 };
	char why[1024] = "";

	experts_ask(x, layer, all, TINY_EXPERTS);
	for (int i = 0; i < TINY_EXPERTS; i++) {
		assert_int_equal(experts_next(x, &e, why), 0);
		assert_int_equal(seen[e->id]++, 0);
		experts_done(x, e);
	}
}

static const char roomy[] = "{\"mode\": \"passthrough\", \"experts\": {\"total\": 60}, "
			    "\"memory\": {\"slots\": 60, \"hot_store\": 100, \"capacity\": 100}}";
static const char pressed[] = "{\"mode\": \"passthrough\", \"experts\": {\"total\": 60}, "
			      "\"memory\": {\"slots\": 60, \"hot_store\": 100, \"capacity\": 99}}";
static const char small[] = "{\"mode\": \"passthrough\", \"experts\": {\"total\": 60}, "
			    "\"memory\": {\"slots\": 59, \"hot_store\": 100, \"capacity\": 100}}";

/* While all experts fit into the daemon's memory, and until it is to give some of it back. */
static void mappings_are_kept(void **state)
{
	float want[TINY_VOCAB], got[TINY_VOCAB];
	struct experts *x;
	struct model m;
	char why[1024] = "";

	(void)state;
	set_up(&m, "passthrough");
	run(&m, want);
	write_file(&m, "used", "");
	write_file(&m, "stats.json", small);
	assert_int_equal(experts_start(m.file, SERVE_PASSTHROUGH, &x, why), 0);
	use_all(x, 1);
	assert_int_equal(mappings(&m), 0);
	experts_stop(x);
	write_file(&m, "stats.json", roomy);
	run(&m, got);
	assert_memory_equal(want, got, sizeof(want));
	assert_int_equal(mappings(&m), 0);
	assert_int_equal(experts_start(m.file, SERVE_PASSTHROUGH, &x, why), 0);
	for (int i = 0; i < 30; i++)
		use_all(x, 1 + i % 3);
	assert_int_equal(mappings(&m), 60);
	write_file(&m, "stats.json", pressed);
	for (int i = 0; i < 256; i++)
		use_all(x, 1 + i % 3);
	assert_int_equal(mappings(&m), 0);
	write_file(&m, "stats.json", roomy);
	for (int i = 0; i < 256; i++)
		use_all(x, 1);
	assert_int_equal(mappings(&m), TINY_EXPERTS);
	experts_stop(x);
	assert_int_equal(mappings(&m), 0);
	tear_down(&m);
}

static void hide_layer(const struct model *m, int layer)
{
	char path[512], hidden[512];

	snprintf(path, sizeof(path), "%s/experts/%03d", m->tiny.dir, layer);
	snprintf(hidden, sizeof(hidden), "%s/experts/hidden", m->tiny.dir);
	assert_int_equal(rename(path, hidden), 0);
}

static void bring_back(const struct model *m, int layer)
{
	char path[512], hidden[512];

	snprintf(path, sizeof(path), "%s/experts/%03d", m->tiny.dir, layer);
	snprintf(hidden, sizeof(hidden), "%s/experts/hidden", m->tiny.dir);
	assert_int_equal(rename(hidden, path), 0);
}

static void assert_told(const struct model *m, const char *want)
{
	char path[512], text[1024] = "";

	snprintf(path, sizeof(path), "%s/.expertfs/used", m->tiny.dir);
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	text[fread(text, 1, sizeof(text) - 1, f)] = 0;
	fclose(f);
	assert_string_equal(text, want);
}

/* What is kept is used without an open, of which the daemon hears at the end of the pass. */
static void kept_ones_are_told_not_opened(void **state)
{
	struct experts *x;
	struct expert *e;
	struct model m;
	char why[1024] = "", names[256] = "";
	size_t n = 0;

	(void)state;
	for (int i = 0; i < TINY_EXPERTS; i++)
		n += (size_t)snprintf(names + n, sizeof(names) - n, "1/%d ", i);
	set_up(&m, "passthrough");
	write_file(&m, "stats.json", roomy);
	write_file(&m, "used", "");
	assert_int_equal(experts_start(m.file, SERVE_PASSTHROUGH, &x, why), 0);
	use_all(x, 1);
	experts_tell(x);
	assert_told(&m, "");
	hide_layer(&m, 1);
	use_all(x, 1);
	assert_told(&m, "");
	experts_tell(x);
	assert_told(&m, names);
	bring_back(&m, 1);
	/* Some kept, some not, all at once. */
	experts_ask(x, 2, all, 7);
	for (int i = 0; i < 7; i++) {
		assert_int_equal(experts_next(x, &e, why), 0);
		experts_done(x, e);
	}
	use_all(x, 2);
	experts_stop(x);
	snprintf(names + n, sizeof(names) - n, "2/0 2/1 2/2 2/3 2/4 2/5 2/6 ");
	assert_told(&m, names);
	tear_down(&m);
}

static void those_of_a_plain_folder_too(void **state)
{
	struct experts *x;
	struct model m;
	char why[1024] = "";

	(void)state;
	set_up(&m, "passthrough"); /* which nobody looks at */
	write_file(&m, "used", "");
	assert_int_equal(experts_start(m.file, SERVE_PLAIN, &x, why), 0);
	use_all(x, 1);
	hide_layer(&m, 1);
	use_all(x, 1);
	experts_stop(x);
	assert_int_equal(mappings(&m), 0);
	assert_told(&m, "");
	bring_back(&m, 1);
	tear_down(&m);
}

/* Then it is opened again, which says what is wrong. */
static void a_daemon_that_takes_no_uses(void **state)
{
	struct experts *x;
	struct expert *e;
	struct model m;
	char why[1024] = "", path[512];

	(void)state;
	set_up(&m, "passthrough");
	write_file(&m, "stats.json", roomy);
	snprintf(path, sizeof(path), "%s/.expertfs/used", m.tiny.dir);
	assert_int_equal(symlink("/dev/full", path), 0);
	assert_int_equal(experts_start(m.file, SERVE_PASSTHROUGH, &x, why), 0);
	use_all(x, 1);
	experts_tell(x);
	use_all(x, 1);
	assert_int_equal(mappings(&m), TINY_EXPERTS);
	experts_tell(x);
	assert_int_equal(mappings(&m), 0);
	hide_layer(&m, 1);
	experts_ask(x, 1, all, 3);
	assert_int_equal(experts_next(x, &e, why), -ENOENT);
	assert_non_null(strstr(why, "experts/001/00"));
	bring_back(&m, 1);
	use_all(x, 1);
	experts_stop(x);
	tear_down(&m);
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

/* The names that were written, which must be of layers with experts; returns how many. */
static int check_guesses(const struct model *m, int most_a_line)
{
	char path[512], line[4096];
	int names = 0;

	snprintf(path, sizeof(path), "%s/.expertfs/prefetch", m->tiny.dir);
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		int layer, expert, at = 0, n, of_line = 0, first = 0;
		assert_int_equal(line[strlen(line) - 1], '\n');
		while (sscanf(line + at, "%d/%d%n", &layer, &expert, &n) == 2) {
			assert_in_range(layer, 1, TINY_LAYERS - 1);
			assert_in_range(expert, 0, TINY_EXPERTS - 1);
			first = first ? first : layer;
			assert_int_equal(layer, first);
			at += n;
			of_line++;
		}
		assert_int_equal(line[at], '\n');
		assert_in_range(of_line, 1, most_a_line);
		names += of_line;
	}
	fclose(f);
	return names;
}

static void guesses_are_written_and_change_nothing(void **state)
{
	float want[TINY_VOCAB], got[TINY_VOCAB];
	struct lookahead_stats stats;
	struct model m;

	(void)state;
	set_up(&m, "passthrough");
	feed(&m, LOOKAHEAD_ON, 1, want, &stats);
	assert_int_equal(stats.guesses, 0);
	assert_string_equal(stats.verdict, "no memory to load ahead into");
	write_file(&m, "stats.json", "{\"mode\": \"passthrough\", \"memory\": {\"slots\": 24}}");
	feed(&m, LOOKAHEAD_ON, 1, got, &stats);
	assert_memory_equal(want, got, sizeof(want));
	assert_string_equal(stats.verdict, "the daemon takes no guesses");
	write_file(&m, "prefetch", "");
	feed(&m, LOOKAHEAD_OFF, 1, got, &stats);
	assert_memory_equal(want, got, sizeof(want));
	assert_true(stats.guesses == 0 && check_guesses(&m, 0) == 0);
	/* Layers 2 and 3 are foretold, the better 2 of the 3 experts each, for each token; for many at
	 * once where tied rows are computed anew (engine.c). */
	feed(&m, LOOKAHEAD_ON, 1, got, &stats);
	assert_memory_equal(want, got, sizeof(want));
	assert_in_range(stats.guesses, 2 * NAMED * TOKENS, 2 * 12 * 2 * TOKENS);
	assert_string_equal(stats.verdict, "on");
	/* One that comes while another is written may be lost. */
	assert_in_range(check_guesses(&m, 12), NAMED, 2 * 12 * 2 * TOKENS);
	uint64_t always = stats.guesses;
	write_file(&m, "prefetch", "");
	feed(&m, LOOKAHEAD_AUTO, 1, got, &stats);
	assert_memory_equal(want, got, sizeof(want));
	assert_true(stats.trials >= 1 && stats.on_s > 0 && stats.off_s > 0);
	assert_in_range(stats.guesses, 1, always - 1);
	/* A prompt's experts by their votes, as many as half of the memory holds. */
	write_file(&m, "prefetch", "");
	feed(&m, LOOKAHEAD_AUTO, TOKENS, got, &stats);
	assert_memory_equal(want, got, sizeof(want));
	assert_int_equal(stats.guesses, 2 * 12);
	assert_in_range(check_guesses(&m, 12), 12, 24);
	tear_down(&m);
}

static void a_trial_keeps_what_is_quicker(void **state)
{
	struct lookahead_trial t;

	(void)state;
	for (int better = 0; better < 2; better++) {
		trial_begin(&t, LOOKAHEAD_AUTO);
		for (int round = 0; round < 3; round++) {
			int with = 0;
			for (int i = 0; i < TRIAL_TOKENS; i++) {
				/* Ever quicker, as while a store fills; one that is held up. */
				double s = 1 - 0.01 * i - (t.on == better ? 0.05 : 0);
				with += t.on;
				trial_token(&t, i == 5 ? 100 : s, 0.3);
			}
			assert_int_equal(with, TRIAL_TOKENS / 2);
			assert_int_equal(t.trials, round + 1);
			for (int i = 0; i < TRIAL_KEEP; i++) {
				assert_true(t.on == better);
				trial_token(&t, 1, 0.3);
			}
		}
	}
	/* Nothing is waited for: no guesses, however quick. */
	trial_begin(&t, LOOKAHEAD_AUTO);
	for (int i = 0; i < TRIAL_TOKENS; i++)
		trial_token(&t, t.on ? 0.5 : 1, 0.001);
	assert_false(t.on);
	for (int mode = LOOKAHEAD_ON; mode <= LOOKAHEAD_OFF; mode++) {
		trial_begin(&t, (enum lookahead_mode)mode);
		for (int i = 0; i < 2 * TRIAL_TOKENS; i++) {
			assert_true(t.on == (mode == LOOKAHEAD_ON));
			trial_token(&t, 1, 1);
		}
		assert_int_equal(t.trials, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_map_is_read),
		cmocka_unit_test(missing_ones_go_first),
		cmocka_unit_test(same_bits_in_any_order),
		cmocka_unit_test(mappings_are_kept),
		cmocka_unit_test(kept_ones_are_told_not_opened),
		cmocka_unit_test(those_of_a_plain_folder_too),
		cmocka_unit_test(a_daemon_that_takes_no_uses),
		cmocka_unit_test(an_error_in_the_middle),
		cmocka_unit_test(guesses_are_written_and_change_nothing),
		cmocka_unit_test(a_trial_keeps_what_is_quicker),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
