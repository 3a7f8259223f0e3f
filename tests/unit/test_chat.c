/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat templates: each known one renders every conversation, with every set of options, as
 * transformers does (tests/data/chat/golden.json); what is not known is refused; what users write
 * becomes no control token; the family's tokens end the answer.
 */
#include "engine/chat.h"
#include "engine/chat_request.h"
#include "tests/unit/tokenizer_files.h"

#define GLM_ENDS     "<|endoftext|> <|user|> <|observation|>"
#define DEEPSEEK_END "<｜end▁of▁sentence｜>"

static json_t *golden;

static struct chat_options options_of(const json_t *o, const json_t *tools)
{
	const json_t *thinking = json_object_get(o, "enable_thinking");

	return (struct chat_options){
		.generation_prompt = json_is_true(json_object_get(o, "add_generation_prompt")),
		.thinking = json_is_true(thinking)    ? CHAT_THINKING_ON
			    : json_is_false(thinking) ? CHAT_THINKING_OFF
						      : CHAT_THINKING_DEFAULT,
		.keep_thinking = json_is_false(json_object_get(o, "clear_thinking")),
		.effort = json_string_value(json_object_get(o, "reasoning_effort")),
		.tools = tools,
		.date = "2025-08-05",
	};
}

/* By its template, or by its name if it has none. */
static struct chat *load_chat(const json_t *template)
{
	const json_t *text = json_object_get(template, "template");
	const char *name = json_string_value(json_object_get(template, "name"));
	char why[WHY_MAX] = "";
	struct chat *c = NULL;

	if (chat_new(json_string_value(text), json_string_length(text),
		     json_string_value(json_object_get(template, "bos")),
		     json_string_value(json_object_get(template, "eos")),
		     json_is_null(text) ? name : NULL, "test", &c, why) != 0)
		fail_msg("%s: %s", name, why);
	assert_string_equal(chat_name(c), name);
	return c;
}

/* One conversation with all options. Where transformers refuses, so does the engine, or it takes
 * null for no text, which Jinja cannot add up. Returns how many texts were compared. */
static int run_conversation(const struct chat *c, const json_t *talk, const json_t *texts)
{
	const json_t *options = json_object_get(golden, "options");
	int compared = 0;

	for (size_t i = 0; i < json_array_size(options); i++) {
		struct chat_options o =
			options_of(json_array_get(options, i), json_object_get(talk, "tools"));
		const json_t *expected = json_array_get(texts, i);
		struct chat_text text;
		char why[WHY_MAX] = "";
		if (json_is_integer(expected))
			expected = json_array_get(texts, (size_t)json_integer_value(expected));
		int rc = chat_render(c, json_object_get(talk, "messages"), &o, &text, why);
		if (json_is_string(expected)) {
			if (rc != 0)
				fail_msg("%s, %s: %s", chat_name(c),
					 json_string_value(json_object_get(talk, "name")), why);
			if (strcmp(text.text, json_string_value(expected)) != 0)
				fail_msg("%s, %s, options %zu:\n%s\n---- not\n%s", chat_name(c),
					 json_string_value(json_object_get(talk, "name")), i,
					 text.text, json_string_value(expected));
			assert_int_equal(text.bytes, json_string_length(expected));
			compared++;
		}
		if (rc != 0)
			assert_int_equal(rc, -EINVAL);
		for (size_t k = 0; k < text.spans; k++) {
			assert_true(text.span[k].from < text.span[k].to);
			assert_true(k == 0 || text.span[k - 1].to < text.span[k].from);
			assert_true(text.span[k].to <= text.bytes);
		}
		chat_text_free(&text);
	}
	return compared;
}

static void same_texts_as_transformers(void **state)
{
	const json_t *talks = json_object_get(golden, "conversations");
	const json_t *templates = json_object_get(golden, "templates");
	size_t t;
	json_t *template;

	(void)state;
	json_array_foreach(templates, t, template)
	{
		struct chat *c = load_chat(template);
		const json_t *texts = json_object_get(template, "texts");
		int compared = 0;
		for (size_t i = 0; i < json_array_size(talks); i++) {
			const json_t *row = json_array_get(texts, i);
			if (json_is_integer(row)) /* as that template has it */
				row = json_array_get(
					json_object_get(
						json_array_get(templates,
							       (size_t)json_integer_value(row)),
						"texts"),
					i);
			compared += run_conversation(c, json_array_get(talks, i), row);
		}
		/* Mixtral refuses all but plain talks. */
		if (compared < 40)
			fail_msg("%s: only %d texts", chat_name(c), compared);
		chat_free(c);
	}
	assert_int_equal(t, 19);
}

/* ---- which template ---- */

static void refused(const char *template, const char *format, int error, const char *sentence)
{
	char why[WHY_MAX] = "";
	struct chat *c = NULL;
	size_t bytes = template ? strlen(template) : 0;

	assert_int_equal(chat_new(template, bytes, NULL, NULL, format, "x", &c, why), error);
	assert_null(c);
	if (!strstr(why, sentence))
		fail_msg("\"%s\" does not say \"%s\"", why, sentence);
}

/* The first template of this name. */
static const json_t *golden_template(const char *name)
{
	json_t *template;
	size_t i;

	json_array_foreach(
		json_object_get(golden, "templates"), i,
		template) if (strcmp(json_string_value(json_object_get(template, "name")), name) ==
			      0) return template;
	fail_msg("there is no %s", name);
	return NULL;
}

/* One byte more makes it unknown, and what it looks like is said. */
static void looks_like(const char *name, const char *models)
{
	const json_t *text = json_object_get(golden_template(name), "template");
	char *changed, *sentence;

	assert_true(asprintf(&changed, "%s{}", json_string_value(text)) > 0);
	assert_true(asprintf(&sentence, "looks like that of %s, whose form --chat-format %s",
			     models, name) > 0);
	refused(changed, NULL, -EINVAL, sentence);
	free(changed);
	free(sentence);
}

static void templates_that_are_not_known(void **state)
{
	const json_t *qwen = golden_template("qwen3");
	char why[WHY_MAX] = "", *changed;
	struct chat *c = NULL;

	(void)state;
	refused(NULL, NULL, -ENOENT, "the model has no chat template");
	refused("{{ messages }}", NULL, -EINVAL, "is not known, nor any like it");
	refused("{{ messages }}", "llama-9", -EINVAL,
		"\"llama-9\" is not known; known are gpt-oss");
	/* One byte more is another template; a newline at the end is not. */
	const char *text = json_string_value(json_object_get(qwen, "template"));
	assert_true(asprintf(&changed, "%s{}", text) > 0);
	looks_like("qwen3", "Qwen3");
	looks_like("qwen3-thinking", "Qwen3-Thinking-2507");
	looks_like("qwen3-instruct", "Qwen3-Instruct-2507");
	looks_like("qwen2.5", "Qwen2.5");
	looks_like("glm-4.5", "GLM-4.5 and 4.6");
	assert_int_equal(chat_new(changed, strlen(changed), NULL, NULL, "qwen3", "x", &c, why), 0);
	chat_free(c);
	changed[strlen(text)] = '\n';
	assert_int_equal(chat_new(changed, strlen(text) + 1, NULL, NULL, NULL, "x", &c, why), 0);
	assert_string_equal(chat_name(c), "qwen3");
	chat_free(c);
	free(changed);
}

/* ---- messages ---- */

static void render_fails(const char *format, const char *messages, const char *sentence)
{
	char why[WHY_MAX] = "";
	const struct chat_options o = { 0 };
	json_t *json = json_loads(messages, JSON_DECODE_ANY, NULL);
	struct chat_text text;
	struct chat *c;

	assert_non_null(json);
	assert_int_equal(chat_new(NULL, 0, NULL, NULL, format, "x", &c, why), 0);
	assert_int_equal(chat_render(c, json, &o, &text, why), -EINVAL);
	assert_null(text.text);
	if (!strstr(why, sentence))
		fail_msg("\"%s\" does not say \"%s\"", why, sentence);
	chat_free(c);
	json_decref(json);
}

static void messages_that_are_none(void **state)
{
	(void)state;
	render_fails("qwen3", "[]", "no list of messages");
	render_fails("qwen3", "{\"role\": \"user\"}", "no list of messages");
	render_fails("qwen3", "[7]", "message 0 has none of the roles");
	render_fails("qwen3", "[{\"role\": \"king\", \"content\": \"a\"}]", "none of the roles");
	render_fails("qwen3", "[{\"role\": \"user\", \"content\": 7}]", "neither text nor a list");
	render_fails("qwen3", "[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]",
		     "content that is no text");
	render_fails("glm-5",
		     "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, "
		     "{\"type\": \"reasoning\", \"text\": \"b\"}]}]",
		     "content that is no text");
	render_fails("glm-5",
		     "[{\"role\": \"user\", \"content\": [{\"type\": null, \"text\": \"a\"}]}]",
		     "content that is no text");
	render_fails("qwen3", "[{\"role\": \"assistant\", \"tool_calls\": [{}]}]",
		     "without a name");
	render_fails("qwen3", "[{\"role\": \"assistant\", \"tool_calls\": [7]}]", "without a name");
	render_fails("qwen3",
		     "[{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\", "
		     "\"arguments\": \"[1\"}}]}]",
		     "arguments are no JSON object");
	render_fails("qwen3",
		     "[{\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": "
		     "{\"function\": {\"name\": \"f\", \"arguments\": {}}}}]",
		     "tool_calls that are no list");
	render_fails("glm-5",
		     "[{\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": \"f()\"}]",
		     "tool_calls that are no list");
	/* Its own "function", in the place of which the one that holds it would be read. */
	render_fails("qwen3",
		     "[{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"function\": "
		     "{\"name\": \"f\"}, \"name\": \"g\", \"arguments\": \"1\"}}]}]",
		     "arguments are no JSON object");
	render_fails("mixtral", "[{\"role\": \"system\", \"content\": \"a\"}]", "user first");
	render_fails("gpt-oss", "[{\"role\": \"tool\", \"content\": \"a\"}]",
		     "no call comes before");
	render_fails("deepseek-v3.2", "[{\"role\": \"tool\", \"content\": \"a\"}]",
		     "no call comes before");
	render_fails("deepseek-v3.2",
		     "[{\"role\": \"user\", \"content\": \"a\"}, "
		     "{\"role\": \"tool\", \"content\": \"b\"}]",
		     "no call comes before");
}

/* What a form makes of messages with these options. */
static void renders(const char *format, const char *messages, const struct chat_options *o,
		    const char *expected)
{
	char why[WHY_MAX] = "";
	json_t *json = json_loads(messages, 0, NULL);
	struct chat_text text;
	struct chat *c;

	assert_non_null(json);
	assert_int_equal(chat_new(NULL, 0, "", "", format, "x", &c, why), 0);
	if (chat_render(c, json, o, &text, why) != 0)
		fail_msg("%s", why);
	assert_string_equal(text.text, expected);
	assert_int_equal(text.bytes, strlen(expected));
	chat_text_free(&text);
	chat_free(c);
	json_decref(json);
}

/* Each as transformers renders the model's template. */
static void odd_messages(void **state)
{
	const struct chat_options none = { 0 }, thinks = { .thinking = CHAT_THINKING_ON };

	(void)state;
	/* A role that the template passes over. */
	renders("qwen3", "[{\"role\": \"developer\", \"content\": \"a\"}]", &none, "");
	/* What Python takes for true. */
	renders("deepseek-v3.1",
		"[{\"role\": \"user\", \"content\": \"hi\"}, "
		"{\"role\": \"assistant\", \"content\": \"b\", \"prefix\": 1}]",
		&thinks, "<｜User｜>hi<｜Assistant｜><think>b<｜end▁of▁sentence｜>");
	/* A user who says nothing asks nothing: the thoughts behind the last question stay. */
	renders("qwen3",
		"[{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", "
		"\"content\": "
		"\"b\", \"reasoning_content\": \"r\"}, {\"role\": \"user\", \"content\": null}]",
		&none,
		"<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\nr\n</think>\n\n"
		"b<|im_end|>\n<|im_start|>user\n<|im_end|>\n");
}

/* How the text ends that a form makes of a question with these members of the request; NULL: it is
 * refused. */
static void asked_with(const char *format, const char *members, const char *end)
{
	char why[WHY_MAX] = "", json[300];
	struct chat_options o;
	const json_t *messages;
	struct chat_text text;
	json_t *request;
	struct chat *c;

	snprintf(json, sizeof(json),
		 "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], %s}", members);
	assert_int_equal(chat_request_parse(json, strlen(json), "x", &request, why), 0);
	assert_int_equal(chat_request_read(request, &messages, &o, why), end ? 0 : -EINVAL);
	if (end) {
		assert_int_equal(chat_new(NULL, 0, "", "", format, "x", &c, why), 0);
		assert_int_equal(chat_render(c, messages, &o, &text, why), 0);
		assert_true(text.bytes > strlen(end));
		assert_string_equal(text.text + text.bytes - strlen(end), end);
		chat_text_free(&text);
		chat_free(c);
	}
	json_decref(request);
}

/* DeepSeek-V3.1 calls it "thinking", which goes first; to others that says nothing. */
static void names_of_thinking(void **state)
{
	(void)state;
	asked_with("deepseek-v3.1", "\"thinking\": true", "<｜Assistant｜><think>");
	asked_with("deepseek-v3.1", "\"enable_thinking\": true", "<｜Assistant｜><think>");
	asked_with("deepseek-v3.1", "\"thinking\": false, \"enable_thinking\": true",
		   "<｜Assistant｜><think></think>");
	asked_with("deepseek-v3.1", "\"thinking\": null", "<｜Assistant｜><think></think>");
	asked_with("deepseek-v3.2", "\"thinking\": true", "<｜Assistant｜><think>");
	asked_with("qwen3", "\"thinking\": false", "<|im_start|>assistant\n");
	asked_with("glm-5", "\"thinking\": {\"type\": \"disabled\"}", NULL);
}

/* ---- ids ---- */

static void users_write_no_control_tokens(void **state)
{
	static const char messages[] = "[{\"role\": \"user\", \"content\": \"a<|im_end|>\\nb\"}]";
	const struct chat_options o = { .generation_prompt = true };
	json_t *file = read_data("tokenizer/qwen3.json"), *json = json_loads(messages, 0, NULL);
	char why[WHY_MAX] = "";
	struct chat_text text;
	struct tokenizer *t;
	struct chat *c;
	int32_t *ids;
	size_t n, specials = 0, bytes;

	(void)state;
	assert_int_equal(load_json(file, &t, why), 0);
	assert_int_equal(chat_new(NULL, 0, NULL, NULL, "qwen3", "x", &c, why), 0);
	assert_int_equal(chat_render(c, json, &o, &text, why), 0);
	assert_string_equal(text.text, "<|im_start|>user\na<|im_end|>\nb<|im_end|>\n"
				       "<|im_start|>assistant\n");
	assert_int_equal(text.spans, 1);
	assert_int_equal(chat_encode(t, &text, &ids, &n, why), 0);
	for (size_t i = 0; i < n; i++)
		specials += tokenizer_is_special(t, ids[i]);
	assert_int_equal(specials, 3);
	char *decoded = decode(t, ids, n, &bytes);
	assert_int_equal(bytes, text.bytes);
	assert_memory_equal(decoded, text.text, bytes);
	free(decoded);
	free(ids);
	/* Without spans the same text has one more. */
	text.spans = 0;
	assert_int_equal(chat_encode(t, &text, &ids, &n, why), 0);
	specials = 0;
	for (size_t i = 0; i < n; i++)
		specials += tokenizer_is_special(t, ids[i]);
	assert_int_equal(specials, 4);
	free(ids);
	chat_text_free(&text);
	chat_free(c);
	tokenizer_free(t);
	json_decref(file);
	json_decref(json);
}

/* ---- model.json ---- */

/* chat_load() of a folder whose model.json has this. */
static int load_with(const char *json, const char *format, char *why)
{
	const char *tmp = getenv("TMPDIR");
	char dir[300], path[400];
	struct chat *c = NULL;

	snprintf(dir, sizeof(dir), "%s/test-chat.XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/model.json", dir);
	if (json) {
		FILE *f = fopen(path, "we");
		assert_non_null(f);
		fputs(json, f);
		assert_int_equal(fclose(f), 0);
	}
	int rc = chat_load(dir, format, &c, why);
	assert_true(rc == 0 ? c != NULL : c == NULL);
	chat_free(c);
	unlink(path);
	assert_int_equal(rmdir(dir), 0);
	return rc;
}

static void load_fails(const char *json, const char *format, int error, const char *sentence)
{
	char why[WHY_MAX] = "";

	assert_int_equal(load_with(json, format, why), error);
	if (!strstr(why, sentence))
		fail_msg("\"%s\" does not say \"%s\"", why, sentence);
}

static void what_the_model_says(void **state)
{
	static const char tokens[] = "{\"chat\": {\"bos_token\": \"a\", \"eos_token\": \"b\", "
				     "\"error\": \"it is long\"}}";
	static const char no_bos[] =
		"{\"chat\": {\"eos_token\": \"b\", \"error\": \"there is no bos\"}}";
	char why[WHY_MAX] = "";

	(void)state;
	load_fails(NULL, NULL, -ENOENT, "holds no model.json: is expertfs mounted there?");
	load_fails("[", NULL, -EINVAL, "model.json is not JSON: line 1");
	load_fails("[]", NULL, -EINVAL, "model.json is not a JSON object");
	load_fails("{}", NULL, -ENOENT, "model.json: the model has no chat template");
	load_fails("{\"chat\": {\"template\": 7}}", NULL, -EINVAL, "template");
	load_fails(tokens, NULL, -EINVAL, "chat template cannot be used: it is long; give");
	assert_int_equal(load_with(tokens, "mixtral", why), 0);
	load_fails(no_bos, NULL, -EINVAL, "there is no bos");
	load_fails(no_bos, "mixtral", -EINVAL, "there is no bos");
}

/* ---- marks ---- */

/* Adds a token to the file; its id. */
static int add_token(json_t *file, const char *text, bool normalized)
{
	json_t *added = json_object_get(file, "added_tokens");
	int id = 500000;

	assert_int_equal(
		json_array_append_new(added, json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id",
						       id, "content", text, "single_word", 0,
						       "lstrip", 0, "rstrip", 0, "normalized",
						       normalized, "special", 0)),
		0);
	return id;
}

/* How often the id is among those of a chat in which the user says this; negative errno. */
static int times(const struct tokenizer *t, const struct chat *c, const char *says, int id)
{
	const struct chat_options o = { .generation_prompt = true };
	json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", says);
	char why[WHY_MAX] = "";
	struct chat_text text;
	int32_t *ids;
	size_t n;
	int found = 0;

	assert_int_equal(chat_render(c, messages, &o, &text, why), 0);
	int rc = chat_encode(t, &text, &ids, &n, why);
	if (rc == 0) {
		for (size_t i = 0; i < n; i++)
			found += ids[i] == id;
		free(ids);
	}
	chat_text_free(&text);
	json_decref(messages);
	return rc ? rc : found;
}

/* Whatever added token a user writes, there are as many of it as without; the same text from a user
 * of the tokenizer alone is that token. */
static void messages_hold_no_marks(const char *format, const char *tokenizer)
{
	json_t *file = read_data(tokenizer), *token;
	char why[WHY_MAX] = "", says[300];
	struct tokenizer *t;
	struct chat *c;
	size_t i;

	assert_int_equal(load_json(file, &t, why), 0);
	assert_int_equal(chat_new(NULL, 0, "<s>", "</s>", format, "x", &c, why), 0);
	json_array_foreach(json_object_get(file, "added_tokens"), i, token)
	{
		const char *text = json_string_value(json_object_get(token, "content"));
		int id = (int)json_integer_value(json_object_get(token, "id"));
		int32_t *ids;
		size_t n;
		snprintf(says, sizeof(says), "a%s b\n%s", text, text);
		if (times(t, c, says, id) != times(t, c, "a b", id))
			fail_msg("%s: a message becomes %s", format, text);
		assert_int_equal(tokenizer_encode(t, text, strlen(text), 0, &ids, &n, why), 0);
		assert_int_equal(n, 1);
		assert_int_equal(ids[0], id);
		free(ids);
	}
	assert_true(i > 2);
	chat_free(c);
	tokenizer_free(t);
	json_decref(file);
}

static void no_message_is_another(void **state)
{
	(void)state;
	messages_hold_no_marks("deepseek-v3", "tokenizer/deepseek_v3.json");
	messages_hold_no_marks("deepseek-r1", "tokenizer/deepseek_v3.json");
	messages_hold_no_marks("deepseek-v3.1", "tokenizer/deepseek_v3.json");
	messages_hold_no_marks("deepseek-v3.2", "tokenizer/deepseek_v3.json");
	messages_hold_no_marks("qwen2.5", "tokenizer/qwen3.json");
	messages_hold_no_marks("qwen3", "tokenizer/qwen3.json");
	messages_hold_no_marks("gpt-oss", "tokenizer/gptoss.json");
	messages_hold_no_marks("glm-4.5", "tale-moe/tokenizer.json");
	messages_hold_no_marks("glm-5", "tale-moe/tokenizer.json");
	messages_hold_no_marks("mixtral", "tokenizer/llama2.json");
}

/* The template's own marks are there, though a message stands right beside them. */
static void marks_of_the_template(void **state)
{
	json_t *file = read_data("tokenizer/deepseek_v3.json");
	char why[WHY_MAX] = "";
	struct tokenizer *t;
	struct chat *c;

	(void)state;
	assert_int_equal(load_json(file, &t, why), 0);
	assert_int_equal(chat_new(NULL, 0, "", "", "deepseek-v3", "x", &c, why), 0);
	assert_int_equal(times(t, c, "<｜User｜>", tokenizer_id(t, "<｜User｜>")), 1);
	assert_int_equal(times(t, c, "<｜User", tokenizer_id(t, "<｜Assistant｜>")), 1);
	chat_free(c);
	tokenizer_free(t);
	json_decref(file);
}

/* A mark of the template's may take white space of a message with it: it stays a mark. */
static void marks_that_absorb_spaces(void **state)
{
	json_t *file = read_data("tokenizer/qwen3.json"), *token;
	char why[WHY_MAX] = "";
	struct tokenizer *t;
	struct chat *c;
	size_t i;

	(void)state;
	json_array_foreach(json_object_get(file, "added_tokens"), i, token)
	{
		json_object_set_new(token, "lstrip", json_true());
		json_object_set_new(token, "rstrip", json_true());
	}
	assert_int_equal(load_json(file, &t, why), 0);
	assert_int_equal(chat_new(NULL, 0, "", "", "qwen3", "x", &c, why), 0);
	int end = tokenizer_id(t, "<|im_end|>");
	assert_int_equal(times(t, c, "a", end), 1);
	assert_int_equal(times(t, c, "a \n", end), 1);
	assert_int_equal(times(t, c, "a <|im_end|>", end), 1);
	assert_int_equal(times(t, c, "a <|im_end|> ", end), 1);
	chat_free(c);
	tokenizer_free(t);
	json_decref(file);
}

/* A word that is an added token is one in messages as well; a mark that is sought in text which
 * normalising changes is refused. */
static void words_and_normalised_marks(void **state)
{
	json_t *file = read_data("tokenizer/qwen3.json");
	int id = add_token(file, "/nothink", true);
	char why[WHY_MAX] = "";
	struct tokenizer *t;
	struct chat *c;

	(void)state;
	assert_int_equal(chat_new(NULL, 0, "", "", "qwen3", "x", &c, why), 0);
	assert_int_equal(load_json(file, &t, why), 0);
	assert_int_equal(times(t, c, "a /nothink", id), 1);
	assert_int_equal(times(t, c, "A\u030A /nothink", id), 1);
	tokenizer_free(t);
	json_decref(file);
	file = read_data("tokenizer/qwen3.json");
	id = add_token(file, "<mark>", true);
	assert_int_equal(load_json(file, &t, why), 0);
	assert_int_equal(times(t, c, "a <mark>", id), 0);
	assert_int_equal(times(t, c, "A\u030A <mark>", id), -EINVAL);
	assert_int_equal(times(t, c, "A\u030A", id), 0);
	tokenizer_free(t);
	json_decref(file);
	chat_free(c);
}

/* The ends of a form are these texts, in this order, as far as the tokenizer has them. */
static void ends_are(const char *format, const char *eos, const char *tokenizer, const char *ends)
{
	json_t *file = read_data(tokenizer);
	char why[WHY_MAX] = "", got[200] = "";
	int32_t ids[CHAT_ENDS];
	struct tokenizer *t;
	struct chat *c;

	assert_int_equal(load_json(file, &t, why), 0);
	assert_int_equal(chat_new(NULL, 0, "", eos, format, "x", &c, why), 0);
	int n = chat_ends(c, t, ids);
	assert_in_range(n, 0, CHAT_ENDS);
	for (int i = 0; i < n; i++) {
		size_t bytes, at = strlen(got);
		const char *text = tokenizer_piece(t, ids[i], &bytes);
		snprintf(got + at, sizeof(got) - at, "%s%.*s", i ? " " : "", (int)bytes, text);
	}
	assert_string_equal(got, ends);
	chat_free(c);
	tokenizer_free(t);
	json_decref(file);
}

static void what_ends_an_answer(void **state)
{
	(void)state;
	ends_are("gpt-oss", "<|return|>", "tokenizer/gptoss.json",
		 "<|return|> <|call|> <|endoftext|>");
	ends_are("glm-4.5", "", "tale-moe/tokenizer.json", GLM_ENDS);
	ends_are("glm-4.7", "", "tale-moe/tokenizer.json", GLM_ENDS);
	ends_are("glm-5", "[MASK]", "tale-moe/tokenizer.json", "[MASK] " GLM_ENDS);
	ends_are("deepseek-v2", DEEPSEEK_END, "tokenizer/deepseek_v3.json", DEEPSEEK_END);
	ends_are("deepseek-r1", "", "tokenizer/deepseek_v3.json", DEEPSEEK_END);
	ends_are("deepseek-v3.2", "<none>", "tokenizer/deepseek_v3.json", DEEPSEEK_END);
	ends_are("qwen2", "<|endoftext|>", "tokenizer/qwen3.json", "<|endoftext|> <|im_end|>");
	ends_are("qwen3-instruct", "", "tokenizer/qwen3.json", "<|im_end|> <|endoftext|>");
	ends_are("mixtral", "", "tokenizer/llama2.json", "</s>");
	ends_are("mixtral", "", "tokenizer/qwen3.json", "");
	ends_are("olmoe", "", "tokenizer/qwen3.json", "<|endoftext|>");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(same_texts_as_transformers),
		cmocka_unit_test(templates_that_are_not_known),
		cmocka_unit_test(messages_that_are_none),
		cmocka_unit_test(odd_messages),
		cmocka_unit_test(names_of_thinking),
		cmocka_unit_test(users_write_no_control_tokens),
		cmocka_unit_test(what_the_model_says),
		cmocka_unit_test(no_message_is_another),
		cmocka_unit_test(marks_of_the_template),
		cmocka_unit_test(marks_that_absorb_spaces),
		cmocka_unit_test(words_and_normalised_marks),
		cmocka_unit_test(what_ends_an_answer),
	};

	golden = read_data("chat/golden.json");
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	json_decref(golden);
	return failed;
}
