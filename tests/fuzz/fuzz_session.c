/* SPDX-License-Identifier: Apache-2.0
 *
 * Session files, read into a tiny model and gone on with. The checksums are made to hold, since one
 * who means harm has them right, and the head is of this model; rows that are all zero become the
 * ones that the model computes, so that there are sessions that hold as well.
 */
#include "tests/fuzz/fuzz.h"

#include <string.h>
#include <xxhash.h>

#include "engine/fail.h"
#include "engine/session.h"
#include "tests/unit/tiny_model.h"

#define PROMPT 24
#define HEAD   64
#define BLOCK  32

static struct tiny tiny;
static struct modelfile *file;
static struct engine *e, *fed; /* one for the sessions, one with the whole prompt in it */
static const struct engine_options options = { .threads = 1, .ctx = TINY_CTX, .session = true };
static int32_t prompt[PROMPT];

static void finish(void)
{
	engine_close(e);
	engine_close(fed);
	modelfile_free(file);
	tiny_remove(&tiny);
}

static void start(void)
{
	char why[WHY_MAX];

	tiny_make(&tiny, (struct wfmt){ W_F32, 0 }, 70); /* whose first tie is at token 15 */
	for (int i = 0; i < PROMPT; i++)
		prompt[i] = (i * 29 + i * i) % TINY_VOCAB;
	if (modelfile_load(tiny.dir, &file, why) != 0 ||
	    engine_open(file, &options, &e, why) != 0 ||
	    engine_open(file, &options, &fed, why) != 0 ||
	    engine_feed(fed, prompt, PROMPT, why) != 0)
		abort();
	atexit(finish);
}

static bool all_zero(const uint8_t *from, size_t n)
{
	return n > 0 && from[0] == 0 && memcmp(from, from + 1, n - 1) == 0;
}

static uint32_t u32_at(const uint8_t *at)
{
	uint32_t v;

	memcpy(&v, at, sizeof(v));
	return v;
}

/* A block of count tokens from first on; rows of the prompt if it has none. */
static void fill_rows(uint8_t *block, uint64_t bytes)
{
	uint32_t first = u32_at(block + 8), count = u32_at(block + 12);
	size_t rows = (size_t)count * engine_row(e).bytes, ids = (size_t)count * sizeof(int32_t);

	if (count > 0 && count <= PROMPT && first <= PROMPT - count && bytes == ids + rows &&
	    all_zero(block + BLOCK + ids, rows))
		engine_get_rows(fed, (int)first, (int)count, block + BLOCK + ids);
}

static void seal(uint8_t *data, size_t size)
{
	uint64_t check, bytes;

	memcpy(data + 32, &file->hash, sizeof(file->hash));
	check = XXH3_64bits(data, HEAD - sizeof(check));
	memcpy(data + HEAD - sizeof(check), &check, sizeof(check));
	for (size_t at = HEAD; size - at >= BLOCK; at += BLOCK + bytes) {
		memcpy(&bytes, data + at + 24, sizeof(bytes));
		if (bytes > size - at - BLOCK)
			return;
		fill_rows(data + at, bytes);
		check = XXH3_64bits_withSeed(data + at + sizeof(check),
					     BLOCK + bytes - sizeof(check), check);
		memcpy(data + at, &check, sizeof(check));
	}
}

/* The prompt through the session; false if there was a reason not to. */
static bool run(const char *path)
{
	char why[WHY_MAX];
	struct kv_session *s;
	bool saved = false;

	if (kv_session_open(path, file, &options, &s, why) != 0)
		return false;
	engine_reset(e);
	if (kv_session_restore(s, e, prompt, PROMPT, why) == 0) {
		int at = engine_position(e);
		if (at < 0 || at >= PROMPT || memcmp(engine_ids(e), prompt, (size_t)at * 4) != 0)
			abort();
		saved = engine_feed(e, prompt + at, PROMPT - at, why) == 0 &&
			kv_session_save(s, false, why) == 0;
	}
	kv_session_close(s);
	return saved;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size + 1);

	if (!file)
		start();
	if (!copy)
		abort();
	memcpy(copy, data, size);
	if (size >= HEAD)
		seal(copy, size);
	const char *path = fuzz_file(copy, size, 0, ".session");
	free(copy);
	/* What was saved is a session. */
	if (run(path) && !run(path))
		abort();
	return 0;
}
