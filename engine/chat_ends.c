/* SPDX-License-Identifier: Apache-2.0
 *
 * Which tokens end an answer: see chat.h.
 */
#include <string.h>

#include "engine/chat_parts.h"

/* By how the names of chat formats begin. gpt-oss has <|end|> between its thoughts and its answer, so
 * that is none. */
static const struct {
	const char *family, *end[CHAT_ENDS - 1]; /* NULL: no more */
} endings[] = {
	{ "gpt-oss", { "<|return|>", "<|call|>", "<|endoftext|>" } },
	{ "glm-", { "<|endoftext|>", "<|user|>", "<|observation|>" } },
	{ "deepseek-", { "<｜end▁of▁sentence｜>" } },
	{ "qwen", { "<|im_end|>", "<|endoftext|>" } },
	{ "mixtral", { "</s>" } },
	{ "olmoe", { "<|endoftext|>" } },
};

static int add(const struct tokenizer *t, const char *text, int32_t ids[CHAT_ENDS], int n)
{
	int id = text[0] ? tokenizer_id(t, text) : -1;

	for (int i = 0; i < n; i++)
		if (ids[i] == id)
			return n;
	if (id >= 0)
		ids[n++] = id;
	return n;
}

int chat_ends(const struct chat *c, const struct tokenizer *t, int32_t ids[CHAT_ENDS])
{
	int n = add(t, c->eos, ids, 0);

	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
		if (strncmp(chat_name(c), endings[i].family, strlen(endings[i].family)) != 0)
			continue;
		for (int k = 0; k < CHAT_ENDS - 1 && endings[i].end[k]; k++)
			n = add(t, endings[i].end[k], ids, n);
	}
	return n;
}
