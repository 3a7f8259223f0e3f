/* SPDX-License-Identifier: Apache-2.0
 *
 * From messages to the text that a model was trained to continue: its chat template.
 *
 * Templates are Jinja programs, and no C library for those is in the distributions. So the known
 * families are written out here, each exactly as Hugging Face's apply_chat_template() renders that
 * template, and a model's own template only says which one it is: by the fingerprint of its whole
 * text, since families have versions that differ in little. A template that is not known is
 * refused; which family it looks like is said, and can be asked for by name.
 *
 * A loaded chat is never changed: any number of threads may use it at once.
 */
#ifndef ENGINE_CHAT_H
#define ENGINE_CHAT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "engine/tokenizer.h"

/* Longest template that is looked at, in bytes. */
#define CHAT_TEMPLATE_MAX (1u << 20)

struct chat; /* opaque */

/* What the template of a model is called here; owned by nobody. */
const char *chat_name(const struct chat *c);

/* By the template's text (bytes of it) and the texts of the begin and end tokens, which may be NULL
 * where there are none. format: the name of a family, which is then taken whatever the template
 * says; NULL: as the template says. `where` begins the sentences. 0, or negative errno and why:
 * -ENOENT if there is neither template nor format, -EINVAL if either is not known, -ENOMEM. Free
 * with chat_free(). */
int chat_new(const char *template, size_t bytes, const char *bos, const char *eos,
	     const char *format, const char *where, struct chat **out, char *why);
/* The same from the member "chat" of MOUNT/model.json (modelfile.h). */
int chat_load(const char *mount, const char *format, struct chat **out, char *why);
void chat_free(struct chat *c); /* NULL is fine */

enum chat_thinking { CHAT_THINKING_DEFAULT, CHAT_THINKING_ON, CHAT_THINKING_OFF };

/* What a template may be told; all zero is what it does by itself. */
struct chat_options {
	bool generation_prompt; /* the text ends where the assistant's answer begins */
	enum chat_thinking thinking;
	enum chat_thinking own_thinking; /* DeepSeek-V3.1's "thinking", which goes first there */
	bool keep_thinking;  /* GLM: the reasoning of earlier turns stays ("clear_thinking") */
	const char *effort;  /* "reasoning_effort": NULL for the template's own */
	const json_t *tools; /* a list as in OpenAI's API; NULL for none */
	const char *date;    /* gpt-oss tells the date, as 2025-08-05; NULL for today */
};

struct chat_text {
	char *text; /* NUL behind it */
	size_t bytes, spans;
	struct tokenizer_span *span; /* what came from outside; ascending, none empty */
};

/* messages: a list of objects with role ("system", "user", "assistant", "tool", "developer"),
 * content (a string, null, or a list of text parts), and for assistants tool_calls and
 * reasoning_content, as in OpenAI's API. The arguments of a tool call may be an object or its text.
 * 0, or negative errno and why: -EINVAL for messages that the template does not take, -ENOMEM. Free
 * with chat_text_free(). */
int chat_render(const struct chat *c, const json_t *messages, const struct chat_options *o,
		struct chat_text *out, char *why);
void chat_text_free(struct chat_text *t);

/* The ids of a rendered text. Tokens that stand for roles, calls, thoughts and the like are recognised
 * in what the template wrote, and are ordinary text in what came from outside, whether the tokenizer
 * has them as special or not (tokenizer_encode_spans()): where roles are tokens, no message can
 * pretend to be another. Those of DeepSeek-V2, Mixtral and OLMoE are plain words, which a message can
 * hold as well. *ids to be freed. */
int chat_encode(const struct tokenizer *t, const struct chat_text *text, int32_t **ids, size_t *n,
		char *why);

/* Tokens that end an answer, so many of them as t has: those of the family, and the model's end token
 * as the tokenizer's configuration has it. A model's own list (modelfile.h) may lack them: that of one
 * trained on to talk is at times still that of its base. Returns how many. */
#define CHAT_ENDS 4
int chat_ends(const struct chat *c, const struct tokenizer *t, int32_t ids[CHAT_ENDS]);

#endif
