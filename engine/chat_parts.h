/* SPDX-License-Identifier: Apache-2.0
 *
 * What the families of chat templates share: the messages as they read them, the text as they write
 * it, and Python's ways with strings. Private to chat*.c.
 */
#ifndef ENGINE_CHAT_PARTS_H
#define ENGINE_CHAT_PARTS_H

#include "engine/chat.h"
#include "engine/fail.h"

/* ---- strings ---- */

struct str {
	const char *at;
	size_t n;
};

struct str str_of(const char *s);
/* A JSON string's; empty for anything else. */
struct str str_of_json(const json_t *v);
/* Python's strip(): white space at both ends; and of newlines at one end. */
struct str str_strip(struct str s);
struct str str_lstrip_newlines(struct str s);
struct str str_rstrip_newlines(struct str s);
bool str_has(struct str s, const char *part);
bool str_starts(struct str s, const char *part);
bool str_ends(struct str s, const char *part);
/* What stands before the first, behind the first, behind the last part; s if there is none. */
struct str str_before(struct str s, const char *part);
struct str str_behind_first(struct str s, const char *part);
struct str str_behind_last(struct str s, const char *part);

/* ---- the text ---- */

struct chat_writer {
	struct chat_text t;
	size_t room, span_room;
	bool failed; /* out of memory */
};

/* Of the template, and from outside. */
void put(struct chat_writer *w, const char *s);
void put_from_outside(struct chat_writer *w, struct str s);
/* As Jinja's tojson in transformers: json.dumps(v, ensure_ascii=False). */
void put_json(struct chat_writer *w, const json_t *v);
/* The same, but a string as it is. */
void put_value(struct chat_writer *w, const json_t *v);

/* ---- what is rendered ---- */

struct chat {
	const struct chat_format *format;
	char *bos, *eos; /* not NULL */
};

/* Messages are checked and in one form: content is a string or absent; tool_calls, absent if empty,
 * are objects with "name", "type" and "arguments"; these are an object if they are one or the text of
 * one, which is then in "arguments_text". */
struct chat_in {
	const struct chat *chat;
	const json_t *messages;
	size_t n;
	const struct chat_options *o;
	char *why;
};

static inline const json_t *message(const struct chat_in *in, size_t i)
{
	return json_array_get(in->messages, i);
}

/* What Jinja takes for true. */
bool is_true(const json_t *v);
bool has_role(const json_t *m, const char *role);
/* Message i has this role; false outside of the list. */
bool role_at(const struct chat_in *in, size_t i, const char *role);
/* A string member; empty if absent. */
struct str text_of(const json_t *m, const char *key);
const json_t *calls_of(const json_t *m); /* NULL if none */
/* The arguments as they were given: their text, or an object as JSON. */
void put_arguments(struct chat_writer *w, const json_t *call);
/* The list of tools; NULL if there is none or it is empty. */
const json_t *tools_of(const struct chat_in *in);

/* Writes the messages; 0 or -EINVAL with the sentence. */
typedef int chat_render_fn(const struct chat_in *in, struct chat_writer *w);
chat_render_fn chat_glm, chat_glm_4_7, chat_glm_5, chat_qwen2, chat_qwen2_5, chat_qwen3,
	chat_qwen3_thinking, chat_qwen3_instruct, chat_deepseek_v2, chat_deepseek_v3,
	chat_deepseek_r1, chat_deepseek_v3_1, chat_deepseek_v3_2, chat_gpt_oss, chat_mixtral,
	chat_olmoe;

struct chat_format {
	const char *name, *models;
	chat_render_fn *render;
	uint64_t print[3]; /* fingerprints of its templates; 0: no more */
	const char *mark;  /* what its templates, known or not, have */
};

#endif
