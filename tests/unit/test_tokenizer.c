/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokenizer against the Hugging Face library and published digests, on the tokenizer of
 * tale-moe and on reduced files of five real models; round trips; the time that a megabyte takes.
 *
 * With TOKENIZER_FULL_DIR=DIR the full files, DIR/qwen3/tokenizer.json and so on, are tested as
 * well (tests/data/tokenizer/README.md says where they come from).
 */
#include <time.h>

#include "engine/metaspace.h"
#include "engine/nfc.h"
#include "engine/utf8.h"
#include "tests/unit/sha256.h"
#include "tests/unit/tokenizer_files.h"

static const char *const models[] = { "tale-moe", "qwen3", "deepseek_v3", "llama3", "gptoss" };
#define MODELS (sizeof(models) / sizeof(models[0]))

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define SECONDS_A_MEGABYTE 20.0
#else
#define SECONDS_A_MEGABYTE 2.0
#endif

static json_t *golden, *published;

/* The tokenizer.json of a model; full: the whole one, NULL if that is not at hand. */
static json_t *model_json(const char *model, bool full)
{
	char name[256];
	const char *folder = getenv("TOKENIZER_FULL_DIR");

	if (strcmp(model, "tale-moe") == 0)
		return full ? NULL : read_data("tale-moe/tokenizer.json");
	if (full) {
		snprintf(name, sizeof(name), "%s/tokenizer.json", model);
		return read_json(folder, name);
	}
	snprintf(name, sizeof(name), "tokenizer/%s.json", model);
	return read_data(name);
}

static struct tokenizer *load_model(const char *model, bool full)
{
	char why[WHY_MAX] = "";
	struct tokenizer *t = NULL;
	json_t *json = model_json(model, full);

	if (!json)
		return NULL;
	if (load_json(json, &t, why) != 0)
		fail_msg("%s: %s", model, why);
	json_decref(json);
	return t;
}

static void encode(const struct tokenizer *t, const char *text, size_t bytes, unsigned flags,
		   int32_t **ids, size_t *n)
{
	char why[WHY_MAX] = "";

	if (tokenizer_encode(t, text, bytes, flags, ids, n, why) != 0)
		fail_msg("%s", why);
}

static void assert_ids(const char *name, const char *text, const int32_t *ids, size_t n,
		       const json_t *expected)
{
	if (n != json_array_size(expected))
		fail_msg("%s, text \"%s\": %zu ids, not %zu", name, text, n,
			 json_array_size(expected));
	for (size_t i = 0; i < n; i++)
		if (ids[i] != json_integer_value(json_array_get(expected, i)))
			fail_msg("%s, text \"%s\": id %zu is %d, not %d", name, text, i, ids[i],
				 (int)json_integer_value(json_array_get(expected, i)));
}

static const json_t *golden_text(const char *name)
{
	size_t i;
	json_t *item;

	json_array_foreach(json_object_get(golden, "texts"), i, item)
	{
		if (strcmp(json_string_value(json_object_get(item, "name")), name) == 0)
			return json_object_get(item, "text");
	}
	fail_msg("there is no text \"%s\"", name);
	return NULL;
}

/* ---- ids ---- */

/* The members of a case that replace those of the model's file. */
static void replace_members(json_t *json, json_t *replace)
{
	const char *key;
	json_t *value;

	json_object_foreach(replace, key, value)
	{
		if (strcmp(key, "model") == 0)
			json_object_update(json_object_get(json, key), value);
		else
			json_object_set(json, key, value);
	}
}

static void run_case(json_t *test, bool full)
{
	const char *name = json_string_value(json_object_get(test, "name"));
	const char *mode = json_string_value(json_object_get(test, "mode"));
	unsigned flags = strcmp(mode, "plain") == 0         ? TOKENIZER_PLAIN
			 : strcmp(mode, "add_special") == 0 ? TOKENIZER_ADD_SPECIAL
							    : 0;
	json_t *json = model_json(json_string_value(json_object_get(test, "tokenizer")), full);
	char why[WHY_MAX] = "";
	struct tokenizer *t;
	size_t i;
	json_t *item;

	if (!json)
		return;
	replace_members(json, json_object_get(test, "replace"));
	if (load_json(json, &t, why) != 0)
		fail_msg("%s: %s", name, why);
	json_array_foreach(json_object_get(golden, "texts"), i, item)
	{
		const json_t *text = json_object_get(item, "text");
		int32_t *ids;
		size_t n;
		encode(t, json_string_value(text), json_string_length(text), flags, &ids, &n);
		assert_ids(name, json_string_value(json_object_get(item, "name")), ids, n,
			   json_array_get(json_object_get(test, "ids"), i));
		free(ids);
	}
	tokenizer_free(t);
	json_decref(json);
}

static void run_cases(bool full)
{
	size_t i;
	json_t *test;

	assert_true(json_array_size(json_object_get(golden, "texts")) > 30);
	assert_true(json_array_size(json_object_get(golden, "cases")) > 20);
	json_array_foreach(json_object_get(golden, "cases"), i, test)
	{
		run_case(test, full);
	}
}

static void same_ids_as_the_library(void **state)
{
	(void)state;
	run_cases(false);
}

static void held_out_text(void **state)
{
	char path[4096], *text = NULL;
	size_t bytes = 0, n, decoded_bytes;
	int32_t *ids;
	struct tokenizer *t = load_model("tale-moe", false);

	(void)state;
	snprintf(path, sizeof(path), "%s/tale-moe/held-out.txt", data_folder());
	FILE *f = fopen(path, "rb");
	assert_non_null(f);
	assert_true(getdelim(&text, &bytes, EOF, f) > 10000);
	bytes = (size_t)ftell(f);
	fclose(f);
	encode(t, text, bytes, 0, &ids, &n);
	assert_ids("tale-moe", "held-out", ids, n, json_object_get(golden, "held-out"));
	char *decoded = decode(t, ids, n, &decoded_bytes);
	assert_int_equal(decoded_bytes, bytes);
	assert_memory_equal(decoded, text, bytes);
	free(decoded);
	free(ids);
	free(text);
	tokenizer_free(t);
}

/* The digest of the ids as llama.cpp's converter prints them. */
static void check_digest(const json_t *entry, bool full)
{
	const char *model = json_string_value(json_object_get(entry, "tokenizer"));
	const json_t *text = golden_text("check"), *before = json_object_get(entry, "before");
	struct tokenizer *t = load_model(model, full);
	char *list = NULL, hex[65];
	size_t n, length;
	int32_t *ids;

	encode(t, json_string_value(text), json_string_length(text), 0, &ids, &n);
	assert_int_equal(n, json_integer_value(json_object_get(entry, "ids")));
	FILE *f = open_memstream(&list, &length);
	assert_non_null(f);
	for (size_t i = 0; i < json_array_size(before); i++)
		fprintf(f, ", %d", (int)json_integer_value(json_array_get(before, i)));
	for (size_t i = 0; i < n; i++)
		fprintf(f, ", %d", ids[i]);
	fputc(']', f);
	fclose(f);
	/* ", a, b]" -> "[a, b]" */
	list[1] = '[';
	sha256_hex(list + 1, length - 1, hex);
	assert_string_equal(hex, json_string_value(json_object_get(entry, "sha256")));
	free(list);
	free(ids);
	tokenizer_free(t);
}

static void check_rows(const char *model, bool full)
{
	struct tokenizer *t = load_model(model, full);
	size_t i;
	json_t *row;

	json_array_foreach(json_object_get(published, "rows"), i, row)
	{
		const char *name = json_string_value(json_object_get(row, "text"));
		const json_t *text = golden_text(name);
		int32_t *ids;
		size_t n;
		encode(t, json_string_value(text), json_string_length(text), 0, &ids, &n);
		assert_ids(model, name, ids, n, json_object_get(row, model));
		free(ids);
	}
	assert_int_equal(i, 10);
	tokenizer_free(t);
}

static void check_published(bool full)
{
	size_t i;
	json_t *entry;

	json_array_foreach(json_object_get(published, "digests"), i, entry)
	{
		check_digest(entry, full);
		check_rows(json_string_value(json_object_get(entry, "tokenizer")), full);
	}
	assert_int_equal(i, 4);
}

static void published_digests_and_ids(void **state)
{
	const json_t *text = golden_text("check");
	char hex[65];

	(void)state;
	sha256_hex(json_string_value(text), json_string_length(text), hex);
	assert_string_equal(hex,
			    "a36179c1e2b1cfcfbfad1dc779addad2ffc778201e4cf0d538bddeafa2c526da");
	check_published(false);
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void full_files(void **state)
{
	const char *folder = getenv("TOKENIZER_FULL_DIR");
	char path[4096], why[WHY_MAX];

	(void)state;
	if (!folder) {
		print_message("TOKENIZER_FULL_DIR is not set: the full files are not tested\n");
		skip();
	}
	for (size_t i = 1; i < MODELS; i++) {
		struct tokenizer *t;
		snprintf(path, sizeof(path), "%s/%s/tokenizer.json", folder, models[i]);
		double start = seconds();
		if (tokenizer_load(path, &t, why) != 0)
			fail_msg("%s", why);
		print_message("%s: loaded in %.2f s\n", path, seconds() - start);
		tokenizer_free(t);
	}
	check_published(true);
	run_cases(true);
}

/* ---- tokens ---- */

static void pieces_and_added_tokens(void **state)
{
	struct tokenizer *t = load_model("qwen3", false);
	size_t bytes;

	(void)state;
	/* Reduced, but the ids are the real ones. */
	assert_int_equal(tokenizer_size(t), 151669);
	assert_int_equal(tokenizer_id(t, "<|im_end|>"), 151645);
	assert_int_equal(tokenizer_id(t, "<think>"), 151667);
	assert_int_equal(tokenizer_id(t, "<|im_en"), -1);
	assert_int_equal(tokenizer_id(t, " the"), -1);
	assert_true(tokenizer_is_special(t, 151645));
	assert_false(tokenizer_is_special(t, 151667));
	assert_false(tokenizer_is_special(t, 279));
	assert_string_equal(tokenizer_piece(t, 151645, &bytes) ? "piece" : "none", "piece");
	assert_int_equal(bytes, 10);
	assert_memory_equal(tokenizer_piece(t, 151645, &bytes), "<|im_end|>", 10);
	assert_memory_equal(tokenizer_piece(t, 279, &bytes), " the", 4);
	assert_int_equal(bytes, 4);
	assert_memory_equal(tokenizer_piece(t, 198, &bytes), "\n", 1);
	assert_int_equal(bytes, 1);
	static const int undefined[] = { -1, INT32_MIN, 151669, INT32_MAX, 151000 };
	for (size_t i = 0; i < sizeof(undefined) / sizeof(undefined[0]); i++) {
		assert_false(tokenizer_has(t, undefined[i]));
		assert_false(tokenizer_is_special(t, undefined[i]));
		assert_null(tokenizer_piece(t, undefined[i], &bytes));
		assert_int_equal(bytes, 0);
	}
	tokenizer_free(t);
	tokenizer_free(NULL);
}

/* No text becomes a special token in plain mode, and every text does not do so by merging either.
 */
static void plain_text_injects_nothing(void **state)
{
	(void)state;
	for (size_t m = 0; m < MODELS; m++) {
		struct tokenizer *t = load_model(models[m], false);
		int specials = 0;
		for (int id = 0; id < tokenizer_size(t); id++) {
			size_t bytes, n;
			int32_t *ids;
			if (!tokenizer_is_special(t, id))
				continue;
			const char *text = tokenizer_piece(t, id, &bytes);
			encode(t, text, bytes, 0, &ids, &n);
			assert_int_equal(n, 1);
			assert_int_equal(ids[0], id);
			free(ids);
			encode(t, text, bytes, TOKENIZER_PLAIN, &ids, &n);
			assert_true(n > 1);
			for (size_t i = 0; i < n; i++)
				assert_false(tokenizer_is_special(t, ids[i]));
			free(ids);
			specials++;
		}
		assert_true(specials > 5);
		tokenizer_free(t);
	}
}

/* ---- round trips ---- */

/* The text with its runs of valid characters in NFC. */
static char *normal_form(const char *text, size_t bytes, size_t *normal_bytes)
{
	char *normal = NULL;
	FILE *f = open_memstream(&normal, normal_bytes);

	assert_non_null(f);
	for (size_t at = 0; at < bytes;) {
		size_t valid = 0, run_bytes;
		uint32_t cp;
		unsigned length;
		char *run;
		while (at + valid < bytes &&
		       utf8_next(text + at + valid, bytes - at - valid, &cp, &length) == UTF8_CHAR)
			valid += length;
		assert_int_equal(nfc(text + at, valid, &run, &run_bytes), 0);
		fwrite(run ? run : text + at, 1, run ? run_bytes : valid, f);
		free(run);
		at += valid;
		if (at < bytes)
			fputc(text[at++], f);
	}
	fclose(f);
	return normal;
}

static void assert_same_text(bool is_nfc, const char *a, size_t a_bytes, const char *b,
			     size_t b_bytes)
{
	char *a_normal = NULL, *b_normal = NULL;

	if (is_nfc) {
		a = a_normal = normal_form(a, a_bytes, &a_bytes);
		b = b_normal = normal_form(b, b_bytes, &b_bytes);
	}
	assert_int_equal(a_bytes, b_bytes);
	assert_memory_equal(a, b, a_bytes);
	free(a_normal);
	free(b_normal);
}

static void round_trip(const struct tokenizer *t, bool is_nfc, const char *text, size_t bytes)
{
	for (unsigned flags = 0; flags <= TOKENIZER_PLAIN; flags++) {
		size_t n, decoded_bytes;
		int32_t *ids;
		encode(t, text, bytes, flags, &ids, &n);
		char *decoded = decode(t, ids, n, &decoded_bytes);
		assert_same_text(is_nfc, decoded, decoded_bytes, text, bytes);
		free(decoded);
		free(ids);
	}
}

static size_t random_utf8(uint64_t *random, char *text)
{
	static const char *const snippets[] = {
		"<|user|>",     "<|endoftext|>", "<think>", "'Re",
		"<|im_start|>", "<|eot_id|>",    " \n\n ",  "\r\n"
	};
	static const struct {
		uint32_t first, n;
	} ranges[] = {
		{ 0, 128 },        { ' ', 1 },        { '\t', 5 },      { 'a', 26 },
		{ '0', 10 },       { 0x80, 0x780 },   { 0x300, 0x70 },  { 0x4E00, 0x5200 },
		{ 0xAC00, 11172 }, { 0x2000, 0x300 }, { 0x1F300, 700 }, { 0xE000, 0x102000 }
	};
	uint32_t length = random_below(random, 60);
	size_t bytes = 0;

	for (uint32_t i = 0; i < length; i++) {
		uint32_t r = random_below(random, 14);
		if (r < 12) {
			uint32_t cp = ranges[r].first + random_below(random, ranges[r].n);
			bytes += utf8_put(cp, text + bytes);
		} else {
			const char *snippet = snippets[random_below(random, 8)];
			while (*snippet)
				text[bytes++] = *snippet++;
		}
	}
	return bytes;
}

static void random_texts(void **state)
{
	(void)state;
	for (size_t m = 0; m < MODELS; m++) {
		struct tokenizer *t = load_model(models[m], false);
		bool is_nfc = strcmp(models[m], "qwen3") == 0;
		uint64_t random = 20240601 + m;
		char text[60 * 16];
		for (int i = 0; i < 2000; i++)
			round_trip(t, is_nfc, text, random_utf8(&random, text));
		tokenizer_free(t);
	}
}

static void random_bytes(void **state)
{
	(void)state;
	for (size_t m = 0; m < MODELS; m++) {
		struct tokenizer *t = load_model(models[m], false);
		bool is_nfc = strcmp(models[m], "qwen3") == 0;
		uint64_t random = 77 + m;
		char text[80 + 60 * 16];
		for (int i = 0; i < 2000; i++) {
			size_t bytes = random_below(&random, 80);
			for (size_t k = 0; k < bytes; k++)
				text[k] = (char)random_below(&random, 256);
			/* Half of them: text with some bytes gone wrong. */
			if (i % 2) {
				bytes = random_utf8(&random, text);
				for (size_t k = 0; k < bytes; k += 1 + random_below(&random, 20))
					text[k] = (char)random_below(&random, 256);
			}
			round_trip(t, is_nfc, text, bytes);
		}
		tokenizer_free(t);
	}
}

/* Characters that are no token become bytes; U+2581 is a space, and one stands in front. */
static void a_round_trip_of_characters(void **state)
{
	struct tokenizer *t = load_model("llama2", false);
	uint64_t random = 2581;
	char text[1 + 80 + 60 * 16];

	(void)state;
	for (int i = 0; i < 4000; i++) {
		size_t bytes = random_utf8(&random, text + 1), n, decoded_bytes;
		uint32_t cp;
		unsigned length;
		int32_t *ids;
		for (size_t k = 0; i % 2 && k < bytes; k += 1 + random_below(&random, 20))
			text[1 + k] = (char)random_below(&random, 256);
		bool spaced = bytes && utf8_next(text + 1, bytes, &cp, &length) == UTF8_CHAR;
		encode(t, text + 1, bytes, TOKENIZER_PLAIN, &ids, &n);
		char *decoded = decode(t, ids, n, &decoded_bytes);
		text[0] = ' ';
		bytes = metaspace_unmap(text, bytes + 1, text);
		assert_int_equal(decoded_bytes, bytes - !spaced);
		assert_memory_equal(decoded, text + !spaced, decoded_bytes);
		free(decoded);
		free(ids);
	}
	tokenizer_free(t);
}

static void pieces_of_characters(void **state)
{
	struct tokenizer *t = load_model("llama2", false);
	size_t bytes;

	(void)state;
	assert_memory_equal(tokenizer_piece(t, 272, &bytes), " the", 4);
	assert_int_equal(bytes, 4);
	/* "<0x41>" and "A" */
	assert_memory_equal(tokenizer_piece(t, 3 + 0x41, &bytes), "A", 1);
	assert_int_equal(bytes, 1);
	assert_memory_equal(tokenizer_piece(t, 330, &bytes), " A", 2);
	assert_int_equal(bytes, 2);
	assert_int_equal(tokenizer_id(t, "</s>"), 2);
	tokenizer_free(t);
}

/* ---- time ---- */

#define MEGABYTE (1u << 20)

/* A megabyte of repetitions of a text. */
static void a_megabyte(const struct tokenizer *t, const char *model, const char *of, size_t n)
{
	char *text = malloc(MEGABYTE);
	int32_t *ids;
	size_t count;

	assert_non_null(text);
	for (size_t i = 0; i < MEGABYTE; i++)
		text[i] = of[i % n];
	double start = seconds();
	encode(t, text, MEGABYTE, 0, &ids, &count);
	double took = seconds() - start;
	if (getenv("TOKENIZER_TIMES"))
		print_message("%s: 1 MiB of \"%.12s\": %.3f s, %zu ids\n", model, of, took, count);
	if (took > SECONDS_A_MEGABYTE)
		fail_msg("%s: 1 MiB of \"%.20s\" took %.1f s", model, of, took);
	free(ids);
	free(text);
}

static void no_text_takes_long(void **state)
{
	/* The first two for all models; the others, which the patterns or NFC may stumble over, for
	 * two. */
	static const char *const texts[] = {
		"a",
		" ",
		"A",
		"7",
		"\n",
		"\n \t\r\n  ",
		"<",
		"<|user|",
		"aA",
		"\xC2\xA0 ",
		/* combining marks in order and out of it, CJK, invalid bytes */
		"\xCC\x80",
		"\xCC\x80\xCC\xA3",
		"\xE4\xBD\xA0",
		"\xFF",
	};
	const json_t *tale = golden_text("tale");

	(void)state;
	for (size_t m = 0; m < MODELS; m++) {
		bool most = strcmp(models[m], "qwen3") == 0 || strcmp(models[m], "gptoss") == 0;
		struct tokenizer *t = load_model(models[m], getenv("TOKENIZER_FULL_DIR") && m > 0);
		for (size_t i = 0; i < (most ? sizeof(texts) / sizeof(texts[0]) : 2); i++)
			a_megabyte(t, models[m], texts[i], strlen(texts[i]));
		a_megabyte(t, models[m], json_string_value(tale), json_string_length(tale));
		tokenizer_free(t);
	}
	/* Here the whole megabyte is one piece. */
	struct tokenizer *t = load_model("llama2", getenv("TOKENIZER_FULL_DIR"));
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		a_megabyte(t, "llama2", texts[i], strlen(texts[i]));
	a_megabyte(t, "llama2", json_string_value(tale), json_string_length(tale));
	tokenizer_free(t);
}

static void too_long_a_text(void **state)
{
	struct tokenizer *t = load_model("tale-moe", false);
	char why[WHY_MAX] = "";
	int32_t *ids;
	size_t n;

	(void)state;
	/* Refused before the first byte is read. */
	assert_int_equal(tokenizer_encode(t, "", TOKENIZER_TEXT_MAX + 1ull, 0, &ids, &n, why),
			 -EFBIG);
	assert_non_null(strstr(why, "1073741825 bytes"));
	assert_null(ids);
	tokenizer_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(same_ids_as_the_library),
		cmocka_unit_test(held_out_text),
		cmocka_unit_test(published_digests_and_ids),
		cmocka_unit_test(full_files),
		cmocka_unit_test(pieces_and_added_tokens),
		cmocka_unit_test(plain_text_injects_nothing),
		cmocka_unit_test(random_texts),
		cmocka_unit_test(random_bytes),
		cmocka_unit_test(a_round_trip_of_characters),
		cmocka_unit_test(pieces_of_characters),
		cmocka_unit_test(no_text_takes_long),
		cmocka_unit_test(too_long_a_text),
	};

	golden = read_data("tokenizer/golden.json");
	published = read_data("tokenizer/published.json");
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	json_decref(golden);
	json_decref(published);
	return failed;
}
