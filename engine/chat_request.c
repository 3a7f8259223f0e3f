/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages and options from JSON: see chat_request.h.
 */
#include "engine/chat_request.h"

#include <errno.h>

#include "engine/fail.h"
#include "engine/jsonread.h"

int chat_request_parse(const char *json, size_t bytes, const char *where, json_t **out, char *why)
{
	json_error_t error;

	*out = json_loadb(json, bytes, JSON_REJECT_DUPLICATES, &error);
	return *out ? 0
		    : fail(why, EINVAL, "%s, line %d, is no JSON: %s", where, error.line,
			   error.text);
}

static int read_thinking(const struct json_in *in, const char *key, enum chat_thinking *out,
			 char *why)
{
	bool on;
	int rc = in_bool(in, key, false, &on, why);

	if (rc == 0 && in_at(in, key))
		*out = on ? CHAT_THINKING_ON : CHAT_THINKING_OFF;
	return rc;
}

int chat_request_read(const json_t *request, const json_t **messages, struct chat_options *o,
		      char *why)
{
	const struct json_in in = { request, "the request" };
	bool clear;
	int rc;

	*o = (struct chat_options){ .generation_prompt = true };
	*messages = request;
	if (json_is_array(request))
		return 0;
	if (!json_is_object(request))
		return fail(why, EINVAL, "the request is neither a list of messages nor an object");
	*messages = in_at(&in, "messages");
	o->tools = in_at(&in, "tools");
	if (o->tools && !json_is_array(o->tools))
		return fail(why, EINVAL, "the request: \"tools\" is no list");
	rc = in_bool(&in, "add_generation_prompt", true, &o->generation_prompt, why);
	if (rc == 0)
		rc = read_thinking(&in, "enable_thinking", &o->thinking, why);
	if (rc == 0)
		rc = read_thinking(&in, "thinking", &o->own_thinking, why);
	if (rc == 0)
		rc = in_bool(&in, "clear_thinking", true, &clear, why);
	if (rc == 0)
		rc = in_text(&in, "reasoning_effort", "", &o->effort, why);
	if (rc != 0)
		return rc;
	o->keep_thinking = !clear;
	if (!o->effort[0])
		o->effort = NULL;
	return 0;
}

int chat_request_render(const char *mount, const char *format, const json_t *request,
			struct chat **chat, struct chat_text *out, char *why)
{
	const json_t *messages;
	struct chat_options options;
	int r = chat_request_read(request, &messages, &options, why);

	*chat = NULL;
	if (!r)
		r = chat_load(mount, format, chat, why);
	if (!r)
		r = chat_render(*chat, messages, &options, out, why);
	if (r) {
		chat_free(*chat);
		*chat = NULL;
	}
	return r;
}
