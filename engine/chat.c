/* SPDX-License-Identifier: Apache-2.0
 *
 * Which family a chat template is of, and messages brought into one form: see chat.h.
 */
#include "engine/chat.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/chat_parts.h"
#include "engine/jsonread.h"
#include "engine/modelfile.h"

/* The first whose mark a template has is the one it looks like. */
static const struct chat_format formats[] = {
	{ "gpt-oss", "gpt-oss", chat_gpt_oss, { 0x5DA66262D54A9064 }, "<|channel|>" },
	{ "glm-5", "GLM-5.2", chat_glm_5, { 0xD23E573B3BE1656C }, "Reasoning Effort: " },
	{ "glm-4.7", "GLM-4.7", chat_glm_4_7, { 0x455B4682700C641E }, "{{ '</think>' }}" },
	{ "glm-4.5",
	  "GLM-4.5 and 4.6",
	  chat_glm,
	  /* GLM-4.5; as ik_llama.cpp's converter changes it; llama.cpp's GLM-4.6.jinja. */
	  { 0x5F4DD018F4521BC9, 0x42ACD273715300D2, 0x4912F6DEB88C04B0 },
	  "[gMASK]<sop>" },
	/* Its checkpoint has a program in the place of a template. */
	{ "deepseek-v3.2", "DeepSeek-V3.2", chat_deepseek_v3_2, { 0 }, "｜DSML｜" },
	{ "deepseek-v3.1",
	  "DeepSeek-V3.1",
	  chat_deepseek_v3_1,
	  { 0xB4E54689957E62CF },
	  "<think></think>" },
	{ "deepseek-r1",
	  "DeepSeek-R1",
	  chat_deepseek_r1,
	  { 0x845FDF813C637EE2 },
	  "<｜Assistant｜><think>" },
	{ "deepseek-v3",
	  "DeepSeek-V3",
	  chat_deepseek_v3,
	  { 0xEBE3604156DC466A },
	  "<｜tool▁outputs▁end｜>" },
	{ "deepseek-v2", "DeepSeek-V2", chat_deepseek_v2, { 0x446F9FD78FCB0756 }, "'User: '" },
	{ "qwen3-thinking",
	  "Qwen3-Thinking-2507",
	  chat_qwen3_thinking,
	  { 0xCD0D41A64DFCE181 },
	  "'<|im_start|>assistant\\n<think>\\n' }}" },
	{ "qwen3",
	  "Qwen3",
	  chat_qwen3,
	  { 0x2BFDB7AA9754484E, 0x959A4551391A6549 }, /* its first one; today's */
	  "last_query_index" },
	{ "qwen2.5",
	  "Qwen2.5",
	  chat_qwen2_5,
	  { 0xE642CE246D7F2E3D },
	  "You are Qwen, created by Alibaba Cloud" },
	{ "qwen2",
	  "Qwen2",
	  chat_qwen2,
	  { 0x75E88977B2787CD7 },
	  "<|im_start|>system\\nYou are a helpful assistant" },
	{ "qwen3-instruct",
	  "Qwen3-Instruct-2507",
	  chat_qwen3_instruct,
	  { 0x3751FE8EA48448AB },
	  "'<tool_call>\\n{\"name\": \"'" },
	{ "mixtral", "Mixtral", chat_mixtral, { 0x8C734B90B4F8D84D }, "[INST] " },
	{ "olmoe", "OLMoE", chat_olmoe, { 0x224ACAB0D40AEB59 }, "<|assistant|>\\n" },
};
#define FORMATS (sizeof(formats) / sizeof(formats[0]))

/* FNV-1a. Of a newline at the end there may be one or none: files have it, strings do not, and Jinja
 * drops it. */
static uint64_t fingerprint(const char *s, size_t n)
{
	uint64_t h = 14695981039346656037u;

	if (n && s[n - 1] == '\n')
		n--;
	for (size_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)s[i]) * 1099511628211u;
	return h;
}

static const struct chat_format *by_name(const char *name)
{
	for (size_t i = 0; i < FORMATS; i++)
		if (strcmp(formats[i].name, name) == 0)
			return &formats[i];
	return NULL;
}

static const struct chat_format *by_print(uint64_t print)
{
	for (size_t i = 0; i < FORMATS; i++)
		for (size_t k = 0; k < sizeof(formats[i].print) / sizeof(print); k++)
			if (formats[i].print[k] && formats[i].print[k] == print)
				return &formats[i];
	return NULL;
}

static int unknown_name(const char *format, char *why)
{
	char names[320] = "";
	size_t used = 0;

	for (size_t i = 0; i < FORMATS && used < sizeof(names); i++)
		used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "",
					 formats[i].name);
	return fail(why, EINVAL, "the chat format \"%.40s\" is not known; known are %s", format,
		    names);
}

static int unknown_template(const char *template, size_t bytes, const char *where, char *why)
{
	for (size_t i = 0; i < FORMATS; i++)
		if (memmem(template, bytes, formats[i].mark, strlen(formats[i].mark)))
			return fail(why, EINVAL,
				    "%s: this chat template is not known; it looks like that of "
				    "%s, whose form --chat-format %s would take",
				    where, formats[i].models, formats[i].name);
	return fail(why, EINVAL,
		    "%s: this chat template is not known, nor any like it; give the text as the "
		    "model wants it (run -p), or the form of another family (--chat-format)",
		    where);
}

static int find_format(const char *template, size_t bytes, const char *format, const char *where,
		       const struct chat_format **out, char *why)
{
	if (format) {
		*out = by_name(format);
		return *out ? 0 : unknown_name(format, why);
	}
	if (!template)
		return fail(why, ENOENT,
			    "%s: the model has no chat template; give the text as it wants it (run "
			    "-p), or the form of a family (--chat-format)",
			    where);
	if (bytes > CHAT_TEMPLATE_MAX)
		return fail(why, EINVAL, "%s: the chat template has %zu bytes, more than %u", where,
			    bytes, CHAT_TEMPLATE_MAX);
	*out = by_print(fingerprint(template, bytes));
	return *out ? 0 : unknown_template(template, bytes, where, why);
}

int chat_new(const char *template, size_t bytes, const char *bos, const char *eos,
	     const char *format, const char *where, struct chat **out, char *why)
{
	const struct chat_format *found = NULL;
	int rc = find_format(template, bytes, format, where, &found, why);

	*out = NULL;
	if (rc != 0)
		return rc;
	struct chat *c = calloc(1, sizeof(*c));
	if (c) {
		c->format = found;
		c->bos = strdup(bos ? bos : "");
		c->eos = strdup(eos ? eos : "");
	}
	if (!c || !c->bos || !c->eos) {
		chat_free(c);
		return fail(why, ENOMEM, "out of memory for the chat template");
	}
	*out = c;
	return 0;
}

void chat_free(struct chat *c)
{
	if (!c)
		return;
	free(c->bos);
	free(c->eos);
	free(c);
}

const char *chat_name(const struct chat *c)
{
	return c->format->name;
}

/* ---- messages in one form ---- */

bool is_true(const json_t *v)
{
	return json_is_true(v) || json_string_length(v) || json_array_size(v) ||
	       json_object_size(v) || (json_is_number(v) && json_number_value(v) != 0);
}

bool has_role(const json_t *m, const char *role)
{
	const char *is = json_string_value(json_object_get(m, "role"));

	return is && strcmp(is, role) == 0;
}

bool role_at(const struct chat_in *in, size_t i, const char *role)
{
	return has_role(message(in, i), role);
}

struct str text_of(const json_t *m, const char *key)
{
	return str_of_json(json_object_get(m, key));
}

const json_t *calls_of(const json_t *m)
{
	return json_object_get(m, "tool_calls");
}

void put_arguments(struct chat_writer *w, const json_t *call)
{
	const json_t *text = json_object_get(call, "arguments_text");

	if (text)
		put_from_outside(w, str_of_json(text));
	else
		put_json(w, json_object_get(call, "arguments"));
}

const json_t *tools_of(const struct chat_in *in)
{
	return json_array_size(in->o->tools) ? in->o->tools : NULL;
}

/* Parts of another type may have a text as well: thoughts, say, or what a server makes of an image. */
static bool is_text(const json_t *part)
{
	const char *type = json_string_value(json_object_get(part, "type"));

	return json_is_string(json_object_get(part, "text")) &&
	       (type ? strcmp(type, "text") == 0 : !json_object_get(part, "type"));
}

/* A list of text parts becomes their text; null becomes absent. */
static int simplify_content(json_t *m, size_t number, char *why)
{
	json_t *content = json_object_get(m, "content");
	struct chat_writer joined = { 0 };

	if (!content || json_is_string(content))
		return 0;
	if (json_is_null(content)) {
		json_object_del(m, "content");
		return 0;
	}
	for (size_t i = 0; i < json_array_size(content); i++) {
		const json_t *part = json_array_get(content, i);
		if (!is_text(part)) {
			chat_text_free(&joined.t);
			return fail(why, EINVAL,
				    "message %zu has content that is no text, which no model here "
				    "takes",
				    number);
		}
		put_from_outside(&joined, text_of(part, "text"));
	}
	if (!json_is_array(content))
		return fail(why, EINVAL,
			    "message %zu has a content that is neither text nor a list", number);
	int bad = joined.failed ||
		  json_object_set_new(
			  m, "content",
			  json_stringn(joined.t.text ? joined.t.text : "", joined.t.bytes)) != 0;
	chat_text_free(&joined.t);
	return bad ? fail(why, ENOMEM, "out of memory for messages") : 0;
}

/* {"type", "function": {"name", "arguments"}} becomes {"type", "name", "arguments"}. */
static int simplify_call(json_t *call, size_t number, char *why)
{
	json_t *function = json_incref(json_object_get(call, "function"));

	/* Held while it is read: it may bring a "function" of its own in its own place. */
	if (json_is_object(function))
		json_object_update(call, function);
	json_decref(function);
	json_object_del(call, "function");
	json_object_del(call, "arguments_text"); /* this program's own, below */
	json_t *arguments = json_object_get(call, "arguments");
	if (!json_is_string(json_object_get(call, "name")))
		return fail(why, EINVAL, "message %zu has a tool call without a name", number);
	if (json_is_string(arguments)) {
		json_t *parsed = json_loadb(json_string_value(arguments),
					    json_string_length(arguments), 0, NULL);
		json_object_set(call, "arguments_text", arguments);
		json_object_set_new(call, "arguments", parsed);
		arguments = parsed;
	}
	if (!json_is_object(arguments))
		return fail(why, EINVAL,
			    "message %zu has a tool call whose arguments are no JSON object",
			    number);
	return 0;
}

static int simplify(json_t *m, size_t number, char *why)
{
	static const char *const roles[] = { "system", "user", "assistant", "tool", "developer" };
	json_t *calls = json_object_get(m, "tool_calls");
	bool known = false;
	int rc;

	for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
		known |= has_role(m, roles[i]);
	if (!known)
		return fail(why, EINVAL,
			    "message %zu has none of the roles system, user, assistant, tool and "
			    "developer",
			    number);
	if (is_true(calls) && !json_is_array(calls))
		return fail(why, EINVAL, "message %zu has tool_calls that are no list", number);
	rc = simplify_content(m, number, why);
	for (size_t i = 0; rc == 0 && i < json_array_size(calls); i++)
		rc = simplify_call(json_array_get(calls, i), number, why);
	if (rc == 0 && json_array_size(calls) == 0)
		json_object_del(m, "tool_calls");
	return rc;
}

/* ---- rendering ---- */

int chat_render(const struct chat *c, const json_t *messages, const struct chat_options *o,
		struct chat_text *out, char *why)
{
	json_t *copy = json_is_array(messages) ? json_deep_copy(messages) : NULL;
	struct chat_in in = { c, copy, json_array_size(copy), o, why };
	struct chat_writer w = { 0 };
	int rc = 0;

	*out = (struct chat_text){ 0 };
	if (json_array_size(messages) == 0)
		rc = fail(why, EINVAL, "there is no list of messages");
	else if (!copy)
		rc = fail(why, ENOMEM, "out of memory for messages");
	for (size_t i = 0; rc == 0 && i < in.n; i++)
		rc = simplify(json_array_get(copy, i), i, why);
	if (rc == 0)
		rc = c->format->render(&in, &w);
	if (rc == 0 && !w.t.text) /* a template may write nothing */
		w.failed |= !(w.t.text = calloc(1, 1));
	if (rc == 0 && w.failed)
		rc = fail(why, ENOMEM, "out of memory for the text of a chat");
	json_decref(copy);
	if (rc == 0)
		*out = w.t;
	else
		chat_text_free(&w.t);
	return rc;
}

void chat_text_free(struct chat_text *t)
{
	free(t->text);
	free(t->span);
	*t = (struct chat_text){ 0 };
}

int chat_encode(const struct tokenizer *t, const struct chat_text *text, int32_t **ids, size_t *n,
		char *why)
{
	return tokenizer_encode_spans(t, text->text, text->bytes, text->span, text->spans, ids, n,
				      why);
}

/* ---- model.json ---- */

int chat_load(const char *mount, const char *format, struct chat **out, char *why)
{
	const char *template, *bos, *eos, *unusable;
	char path[MODEL_PATH_MAX];
	json_t *root;
	int rc = modelfile_json(mount, path, &root, why);

	*out = NULL;
	if (rc != 0)
		return rc;
	struct json_in in = { json_object_get(root, "chat"), path };
	rc = in_text(&in, "template", "", &template, why);
	if (rc == 0)
		rc = in_text(&in, "bos_token", "", &bos, why);
	if (rc == 0)
		rc = in_text(&in, "eos_token", "", &eos, why);
	if (rc == 0)
		rc = in_text(&in, "error", "", &unusable, why);
	if (rc == 0 && unusable[0] &&
	    (!format || !in_at(&in, "bos_token") || !in_at(&in, "eos_token")))
		rc = fail(why, EINVAL,
			  "%s: the model's chat template cannot be used: %.200s; give the text as "
			  "it wants it (run -p), or the form of a family (--chat-format)",
			  path, unusable);
	if (rc == 0)
		rc = chat_new(template[0] ? template : NULL, strlen(template), bos, eos, format,
			      path, out, why);
	json_decref(root);
	return rc;
}
