/* SPDX-License-Identifier: Apache-2.0
 *
 * The chat templates of GLM-4.5 to GLM-5.2: see chat_parts.h. The three versions share the order of
 * things and differ in newlines, in the call format, and in when reasoning is replayed.
 * Spec: tokenizers.md, section 7; sources are the templates themselves.
 */
#include <string.h>

#include "engine/chat_parts.h"

struct version {
	bool lines; /* GLM-4.5 and 4.6: newlines around roles, thoughts and calls */
	bool five;  /* GLM-5 */
};

static const char tools_head[] =
	"<|system|>\n# Tools\n\nYou may call one or more functions to assist with the user "
	"query.\n\n"
	"You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n";
static const char tools_tail[] =
	"</tools>\n\nFor each function call, output the function name and arguments within the "
	"following XML format:\n";

/* A tool without what is not for the model. */
static void put_bare_tool(struct chat_writer *w, const json_t *tool)
{
	json_t *bare = json_copy((json_t *)tool);

	if (!bare) {
		w->failed = true;
		return;
	}
	json_object_del(bare, "defer_loading");
	json_object_del(bare, "strict");
	put_json(w, bare);
	json_decref(bare);
}

static void put_tools(const struct chat_in *in, struct chat_writer *w, const struct version *v)
{
	const json_t *tools = tools_of(in);

	if (!tools)
		return;
	put(w, tools_head);
	for (size_t i = 0; i < json_array_size(tools); i++) {
		const json_t *tool = json_array_get(tools, i);
		const json_t *function = json_object_get(tool, "function");
		if (v->five && function)
			tool = function;
		if (v->five && is_true(json_object_get(tool, "defer_loading")))
			continue;
		if (v->five)
			put_bare_tool(w, tool);
		else
			put_json(w, tool);
		put(w, "\n");
	}
	put(w, tools_tail);
	put(w, v->lines ? "<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n"
			  "<arg_value>{arg-value-1}</arg_value>\n<arg_key>{arg-key-2}</arg_key>\n"
			  "<arg_value>{arg-value-2}</arg_value>\n...\n</tool_call>"
			: "<tool_call>{function-name}<arg_key>{arg-key-1}</arg_key><arg_value>"
			  "{arg-value-1}</arg_value><arg_key>{arg-key-2}</arg_key><arg_value>"
			  "{arg-value-2}</arg_value>...</tool_call>");
}

static void put_call(struct chat_writer *w, const json_t *call, const struct version *v)
{
	const char *key, *line = v->lines ? "\n" : "";
	json_t *value;

	put(w, line);
	put(w, "<tool_call>");
	put_from_outside(w, text_of(call, "name"));
	put(w, line);
	json_object_foreach(json_object_get(call, "arguments"), key, value)
	{
		put(w, "<arg_key>");
		put_from_outside(w, str_of(key));
		put(w, "</arg_key>");
		put(w, line);
		put(w, "<arg_value>");
		put_value(w, value);
		put(w, "</arg_value>");
		put(w, line);
	}
	put(w, "</tool_call>");
}

/* The reasoning may stand in the content, as the model wrote it. False if there is none. */
static bool split_reasoning(const json_t *m, const struct version *v, struct str *reasoning,
			    struct str *content)
{
	*content = text_of(m, "content");
	*reasoning = text_of(m, "reasoning_content");
	if (json_is_string(json_object_get(m, "reasoning_content")))
		return v->five || reasoning->n;
	if (!str_has(*content, "</think>"))
		return false;
	*reasoning = str_before(*content, "</think>");
	*content = str_behind_last(*content, "</think>");
	if (v->five) {
		*reasoning = str_behind_last(*reasoning, "<think>");
		return true;
	}
	*reasoning = str_behind_last(str_rstrip_newlines(*reasoning), "<think>");
	*reasoning = str_lstrip_newlines(*reasoning);
	*content = str_lstrip_newlines(*content);
	return reasoning->n > 0;
}

static void put_assistant(const struct chat_in *in, struct chat_writer *w, size_t i,
			  size_t first_open, const struct version *v)
{
	const json_t *m = message(in, i), *calls = calls_of(m);
	struct str reasoning, content;
	bool thought = split_reasoning(m, v, &reasoning, &content);
	bool shown = i >= first_open || (!v->lines && in->o->keep_thinking);

	put(w, v->lines ? "<|assistant|>\n" : "<|assistant|>");
	if (thought && shown) {
		put(w, "<think>");
		put_from_outside(w, v->five ? reasoning : str_strip(reasoning));
		put(w, "</think>");
	} else {
		put(w, v->lines || v->five ? "<think></think>" : "</think>");
	}
	content = str_strip(content);
	if (content.n) {
		put(w, v->lines ? "\n" : "");
		put_from_outside(w, content);
	}
	for (size_t k = 0; k < json_array_size(calls); k++)
		put_call(w, json_array_get(calls, k), v);
}

static void put_tool_result(const struct chat_in *in, struct chat_writer *w, size_t i,
			    const struct version *v)
{
	if (i == 0 || !role_at(in, i - 1, "tool"))
		put(w, "<|observation|>");
	put(w, v->lines ? "\n<tool_response>\n" : "<tool_response>");
	put_from_outside(w, text_of(message(in, i), "content"));
	put(w, v->lines ? "\n</tool_response>" : "</tool_response>");
}

static void put_message(const struct chat_in *in, struct chat_writer *w, size_t i,
			size_t first_open, const struct version *v)
{
	const json_t *m = message(in, i);
	struct str content = text_of(m, "content");
	const char *line = v->lines ? "\n" : "";

	if (has_role(m, "user")) {
		put(w, "<|user|>");
		put(w, line);
		put_from_outside(w, content);
		if (v->lines && in->o->thinking == CHAT_THINKING_OFF &&
		    !str_ends(content, "/nothink"))
			put(w, "/nothink");
	} else if (has_role(m, "system")) {
		put(w, "<|system|>");
		put(w, line);
		put_from_outside(w, content);
	} else if (has_role(m, "assistant")) {
		put_assistant(in, w, i, first_open, v);
	} else if (has_role(m, "tool")) {
		put_tool_result(in, w, i, v);
	}
}

static int render(const struct chat_in *in, struct chat_writer *w, const struct version *v)
{
	bool off = in->o->thinking == CHAT_THINKING_OFF;
	size_t first_open = 0; /* the first message behind the last of the user */

	put(w, "[gMASK]<sop>");
	if (v->five && !off)
		put(w, in->o->effort && strcmp(in->o->effort, "high") == 0
			       ? "<|system|>Reasoning Effort: High"
			       : "<|system|>Reasoning Effort: Max");
	put_tools(in, w, v);
	for (size_t i = 0; i < in->n; i++)
		if (role_at(in, i, "user"))
			first_open = i + 1;
	for (size_t i = 0; i < in->n; i++)
		put_message(in, w, i, first_open, v);
	if (!in->o->generation_prompt)
		return 0;
	put(w, "<|assistant|>");
	if (v->lines)
		put(w, off ? "\n<think></think>" : "");
	else
		put(w, !off ? "<think>" : v->five ? "<think></think>" : "</think>");
	return 0;
}

int chat_glm(const struct chat_in *in, struct chat_writer *w)
{
	return render(in, w, &(struct version){ .lines = true });
}

int chat_glm_4_7(const struct chat_in *in, struct chat_writer *w)
{
	return render(in, w, &(struct version){ 0 });
}

int chat_glm_5(const struct chat_in *in, struct chat_writer *w)
{
	return render(in, w, &(struct version){ .five = true });
}
