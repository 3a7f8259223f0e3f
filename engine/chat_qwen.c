/* SPDX-License-Identifier: Apache-2.0
 *
 * The chat templates of Qwen2-MoE and Qwen3-MoE: see chat_parts.h.
 */
#include <string.h>

#include "engine/chat_parts.h"

static const char default_system[] =
	"You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";

static void begin(struct chat_writer *w, const json_t *m)
{
	put(w, "<|im_start|>");
	put(w, json_string_value(json_object_get(m, "role")));
	put(w, "\n");
}

static void put_whole(struct chat_writer *w, const json_t *m)
{
	begin(w, m);
	put_from_outside(w, text_of(m, "content"));
	put(w, "<|im_end|>\n");
}

/* Inside of a system message. */
static void put_tools(struct chat_writer *w, const json_t *tools)
{
	put(w, "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
	       "You are provided with function signatures within <tools></tools> XML tags:\n"
	       "<tools>");
	for (size_t i = 0; i < json_array_size(tools); i++) {
		put(w, "\n");
		put_json(w, json_array_get(tools, i));
	}
	put(w, "\n</tools>\n\nFor each function call, return a json object with function name and "
	       "arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n"
	       "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n"
	       "</tool_call><|im_end|>\n");
}

static void put_call(struct chat_writer *w, const json_t *call, bool as_given)
{
	put(w, "<tool_call>\n{\"name\": \"");
	put_from_outside(w, text_of(call, "name"));
	put(w, "\", \"arguments\": ");
	if (as_given)
		put_arguments(w, call);
	else
		put_json(w, json_object_get(call, "arguments"));
	put(w, "}\n</tool_call>");
}

/* Results that follow each other are one message of the user's. */
static void put_tool_result(const struct chat_in *in, struct chat_writer *w, size_t i)
{
	if (i == 0 || !role_at(in, i - 1, "tool"))
		put(w, "<|im_start|>user");
	put(w, "\n<tool_response>\n");
	put_from_outside(w, text_of(message(in, i), "content"));
	put(w, "\n</tool_response>");
	if (!role_at(in, i + 1, "tool"))
		put(w, "<|im_end|>\n");
}

/* ---- Qwen2 ---- */

int chat_qwen2(const struct chat_in *in, struct chat_writer *w)
{
	if (!role_at(in, 0, "system"))
		put(w, "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n");
	for (size_t i = 0; i < in->n; i++)
		put_whole(w, message(in, i));
	if (in->o->generation_prompt)
		put(w, "<|im_start|>assistant\n");
	return 0;
}

/* ---- Qwen2.5 ---- */

static void put_calls(struct chat_writer *w, const json_t *m)
{
	const json_t *calls = calls_of(m);
	struct str content = text_of(m, "content");

	put(w, "<|im_start|>assistant");
	if (content.n) {
		put(w, "\n");
		put_from_outside(w, content);
	}
	for (size_t k = 0; k < json_array_size(calls); k++) {
		put(w, "\n");
		put_call(w, json_array_get(calls, k), false);
	}
	put(w, "<|im_end|>\n");
}

int chat_qwen2_5(const struct chat_in *in, struct chat_writer *w)
{
	bool own = role_at(in, 0, "system");

	put(w, "<|im_start|>system\n");
	if (own)
		put_from_outside(w, text_of(message(in, 0), "content"));
	else
		put(w, default_system);
	if (tools_of(in)) {
		put(w, "\n\n");
		put_tools(w, tools_of(in));
	} else {
		put(w, "<|im_end|>\n");
	}
	for (size_t i = own; i < in->n; i++) {
		const json_t *m = message(in, i);
		if (has_role(m, "tool"))
			put_tool_result(in, w, i);
		else if (has_role(m, "assistant") && calls_of(m))
			put_calls(w, m);
		else if (!has_role(m, "developer"))
			put_whole(w, m);
	}
	if (in->o->generation_prompt)
		put(w, "<|im_start|>assistant\n");
	return 0;
}

/* ---- Qwen3 ---- */

enum thoughts {
	THINKS_IF_ASKED, /* Qwen3: unless it is told not to */
	THINKS_ALWAYS,   /* Qwen3-Thinking-2507 */
	THINKS_NEVER,    /* Qwen3-Instruct-2507: its template knows no thoughts */
};

/* The last question of the user's: a message with a content that is no tool's result. The last message
 * of all if there is none. */
static size_t last_query(const struct chat_in *in)
{
	for (size_t i = in->n; i-- > 0;) {
		const json_t *m = message(in, i);
		struct str content = text_of(m, "content");
		if (has_role(m, "user") && json_object_get(m, "content") &&
		    !(str_starts(content, "<tool_response>") &&
		      str_ends(content, "</tool_response>")))
			return i;
	}
	return in->n - 1;
}

static void put_assistant(const struct chat_in *in, struct chat_writer *w, size_t i, size_t query,
			  bool thinks)
{
	const json_t *m = message(in, i), *calls = calls_of(m);
	struct str content = text_of(m, "content"), reasoning = text_of(m, "reasoning_content");

	if (thinks && !json_is_string(json_object_get(m, "reasoning_content")) &&
	    str_has(content, "</think>")) {
		reasoning = str_rstrip_newlines(str_before(content, "</think>"));
		reasoning = str_lstrip_newlines(str_behind_last(reasoning, "<think>"));
		content = str_lstrip_newlines(str_behind_last(content, "</think>"));
	}
	put(w, "<|im_start|>assistant\n");
	if (thinks && i > query && (i + 1 == in->n || reasoning.n)) {
		put(w, "<think>\n");
		put_from_outside(w, str_rstrip_newlines(str_lstrip_newlines(reasoning)));
		put(w, "\n</think>\n\n");
		put_from_outside(w, str_lstrip_newlines(content));
	} else {
		put_from_outside(w, content);
	}
	for (size_t k = 0; k < json_array_size(calls); k++) {
		put(w, k || content.n ? "\n" : "");
		put_call(w, json_array_get(calls, k), true);
	}
	put(w, "<|im_end|>\n");
}

static int render_qwen3(const struct chat_in *in, struct chat_writer *w, enum thoughts thoughts)
{
	bool own = role_at(in, 0, "system");
	size_t query = last_query(in);

	if (tools_of(in)) {
		put(w, "<|im_start|>system\n");
		if (own) {
			put_from_outside(w, text_of(message(in, 0), "content"));
			put(w, "\n\n");
		}
		put_tools(w, tools_of(in));
	} else if (own) {
		put_whole(w, message(in, 0));
	}
	for (size_t i = own; i < in->n; i++) {
		const json_t *m = message(in, i);
		if (has_role(m, "tool"))
			put_tool_result(in, w, i);
		else if (has_role(m, "assistant"))
			put_assistant(in, w, i, query, thoughts != THINKS_NEVER);
		else if (!has_role(m, "developer"))
			put_whole(w, m);
	}
	if (!in->o->generation_prompt)
		return 0;
	put(w, "<|im_start|>assistant\n");
	if (thoughts == THINKS_ALWAYS)
		put(w, "<think>\n");
	else if (thoughts == THINKS_IF_ASKED && in->o->thinking == CHAT_THINKING_OFF)
		put(w, "<think>\n\n</think>\n\n");
	return 0;
}

int chat_qwen3(const struct chat_in *in, struct chat_writer *w)
{
	return render_qwen3(in, w, THINKS_IF_ASKED);
}

int chat_qwen3_thinking(const struct chat_in *in, struct chat_writer *w)
{
	return render_qwen3(in, w, THINKS_ALWAYS);
}

int chat_qwen3_instruct(const struct chat_in *in, struct chat_writer *w)
{
	return render_qwen3(in, w, THINKS_NEVER);
}
