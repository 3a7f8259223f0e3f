/* SPDX-License-Identifier: Apache-2.0
 *
 * Context and chunk chosen by the memory there is: what is needed comes first, nothing goes beyond
 * the limit, nothing that would fit is left, and what does not fit is refused with the numbers.
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
#include "engine/machine.h"
#include "engine/options.h"
#include "engine/sampler.h"
#include "tests/unit/tiny_model.h"

#define WHY    1024
#define LONG   "1048576"           /* tokens: a context of them takes half a gigabyte */
#define MARGIN ((uint64_t)6 << 20) /* what a plan leaves for the program itself, and more */

/* What a program takes itself goes into a plan. A sanitizer's part of that grows with all it does. */
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                               \
	__has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define OWN_MEMORY_GROWS 1
#else
#define OWN_MEMORY_GROWS 0
#endif

static struct tiny tiny;
static struct modelfile *file;
static char why[WHY];

/* The tiny model, whose context may be long. */
static int set_up(void **state)
{
	char path[512], command[1024];

	(void)state;
	tiny_make(&tiny, (struct wfmt){ W_F32, 0 }, 3);
	snprintf(path, sizeof(path), "%s/model.json", tiny.dir);
	snprintf(command, sizeof(command),
		 "sed -i 's/\"max_position_embeddings\": 64/\"max_position_embeddings\": " LONG
		 "/' '%s'",
		 path);
	return system(command) || modelfile_load(tiny.dir, &file, why);
}

static int tear_down(void **state)
{
	(void)state;
	modelfile_free(file);
	tiny_remove(&tiny);
	return 0;
}

static struct engine_options plan(uint64_t memory, int ctx, int chunk, struct engine_need need)
{
	const struct engine_options in = {
		.threads = 2, .ctx = ctx, .chunk = chunk, .memory = memory
	};
	struct engine_options out;

	if (engine_plan(file, &in, &need, &out, why))
		fail_msg("%s", why);
	return out;
}

static uint64_t taken(struct engine_options o)
{
	struct engine_memory m;

	o.memory = 0;
	if (engine_memory(file, &o, &m, why))
		fail_msg("%s", why);
	return m.total;
}

static void without_a_limit(void **state)
{
	struct engine_options o = plan(0, 0, 0, (struct engine_need){ 10, 300, 10 });

	(void)state;
	assert_int_equal(o.ctx, ENGINE_CTX);
	assert_int_equal(o.chunk, 10);
	o = plan(0, 0, 0, (struct engine_need){ 6000, 9000, 6000 });
	assert_int_equal(o.ctx, 9000);
	assert_int_equal(o.chunk, ENGINE_CHUNK_MAX);
	o = plan(0, 77, 0, (struct engine_need){ 50, 60, 50 });
	assert_int_equal(o.ctx, 77);
	assert_int_equal(o.chunk, 50);
	o = plan(0, 77, 5, (struct engine_need){ 50, 60, 50 });
	assert_int_equal(o.ctx, 77);
	assert_int_equal(o.chunk, 5);
	o = plan(0, 0, 5000, (struct engine_need){ 6000, 6000, 6000 });
	assert_int_equal(o.chunk, 5000);
	o = plan(0, 77, 5000, (struct engine_need){ 50, 60, 50 });
	assert_int_equal(o.chunk, 77);
}

/* All of the memory is used, and no more. */
static void full(uint64_t memory, struct engine_options o, bool ctx)
{
	uint64_t own = machine_own_memory(), total = taken(o);

	assert_true(own + total <= memory);
	assert_true(own + total + MARGIN >= memory);
	if (ctx)
		o.ctx += o.ctx / 8 + 16384;
	else
		o.chunk += o.chunk / 8 + 4096;
	assert_true(own + taken(o) > memory);
}

static void with_a_limit(void **state)
{
	uint64_t memory = machine_own_memory() + ((uint64_t)64 << 20);
	struct engine_options o = plan(memory, 0, 0, (struct engine_need){ 10, 300, 10 });

	(void)state;
	if (OWN_MEMORY_GROWS)
		skip();
	assert_true(o.ctx > ENGINE_CTX && o.chunk == 10);
	full(memory, o, true);
	/* Enough for all that the model can. */
	o = plan((uint64_t)2 << 30, 0, 0, (struct engine_need){ 10, 300, 10 });
	assert_int_equal(o.ctx, atoi(LONG));
	/* A chunk before a longer context. */
	o = plan(memory, 0, 0, (struct engine_need){ 10000, 12000, 10000 });
	assert_int_equal(o.chunk, ENGINE_CHUNK_MAX);
	full(memory, o, true);
	/* A context that is needed before the chunk. */
	memory = machine_own_memory() + ((uint64_t)40 << 20);
	o = plan(memory, 0, 0, (struct engine_need){ 40000, 60000, 40000 });
	assert_true(o.ctx >= 60000 && o.ctx < 62000); /* what a whole row of a chunk leaves */
	assert_true(o.chunk >= ENGINE_CHUNK_MIN && o.chunk < ENGINE_CHUNK_MAX);
	full(memory, o, false);
	/* What was asked for does not fit beside the prompt. */
	memory = machine_own_memory() + ((uint64_t)28 << 20);
	o = plan(memory, 0, 0, (struct engine_need){ 30000, 60000, 30000 });
	assert_true(o.ctx >= 30000 && o.ctx < 60000 && o.chunk >= ENGINE_CHUNK_MIN);
	full(memory, o, true);
	/* The plan can be kept. */
	struct engine *e;
	if (engine_open(file, &o, &e, why))
		fail_msg("%s", why);
	assert_int_equal(engine_ctx(e), o.ctx);
	assert_int_equal(engine_chunk(e), o.chunk);
	engine_close(e);
}

static void too_long_a_prompt(void **state)
{
	const uint64_t memory = machine_own_memory() + ((uint64_t)32 << 20);
	const struct engine_options in = { .threads = 2, .memory = memory };
	struct engine_need need = { 500000, 500000, 500000 };
	struct engine_options out;

	(void)state;
	if (OWN_MEMORY_GROWS)
		skip();
	assert_int_equal(engine_plan(file, &in, &need, &out, why), -ENOMEM);
	const char *at = strstr(why, "for a prompt of 500000 tokens, of which ");
	assert_non_null(at);
	int fit = atoi(at + strlen("for a prompt of 500000 tokens, of which "));
	assert_true(fit > 10000 && fit < 100000);
	assert_non_null(strstr(why, "--memory"));
	need = (struct engine_need){ fit - 100, fit - 100, fit - 100 };
	assert_int_equal(engine_plan(file, &in, &need, &out, why), 0);
	need = (struct engine_need){ fit + 3000, fit + 3000, fit + 3000 };
	assert_int_equal(engine_plan(file, &in, &need, &out, why), -ENOMEM);

	/* It is the chunk asked for that does not fit: the amounts are those with it. */
	const struct engine_options chunk = { .threads = 2, .chunk = 100000, .memory = memory };
	need = (struct engine_need){ 20000, 20000, 20000 };
	assert_int_equal(engine_plan(file, &in, &need, &out, why), 0);
	assert_int_equal(engine_plan(file, &chunk, &need, &out, why), -ENOMEM);
	at = strstr(why, "for a prompt of 20000 tokens, of which ");
	assert_non_null(at);
	fit = atoi(at + strlen("for a prompt of 20000 tokens, of which "));
	assert_true(fit > 100 && fit < 19000);

	const struct engine_options none = { .threads = 2, .memory = 4096 };
	need = (struct engine_need){ 1, 1, 1 };
	assert_int_equal(engine_plan(file, &none, &need, &out, why), -ENOMEM);
	assert_non_null(strstr(why, "only 0.0 kB are available"));
	const struct engine_options given = { .threads = 2, .ctx = 64, .memory = 4096 };
	struct engine_memory m;
	assert_int_equal(engine_plan(file, &given, &need, &out, why), 0);
	assert_int_equal(out.ctx, 64);
	assert_int_equal(engine_memory(file, &out, &m, why), -ENOMEM);
	struct engine *e;
	assert_int_equal(engine_open(file, &out, &e, why), -ENOMEM);
	assert_null(e);
}

static uint64_t buffers_of_vocabulary(const char *vocab)
{
	const struct engine_options o = { .threads = 2, .ctx = 64 };
	char command[1024];
	struct modelfile *other;
	struct engine_memory m = { 0 };

	snprintf(command, sizeof(command),
		 "sed -i 's/\"vocab_size\": [0-9]*/\"vocab_size\": %s/' '%s'/model.json", vocab,
		 tiny.dir);
	assert_int_equal(system(command), 0);
	if (modelfile_load(tiny.dir, &other, why) || engine_memory(other, &o, &m, why))
		fail_msg("%s", why);
	modelfile_free(other);
	return m.buffers;
}

/* What is as long as the vocabulary, the part of those who draw from the logits too, is counted. */
static void a_large_vocabulary(void **state)
{
	enum { VOCAB = 262144, ROWS = 16 + 3 };
	const struct sampler_options o = { .temperature = 1, .top_p = 0.9 };
	bool *allowed = malloc(VOCAB * sizeof(*allowed));
	struct sampler *s;

	(void)state;
	if (OWN_MEMORY_GROWS)
		skip();
	uint64_t counted = buffers_of_vocabulary("262144") - buffers_of_vocabulary("67");
	memset(allowed, true, VOCAB * sizeof(*allowed));
	uint64_t own = machine_own_memory();
	float *rows = malloc((size_t)ROWS * VOCAB * sizeof(*rows));
	for (size_t i = 0; i < (size_t)ROWS * VOCAB; i++)
		rows[i] = (float)(i % 977);
	assert_int_equal(sampler_new(&o, allowed, VOCAB, &s, why), 0);
	assert_true(sampler_pick(s, rows) >= 0);
	uint64_t taken_now = machine_own_memory() - own;
	assert_true(taken_now > (uint64_t)ROWS * VOCAB * sizeof(*rows));
	assert_true(counted + 65536 >= taken_now); /* whole pages */
	sampler_free(s);
	free(rows);
	free(allowed);
}

/* Measuring the limits takes some of each thread. */
static void a_profile(void **state)
{
	struct engine_options o = { .threads = 2, .ctx = 64 };
	struct engine_memory without, with;

	(void)state;
	assert_int_equal(engine_memory(file, &o, &without, why), 0);
	o.profile = true;
	assert_int_equal(engine_memory(file, &o, &with, why), 0);
	assert_true(with.buffers == without.buffers + limits_bytes(file, 2));
	assert_true(limits_bytes(file, 2) >= 2 * 128 * 512 * sizeof(float));
	assert_true(limits_bytes(file, 9) > limits_bytes(file, 2) + 6 * 128 * 512 * sizeof(float));
}

/* A daemon that will take all that there is: nothing beyond the need is promised. */
static void beside_a_daemon(void **state)
{
	char path[512];

	(void)state;
	snprintf(path, sizeof(path), "%s/.expertfs", tiny.dir);
	assert_int_equal(mkdir(path, 0777), 0);
	snprintf(path, sizeof(path), "%s/.expertfs/stats.json", tiny.dir);
	for (int i = 0; i < 2; i++) {
		FILE *f = fopen(path, "w");
		fprintf(f, "{\"mode\": \"direct\", \"memory\": {\"budget\": %llu, \"used\": %llu}}",
			1ull << 50, i ? 1ull << 50 : 0ull);
		fclose(f);
		struct engine_options o = plan(0, 0, 0, (struct engine_need){ 500, 600, 500 });
		assert_int_equal(o.ctx, i ? ENGINE_CTX : 500);
		assert_int_equal(o.chunk, i ? 500 : ENGINE_CHUNK_MIN);
	}
	unlink(path);
	snprintf(path, sizeof(path), "%s/.expertfs", tiny.dir);
	rmdir(path);
}

static void sizes(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes; /* 0: refused */
	} cases[] = { { "4096", 4096 },
		      { "1k", 1024 },
		      { "512M", (uint64_t)512 << 20 },
		      { "12G", (uint64_t)12 << 30 },
		      { "12GiB", (uint64_t)12 << 30 },
		      { "12gb", (uint64_t)12 << 30 },
		      { "1.5t", (uint64_t)3 << 39 },
		      { "100B", 100 },
		      { "0", 0 },
		      { "", 0 },
		      { "G", 0 },
		      { "-1G", 0 },
		      { "1e9", 0 },
		      { "0x10", 0 },
		      { "1..5G", 0 },
		      { "1.5", 1 },
		      { "inf", 0 },
		      { "12Q", 0 },
		      { "12Gx", 0 },
		      { "12Gi", 0 },
		      { "12 G", 0 },
		      { "99999999T", 0 },
		      { "1111111111111111111111111111111111111111", 0 } };

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t got = 0;
		int r = option_size("--memory", cases[i].text, &got);
		assert_int_equal(r, cases[i].bytes ? 0 : EXIT_USAGE);
		assert_int_equal(got, cases[i].bytes);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_limit),
		cmocka_unit_test(with_a_limit),
		cmocka_unit_test(too_long_a_prompt),
		cmocka_unit_test(a_large_vocabulary),
		cmocka_unit_test(a_profile),
		cmocka_unit_test(beside_a_daemon),
		cmocka_unit_test(sizes),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
