/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of the tokenizer share: JSON files of tests/data, tokenizers loaded from changed
 * ones, decoding, random numbers.
 */
#ifndef TEST_TOKENIZER_FILES_H
#define TEST_TOKENIZER_FILES_H

#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Before cmocka.h, which makes fail() a macro. */
#include "engine/fail.h"
#include "engine/tokenizer.h"

#include <cmocka.h>

static inline json_t *read_json(const char *folder, const char *name)
{
	char path[4096];
	json_error_t error;
	json_t *json;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	json = json_load_file(path, 0, &error);
	if (!json)
		fail_msg("%s: %s", path, error.text);
	return json;
}

static inline const char *data_folder(void)
{
	const char *folder = getenv("TEST_DATA");

	return folder ? folder : "tests/data";
}

static inline json_t *read_data(const char *name)
{
	return read_json(data_folder(), name);
}

/* tokenizer_load() of a file with these bytes. */
static inline int load_bytes(const void *bytes, size_t n, struct tokenizer **t, char *why)
{
	char path[4096];
	const char *folder = getenv("TMPDIR");

	snprintf(path, sizeof(path), "%s/test-tokenizer.XXXXXX", folder ? folder : "/tmp");
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	FILE *f = fdopen(fd, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
	int rc = tokenizer_load(path, t, why);
	unlink(path);
	return rc;
}

static inline int load_json(const json_t *json, struct tokenizer **t, char *why)
{
	char *text = json_dumps(json, JSON_COMPACT);

	assert_non_null(text);
	int rc = load_bytes(text, strlen(text), t, why);
	free(text);
	return rc;
}

/* The concatenated pieces of the ids, allocated. */
static inline char *decode(const struct tokenizer *t, const int32_t *ids, size_t n, size_t *bytes)
{
	char *text = NULL;
	FILE *f = open_memstream(&text, bytes);

	assert_non_null(f);
	for (size_t i = 0; i < n; i++) {
		size_t length;
		const char *piece = tokenizer_piece(t, ids[i], &length);
		assert_non_null(piece);
		fwrite(piece, 1, length, f);
	}
	assert_int_equal(fclose(f), 0);
	return text;
}

/* xorshift64*: the same numbers everywhere. */
static inline uint32_t random_below(uint64_t *state, uint32_t n)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return (uint32_t)((*state * 0x2545F4914F6CDD1Dull >> 33) % n);
}

#endif
