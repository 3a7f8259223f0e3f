/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine as a whole on a tiny random model: however a context is fed, on however many threads,
 * the same bits; and what happens when its files are damaged.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/dense.h"
#include "engine/engine.h"
#include "tests/unit/tiny_model.h"

#define TOKENS 50
#define WHY    1024

struct model {
	struct tiny tiny;
	struct modelfile *file;
};

static int32_t ids[TOKENS];

static void make(struct model *m, struct wfmt fmt)
{
	char why[WHY] = "";

	tiny_make(&m->tiny, fmt, 3);
	if (modelfile_load(m->tiny.dir, &m->file, why))
		fail_msg("%s", why);
	for (int i = 0; i < TOKENS; i++)
		ids[i] = (i * 29 + i * i) % TINY_VOCAB;
}

static void drop(struct model *m)
{
	modelfile_free(m->file);
	tiny_remove(&m->tiny);
}

static struct engine *open_engine(const struct model *m, int threads, int chunk, enum kv_type kv)
{
	const struct engine_options o = {
		.threads = threads, .ctx = TINY_CTX, .chunk = chunk, .kv = kv
	};
	char why[WHY] = "";
	struct engine *e;

	if (engine_open(m->file, &o, &e, why))
		fail_msg("%s", why);
	return e;
}

static void collect(void *arg, int first, int count, const float *logits)
{
	memcpy((float *)arg + (size_t)first * TINY_VOCAB, logits,
	       (size_t)count * TINY_VOCAB * sizeof(*logits));
}

/* Logits after every one of the tokens, fed in pieces of this many. */
static void run(struct engine *e, int piece, float *out)
{
	char why[WHY] = "";

	engine_reset(e);
	for (int i = 0; i < TOKENS; i += piece) {
		int n = TOKENS - i < piece ? TOKENS - i : piece;
		if (engine_feed_rows(e, ids + i, n, collect, out + (size_t)i * TINY_VOCAB, why))
			fail_msg("%s", why);
		assert_int_equal(engine_position(e), i + n);
	}
}

/* All rows of a context that was fed at once, and the last row of one that was fed in pieces: rows
 * before it were handed out while the sequence was shorter, and a tie in the indexer may have been
 * decided otherwise then (indexer.h). */
static void check_format(struct wfmt fmt, enum kv_type kv)
{
	static float want[TOKENS * TINY_VOCAB], got[TOKENS * TINY_VOCAB];
	const int threads[] = { 1, 2, 5 }, chunks[] = { 1, 2, 7, 33, TINY_CTX },
		  pieces[] = { 1, 9 };
	const size_t last = (size_t)(TOKENS - 1) * TINY_VOCAB;
	struct model m;

	make(&m, fmt);
	struct engine *first = open_engine(&m, 1, 0, kv);
	run(first, TOKENS, want);
	engine_close(first);
	for (int t = 0; t < 3; t++)
		for (int c = 0; c < 5; c++) {
			struct engine *e = open_engine(&m, threads[t], chunks[c], kv);
			memset(got, 0, sizeof(got));
			run(e, TOKENS, got);
			assert_memory_equal(want, got, sizeof(want));
			for (int p = 0; p < 2; p++) {
				memset(got, 0, sizeof(got));
				run(e, pieces[p], got);
				assert_memory_equal(want + last, got + last,
						    TINY_VOCAB * sizeof(float));
			}
			engine_close(e);
		}
	/* The rows differ from each other: the comparison is not one of zeros. */
	assert_memory_not_equal(want, want + 13 * TINY_VOCAB, TINY_VOCAB * sizeof(float));
	drop(&m);
}

static void same_bits_however_it_is_fed(void **state)
{
	(void)state;
	check_format((struct wfmt){ W_F32, 0 }, KV_F32);
	check_format((struct wfmt){ W_Q4, 32 }, KV_F32);
	check_format((struct wfmt){ W_Q8, 64 }, KV_BF16);
}

/* Whether expert files are mapped or read must change nothing; the mode comes from stats.json. */
static void same_bits_in_direct_mode(void **state)
{
	static float want[TOKENS * TINY_VOCAB], got[TOKENS * TINY_VOCAB];
	const char *const modes[] = { "passthrough", "direct" };
	struct model m;
	char path[512];

	(void)state;
	make(&m, (struct wfmt){ W_Q4, 64 });
	struct engine *e = open_engine(&m, 2, 16, KV_F32);
	assert_int_equal(engine_mode(e), SERVE_PLAIN);
	run(e, TOKENS, want);
	engine_close(e);
	snprintf(path, sizeof(path), "%s/.expertfs", m.tiny.dir);
	mkdir(path, 0777);
	snprintf(path, sizeof(path), "%s/.expertfs/stats.json", m.tiny.dir);
	for (int i = 0; i < 2; i++) {
		FILE *f = fopen(path, "w");
		fprintf(f, "{\"mode\": \"%s\", \"hits\": 3, \"misses\": 4}\n", modes[i]);
		fclose(f);
		e = open_engine(&m, 2, 16, KV_F32);
		assert_string_equal(serve_mode_name(engine_mode(e)), modes[i]);
		run(e, TOKENS, got);
		assert_memory_equal(want, got, sizeof(want));
		engine_close(e);
	}
	drop(&m);
}

static void expert_path(const struct model *m, int layer, int expert, char *path)
{
	snprintf(path, 512, "%s/experts/%03d/%03d", m->tiny.dir, layer, expert);
}

/* Feeds until the damage of layer 2 shows: every token there meets an unusable expert. */
static void expect_failure(const struct model *m, int err, const char *words)
{
	char why[WHY] = "";
	struct engine *e = open_engine(m, 2, 0, KV_F32);

	assert_int_equal(engine_feed(e, ids, TOKENS, why), -err);
	if (!strstr(why, words) || !strstr(why, m->tiny.dir) || strchr(why, '\n'))
		fail_msg("unexpected sentence: %s", why);
	assert_int_equal(engine_position(e), 0);
	assert_int_equal(engine_feed(e, ids, 1, why), -err); /* it stays so, and does not hang */
	engine_close(e);
}

static void damaged_experts_end_in_a_sentence(void **state)
{
	struct model m;
	char path[512];

	(void)state;
	make(&m, (struct wfmt){ W_F32, 0 });
	for (int e = 0; e < TINY_EXPERTS; e++) {
		expert_path(&m, 2, e, path);
		assert_int_equal(truncate(path, 100), 0);
	}
	expect_failure(&m, EINVAL, "has 100 bytes, model.json says");
	for (int e = 0; e < TINY_EXPERTS; e++) {
		expert_path(&m, 2, e, path);
		unlink(path);
	}
	expect_failure(&m, ENOENT, "cannot be read: No such file");
	for (int e = 0; e < TINY_EXPERTS; e++) { /* neither a file nor readable */
		expert_path(&m, 2, e, path);
		mkdir(path, 0777);
	}
	expect_failure(&m, EINVAL, "model.json says");
	drop(&m);
}

static void dense_file_of_another_size_is_refused(void **state)
{
	const struct engine_options o = { .ctx = 8 };
	struct model m;
	char path[512], why[WHY] = "";
	struct engine *e;

	(void)state;
	make(&m, (struct wfmt){ W_F32, 0 });
	snprintf(path, sizeof(path), "%s/dense.bin", m.tiny.dir);
	assert_int_equal(truncate(path, 4096), 0);
	assert_int_equal(engine_open(m.file, &o, &e, why), -EINVAL);
	assert_non_null(strstr(why, "dense.bin has 4096 bytes"));
	unlink(path);
	assert_int_equal(engine_open(m.file, &o, &e, why), -ENOENT);
	assert_null(e);
	drop(&m);
}

/* Whether an address of this process may lie in a huge page, by the flags of its mapping. */
static bool may_be_huge(const void *at)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	char line[4096];
	unsigned long from, to;
	bool here = false, huge = true;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			here = (uintptr_t)at >= from && (uintptr_t)at < to;
		else if (here && strncmp(line, "VmFlags:", 8) == 0)
			huge = !strstr(line, " nh");
	}
	fclose(f);
	return huge;
}

/* What lies between dense tensors must not come into memory with them, huge pages or not. */
static void gaps_take_no_memory(void **state)
{
	struct model m;
	struct dense d;
	char path[512], why[WHY] = "";

	(void)state;
	if (access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) != 0)
		skip();
	make(&m, (struct wfmt){ W_F32, 0 });
	snprintf(path, sizeof(path), "%s/dense.bin", m.tiny.dir);
	assert_int_equal(truncate(path, 64 << 20), 0);
	m.file->dense_file[0].bytes = 64 << 20;
	for (size_t i = 0; i < m.file->tensors; i++)
		m.file->tensor[i].offset = i % 2 ? 32 << 20 : 4 << 20;
	if (dense_open(&d, m.file, SERVE_DIRECT, true, NULL, why))
		fail_msg("%s", why);
	const char *base = d.base[0];
	assert_true(may_be_huge(base + (4 << 20)) && may_be_huge(base + (32 << 20)));
	assert_true(!may_be_huge(base) && !may_be_huge(base + (4 << 20) - 1));
	assert_true(!may_be_huge(base + (16 << 20)) && !may_be_huge(base + (64 << 20) - 1));
	dense_close(&d);
	drop(&m);
}

static void what_does_not_fit_is_refused(void **state)
{
	struct model m;
	struct engine_options o = { .threads = 1, .ctx = TINY_CTX + 1 };
	struct engine_memory memory;
	const int32_t bad[] = { 1, TINY_VOCAB }, negative[] = { -1 };
	char why[WHY] = "";
	struct engine *e;

	(void)state;
	make(&m, (struct wfmt){ W_F32, 0 });
	assert_int_equal(engine_open(m.file, &o, &e, why), -ERANGE);
	o.ctx = 20;
	assert_int_equal(engine_memory(m.file, &o, &memory, why), 0);
	assert_true(memory.dense == m.file->dense_bytes - m.file->extra_bytes);
	assert_true(memory.kv > 0 && memory.buffers > 0);
	assert_true(memory.total == memory.dense + memory.kv + memory.buffers);
	assert_int_equal(engine_open(m.file, &o, &e, why), 0);
	assert_int_equal(engine_logits(e, &(float){ 0 }, why), -EINVAL);
	assert_int_equal(engine_feed(e, ids, 21, why), -ERANGE);
	assert_non_null(strstr(why, "21 tokens do not fit: the context holds 20 and has 0"));
	assert_int_equal(engine_feed(e, ids, 20, why), 0);
	assert_int_equal(engine_feed(e, ids, 1, why), -ERANGE);
	engine_reset(e);
	assert_int_equal(engine_feed(e, bad, 2, why), -EINVAL);
	assert_non_null(strstr(why, "token 67 is not in the vocabulary of 67"));
	assert_int_equal(engine_feed(e, negative, 1, why), -EINVAL);
	engine_close(e);
	drop(&m);
}

/* A weight that is no number must end the run: its argmax would be some token. */
static void a_model_without_numbers_is_refused(void **state)
{
	struct model m;
	char path[512], why[WHY] = "";
	float logits[TINY_VOCAB], nan = NAN;

	(void)state;
	make(&m, (struct wfmt){ W_F32, 0 });
	snprintf(path, sizeof(path), "%s/dense.bin", m.tiny.dir);
	const struct tensor *t = modelfile_tensor(m.file, "model.norm.weight");
	int fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, &nan, 4, (off_t)t->offset), 4);
	close(fd);
	struct engine *e = open_engine(&m, 1, 0, KV_F32);
	assert_int_equal(engine_feed(e, ids, 3, why), 0);
	assert_int_equal(engine_logits(e, logits, why), -EDOM);
	engine_close(e);
	drop(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(same_bits_however_it_is_fed),
		cmocka_unit_test(same_bits_in_direct_mode),
		cmocka_unit_test(damaged_experts_end_in_a_sentence),
		cmocka_unit_test(dense_file_of_another_size_is_refused),
		cmocka_unit_test(gaps_take_no_memory),
		cmocka_unit_test(what_does_not_fit_is_refused),
		cmocka_unit_test(a_model_without_numbers_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
