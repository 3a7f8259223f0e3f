/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's calls for speculation, on a tiny random model: several tokens at once give the bits
 * that they give one by one, whatever was kept of them; and what the MTP layer guesses depends on
 * the context alone, not on the way there. Numbers against the reference: test_draft.sh.
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

#include "engine/engine.h"
#include "tests/unit/tiny_model.h"

#define F32     ((struct wfmt){ W_F32, 0 })
#define Q4      ((struct wfmt){ W_Q4, 32 })
#define GUESSES 3
#define LONG    300 /* tokens of a prompt whose attention is expanded */

static char why[1024];

struct model {
	struct tiny tiny;
	struct modelfile *file;
};

static void make(struct model *m, struct wfmt fmt, uint64_t seed, bool own)
{
	tiny_make_as(&m->tiny, fmt, seed, own);
	if (modelfile_load(m->tiny.dir, &m->file, why))
		fail_msg("%s", why);
}

static void drop(struct model *m)
{
	modelfile_free(m->file);
	tiny_remove(&m->tiny);
}

static struct engine *open_engine(const struct model *m, int chunk, enum kv_type kv, int draft)
{
	const struct engine_options o = { .threads = 2,
					  .ctx = m->file->config.max_positions,
					  .chunk = chunk,
					  .kv = kv,
					  .draft = draft };
	struct engine *e;

	if (engine_open(m->file, &o, &e, why))
		fail_msg("%s", why);
	return e;
}

static int32_t token(int text, int i)
{
	return (int32_t)((i * 29 + i * i * (text + 1) + text * 13) % TINY_VOCAB);
}

static void feed(struct engine *e, int text, int from, int n)
{
	for (int i = 0; i < n; i++) {
		int32_t id = token(text, from + i);
		if (engine_feed(e, &id, 1, why))
			fail_msg("%s", why);
	}
}

static void expect_logits(struct engine *e, const float *want)
{
	float got[TINY_VOCAB];

	assert_int_equal(engine_logits(e, got, why), 0);
	assert_memory_equal(got, want, sizeof(got));
}

/* How feeding drafts went. */
struct counts {
	int whole, cut, single;
};

/* A step: n tokens of which the last `wrong` are not those of the text. After each of its rows a
 * context fed one by one, `plain`, must have the same logits; then all but the wrong ones, or
 * fewer, are kept. Returns how many. */
static int step(struct engine *e, struct engine *plain, int text, int n, int wrong,
		struct counts *counts)
{
	int32_t ids[ENGINE_DRAFT_MAX + 1];
	const float *logits;
	int at = engine_position(e), rows, good = n - wrong;
	bool may = engine_may_draft(e);

	for (int i = 0; i < n; i++)
		ids[i] = (token(text, at + i) + (i >= good)) % TINY_VOCAB;
	if (engine_feed_drafts(e, ids, n, &logits, &rows, why))
		fail_msg("%s", why);
	assert_true(rows >= 1 && rows <= n && (may || rows == 1));
	assert_int_equal(engine_position(e), at + rows);
	counts->whole += n > 1 && rows == n;
	counts->cut += may && rows < n;
	counts->single += n > 1 && !may;
	good = good < rows ? good : rows;
	for (int i = 0; i < good; i++) {
		feed(plain, text, at + i, 1);
		expect_logits(plain, logits + (size_t)i * TINY_VOCAB);
	}
	engine_keep(e, good);
	assert_int_equal(engine_position(e), at + good);
	expect_logits(e, logits + (size_t)(good - 1) * TINY_VOCAB);
	return good;
}

static void walk(const struct model *m, enum kv_type kv, int chunk, int text, struct counts *counts)
{
	struct engine *e = open_engine(m, chunk, kv, 5), *plain = open_engine(m, 0, kv, 0);
	int n = 0;

	for (int i = 0; n < TINY_CTX; i++) {
		int several = 1 + (i * 5 + text) % 6, wrong = i % 3;
		several = several < TINY_CTX - n ? several : TINY_CTX - n;
		wrong = wrong < several ? wrong : several - 1;
		n += step(e, plain, text, several, wrong, counts);
	}
	engine_close(plain);
	engine_close(e);
}

/* index_topk is 7 and ties are frequent, so that all cases come: also rows that are no longer what
 * they would be one by one because one before them is tied. */
static void several_at_once_are_as_one_by_one(void **state)
{
	struct counts counts = { 0 };
	struct model m;

	(void)state;
	for (uint64_t seed = 3; seed < 6; seed++) {
		make(&m, seed % 2 ? F32 : Q4, seed, false);
		for (int text = 0; text < 3; text++)
			walk(&m, text == 1 ? KV_BF16 : KV_F32, text == 2 ? 1 : 0, text, &counts);
		drop(&m);
	}
	printf("%d whole, %d cut, %d singly\n", counts.whole, counts.cut, counts.single);
	assert_true(counts.whole > 20 && counts.cut > 0 && counts.single > 0);
}

/* Logits of GUESSES guesses behind the token that comes next in the text. */
static void guess(struct engine *e, int text, float out[GUESSES][TINY_VOCAB])
{
	assert_true(engine_may_draft(e));
	for (int i = 0; i < GUESSES; i++)
		if (engine_draft(e, token(text, engine_position(e) + i), out[i], why))
			fail_msg("%s", why);
}

static void at_once(struct engine *e, int text, int n)
{
	int32_t ids[LONG];

	for (int i = 0; i < n; i++)
		ids[i] = token(text, i);
	engine_reset(e);
	if (engine_feed(e, ids, n, why))
		fail_msg("%s", why);
}

/* Through drafts that were wrong, guesses in between that led nowhere, rows that were due for long.
 * Lengths that need no choice of keys: with ties among them the way there may show, in guesses. */
static void guesses_depend_on_the_context_alone(void **state)
{
	static float want[GUESSES][TINY_VOCAB], got[GUESSES][TINY_VOCAB];
	const int chunks[] = { 0, 1, 4 };
	struct counts counts = { 0 };
	struct model m;

	(void)state;
	make(&m, Q4, 5, false);
	struct engine *plain = open_engine(&m, 0, KV_F32, 0), *e = open_engine(&m, 0, KV_F32, 5);
	at_once(e, 1, 7);
	guess(e, 1, want);
	guess(e, 1, got); /* goes on from where the first ended: others */
	assert_memory_not_equal(want, got, sizeof(want));
	engine_close(e);
	for (int c = 0; c < 3; c++) {
		e = open_engine(&m, chunks[c], KV_F32, 5);
		feed(e, 2, 0, 5); /* rows of another text, left behind */
		assert_int_equal(engine_draft(e, 3, got[0], why), 0);
		engine_reset(e);
		engine_reset(plain);
		feed(e, 1, 0, 1);
		feed(plain, 1, 0, 1);
		guess(e, 1, got);
		for (int i = 0; engine_position(e) < 7; i++) {
			int left = 7 - engine_position(e), n = left < 3 ? left : 3;
			step(e, plain, 1, n, n > 1 && i % 2 == 0, &counts);
			if (i % 3 == 0 && engine_position(e) < 7)
				guess(e, 1, got);
		}
		guess(e, 1, got);
		assert_memory_equal(want, got, sizeof(want));
		engine_close(e);
	}
	engine_close(plain);
	assert_true(counts.whole > 0);
	drop(&m);
}

/* Two ways to a context that the model computes alike, since its last rows choose their keys and so
 * are absorbed in both; what was fed last is a long prompt, or a token. The guess comes from a row that
 * sees all its keys: it could be expanded after the first. */
static void guesses_do_not_know_a_long_prompt(void **state)
{
	static float want[GUESSES][TINY_VOCAB], got[GUESSES][TINY_VOCAB];
	float logits[TINY_VOCAB];
	struct model m;

	(void)state;
	make(&m, F32, 5, false);
	int *topk = &m.file->config.index_topk;
	m.file->config.max_positions = LONG + GUESSES;
	*topk = LONG; /* room is made for so many, of one row */
	struct engine *e = open_engine(&m, 1, KV_F32, 5);
	*topk = LONG - 2;
	at_once(e, 1, LONG);
	assert_int_equal(engine_logits(e, logits, why), 0);
	*topk = LONG;
	guess(e, 1, want);
	*topk = LONG - 2;
	at_once(e, 1, LONG - 1);
	feed(e, 1, LONG - 1, 1);
	expect_logits(e, logits);
	*topk = LONG;
	guess(e, 1, got);
	assert_memory_equal(want, got, sizeof(want));
	engine_close(e);
	drop(&m);
}

static void an_embedding_and_a_head_of_its_own_are_preferred(void **state)
{
	static float shared[GUESSES][TINY_VOCAB], own[GUESSES][TINY_VOCAB];
	struct model m;

	(void)state;
	for (int i = 0; i < 2; i++) {
		make(&m, F32, 4, i);
		struct engine *e = open_engine(&m, 0, KV_F32, 5);
		at_once(e, 1, 6);
		guess(e, 1, i ? own : shared);
		engine_close(e);
		drop(&m);
	}
	assert_memory_not_equal(shared, own, sizeof(own));
}

static void what_cannot_be_guessed_is_refused(void **state)
{
	struct engine_options o = { .ctx = 8, .draft = ENGINE_DRAFT_MAX + 1 };
	struct engine_memory without, with;
	const float *rows;
	float logits[TINY_VOCAB];
	int32_t ids[8] = { 0 };
	struct model m;
	struct engine *e;
	int count;

	(void)state;
	make(&m, F32, 3, false);
	assert_int_equal(engine_open(m.file, &o, &e, why), -ERANGE);
	o.draft = 0;
	assert_int_equal(engine_memory(m.file, &o, &without, why), 0);
	o.draft = 3;
	assert_int_equal(engine_memory(m.file, &o, &with, why), 0);
	assert_true(with.kv > without.kv && with.buffers > without.buffers);
	assert_int_equal(engine_open(m.file, &o, &e, why), 0);
	assert_false(engine_may_draft(e));
	assert_int_equal(engine_draft(e, 1, logits, why), -EINVAL);
	assert_int_equal(engine_feed(e, ids, 7, why), 0);
	assert_int_equal(engine_draft(e, TINY_VOCAB, logits, why), -EINVAL);
	assert_int_equal(engine_draft(e, 1, logits, why), 0);
	assert_int_equal(engine_draft(e, 1, logits, why), 0);
	assert_int_equal(engine_draft(e, 1, logits, why), -ERANGE);
	assert_int_equal(engine_feed_drafts(e, ids, 5, &rows, &count, why), -EINVAL);
	assert_int_equal(engine_feed_drafts(e, ids, 2, &rows, &count, why), -ERANGE);
	assert_int_equal(engine_position(e), 7);
	engine_close(e);
	drop(&m);
}

/* A row of no numbers behind the first ends nothing: its token may be a wrong guess. */
static void a_guess_without_numbers_is_left_out(void **state)
{
	const int32_t ids[] = { 1, 2, 50, 3 };
	const float nan = NAN, *rows;
	struct model m;
	char path[512];
	int count;

	(void)state;
	make(&m, F32, 3, false);
	snprintf(path, sizeof(path), "%s/dense.bin", m.tiny.dir);
	const struct tensor *t = modelfile_tensor(m.file, "model.embed_tokens.weight");
	int fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, &nan, 4, (off_t)(t->offset + 50 * TINY_HIDDEN * 4)), 4);
	close(fd);
	struct engine *e = open_engine(&m, 0, KV_F32, 3);
	assert_int_equal(engine_feed(e, ids, 1, why), 0);
	assert_int_equal(engine_feed_drafts(e, ids + 1, 3, &rows, &count, why), 0);
	assert_int_equal(count, 1);
	assert_int_equal(engine_position(e), 2);
	assert_int_equal(engine_feed_drafts(e, ids + 2, 2, &rows, &count, why), -EDOM);
	assert_int_equal(engine_position(e), 2);
	assert_int_equal(engine_feed(e, ids + 3, 1, why), 0); /* nothing of it is left */
	assert_int_equal(engine_logits(e, (float[TINY_VOCAB]){ 0 }, why), 0);
	engine_close(e);
	drop(&m);
}

static void on_progress(void *arg, const char *what, double done, double total)
{
	(void)done;
	if (strcmp(what, "loading") == 0)
		*(double *)arg = total;
}

/* Bytes that are counted for the dense tensors, and those that are read. */
static uint64_t counted_and_read(const struct model *m, int draft, double *read)
{
	const struct progress progress = { on_progress, read };
	const struct engine_options o = { .ctx = 8, .draft = draft, .progress = &progress };
	struct engine_memory memory = { 0 };
	struct engine *e = NULL;

	if (engine_memory(m->file, &o, &memory, why) || engine_open(m->file, &o, &e, why))
		fail_msg("%s", why);
	engine_close(e);
	return memory.dense;
}

/* Without guesses the layer's tensors, an embedding and a head may be among them, take no memory. */
static void without_guesses_the_layer_is_not_loaded(void **state)
{
	double with = 0, without = 0;
	uint64_t layer = 0;
	struct model m;

	(void)state;
	make(&m, F32, 3, true);
	for (size_t i = 0; i < m.file->tensors; i++)
		if (strncmp(m.file->tensor[i].name, "model.layers.4.", 15) == 0)
			layer += m.file->tensor[i].bytes;
	assert_true(layer > 4 * 4096);
	assert_true(counted_and_read(&m, 1, &with) == m.file->dense_bytes);
	assert_true(counted_and_read(&m, 0, &without) == m.file->dense_bytes - layer);
	assert_true(without <= with - (double)layer + 2 * 4096); /* whole pages */
	drop(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(several_at_once_are_as_one_by_one),
		cmocka_unit_test(guesses_depend_on_the_context_alone),
		cmocka_unit_test(guesses_do_not_know_a_long_prompt),
		cmocka_unit_test(an_embedding_and_a_head_of_its_own_are_preferred),
		cmocka_unit_test(what_cannot_be_guessed_is_refused),
		cmocka_unit_test(a_guess_without_numbers_is_left_out),
		cmocka_unit_test(without_guesses_the_layer_is_not_loaded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
