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

/* Each of the two files may be. */
static int absent_is_fine(int err)
{
	return err == -ENOENT ? 0 : err;
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

static int gather(const char *own_path, const char *config_path, json_t **out, char *why)
{
	json_t *config = NULL, *template = NULL;
	char *own = NULL;
	size_t bytes = 0;
	int err = absent_is_fine(text_load(own_path, CHAT_TEMPLATE_MAX, &own, &bytes, why));

	err = err ? err : absent_is_fine(object_load(config_path, CONFIG_MAX, &config, why));
	const json_t *listed = template_of(config);
	const char *text = own ? own : json_string_value(listed);
	if (!own)
		bytes = json_string_length(listed);
	/* Who reads model.json takes no zero byte. */
	if (err == 0 && text && (memchr(text, 0, bytes) || !(template = json_stringn(text, bytes))))
		err = fail(why, EINVAL, "the chat template in %s is no UTF-8 text",
			   own ? own_path : config_path);
	if (err == 0 && (text || config))
		*out = json_pack("{s:O*, s:s, s:s}", "template", template, "bos_token",
				 token_of(config, "bos_token"), "eos_token",
				 token_of(config, "eos_token"));
	if (err == 0 && (text || config) && !*out)
		err = fail(why, ENOMEM, "out of memory for the chat template");
	json_decref(template);
	json_decref(config);
	free(own);
	return err;
}

int pack_chat_read(const char *dir, json_t **out, char *why)
{
	char *own = text_format("%s/chat_template.jinja", dir);
	char *config = text_format("%s/tokenizer_config.json", dir);

	*out = NULL;
	int err =
		own && config ? gather(own, config, out, why) : fail(why, ENOMEM, "out of memory");
	free(own);
	free(config);
	return err;
}
