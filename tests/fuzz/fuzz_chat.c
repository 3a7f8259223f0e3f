/* SPDX-License-Identifier: Apache-2.0
 *
 * A request of messages, tools and options, as JSON, in the form of every family.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_json.h"

#include "engine/chat_request.h"
#include "engine/fail.h"

static const char *const families[] = {
	"gpt-oss",       "glm-5",          "glm-4.7",     "glm-4.5",
	"deepseek-v3.2", "deepseek-v3.1",  "deepseek-r1", "deepseek-v3",
	"deepseek-v2",   "qwen3-thinking", "qwen3",       "qwen2.5",
	"qwen2",         "qwen3-instruct", "mixtral",     "olmoe",
};

static void render(const char *family, const json_t *messages, const struct chat_options *o)
{
	struct chat_text t;
	char why[WHY_MAX];
	struct chat *c;

	if (chat_new(NULL, 0, "<s>", "</s>", family, "fuzz", &c, why) != 0)
		abort();
	if (chat_render(c, messages, o, &t, why) == 0) {
		for (size_t i = 0; i < t.spans; i++)
			if (t.span[i].from >= t.span[i].to || t.span[i].to > t.bytes ||
			    (i > 0 && t.span[i - 1].to >= t.span[i].from))
				abort();
		if (t.text[t.bytes])
			abort();
		chat_text_free(&t);
	}
	chat_free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_t *request = json_loadb((const char *)data, size, 0, NULL);
	struct chat_options o;
	const json_t *messages;
	char why[WHY_MAX];

	if (request && chat_request_read(request, &messages, &o, why) == 0) {
		o.date = "2025-08-05";
		for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
			render(families[i], messages, &o);
	}
	json_decref(request);
	return 0;
}
