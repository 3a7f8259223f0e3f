/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages with what a template may be told, as one JSON text: a list of messages, or an object in
 * the way of OpenAI's API with transformers' names for the rest:
 *
 *	{"messages": [...], "tools": [...], "add_generation_prompt": true,
 *	 "enable_thinking": false, "clear_thinking": false, "reasoning_effort": "high"}
 *
 * DeepSeek-V3.1's template has "thinking" for "enable_thinking", and takes either.
 */
#ifndef ENGINE_CHAT_REQUEST_H
#define ENGINE_CHAT_REQUEST_H

#include "engine/chat.h"

/* `where` begins the sentences. *out to be released with json_decref(). 0 or -EINVAL and why. */
int chat_request_parse(const char *json, size_t bytes, const char *where, json_t **out, char *why);

/* request: parsed; what comes out belongs to it. add_generation_prompt is true if absent, unlike in
 * transformers: who asks wants an answer. 0 or -EINVAL and why. */
int chat_request_read(const json_t *request, const json_t **messages, struct chat_options *o,
		      char *why);

/* The request by the chat template of the model under mount, or by format if it is not NULL
 * (chat_load()). 0, or negative errno and why; then there is nothing to free. */
int chat_request_render(const char *mount, const char *format, const json_t *request,
			struct chat **chat, struct chat_text *out, char *why);

#endif
