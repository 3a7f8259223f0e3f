/* SPDX-License-Identifier: Apache-2.0
 *
 * The chat templates of DeepSeek-V2, V3, R1 and V3.1: see chat_parts.h. They keep state from one
 * message to the next, and what looks odd here is odd there: of the calls of one turn, V3 and R1
 * close the list behind each but the first, and the first one of the whole chat opens it.
 *
 * V3.2 has a program in the place of a template, its checkpoint's encoding/encoding_dsv32.py. To that,
 * tools are of a system message; which one, a list of tools does not say: it is the first message, or
 * an empty one in front of it, as in SGLang.
 */
#include <errno.h>

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

static bool is_thinking(const struct chat_in *in)
{
	enum chat_thinking own = in->o->own_thinking;

	return (own == CHAT_THINKING_DEFAULT ? in->o->thinking : own) == CHAT_THINKING_ON;
}

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
	bool prefix = is_true(json_object_get(m, "prefix")) && is_thinking(in);

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
		put(w, is_thinking(in) ? ASSISTANT "<think>" : ASSISTANT "<think></think>");
	return 0;
}

/* ---- V3.2 ---- */

#define DSML "｜DSML｜"

static const char tools_head[] =
	"\n\n## Tools\n\nYou have access to a set of tools you can use to answer the user's "
	"question.\n"
	"You can invoke functions by writing a \"<" DSML
	"function_calls>\" block like the following as "
	"part of your reply to the user:\n<" DSML "function_calls>\n<" DSML
	"invoke name=\"$FUNCTION_NAME\">\n<" DSML "parameter name=\"$PARAMETER_NAME\" "
	"string=\"true|false\">$PARAMETER_VALUE</" DSML "parameter>\n...\n</" DSML "invoke>\n<" DSML
	"invoke name=\"$FUNCTION_NAME2\">\n...\n</" DSML "invoke>\n</" DSML "function_calls>\n\n"
	"String and scalar parameters should be specified as is without any escaping or quotes, "
	"while "
	"lists and objects should use JSON format. The \"string\" attribute should be set to "
	"\"true\" "
	"for string type parameters and \"false\" for other types (numbers, booleans, arrays, "
	"objects).\n\nIf the thinking_mode is enabled, then after function results you should "
	"strongly "
	"consider outputting a thinking block. Here is an example:\n\n<" DSML
	"function_calls>\n...\n</" DSML "function_calls>\n\n<function_results>\n...\n"
	"</function_results>\n\n<think>...thinking about results</think>\n\nHere are the functions "
	"available in JSONSchema format:\n<functions>\n";

static int put_tools_v3_2(const struct chat_in *in, struct chat_writer *w)
{
	const json_t *tools = tools_of(in);

	put(w, tools ? tools_head : "");
	for (size_t i = 0; i < json_array_size(tools); i++) {
		const json_t *function = json_object_get(json_array_get(tools, i), "function");
		if (!function)
			return fail(in->why, EINVAL, "tool %zu has no \"function\"", i);
		put_json(w, function);
		put(w, "\n");
	}
	put(w, tools ? "</functions>\n" : "");
	return 0;
}

static void put_call_v3_2(struct chat_writer *w, const json_t *call)
{
	const char *key, *between = "";
	json_t *value;

	put(w, "\n<" DSML "invoke name=\"");
	put_from_outside(w, text_of(call, "name"));
	put(w, "\">\n");
	json_object_foreach(json_object_get(call, "arguments"), key, value)
	{
		put(w, between);
		between = "\n";
		put(w, "<" DSML "parameter name=\"");
		put_from_outside(w, str_of(key));
		put(w, json_is_string(value) ? "\" string=\"true\">" : "\" string=\"false\">");
		put_value(w, value);
		put(w, "</" DSML "parameter>");
	}
	put(w, "\n</" DSML "invoke>");
}

/* answers: it stands behind the last question, so that its thoughts are shown. */
static int put_answer_v3_2(const struct chat_in *in, struct chat_writer *w, size_t i, bool answers)
{
	const json_t *m = message(in, i), *calls = calls_of(m);
	struct str thoughts = text_of(m, "reasoning_content");

	if (answers && is_thinking(in)) {
		if (!thoughts.n && !calls)
			return fail(in->why, EINVAL,
				    "message %zu answers the last question with neither "
				    "reasoning_content nor a tool call; with thinking this form "
				    "takes no such answer",
				    i);
		put_from_outside(w, thoughts);
		put(w, "</think>");
	}
	put_from_outside(w, text_of(m, "content"));
	put(w, calls ? "\n\n<" DSML "function_calls>" : "");
	for (size_t k = 0; k < json_array_size(calls); k++)
		put_call_v3_2(w, json_array_get(calls, k));
	put(w, calls ? "\n</" DSML "function_calls>" END : END);
	return 0;
}

/* Results of the calls of one answer are one list. think: what follows it. */
static int put_result_v3_2(const struct chat_in *in, struct chat_writer *w, size_t i,
			   const char *think)
{
	size_t from = i, calls;

	while (from > 0 && role_at(in, from, "tool"))
		from--;
	calls = json_array_size(calls_of(message(in, from)));
	if (!role_at(in, from, "assistant") || calls < i - from)
		return fail(in->why, EINVAL,
			    "message %zu is a tool's result, but no call comes before it", i);
	put(w, i - from == 1 ? "\n\n<function_results>\n<result>" : "\n<result>");
	put_from_outside(w, text_of(message(in, i), "content"));
	put(w, "</result>");
	if (i - from == calls) {
		put(w, "\n</function_results>\n\n");
		put(w, think);
	}
	return 0;
}

static void put_question_v3_2(struct chat_writer *w, const json_t *m, const char *think)
{
	put(w, has_role(m, "developer") ? USER "\n\n# The user's message is: " : USER);
	put_from_outside(w, text_of(m, "content"));
	put(w, ASSISTANT);
	put(w, think);
}

/* Each question ends where its answer begins, whether an answer is asked for or not. */
int chat_deepseek_v3_2(const struct chat_in *in, struct chat_writer *w)
{
	bool thinks = is_thinking(in);
	size_t answers = 0; /* the first message behind the last question */
	int rc = 0;

	for (size_t i = 0; i < in->n; i++)
		if (role_at(in, i, "user") || role_at(in, i, "developer"))
			answers = i + 1;
	put(w, "<｜begin▁of▁sentence｜>");
	if (!role_at(in, 0, "system"))
		rc = put_tools_v3_2(in, w);
	for (size_t i = 0; rc == 0 && i < in->n; i++) {
		const json_t *m = message(in, i);
		const char *think = thinks && i + 1 >= answers ? "<think>" : "</think>";
		if (has_role(m, "system")) {
			put_from_outside(w, text_of(m, "content"));
			rc = i == 0 ? put_tools_v3_2(in, w) : 0;
		} else if (has_role(m, "assistant")) {
			rc = put_answer_v3_2(in, w, i, i >= answers);
		} else if (has_role(m, "tool")) {
			rc = put_result_v3_2(in, w, i, think);
		} else {
			put_question_v3_2(w, m, think);
		}
	}
	return rc;
}
