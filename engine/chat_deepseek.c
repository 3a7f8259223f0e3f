/* SPDX-License-Identifier: Apache-2.0
 *
 * The chat templates of DeepSeek-V2, V3, R1 and V3.1: see chat_parts.h. They keep state from one
 * message to the next, and what looks odd here is odd there: of the calls of one turn, V3 and R1
 * close the list behind each but the first, and the first one of the whole chat opens it.
 */
#include <string.h>

#include "engine/chat_parts.h"

#define USER      "<｜User｜>"
#define ASSISTANT "<｜Assistant｜>"
#define END       "<｜end▁of▁sentence｜>"

/* ---- V2 ---- */

int chat_deepseek_v2(const struct chat_in *in, struct chat_writer *w)
{
	put(w, in->chat->bos);
	for (size_t i = 0; i < in->n; i++) {
		const json_t *m = message(in, i);
		bool assistant = has_role(m, "assistant");
		if (!assistant && !has_role(m, "user") && !has_role(m, "system"))
			continue;
		put(w, has_role(m, "user") ? "User: " : assistant ? "Assistant: " : "");
		put_from_outside(w, text_of(m, "content"));
		put(w, assistant ? in->chat->eos : "\n\n");
	}
	if (in->o->generation_prompt)
		put(w, "Assistant:");
	return 0;
}

/* ---- V3 and R1 ---- */

/* The system messages come first, wherever they stand: all of them, or the last. */
static void put_systems(const struct chat_in *in, struct chat_writer *w, bool all)
{
	const json_t *last = NULL;
	const char *between = "";

	for (size_t i = 0; i < in->n; i++) {
		if (!role_at(in, i, "system"))
			continue;
		last = message(in, i);
		if (all) {
			put(w, between);
			put_from_outside(w, text_of(last, "content"));
			between = "\n\n";
		}
	}
	if (last && !all)
		put_from_outside(w, text_of(last, "content"));
}

struct state {
	bool called;  /* there was a call */
	bool results; /* results of tools stand right before */
	bool result;  /* there was a result */
};

static void put_calls(struct chat_writer *w, const json_t *m, struct state *s)
{
	const json_t *calls = calls_of(m);

	s->results = false;
	for (size_t k = 0; k < json_array_size(calls); k++) {
		const json_t *call = json_array_get(calls, k);
		bool first = !s->called;
		put(w, first ? ASSISTANT "<｜tool▁calls▁begin｜>" : "\n");
		put(w, "<｜tool▁call▁begin｜>");
		put_from_outside(w, text_of(call, "type"));
		put(w, "<｜tool▁sep｜>");
		put_from_outside(w, text_of(call, "name"));
		put(w, "\n```json\n");
		put_arguments(w, call);
		put(w, "\n```<｜tool▁call▁end｜>");
		if (!first)
			put(w, "<｜tool▁calls▁end｜>" END);
		s->called = true;
	}
}

static void put_message(struct chat_writer *w, const json_t *m, struct state *s, bool thinks)
{
	struct str content = text_of(m, "content");

	if (has_role(m, "user")) {
		s->results = false;
		put(w, USER);
		put_from_outside(w, content);
	} else if (has_role(m, "assistant") && !json_object_get(m, "content")) {
		put_calls(w, m, s);
	} else if (has_role(m, "assistant")) {
		put(w, s->results ? "<｜tool▁outputs▁end｜>" : ASSISTANT);
		if (thinks && !s->results)
			content = str_behind_last(content, "</think>");
		put_from_outside(w, content);
		put(w, END);
		s->results = false;
	} else if (has_role(m, "tool")) {
		put(w, s->result ? "\n" : "<｜tool▁outputs▁begin｜>");
		put(w, "<｜tool▁output▁begin｜>");
		put_from_outside(w, content);
		put(w, "<｜tool▁output▁end｜>");
		s->results = s->result = true;
	}
}

static int render_v3(const struct chat_in *in, struct chat_writer *w, bool thinks)
{
	struct state s = { 0 };

	put(w, in->chat->bos);
	put_systems(in, w, !thinks);
	for (size_t i = 0; i < in->n; i++)
		put_message(w, message(in, i), &s, thinks);
	if (s.results)
		put(w, "<｜tool▁outputs▁end｜>");
	else if (in->o->generation_prompt)
		put(w, thinks ? ASSISTANT "<think>\n" : ASSISTANT);
	return 0;
}

int chat_deepseek_v3(const struct chat_in *in, struct chat_writer *w)
{
	return render_v3(in, w, false);
}

int chat_deepseek_r1(const struct chat_in *in, struct chat_writer *w)
{
	return render_v3(in, w, true);
}

/* ---- V3.1 ---- */

struct state_v3_1 {
	bool asked;   /* a question stands right before */
	bool results; /* results of tools do */
};

static void put_calls_v3_1(struct chat_writer *w, const json_t *m, struct state_v3_1 *s)
{
	const json_t *calls = calls_of(m);

	put(w, s->asked ? ASSISTANT "<think></think>" : "");
	s->asked = s->results = false;
	put_from_outside(w, text_of(m, "content"));
	for (size_t k = 0; k < json_array_size(calls); k++) {
		const json_t *call = json_array_get(calls, k);
		put(w, k ? "<｜tool▁call▁begin｜>" : "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>");
		put_from_outside(w, text_of(call, "name"));
		put(w, "<｜tool▁sep｜>");
		put_json(w, json_object_get(call, "arguments"));
		put(w, "<｜tool▁call▁end｜>");
	}
	put(w, "<｜tool▁calls▁end｜>" END);
}

static void put_answer_v3_1(const struct chat_in *in, struct chat_writer *w, const json_t *m,
			    struct state_v3_1 *s)
{
	struct str content = text_of(m, "content");
	bool prefix =
		json_is_true(json_object_get(m, "prefix")) && in->o->thinking == CHAT_THINKING_ON;

	if (s->asked)
		put(w, prefix ? ASSISTANT "<think>" : ASSISTANT "<think></think>");
	if (!s->results)
		content = str_behind_first(content, "</think>");
	put_from_outside(w, content);
	put(w, END);
	s->asked = s->results = false;
}

int chat_deepseek_v3_1(const struct chat_in *in, struct chat_writer *w)
{
	struct state_v3_1 s = { 0 };

	put(w, in->chat->bos);
	put_systems(in, w, true);
	for (size_t i = 0; i < in->n; i++) {
		const json_t *m = message(in, i);
		if (has_role(m, "user")) {
			put(w, USER);
			put_from_outside(w, text_of(m, "content"));
			s = (struct state_v3_1){ .asked = true };
		} else if (has_role(m, "assistant") && calls_of(m)) {
			put_calls_v3_1(w, m, &s);
		} else if (has_role(m, "assistant")) {
			put_answer_v3_1(in, w, m, &s);
		} else if (has_role(m, "tool")) {
			put(w, "<｜tool▁output▁begin｜>");
			put_from_outside(w, text_of(m, "content"));
			put(w, "<｜tool▁output▁end｜>");
			s = (struct state_v3_1){ .results = true };
		}
	}
	if (in->o->generation_prompt && s.asked)
		put(w, in->o->thinking == CHAT_THINKING_ON ? ASSISTANT "<think>"
							   : ASSISTANT "<think></think>");
	return 0;
}
