/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.json made from GGUF metadata, read by the engine: the ids are those that llama.cpp, or
 * the Hugging Face library, gives for the same vocabulary. Reduced vocabularies of 10 models
 * (tests/data/gguf-vocab/README.md). And metadata that lies.
 */
#include <dirent.h>
#include <math.h>

#include "expertfs/gguf_pre.h"
#include "expertfs/gguf_tokenizer.h"
#include "tests/unit/tokenizer_files.h"

/* The arrays of a vocabulary in tests/data/gguf-vocab. */
struct vocab {
	json_t *json;
	struct gguf_tokenizer g;
	struct gguf_tokenizer_text *token, *merge;
	float *score;
	int32_t *type;
};

static struct gguf_tokenizer_text text_of(const json_t *string)
{
	return (struct gguf_tokenizer_text){ json_string_value(string),
					     json_string_length(string) };
}

static int64_t number(const json_t *json, const char *key)
{
	const json_t *v = json_object_get(json, key);

	if (json_is_boolean(v))
		return json_is_true(v);
	return json_is_integer(v) ? json_integer_value(v) : GGUF_TOKENIZER_ABSENT;
}

/* Ids that the reduced file has not are unused rows. */
static void load_vocab(const char *name, struct vocab *v)
{
	char file[320];
	const char *id;
	json_t *value;

	snprintf(file, sizeof(file), "gguf-vocab/%s", name);
	v->json = read_data(file);
	size_t size = (size_t)number(v->json, "size");
	if (size < 1 || size > 1 << 20) {
		fail_msg("%s has a vocabulary of %zu tokens", name, size);
		abort(); /* for clang-tidy: the line above does not return */
	}
	const json_t *scores = json_object_get(v->json, "scores");
	const json_t *merges = json_object_get(v->json, "merges");
	v->token = calloc(size, sizeof(v->token[0]));
	v->score = calloc(size, sizeof(v->score[0]));
	v->type = calloc(size, sizeof(v->type[0]));
	v->merge = calloc(json_array_size(merges) + 1, sizeof(v->merge[0]));
	assert_true(v->token && v->score && v->type && v->merge);
	for (size_t i = 0; i < size; i++) {
		v->token[i] = (struct gguf_tokenizer_text){ "[PAD]", 5 };
		v->type[i] = 5;
	}
	json_object_foreach(json_object_get(v->json, "tokens"), id, value)
	{
		int at = atoi(id);
		const json_t *type = json_object_get(json_object_get(v->json, "types"), id);
		v->token[at] = text_of(value);
		v->type[at] = type ? (int32_t)json_integer_value(type) : 1;
		if (json_is_object(scores))
			v->score[at] = (float)json_real_value(json_object_get(scores, id));
	}
	for (size_t i = 0; i < json_array_size(merges); i++)
		v->merge[i] = text_of(json_array_get(merges, i));
	v->g = (struct gguf_tokenizer){
		.model = json_string_value(json_object_get(v->json, "model")),
		.pre = json_string_value(json_object_get(v->json, "pre")),
		.tokens = size,
		.token = v->token,
		.type = v->type,
		.score = json_is_object(scores) ? v->score : NULL,
		.merges = json_array_size(merges),
		.merge = v->merge,
		.bos = number(v->json, "bos_token_id"),
		.eos = number(v->json, "eos_token_id"),
		.add_bos = (int)number(v->json, "add_bos_token"),
		.add_eos = (int)number(v->json, "add_eos_token"),
		.add_space_prefix = (int)number(v->json, "add_space_prefix"),
	};
}

static void free_vocab(struct vocab *v)
{
	free(v->token);
	free(v->score);
	free(v->type);
	free(v->merge);
	json_decref(v->json);
}

static struct tokenizer *made(const struct gguf_tokenizer *g, const char *name)
{
	char why[WHY_MAX] = "", *json;
	struct tokenizer *t = NULL;
	size_t bytes;

	if (gguf_tokenizer_json(g, &json, &bytes, why) != 0)
		fail_msg("%s: %s", name, why);
	assert_int_equal(strlen(json), bytes);
	if (load_bytes(json, bytes, &t, why) != 0)
		fail_msg("%s: %s", name, why);
	free(json);
	return t;
}

static void same_ids(const char *name)
{
	struct vocab v;
	char why[WHY_MAX];
	size_t i;
	json_t *text;

	load_vocab(name, &v);
	struct tokenizer *t = made(&v.g, name);
	json_array_foreach(json_object_get(v.json, "texts"), i, text)
	{
		const json_t *expected = json_array_get(json_object_get(v.json, "ids"), i);
		int32_t *ids;
		size_t n;
		assert_int_equal(tokenizer_encode(t, json_string_value(text),
						  json_string_length(text), TOKENIZER_PLAIN, &ids,
						  &n, why),
				 0);
		if (n != json_array_size(expected))
			fail_msg("%s, text %zu \"%s\": %zu ids, not %zu", name, i,
				 json_string_value(text), n, json_array_size(expected));
		for (size_t k = 0; k < n; k++)
			if (ids[k] != json_integer_value(json_array_get(expected, k)))
				fail_msg("%s, text %zu \"%s\": id %zu is %d, not %d", name, i,
					 json_string_value(text), k, ids[k],
					 (int)json_integer_value(json_array_get(expected, k)));
		free(ids);
	}
	assert_true(i > 40);
	tokenizer_free(t);
	free_vocab(&v);
}

static void same_ids_as_the_others(void **state)
{
	char folder[4096];
	int vocabularies = 0;
	struct dirent *entry;

	(void)state;
	snprintf(folder, sizeof(folder), "%s/gguf-vocab", data_folder());
	DIR *dir = opendir(folder);
	assert_non_null(dir);
	while ((entry = readdir(dir)) != NULL) {
		if (!strstr(entry->d_name, ".json"))
			continue;
		same_ids(entry->d_name);
		vocabularies++;
	}
	closedir(dir);
	assert_int_equal(vocabularies, 10);
}

/* ---- a small one ---- */

#define T(s)                                                                                       \
	{                                                                                          \
		s, sizeof(s) - 1                                                                   \
	}

/* Pieces of equal score overlap: the leftmost is merged. aa, aaa and aaaa come after ab. */
static const struct gguf_tokenizer_text small_token[] = {
	T("<unk>"),  T("<s>"),
	T("</s>"),   T("a"),
	T("b"),      T("\xE2\x96\x81"),
	T("aa"),     T("ab"),
	T("ba"),     T("aba"),
	T("[INST]"), T("[PAD7]"),
	T("a"),      T("\xE2\x96\x81\xE2\x96\x81")
};
#define SMALL (sizeof(small_token) / sizeof(small_token[0]))
static const float small_score[SMALL] = { 0, 0, 0, -5, -6, -7, -3, -1, -1, -2, 0, 0, -9, -8 };
static const int32_t small_type[SMALL] = { 2, 3, 3, 1, 1, 1, 1, 1, 1, 1, 4, 5, 1, 4 };

struct small {
	struct gguf_tokenizer g;
	struct gguf_tokenizer_text token[SMALL + 256];
	float score[SMALL + 256];
	int32_t type[SMALL + 256];
	char name[256][7];
};

static void make_small(struct small *s)
{
	memcpy(s->token, small_token, sizeof(small_token));
	memcpy(s->score, small_score, sizeof(small_score));
	memcpy(s->type, small_type, sizeof(small_type));
	for (size_t b = 0; b < 256; b++) {
		snprintf(s->name[b], sizeof(s->name[b]), "<0x%02X>", (unsigned)b);
		s->token[SMALL + b] = (struct gguf_tokenizer_text){ s->name[b], 6 };
		s->score[SMALL + b] = 0;
		s->type[SMALL + b] = 6;
	}
	s->g = (struct gguf_tokenizer){ .model = "llama",
					.tokens = SMALL + 256,
					.token = s->token,
					.score = s->score,
					.type = s->type,
					.bos = 1,
					.eos = 2,
					.add_bos = GGUF_TOKENIZER_ABSENT,
					.add_eos = GGUF_TOKENIZER_ABSENT,
					.add_space_prefix = GGUF_TOKENIZER_ABSENT };
}

static void check_ids(const struct tokenizer *t, const char *text, unsigned flags,
		      const int32_t *expected, size_t count)
{
	char why[WHY_MAX];
	int32_t *ids;
	size_t n;

	assert_int_equal(tokenizer_encode(t, text, strlen(text), flags, &ids, &n, why), 0);
	assert_int_equal(n, count);
	assert_memory_equal(ids, expected, count * sizeof(ids[0]));
	free(ids);
}

#define CHECK(t, text, flags, ...)                                                                 \
	check_ids(t, text, flags, (const int32_t[]){ __VA_ARGS__ },                                \
		  sizeof((int32_t[]){ __VA_ARGS__ }) / sizeof(int32_t))

static void scores_flags_and_types(void **state)
{
	static struct small s;
	size_t bytes;

	(void)state;
	make_small(&s);
	struct tokenizer *t = made(&s.g, "small");
	/* Of the equals "ab" and "ba" the left one goes first, whichever that is. */
	CHECK(t, "aba", 0, 5, 9);
	CHECK(t, "bab", 0, 5, 8, 4);
	CHECK(t, "abab", 0, 5, 7, 7);
	CHECK(t, "aab", 0, 5, 3, 7);
	CHECK(t, "a", TOKENIZER_ADD_SPECIAL, 1, 5, 3);
	CHECK(t, "c", 0, 5, (int32_t)SMALL + 'c');
	CHECK(t, "[INST]a</s>", 0, 10, 5, 3, 2);
	/* User-defined tokens are none that users could not write. */
	CHECK(t, "[INST]", TOKENIZER_PLAIN, 10);
	/* But those with spaces are merged, as in llama.cpp. */
	CHECK(t, "a  b", 0, 5, 3, 13, 4);
	CHECK(t, "[INST]   a", 0, 10, 13, 13, 3);
	assert_memory_equal(tokenizer_piece(t, 13, &bytes), "  ", 2);
	assert_int_equal(bytes, 2);
	CHECK(t, "<s", 0, 5, (int32_t)SMALL + '<', (int32_t)SMALL + 's');
	assert_false(tokenizer_has(t, 11));
	assert_false(tokenizer_has(t, 12));
	assert_true(tokenizer_is_special(t, 0));
	assert_false(tokenizer_is_special(t, 10));
	tokenizer_free(t);

	s.g.add_space_prefix = 0;
	s.g.add_bos = 0;
	s.g.add_eos = 1;
	t = made(&s.g, "small");
	CHECK(t, "aba ", TOKENIZER_ADD_SPECIAL, 9, 5, 2);
	tokenizer_free(t);
	s.g.add_bos = 1;
	s.g.eos = 1;
	t = made(&s.g, "small");
	CHECK(t, "a", TOKENIZER_ADD_SPECIAL, 1, 3, 1);
	tokenizer_free(t);
}

/* ---- what is refused ---- */

static void refused(const struct gguf_tokenizer *g, const char *sentence)
{
	char why[WHY_MAX] = "", *json = (char *)"";
	size_t bytes;

	assert_int_equal(gguf_tokenizer_json(g, &json, &bytes, why), -EINVAL);
	assert_null(json);
	if (!strstr(why, sentence))
		fail_msg("\"%s\", not \"%s\"", why, sentence);
}

static void lies(void **state)
{
	static struct small s;
	/* The NUL is not the text's: the address sanitizer's strict checks want one behind it. */
	static char long_text[1000 + 1];

	(void)state;
#define REFUSED(change, sentence)                                                                  \
	do {                                                                                       \
		make_small(&s);                                                                    \
		change;                                                                            \
		refused(&s.g, sentence);                                                           \
	} while (0)
	memset(long_text, 'a', 1000);
	REFUSED(s.g.model = "bert", "model \"bert\" is not supported");
	REFUSED(s.g.model = "gpt2", "no merges");
	REFUSED(s.g.model = "gpt2"; s.g.pre = "tekken", "\"tekken\", is not known");
	REFUSED(s.g.tokens = 0, "has 0 tokens");
	REFUSED(s.g.tokens = 1ull << 40, "tokens, not 1 to 4194304");
	REFUSED(s.g.score = NULL, "no scores");
	REFUSED(s.g.type = NULL, "no types");
	REFUSED(s.g.bos = -1, "beginning token is to be added, but there is none");
	REFUSED(s.g.bos = SMALL + 256, "beginning token is to be added");
	REFUSED(s.g.bos = 11, "beginning token is to be added");
	REFUSED(s.g.add_eos = 1; s.g.eos = INT64_MAX, "end token is to be added");
	REFUSED(s.score[4] = NAN, "token number 4 of the tokenizer has no score");
	REFUSED(s.score[4] = INFINITY, "token number 4 of the tokenizer has no score");
	REFUSED(s.token[4] = ((struct gguf_tokenizer_text)T("\xFF")), "token number 4 of the "
								      "tokenizer is no UTF-8");
	REFUSED(s.token[4] = ((struct gguf_tokenizer_text){ "b\0c", 3 }), "token number 4 of the "
									  "tokenizer is no UTF-8");
	REFUSED(s.token[12] = ((struct gguf_tokenizer_text){ "a\0\xF0", 3 }), "token number 12");
	REFUSED(s.token[1] = ((struct gguf_tokenizer_text)T("\xC3")), "token number 1 of the");
	REFUSED(s.token[4] = ((struct gguf_tokenizer_text){ long_text, 1000 }), "has 1000 bytes");
	REFUSED(s.token[4] = ((struct gguf_tokenizer_text)T("xb")), "a character that is no token");
}

/* A megabyte of such pieces would become hundreds of them, since each can be cut anywhere. */
static void too_many_cuts(void **state)
{
	enum { LETTERS = 2, LONGEST = 512, TOKENS = LETTERS * LONGEST };
	static char text[LETTERS][LONGEST + 1];
	static struct gguf_tokenizer_text token[TOKENS];
	static float score[TOKENS];
	static int32_t type[TOKENS];
	const struct gguf_tokenizer g = {
		.model = "llama", .tokens = TOKENS, .token = token, .score = score, .type = type
	};

	(void)state;
	for (size_t i = 0; i < TOKENS; i++) {
		text[i / LONGEST][i % LONGEST] = (char)('a' + i / LONGEST);
		token[i] = (struct gguf_tokenizer_text){ text[i / LONGEST], i % LONGEST + 1 };
		type[i] = 1;
	}
	refused(&g, "longer than 64 MiB");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(same_ids_as_the_others),
		cmocka_unit_test(scores_flags_and_types),
		cmocka_unit_test(lies),
		cmocka_unit_test(too_many_cuts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
