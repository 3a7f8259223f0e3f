/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat templates without tools and thoughts, of Mixtral and OLMoE: see chat_parts.h.
 */
#include <errno.h>

#include "engine/chat_parts.h"

int chat_mixtral(const struct chat_in *in, struct chat_writer *w)
{
	put(w, in->chat->bos);
	for (size_t i = 0; i < in->n; i++) {
		const json_t *m = message(in, i);
		bool user = has_role(m, "user");
		if (user != (i % 2 == 0))
			return fail(in->why, EINVAL,
				    "message %zu has the role \"%s\"; this template takes "
				    "user and assistant in turn, the user first",
				    i, json_string_value(json_object_get(m, "role")));
		if (!user && !has_role(m, "assistant"))
			return fail(in->why, EINVAL,
				    "message %zu has the role \"%s\"; this template takes user "
				    "and assistant only",
				    i, json_string_value(json_object_get(m, "role")));
		put(w, user ? "[INST] " : "");
		put_from_outside(w, text_of(m, "content"));
		put(w, user ? " [/INST]" : in->chat->eos);
	}
	return 0;
}

int chat_olmoe(const struct chat_in *in, struct chat_writer *w)
{
	put(w, in->chat->bos);
	for (size_t i = 0; i < in->n; i++) {
		const json_t *m = message(in, i);
		bool assistant = has_role(m, "assistant");
		if (!assistant && !has_role(m, "user") && !has_role(m, "system"))
			continue;
		put(w, assistant             ? "<|assistant|>\n"
		       : has_role(m, "user") ? "<|user|>\n"
					     : "<|system|>\n");
		put_from_outside(w, text_of(m, "content"));
		put(w, assistant ? in->chat->eos : "");
		put(w, assistant && i + 1 == in->n ? "" : "\n");
	}
	if (in->o->generation_prompt && in->n)
		put(w, "<|assistant|>\n");
	return 0;
}
