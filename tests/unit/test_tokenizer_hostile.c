/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.json files that lie: each is refused with a sentence that names the fault, or gives a
 * tokenizer that works; none crashes (run under SANITIZE=1 as well).
 */
#include "tests/unit/tokenizer_files.h"

#define TEXT " abc <s>ab<w> \xFF caba"

/* A small whole file: the 256 bytes, a few merges, added tokens, the pattern of GPT-2. */
static json_t *small_file(void)
{
	static const char *const words[] = { "ab", "abc", "\u0120a", "<s>" };
	json_t *json, *vocab = json_object();
	json_error_t error;
	int id = 0, moved = 256;
	char token[8];

	for (int byte = 0; byte < 256; byte++) {
		bool itself = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
		int cp = itself ? byte : moved++;
		snprintf(token, sizeof(token), "%c", cp);
		if (cp >= 0x80)
			snprintf(token, sizeof(token), "%c%c", 0xC0 | cp >> 6, 0x80 | (cp & 0x3F));
		json_object_set_new(vocab, token, json_integer(id++));
	}
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		json_object_set_new(vocab, words[i], json_integer(id++));
	json = json_pack_ex(
		&error, 0,
		"{s:[{s:i, s:s, s:b, s:b}, {s:i, s:s, s:b}], s:n, s:{s:s, s:b, s:b}, s:n, s:{s:s},"
		" s:{s:s, s:o, s:[s, [s, s], s]}}",
		"added_tokens", "id", 259, "content", "<s>", "special", 1, "normalized", 0, "id",
		260, "content", "<w>", "special", 0, "normalizer", "pre_tokenizer", "type",
		"ByteLevel", "add_prefix_space", 0, "use_regex", 1, "post_processor", "decoder",
		"type", "ByteLevel", "model", "type", "BPE", "vocab", vocab, "merges", "a b", "ab",
		"c", "\u0120 a");
	if (!json)
		fail_msg("%s", error.text);
	return json;
}

/* Puts the JSON text at the path "a/b/0"; NULL removes what is there. */
static void change(json_t *json, const char *path, const char *text)
{
	char part[64];
	json_error_t error;
	json_t *value = text ? json_loads(text, JSON_DECODE_ANY, &error) : NULL;

	assert_true(!text || value);
	for (;;) {
		size_t n = strcspn(path, "/");
		snprintf(part, sizeof(part), "%.*s", (int)n, path);
		bool last = path[n] == '\0';
		if (json_is_array(json)) {
			size_t at = (size_t)atoi(part);
			if (last && value)
				json_array_insert_new(json, at, value);
			else if (last)
				json_array_remove(json, at);
			json = json_array_get(json, at);
		} else {
			if (last && value)
				json_object_set_new(json, part, value);
			else if (last)
				json_object_del(json, part);
			json = json_object_get(json, part);
		}
		if (last)
			return;
		assert_non_null(json);
		path += n + 1;
	}
}

static void encodes(const struct tokenizer *t, const char *text, size_t text_bytes)
{
	char why[WHY_MAX];
	int32_t *ids;
	size_t n, bytes;

	assert_int_equal(tokenizer_encode(t, text, text_bytes, 0, &ids, &n, why), 0);
	char *decoded = decode(t, ids, n, &bytes);
	/* SentencePiece-style models put a space in front. */
	size_t more = bytes - text_bytes;
	assert_true(more == 0 || (more == 1 && decoded[0] == ' ' && text[0] != ' '));
	assert_memory_equal(decoded + more, text, text_bytes);
	free(decoded);
	free(ids);
}

static void the_small_file_is_right(void **state)
{
	char why[WHY_MAX] = "";
	struct tokenizer *t;
	json_t *json = small_file();
	int32_t *ids;
	size_t n;

	(void)state;
	if (load_json(json, &t, why) != 0)
		fail_msg("%s", why);
	encodes(t, TEXT, sizeof(TEXT) - 1);
	assert_int_equal(tokenizer_encode(t, " abc<s>ab", 9, 0, &ids, &n, why), 0);
	/* " a" has the worst rank: abc comes first, and leaves the space alone. */
	assert_int_equal(n, 4);
	assert_int_equal(ids[1], 257);
	assert_int_equal(ids[2], 259);
	assert_int_equal(ids[3], 256);
	free(ids);
	tokenizer_free(t);
	json_decref(json);
}

struct fault {
	const char *path, *value; /* what is changed; no value: removed */
	const char *sentence;     /* part of what is said; NULL: the file is fine all the same */
};

static const struct fault faults[] = {
	/* the file's members */
	{ "model", NULL, "there is no model" },
	{ "model", "[]", "there is no model" },
	{ "model", "null", "there is no model" },
	{ "model/type", "\"Unigram\"", "\"Unigram\" is not supported" },
	{ "model/type", "7", "is not supported" },
	{ "model/type", NULL, NULL },
	{ "model/vocab", NULL, "no vocab" },
	{ "model/vocab", "[1, 2]", "no vocab" },
	{ "model/vocab", "{}", "no token for the byte 0x00" },
	{ "model/merges", NULL, "no list of merges" },
	{ "model/merges", "{\"a\": 1}", "no list of merges" },
	{ "model/merges", "[]", NULL },
	{ "added_tokens", "{}", "added_tokens is not a list" },
	{ "added_tokens", "\"<s>\"", "added_tokens is not a list" },
	{ "added_tokens", "null", NULL },
	{ "added_tokens", NULL, NULL },
	/* options of the model */
	{ "model/dropout", "0.1", "dropout" },
	{ "model/dropout", "0.0", NULL },
	{ "model/dropout", "null", NULL },
	{ "model/byte_fallback", "true",
	  "\"ByteLevel\" is not supported in a model with byte_fallback" },
	{ "model/byte_fallback", "1", "byte_fallback is neither true nor false" },
	{ "model/fuse_unk", "true", "fuse_unk" },
	{ "model/fuse_unk", "null", NULL },
	{ "model/continuing_subword_prefix", "\"##\"", "continuing_subword_prefix" },
	{ "model/continuing_subword_prefix", "\"\"", NULL },
	{ "model/end_of_word_suffix", "\"</w>\"", "end_of_word_suffix" },
	{ "model/end_of_word_suffix", "[]", "end_of_word_suffix" },
	{ "model/ignore_merges", "\"yes\"", "ignore_merges is neither true nor false" },
	{ "model/unk_token", "\"<s>\"", NULL },
	{ "model/ranks", "[0, 0, 1, 2]", NULL },
	{ "model/ranks", "[0, 1]", "merge number 2 has no rank" },
	{ "model/ranks", "{\"a\": 1}", "merge number 0 has no rank" },
	{ "model/ranks", "[0, -1, 2, 3]", "merge number 1 has no rank" },
	{ "model/ranks", "[0, 1, 4294967295]", "merge number 2 has no rank" },
	{ "model/ranks", "[0, 1.5, 2, 3]", "merge number 1 has no rank" },
	/* ids */
	{ "model/vocab/new", "-1", "the token \"new\" has no id" },
	{ "model/vocab/new", "4194304", "the token \"new\" has no id from 0 to 4194303" },
	{ "model/vocab/new", "9223372036854775807", "has no id" },
	{ "model/vocab/new", "1.5", "has no id" },
	{ "model/vocab/new", "\"5\"", "has no id" },
	{ "model/vocab/new", "null", "has no id" },
	{ "model/vocab/new", "258", "the token \"new\" has the id 258, which is another token's" },
	{ "model/vocab/new", "260", "which is another token's" },
	{ "model/vocab/new", "4194303", NULL },
	{ "model/vocab/a", "300", NULL },
	{ "model/vocab/a", NULL, "no token for the byte 0x61" },
	{ "model/vocab/\u00DF", NULL, "no token for the byte 0xDF" },
	{ "model/vocab/\u00C0", NULL, NULL },
	{ "model/vocab/\u00F4", NULL, "no token for the byte 0xF4" },
	{ "model/vocab/<s>", "261", "\"<s>\" has the id 259, but 261 in the vocabulary" },
	{ "added_tokens/0/id", "-5", "added token number 0 has no id" },
	{ "added_tokens/0/id", "4194304", "added token number 0 has no id" },
	{ "added_tokens/0/id", "true", "added token number 0 has no id" },
	{ "added_tokens/0/id", NULL, "added token number 0 has no id" },
	{ "added_tokens/1/id", "259", "two added tokens have the id 259" },
	{ "added_tokens/1/id", "0", "is another token's" },
	{ "added_tokens/1/id", "70000", NULL },
	/* added tokens */
	{ "added_tokens/0/content", NULL, "id 259 has no content" },
	{ "added_tokens/0/content", "\"\"", "id 259 has no content" },
	{ "added_tokens/0/content", "3", "id 259 has no content" },
	{ "added_tokens/1/content", "\"<s>\"", "\"<s>\" is there twice" },
	{ "added_tokens/1/special", "3", "special is neither true nor false" },
	{ "added_tokens/1/lstrip", "\"no\"", "lstrip is neither true nor false" },
	{ "added_tokens/0", "[]", "added token number 0 has no id" },
	{ "added_tokens/0", "null", "added token number 0 has no id" },
	{ "added_tokens/1", "{\"id\": 258, \"content\": \"\u0120a\"}",
	  "\"\u0120a\" is in the vocabulary, where it stands for other text" },
	{ "added_tokens/1", "{\"id\": 258, \"content\": \"\u0120a\", \"special\": true}", NULL },
	{ "added_tokens/1", "{\"id\": 257, \"content\": \"abc\"}", NULL },
	{ "added_tokens/1", "{\"id\": 261, \"content\": \"zz\", \"lstrip\": true}", NULL },
	/* merges */
	{ "model/merges/0", "\"ab\"", "merge number 0 is not a pair" },
	{ "model/merges/0", "\"ab \"", "merge number 0 is not a pair" },
	{ "model/merges/0", "\" ab\"", "merge number 0 is not a pair" },
	{ "model/merges/0", "\"\"", "merge number 0 is not a pair" },
	{ "model/merges/0", "\" \"", "merge number 0 is not a pair" },
	{ "model/merges/3", "[\"a\"]", "merge number 3 is not a pair" },
	{ "model/merges/3", "[\"a\", \"b\", \"c\"]", "merge number 3 is not a pair" },
	{ "model/merges/3", "[\"a\", 1]", "merge number 3 is not a pair" },
	{ "model/merges/3", "[[\"a\"], \"b\"]", "merge number 3 is not a pair" },
	{ "model/merges/3", "{\"a\": \"b\"}", "merge number 3 is not a pair" },
	{ "model/merges/3", "null", "merge number 3 is not a pair" },
	{ "model/merges/1", "\"a c\"", "merge number 1, \"a c\"" },
	{ "model/merges/1", "[\"a\", \"c\"]", "merge number 1, \"a\" and \"c\"" },
	{ "model/merges/1", "[\"x y\", \"z\"]", "merge number 1" },
	{ "model/merges/1", "\"a b\"", NULL },
	{ "model/merges/1", "[\"<\", \"s>\"]", "merge number 1" },
	/* the steps */
	{ "normalizer", "{\"type\": \"NFKC\"}", "the normalizer \"NFKC\" is not supported" },
	{ "normalizer", "{\"type\": \"Prepend\", \"prepend\": \"\xE2\x96\x81\"}",
	  "the normalizer \"Prepend\" is not supported" },
	{ "normalizer", "{}", "the normalizer \"\" is not supported" },
	{ "normalizer", "5", "the normalizer \"\" is not supported" },
	{ "normalizer", "{\"type\": \"Sequence\"}", "no list normalizers" },
	{ "normalizer", "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Lowercase\"}]}",
	  "\"Lowercase\" is not supported" },
	{ "normalizer", "{\"type\": \"Sequence\", \"normalizers\": []}", NULL },
	{ "pre_tokenizer", NULL, "there is no pre_tokenizer" },
	{ "pre_tokenizer", "null", "there is no pre_tokenizer" },
	{ "pre_tokenizer", "{\"type\": \"Metaspace\"}", "\"Metaspace\" is not supported" },
	{ "pre_tokenizer", "{\"type\": \"Sequence\", \"pretokenizers\": []}", "has no ByteLevel" },
	{ "pre_tokenizer", "{\"type\": \"Sequence\", \"pretokenizers\": 1}",
	  "no list pretokenizers" },
	{ "pre_tokenizer",
	  "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"ByteLevel\"}, {\"type\": "
	  "\"Digits\"}]}",
	  "\"Digits\" behind ByteLevel" },
	{ "pre_tokenizer",
	  "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\"}, {\"type\": "
	  "\"ByteLevel\"}]}",
	  "add_prefix_space behind another" },
	{ "pre_tokenizer", "{\"type\": \"Split\", \"behavior\": \"Isolated\"}", "has no pattern" },
	{ "pre_tokenizer",
	  "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"a\"}, \"behavior\": \"Removed\"}",
	  "the behavior \"Removed\"; only Isolated is supported" },
	{ "pre_tokenizer", "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"a\"}}",
	  "only Isolated" },
	{ "pre_tokenizer",
	  "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"(a\"}, \"behavior\": \"Isolated\"}",
	  "pre_tokenizer: the regular expression (a is wrong at byte 2" },
	{ "pre_tokenizer",
	  "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"a\\\\b\"}, \"behavior\": \"Isolated\"}",
	  "has \\b at byte 1" },
	{ "pre_tokenizer/use_regex", "0", "use_regex is neither" },
	{ "decoder", "{\"type\": \"Metaspace\"}", "the decoder \"Metaspace\" is not supported" },
	{ "decoder", "null", NULL },
	{ "post_processor", "{\"type\": \"BertProcessing\"}",
	  "\"BertProcessing\" is not supported" },
	{ "post_processor", "{\"type\": \"Sequence\"}", "no list processors" },
	{ "post_processor", "{\"type\": \"TemplateProcessing\"}", "has the text 0 times" },
	{ "post_processor", "{\"type\": \"TemplateProcessing\", \"single\": [1]}",
	  "neither text nor token" },
	{ "post_processor",
	  "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}, "
	  "{\"Sequence\": {}}]}",
	  "does not give the ids of \"<s>\"" },
	{ "post_processor",
	  "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}, "
	  "{\"Sequence\": {}}],"
	  "\"special_tokens\": {\"<s>\": {\"ids\": [9999]}}}",
	  "\"<s>\" is not the id of a token" },
	{ "post_processor",
	  "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}, "
	  "{\"Sequence\": {}}],"
	  "\"special_tokens\": {\"<s>\": {\"ids\": [-1]}}}",
	  "\"<s>\" is not the id of a token" },
	{ "post_processor",
	  "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}, "
	  "{\"Sequence\": {}}],"
	  "\"special_tokens\": {\"<s>\": {\"ids\": [259]}}}",
	  NULL },
};

/* The same of a SentencePiece-style file, the reduced one of Mixtral. */
#define META "\xE2\x96\x81"
static const struct fault char_faults[] = {
	{ "model/fuse_unk", "false", NULL },
	{ "model/byte_fallback", "false", "a model with fuse_unk is not supported" },
	{ "model/vocab/<0x41>", NULL, "no token for the byte 0x41: only whole sets" },
	{ "model/vocab/<0x41>", "2", "which is another token's" },
	{ "model/vocab/<0x41>", "31999", NULL },
	{ "model/vocab/<0x4g>", "31999", NULL },
	{ "model/merges/0", "[\"<0x41>\", \"t\"]", "merge number 0 is one of byte tokens" },
	{ "model/merges/0", "\"t <0xFF>\"", "merge number 0 is one of byte tokens" },
	{ "model/merges/0", "\"t q\"", "merge number 0, \"t q\" and \"q\", needs a token" },
	{ "added_tokens/0", "{\"id\": 28705, \"content\": \"" META "\", \"normalized\": false}",
	  "is in the vocabulary, where it stands for other text" },
	{ "added_tokens/0", "{\"id\": 32000, \"content\": \"zz\", \"lstrip\": true}",
	  "id 32000 absorbs the spaces of normalised text" },
	{ "added_tokens/0", "{\"id\": 32000, \"content\": \"zz\", \"rstrip\": true}",
	  "id 32000 absorbs the spaces of normalised text" },
	{ "added_tokens/0",
	  "{\"id\": 32000, \"content\": \"zz\", \"rstrip\": true, \"normalized\": false}", NULL },
	{ "normalizer", "{\"type\": \"Prepend\", \"prepend\": \"" META "\"}",
	  "Prepend without Replace" },
	{ "normalizer", "{\"type\": \"Prepend\", \"prepend\": \"x\"}",
	  "\"Prepend\" is not supported" },
	{ "normalizer/normalizers/0", "{\"type\": \"NFC\"}", NULL },
	{ "normalizer/normalizers/1", "{\"type\": \"NFC\"}",
	  "\"NFC\" is not supported in this place" },
	{ "normalizer/normalizers/1/content", "\"_\"", "\"Replace\" is not supported" },
	{ "normalizer/normalizers/1/pattern", "{\"Regex\": \" \"}",
	  "\"Replace\" is not supported" },
	{ "normalizer/normalizers/1/pattern", "\" \"", "\"Replace\" is not supported" },
	{ "pre_tokenizer", "{\"type\": \"Metaspace\", \"replacement\": \"" META "\"}",
	  "\"Metaspace\" is not supported" },
	{ "pre_tokenizer", "{\"type\": \"Digits\"}", "\"Digits\" is not supported" },
	{ "decoder", "null", NULL },
	{ "decoder", "{\"type\": \"ByteLevel\"}", "the decoder \"ByteLevel\" is not supported" },
	{ "decoder/decoders/1", "{\"type\": \"CTC\"}", "the decoder \"CTC\"" },
	{ "decoder/decoders", "7", "no list decoders" },
};

static void check_fault(const struct fault *f, json_t *json, const char *text, size_t bytes)
{
	char why[WHY_MAX] = "";
	struct tokenizer *t = NULL;

	change(json, f->path, f->value);
	int rc = load_json(json, &t, why);
	if (rc != (f->sentence ? -EINVAL : 0) || (f->sentence && !strstr(why, f->sentence)))
		fail_msg("%s = %s gave %d, \"%s\"", f->path, f->value ? f->value : "nothing", rc,
			 why);
	/* The sentence names the file. */
	if (rc != 0) {
		assert_non_null(strstr(why, "test-tokenizer."));
		assert_null(t);
	} else {
		encodes(t, text, bytes);
	}
	tokenizer_free(t);
	json_decref(json);
}

static void each_fault_has_its_sentence(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		check_fault(&faults[i], small_file(), TEXT, sizeof(TEXT) - 1);
	for (size_t i = 0; i < sizeof(char_faults) / sizeof(char_faults[0]); i++)
		check_fault(&char_faults[i], read_data("tokenizer/llama2.json"), "abc \xFF caba",
			    10);
}

/* A prefix of a good file is none. */
static void truncated_files(void **state)
{
	json_t *json = small_file();
	char *text = json_dumps(json, JSON_COMPACT), why[WHY_MAX];
	struct tokenizer *t;

	(void)state;
	for (size_t n = 0; n < strlen(text); n += n < 40 ? 1 : 41) {
		why[0] = '\0';
		assert_int_equal(load_bytes(text, n, &t, why), -EINVAL);
		assert_non_null(strstr(why, "is no JSON"));
	}
	free(text);
	json_decref(json);
}

/* Random bytes of a good file changed: refused, or a tokenizer that encodes and decodes. */
static void damaged_files(void **state)
{
	json_t *json = small_file();
	char *good = json_dumps(json, JSON_COMPACT);
	size_t n = strlen(good);
	char *text = malloc(n);
	uint64_t random = 4711;
	int refused = 0, loaded = 0;

	(void)state;
	for (int round = 0; round < 2000; round++) {
		char why[WHY_MAX] = "";
		struct tokenizer *t;
		memcpy(text, good, n);
		for (uint32_t k = 1 + random_below(&random, 3); k > 0; k--)
			text[random_below(&random, (uint32_t)n)] =
				"0123456789{}[],:\"\\ abu-."[random_below(&random, 24)];
		if (load_bytes(text, n, &t, why) != 0) {
			assert_true(why[0] != '\0');
			refused++;
			continue;
		}
		int32_t *ids;
		size_t count, bytes;
		assert_int_equal(tokenizer_encode(t, "<s> ab\xC3", 7, 0, &ids, &count, why), 0);
		free(decode(t, ids, count, &bytes));
		free(ids);
		tokenizer_free(t);
		loaded++;
	}
	assert_true(refused > 500 && loaded > 20);
	free(text);
	free(good);
	json_decref(json);
}

static void other_files(void **state)
{
	char why[WHY_MAX] = "", *deep = malloc(200000);
	struct tokenizer *t;

	(void)state;
	assert_int_equal(tokenizer_load("/nonexistent/tokenizer.json", &t, why), -ENOENT);
	assert_non_null(strstr(why, "/nonexistent/tokenizer.json: No such file"));
	assert_int_equal(tokenizer_load("/", &t, why), -EINVAL);
	assert_string_equal(why, "/: this is not a regular file");
	assert_int_equal(load_bytes("", 0, &t, why), -EINVAL);
	assert_int_equal(load_bytes("[]", 2, &t, why), -EINVAL);
	assert_non_null(strstr(why, "not an object"));
	assert_int_equal(load_bytes("{\"model\": {}, \"model\": {}}", 26, &t, why), -EINVAL);
	assert_non_null(strstr(why, "duplicate"));
	assert_int_equal(load_bytes("{\"a\": \"\\ud800\"}", 15, &t, why), -EINVAL);
	assert_int_equal(load_bytes("{\"a\": \"\xFF\"}", 10, &t, why), -EINVAL);
	memset(deep, '[', 200000);
	assert_int_equal(load_bytes(deep, 200000, &t, why), -EINVAL);
	assert_non_null(strstr(why, "depth"));
	free(deep);
}

/* Sequences inside of sequences, as deep as the JSON reader lets them be. */
static void nested_sequences(void **state)
{
	json_t *json = small_file(), *step = json_pack("{s:s}", "type", "NFC");
	char why[WHY_MAX] = "";
	struct tokenizer *t = NULL;

	(void)state;
	for (int i = 0; i < 900; i++)
		step = json_pack("{s:s, s:[o]}", "type", "Sequence", "normalizers", step);
	json_object_set_new(json, "normalizer", step);
	assert_int_equal(load_json(json, &t, why), 0);
	tokenizer_free(t);
	json_decref(json);
}

/* An expression of the exponential kind ends with a sentence. */
static void exponential_expression(void **state)
{
	json_t *json = small_file();
	char why[WHY_MAX] = "", text[200];
	struct tokenizer *t = NULL;
	int32_t *ids;
	size_t n;

	(void)state;
	change(json, "pre_tokenizer",
	       "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"behavior\": "
	       "\"Isolated\","
	       "\"pattern\": {\"Regex\": \"(?:(?:a|a)+)+[bc]\"}}, {\"type\": \"ByteLevel\", "
	       "\"add_prefix_space\": false}]}");
	if (load_json(json, &t, why) != 0)
		fail_msg("%s", why);
	memset(text, 'a', sizeof(text));
	assert_int_equal(tokenizer_encode(t, text, sizeof(text), 0, &ids, &n, why), -ELOOP);
	assert_non_null(strstr(why, "a text of 200 bytes: "));
	assert_null(ids);
	tokenizer_free(t);
	json_decref(json);
}

/* A byte that no UTF-8 has may be without a token; a text that has it is refused. */
static void a_byte_without_token(void **state)
{
	json_t *json = small_file();
	char why[WHY_MAX] = "";
	struct tokenizer *t = NULL;
	int32_t *ids;
	size_t n;

	(void)state;
	change(json, "model/vocab/\u00C0", NULL);
	assert_int_equal(load_json(json, &t, why), 0);
	assert_int_equal(tokenizer_encode(t, "a\xC0z", 3, 0, &ids, &n, why), -EILSEQ);
	assert_non_null(strstr(why, "a byte 0xC0"));
	assert_null(ids);
	assert_int_equal(tokenizer_encode(t, "a\xC1z", 3, 0, &ids, &n, why), 0);
	assert_int_equal(n, 3);
	free(ids);
	tokenizer_free(t);
	json_decref(json);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_small_file_is_right),
		cmocka_unit_test(each_fault_has_its_sentence),
		cmocka_unit_test(truncated_files),
		cmocka_unit_test(damaged_files),
		cmocka_unit_test(other_files),
		cmocka_unit_test(nested_sequences),
		cmocka_unit_test(exponential_expression),
		cmocka_unit_test(a_byte_without_token),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
