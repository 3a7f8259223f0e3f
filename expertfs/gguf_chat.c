/* SPDX-License-Identifier: Apache-2.0
 *
 * The chat template of a GGUF file as model.json has it: tokenizer.chat_template with the texts of the
 * begin and end tokens; see gguf_model.h. Of several templates that is the default one, the others
 * are tokenizer.chat_template.NAME (source: gguf-py, gguf_writer.py).
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "expertfs/fail.h"
#include "expertfs/gguf_model.h"

#define TEMPLATE_MAX (1u << 20) /* CHAT_TEMPLATE_MAX of engine/chat.h */

/* NULL for what JSON or its reader would not take: no UTF-8, or a zero byte. */
static json_t *string_of(struct gguf_text t)
{
	return memchr(t.at, 0, t.bytes) ? NULL : json_stringn(t.at, t.bytes);
}

/* The text of the token that the key names: empty if there is no such key, NULL if it is not a token's
 * or the token's text is none. */
static json_t *token_of(const struct gguf *g, const char *key)
{
	struct gguf_text t = { "", 0 };
	const struct gguf_key *tokens;
	size_t at = 0;
	int64_t id;
	int err = gguf_int(g, key, 0, INT32_MAX, &id, NULL);

	if (err == -ENOENT)
		return json_string("");
	if (err || gguf_array(g, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, NULL) != 0 ||
	    (uint64_t)id >= tokens->count)
		return NULL;
	for (int64_t i = 0; i <= id; i++)
		t = gguf_array_next(g, tokens, &at);
	return string_of(t);
}

int gguf_chat(const struct gguf *g, json_t **out, char *why)
{
	json_t *text = NULL, *bos = token_of(g, "tokenizer.ggml.bos_token_id");
	json_t *eos = token_of(g, "tokenizer.ggml.eos_token_id");
	struct gguf_text template;
	char reason[WHY_MAX] = "";
	int err = gguf_string(g, "tokenizer.chat_template", &template, NULL);

	if (err == -EINVAL)
		fail(reason, EINVAL, "tokenizer.chat_template is no text");
	else if (!err && template.bytes > TEMPLATE_MAX)
		fail(reason, EINVAL, "tokenizer.chat_template has %zu bytes, more than %u",
		     template.bytes, TEMPLATE_MAX);
	else if (!err && !(text = string_of(template)))
		fail(reason, EINVAL, "tokenizer.chat_template is no UTF-8 text");
	if (!bos || !eos)
		fail(reason, EINVAL, "tokenizer.ggml.%s_token_id is not the id of a text",
		     bos ? "eos" : "bos");
	*out = json_pack("{s:O*, s:O*, s:O*, s:s*}", "template", text, "bos_token", bos,
			 "eos_token", eos, "error", reason[0] ? reason : NULL);
	json_decref(text);
	json_decref(bos);
	json_decref(eos);
	return *out ? 0 : fail(why, ENOMEM, "out of memory for the chat template");
}
