/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run continues: a text as it is, token ids, or a conversation as the model's chat template
 * writes it.
 */
#ifndef ENGINE_PROMPT_H
#define ENGINE_PROMPT_H

#include "engine/chat.h"

/* Where it comes from; all but the one source, and what belongs to it, is NULL. */
struct prompt_source {
	const char *text, *file, *ids; /* as given to -p, -f and --prompt-ids */
	bool chat;                     /* text or file are what a user says */
	const char *system;            /* what is said before, with chat */
	const char *messages;          /* a file with messages (chat_request.h) */
	const char *format;            /* of chat or messages: chat_new() */
};

struct prompt {
	int32_t *ids; /* free() */
	size_t n;
	int32_t ends[CHAT_ENDS]; /* that end the answer in a conversation, beside the model's own */
	int ends_n;
};

/* t: of the model under mount. 0, or negative errno with the sentence; what `out` owns is the caller's
 * to free in any case. */
int prompt_read(const struct prompt_source *s, const char *mount, const struct tokenizer *t,
		struct prompt *out, char *why);

#endif
