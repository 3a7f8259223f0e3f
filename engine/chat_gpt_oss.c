/* SPDX-License-Identifier: Apache-2.0
 *
 * The chat template of gpt-oss ("harmony"): see chat_parts.h. Tools are shown to the model as
 * TypeScript (chat_typescript.c).
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "engine/chat_parts.h"
#include "engine/chat_typescript.h"

#define ANALYSIS "<|channel|>analysis<|message|>"
#define FINAL    "<|channel|>final<|message|>"

static void put_system(const struct chat_in *in, struct chat_writer *w)
{
	char date[32] = "";
	time_t now = time(NULL);
	struct tm tm;

	if (!in->o->date && localtime_r(&now, &tm))
		strftime(date, sizeof(date), "%Y-%m-%d", &tm);
	put(w, "<|start|>system<|message|>You are ChatGPT, a large language model trained by "
	       "OpenAI.\nKnowledge cutoff: 2024-06\nCurrent date: ");
	put_from_outside(w, str_of(in->o->date ? in->o->date : date));
	put(w, "\n\nReasoning: ");
	put_from_outside(w, str_of(in->o->effort ? in->o->effort : "medium"));
	put(w, "\n\n# Valid channels: analysis, commentary, final. Channel must be included for "
	       "every message.");
	if (tools_of(in))
		put(w, "\nCalls to these tools must go to the commentary channel: 'functions'.");
	put(w, "<|end|>");
}

static int put_developer(const struct chat_in *in, struct chat_writer *w, struct str text)
{
	int rc = 0;

	if (!text.n && !tools_of(in))
		return 0;
	put(w, "<|start|>developer<|message|>");
	if (text.n) {
		put(w, "# Instructions\n\n");
		put_from_outside(w, text);
		put(w, "\n\n");
	}
	if (tools_of(in)) {
		put(w, "# Tools\n\n");
		rc = put_typescript(w, tools_of(in), in->why);
	}
	put(w, "<|end|>");
	return rc;
}

static void put_part(struct chat_writer *w, const char *channel, struct str text, const char *end)
{
	put(w, "<|start|>assistant");
	put(w, channel);
	put_from_outside(w, text);
	put(w, end);
}

/* The thoughts before a call are shown until an answer has followed. */
static bool answered(const struct chat_in *in, size_t behind)
{
	for (size_t i = behind; i < in->n; i++)
		if (role_at(in, i, "assistant") && !calls_of(message(in, i)))
			return true;
	return false;
}

/* The template takes one call a message. */
static int put_call(const struct chat_in *in, struct chat_writer *w, size_t i, const json_t *call)
{
	struct str content = text_of(message(in, i), "content");
	struct str thoughts = text_of(message(in, i), "thinking");
	struct str type = text_of(call, "content_type");

	if (content.n && thoughts.n)
		return fail(in->why, EINVAL,
			    "message %zu has a tool call with both content and thinking; this "
			    "template takes one of them",
			    i);
	if ((content.n || thoughts.n) && !answered(in, i + 1))
		put_part(w, ANALYSIS, content.n ? content : thoughts, "<|end|>");
	put(w, "<|start|>assistant to=functions.");
	put_from_outside(w, text_of(call, "name"));
	put(w, "<|channel|>commentary ");
	put_from_outside(w, type.n ? type : str_of("json"));
	put(w, "<|message|>");
	put_json(w, json_object_get(call, "arguments"));
	put(w, "<|call|>");
	return 0;
}

static int put_assistant(const struct chat_in *in, struct chat_writer *w, size_t i,
			 const json_t **call)
{
	const json_t *m = message(in, i);
	struct str content = text_of(m, "content"), thoughts = text_of(m, "thinking");

	if (str_has(content, ANALYSIS) || str_has(content, FINAL) || str_has(thoughts, ANALYSIS) ||
	    str_has(thoughts, FINAL))
		return fail(in->why, EINVAL,
			    "message %zu has <|channel|> tags; thoughts belong into its "
			    "\"thinking\", the answer into its \"content\"",
			    i);
	if (calls_of(m)) {
		*call = json_array_get(calls_of(m), 0);
		return put_call(in, w, i, *call);
	}
	if (i + 1 == in->n && !in->o->generation_prompt) {
		if (json_object_get(m, "thinking"))
			put_part(w, ANALYSIS, thoughts, "<|end|>");
		put_part(w, FINAL, content, "<|return|>");
		return 0;
	}
	put_part(w, FINAL, content, "<|end|>");
	*call = NULL;
	return 0;
}

/* call: what the last call was, which results name. */
static int put_message(const struct chat_in *in, struct chat_writer *w, size_t i,
		       const json_t **call)
{
	const json_t *m = message(in, i);

	if (has_role(m, "assistant"))
		return put_assistant(in, w, i, call);
	if (has_role(m, "user")) {
		put(w, "<|start|>user<|message|>");
		put_from_outside(w, text_of(m, "content"));
		put(w, "<|end|>");
	}
	if (!has_role(m, "tool"))
		return 0;
	if (!*call)
		return fail(in->why, EINVAL,
			    "message %zu is a tool's result, but no call comes before it", i);
	put(w, "<|start|>functions.");
	put_from_outside(w, text_of(*call, "name"));
	put(w, " to=assistant<|channel|>commentary<|message|>");
	json_t *content = json_object_get(m, "content");
	if (content)
		put_json(w, content);
	else
		put(w, "\"\"");
	put(w, "<|end|>");
	return 0;
}

int chat_gpt_oss(const struct chat_in *in, struct chat_writer *w)
{
	bool own = role_at(in, 0, "developer") || role_at(in, 0, "system");
	const json_t *call = NULL;
	int rc;

	put_system(in, w);
	rc = put_developer(in, w, own ? text_of(message(in, 0), "content") : str_of(""));
	for (size_t i = own; rc == 0 && i < in->n; i++)
		rc = put_message(in, w, i, &call);
	if (in->o->generation_prompt)
		put(w, "<|start|>assistant");
	return rc;
}
