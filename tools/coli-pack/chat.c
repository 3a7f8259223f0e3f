/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the chat template of a checkpoint: see chat.h.
 */
#include "tools/coli-pack/chat.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/chat.h"
#include "expertfs/fail.h"
#include "tools/coli-pack/textfile.h"

#define CONFIG_MAX (64u << 20) /* Llama-3's has 50 KB; DeepSeek's older ones list 800 tokens */

/* *text is NULL if there is no such file. */
static int load(const char *dir, const char *name, size_t max, char **text, size_t *bytes,
		char *why)
{
	char *path = text_format("%s/%s", dir, name);

	*text = NULL;
	if (!path)
		return fail(why, ENOMEM, "out of memory");
	int err = text_load(path, max, text, bytes, why);
	free(path);
	return err == -ENOENT ? 0 : err;
}

/* tokenizer_config.json; *out is NULL if there is none. */
static int load_config(const char *dir, json_t **out, char *why)
{
	json_error_t error;
	char *text;
	size_t bytes;
	int err = load(dir, "tokenizer_config.json", CONFIG_MAX, &text, &bytes, why);

	*out = NULL;
	if (err || !text)
		return err;
	*out = json_loadb(text, bytes, 0, &error);
	free(text);
	if (!json_is_object(*out)) {
		json_decref(*out);
		*out = NULL;
		return fail(why, EINVAL, "%s/tokenizer_config.json is no JSON object: %s", dir,
			    error.text);
	}
	return 0;
}

/* A string, or of a list of named templates the default one. Borrowed. */
static const json_t *template_of(const json_t *config)
{
	const json_t *t = json_object_get(config, "chat_template");

	for (size_t i = 0; i < json_array_size(t); i++) {
		const json_t *item = json_array_get(t, i);
		const char *name = json_string_value(json_object_get(item, "name"));
		if (name && strcmp(name, "default") == 0)
			return json_object_get(item, "template");
	}
	return t;
}

/* A token is its text, or an object with its content. */
static const char *token_of(const json_t *config, const char *key)
{
	const json_t *token = json_object_get(config, key);

	if (json_is_object(token))
		token = json_object_get(token, "content");
	return json_is_string(token) ? json_string_value(token) : "";
}

int pack_chat_read(const char *dir, json_t **out, char *why)
{
	json_t *config = NULL;
	char *own = NULL;
	size_t bytes = 0;
	int err = load(dir, "chat_template.jinja", CHAT_TEMPLATE_MAX, &own, &bytes, why);

	*out = NULL;
	err = err ? err : load_config(dir, &config, why);
	const json_t *listed = template_of(config);
	const char *text = own ? own : json_string_value(listed);
	if (!own)
		bytes = json_string_length(listed);
	if (err == 0 && text) {
		*out = json_pack("{s:s%, s:s, s:s}", "template", text, bytes, "bos_token",
				 token_of(config, "bos_token"), "eos_token",
				 token_of(config, "eos_token"));
		if (!*out)
			err = fail(why, EINVAL, "the chat template in %s is no UTF-8 text", dir);
	}
	json_decref(config);
	free(own);
	return err;
}
