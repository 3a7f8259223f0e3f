/* SPDX-License-Identifier: Apache-2.0
 *
 * The prompt of a run: see prompt.h.
 */
#include "engine/prompt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/chat_request.h"
#include "engine/client.h"
#include "engine/fail.h"

static int say(json_t *talk, const char *role, const char *text, size_t bytes, char *why)
{
	json_t *content = json_stringn(text, bytes);

	if (!content)
		return fail(why, EINVAL, "what the %s says is no UTF-8 text", role);
	json_t *message = json_pack("{s:s, s:o}", "role", role, "content", content);
	return json_array_append_new(talk, message) == 0
		       ? 0
		       : fail(why, ENOMEM, "no memory for the messages");
}

/* What a user says, after what the system says, if it does, as messages. */
static int compose(const struct prompt_source *s, const char *text, size_t bytes, json_t **out,
		   char *why)
{
	int r = 0;

	*out = json_array();
	if (s->system)
		r = say(*out, "system", s->system, strlen(s->system), why);
	return r ? r : say(*out, "user", text, bytes, why);
}

static int encode_request(const struct prompt_source *s, const char *mount,
			  const struct tokenizer *t, const json_t *request, struct prompt *out,
			  char *why)
{
	struct chat_text text;
	struct chat *chat;
	int r = chat_request_render(mount, s->format, request, &chat, &text, why);

	if (r)
		return r;
	out->ends_n = chat_ends(chat, t, out->ends);
	r = chat_encode(t, &text, &out->ids, &out->n, why);
	chat_text_free(&text);
	chat_free(chat);
	return r;
}

static int encode(const struct prompt_source *s, const char *mount, const struct tokenizer *t,
		  const char *text, size_t bytes, struct prompt *out, char *why)
{
	json_t *request = NULL;
	int r;

	if (!s->chat && !s->messages)
		return tokenizer_encode(t, text, bytes, 0, &out->ids, &out->n, why);
	if (s->messages)
		r = chat_request_parse(
			text, bytes, strcmp(s->messages, "-") == 0 ? "standard input" : s->messages,
			&request, why);
	else
		r = compose(s, text, bytes, &request, why);
	if (!r)
		r = encode_request(s, mount, t, request, out, why);
	json_decref(request);
	return r;
}

int prompt_read(const struct prompt_source *s, const char *mount, const struct tokenizer *t,
		struct prompt *out, char *why)
{
	const char *file = s->messages ? s->messages : s->file;
	char *text = NULL;
	size_t bytes = s->text ? strlen(s->text) : 0;
	int r = 0;

	*out = (struct prompt){ 0 };
	if (s->ids) {
		r = parse_ids(s->ids, &out->ids, &out->n, why);
	} else {
		if (file)
			r = read_text(file, &text, &bytes, why);
		if (!r)
			r = encode(s, mount, t, file ? text : s->text, bytes, out, why);
		free(text);
	}
	if (!r && !out->n)
		r = fail(why, EINVAL, "the prompt is empty");
	return r;
}
