/* SPDX-License-Identifier: Apache-2.0
 *
 * The chat template of a GGUF file: as coli-pack notes that of a checkpoint, and what is said of one
 * that cannot be had.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expertfs/fail.h" /* before cmocka.h, which has a macro of that name */
#include <cmocka.h>

#include "expertfs/gguf_model.h"
#include "tests/unit/made_gguf.h"

#define ID_KEYS 2

static char path[400];
static struct made_gguf m;

/* A file with two tokens and `keys` keys, which follow. */
static void begin(uint64_t keys)
{
	gg_begin(&m, 0, keys + 2);
	gg_key_text(&m, "general.architecture", "llama");
	gg_key_array(&m, "tokenizer.ggml.tokens", GGUF_STRING, 2);
	gg_text(&m, "<s>");
	gg_text(&m, "</s>");
}

static void put_ids(uint32_t bos, uint32_t eos)
{
	gg_key_u32(&m, "tokenizer.ggml.bos_token_id", bos);
	gg_key_u32(&m, "tokenizer.ggml.eos_token_id", eos);
}

/* A template of n bytes, each `fill`. */
static void put_template(size_t n, char fill)
{
	gg_text(&m, "tokenizer.chat_template");
	gg_u32(&m, GGUF_STRING);
	gg_u64(&m, n);
	for (size_t i = 0; i < n; i++)
		gg_raw(&m, &fill, 1);
}

/* "chat" is this JSON. */
static void expect(const char *json)
{
	json_t *chat = NULL, *want = json_loads(json, 0, NULL);
	char why[WHY_MAX] = "";
	struct gguf *g = NULL;

	assert_int_equal(gg_write(&m, path), 0);
	if (gguf_open(path, &g, why) != 0 || gguf_chat(g, &chat, why) != 0)
		fail_msg("%s", why);
	if (!json_equal(chat, want))
		fail_msg("it is %s", json_dumps(chat, 0));
	json_decref(want);
	json_decref(chat);
	gguf_close(g);
}

static void as_a_checkpoint_s(void **state)
{
	(void)state;
	begin(1 + ID_KEYS);
	gg_key_text(&m, "tokenizer.chat_template", "{{ bos_token }}\n\u00e9");
	put_ids(0, 1);
	expect("{\"template\": \"{{ bos_token }}\\n\u00e9\", \"bos_token\": \"<s>\", "
	       "\"eos_token\": \"</s>\"}");
	begin(1);
	gg_key_text(&m, "tokenizer.chat_template", "a");
	expect("{\"template\": \"a\", \"bos_token\": \"\", \"eos_token\": \"\"}");
}

/* gguf-py writes a list of names, each one's template, and the default one by itself. */
static void of_several_the_default_one(void **state)
{
	(void)state;
	for (int with_default = 0; with_default < 2; with_default++) {
		begin(2 + (uint64_t)with_default);
		gg_key_array(&m, "tokenizer.chat_templates", GGUF_STRING, 1);
		gg_text(&m, "tool_use");
		gg_key_text(&m, "tokenizer.chat_template.tool_use", "b");
		if (with_default)
			gg_key_text(&m, "tokenizer.chat_template", "a");
		expect(with_default ? "{\"template\": \"a\", \"bos_token\": \"\", "
				      "\"eos_token\": \"\"}"
				    : "{\"bos_token\": \"\", \"eos_token\": \"\"}");
	}
}

static void why_there_is_none(void **state)
{
	(void)state;
	begin(ID_KEYS);
	put_ids(0, 1);
	expect("{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}");
	begin(1);
	gg_key_u32(&m, "tokenizer.chat_template", 7);
	expect("{\"bos_token\": \"\", \"eos_token\": \"\", "
	       "\"error\": \"tokenizer.chat_template is no text\"}");
	begin(1);
	put_template(3, '\xff');
	expect("{\"bos_token\": \"\", \"eos_token\": \"\", "
	       "\"error\": \"tokenizer.chat_template is no UTF-8 text\"}");
	begin(1);
	put_template(3, '\0');
	expect("{\"bos_token\": \"\", \"eos_token\": \"\", "
	       "\"error\": \"tokenizer.chat_template is no UTF-8 text\"}");
	begin(1 + ID_KEYS);
	put_ids(0, 2);
	put_template(3, 'a');
	expect("{\"template\": \"aaa\", \"bos_token\": \"<s>\", "
	       "\"error\": \"tokenizer.ggml.eos_token_id is not the id of a text\"}");
	begin(2);
	gg_key_text(&m, "tokenizer.ggml.bos_token_id", "1");
	put_template(3, 'a');
	expect("{\"template\": \"aaa\", \"eos_token\": \"\", "
	       "\"error\": \"tokenizer.ggml.bos_token_id is not the id of a text\"}");
}

/* One byte too many is too long for chat, not for a mount. */
static void longest(void **state)
{
	(void)state;
	for (size_t n = 1 << 20; n <= (1 << 20) + 1; n++) {
		struct gguf *g = NULL;
		char why[WHY_MAX] = "", *text = calloc(1, n);
		json_t *chat = NULL;
		FILE *f = fopen(path, "we");
		assert_non_null(text);
		assert_non_null(f);
		memset(text, 'a', n);
		begin(1);
		gg_text(&m, "tokenizer.chat_template");
		gg_u32(&m, GGUF_STRING);
		gg_u64(&m, n);
		fwrite(m.bytes, 1, m.n, f);
		fwrite(text, 1, n, f);
		assert_int_equal(fclose(f), 0);
		if (gguf_open(path, &g, why) != 0 || gguf_chat(g, &chat, why) != 0)
			fail_msg("%s", why);
		if (n == 1 << 20)
			assert_int_equal(json_string_length(json_object_get(chat, "template")), n);
		else
			assert_string_equal(json_string_value(json_object_get(chat, "error")),
					    "tokenizer.chat_template has 1048577 bytes, more than "
					    "1048576");
		json_decref(chat);
		gguf_close(g);
		free(text);
	}
}

static int make_file(void **state)
{
	(void)state;
	return gg_new_file("test_gguf_chat", path, sizeof(path));
}

static int remove_file(void **state)
{
	(void)state;
	return unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(as_a_checkpoint_s),
		cmocka_unit_test(of_several_the_default_one),
		cmocka_unit_test(why_there_is_none),
		cmocka_unit_test(longest),
	};

	return cmocka_run_group_tests(tests, make_file, remove_file);
}
