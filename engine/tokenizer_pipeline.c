/* SPDX-License-Identifier: Apache-2.0
 *
 * What a tokenizer.json says of the steps around the merging: normalizer, pre_tokenizer,
 * post_processor, decoder. Each is an object with a "type", null, or a "Sequence" of such objects.
 */
#include <errno.h>
#include <string.h>

#include "engine/metaspace.h"
#include "engine/tokenizer_json.h"

const char *tokenizer_step(const json_t *object)
{
	const char *type = json_string_value(json_object_get(object, "type"));

	return type ? type : "";
}

static bool is(const json_t *object, const char *type)
{
	return strcmp(tokenizer_step(object), type) == 0;
}

static bool absent(const json_t *value)
{
	return !value || json_is_null(value);
}

/* The list of a Sequence, which each kind of step names differently. */
static int members(const struct tokenizer_json *l, const json_t *sequence, const char *name,
		   const json_t **list)
{
	*list = json_object_get(sequence, name);
	return json_is_array(*list) ? 0 : tokenizer_refuse(l, "a Sequence has no list %s", name);
}

/* ---- normalizer ---- */

static bool says(const json_t *object, const char *name, const char *text)
{
	const char *value = json_string_value(json_object_get(object, name));

	return value && strcmp(value, text) == 0;
}

/* Puts `to` where there is `from`. */
static bool replaces(const json_t *step, const char *from, const char *to)
{
	return is(step, "Replace") && says(json_object_get(step, "pattern"), "String", from) &&
	       says(step, "content", to);
}

static int read_normalizer(struct tokenizer_json *l, const json_t *normalizer)
{
	struct tokenizer *t = l->t;
	const json_t *list;
	int rc;

	if (absent(normalizer))
		return 0;
	if (is(normalizer, "NFC") && !t->prepend && !t->metaspace) {
		t->nfc = true;
		return 0;
	}
	/* Those of SentencePiece-style models. */
	if (t->bpe.by_char && is(normalizer, "Prepend") && says(normalizer, "prepend", METASPACE) &&
	    !t->metaspace && !t->prepend) {
		t->prepend = true;
		return 0;
	}
	if (t->bpe.by_char && replaces(normalizer, " ", METASPACE)) {
		t->metaspace = true;
		return 0;
	}
	if (!is(normalizer, "Sequence"))
		return tokenizer_refuse(l, "the normalizer \"%.40s\" is not supported%s",
					tokenizer_step(normalizer),
					t->prepend || t->metaspace ? " in this place" : "");
	rc = members(l, normalizer, "normalizers", &list);
	for (size_t i = 0; rc == 0 && i < json_array_size(list); i++)
		rc = read_normalizer(l, json_array_get(list, i));
	return rc;
}

/* ---- pre_tokenizer ---- */

static int add_regex(struct tokenizer_json *l, const char *regex, bool literal)
{
	char inner[WHY_MAX] = "";
	int rc = pretokenizer_add(l->t->split, regex, literal, inner);

	return rc == 0 ? 0 : fail(l->why, -rc, "%s: pre_tokenizer: %.600s", l->path, inner);
}

static int read_split(struct tokenizer_json *l, const json_t *split)
{
	const json_t *pattern = json_object_get(split, "pattern");
	const char *regex = json_string_value(json_object_get(pattern, "Regex"));
	const char *literal = json_string_value(json_object_get(pattern, "String"));
	const char *behavior = json_string_value(json_object_get(split, "behavior"));

	if (!regex && !literal)
		return tokenizer_refuse(l, "a Split of the pre_tokenizer has no pattern");
	/* With Isolated, matches and gaps are treated alike, so "invert" changes nothing. */
	if (!behavior || strcmp(behavior, "Isolated") != 0)
		return tokenizer_refuse(
			l,
			"a Split of the pre_tokenizer has the behavior \"%.40s\"; only "
			"Isolated is supported",
			behavior ? behavior : "");
	return add_regex(l, regex ? regex : literal, !regex);
}

/* Numbers on their own, or runs of them. */
static int read_digits(struct tokenizer_json *l, const json_t *digits)
{
	bool individual;
	int rc = tokenizer_flag(l, digits, "individual_digits", false, &individual);

	return rc == 0 ? add_regex(l, individual ? "\\p{N}" : "\\p{N}+", false) : rc;
}

static int read_byte_level(struct tokenizer_json *l, const json_t *level, bool first)
{
	bool use_regex, prefix_space;
	int rc = tokenizer_flag(l, level, "add_prefix_space", true, &prefix_space);

	if (rc == 0)
		rc = tokenizer_flag(l, level, "use_regex", true, &use_regex);
	if (rc != 0)
		return rc;
	l->t->prefix_space = prefix_space ? PREFIX_ALL : PREFIX_NONE;
	/* It would be added to each piece that the steps before have made. */
	if (prefix_space && !first)
		return tokenizer_refuse(l, "ByteLevel with add_prefix_space behind another "
					   "pre_tokenizer is not supported");
	return use_regex ? add_regex(l, PRETOKENIZE_BYTE_LEVEL, false) : 0;
}

/* Any number of splits, then ByteLevel. *done: ByteLevel has been met. */
static int read_pre_tokenizer(struct tokenizer_json *l, const json_t *step, bool *first, bool *done)
{
	const json_t *list;
	int rc;

	if (is(step, "Sequence")) {
		rc = members(l, step, "pretokenizers", &list);
		for (size_t i = 0; rc == 0 && i < json_array_size(list); i++)
			rc = read_pre_tokenizer(l, json_array_get(list, i), first, done);
		return rc;
	}
	if (*done)
		return tokenizer_refuse(l, "the pre_tokenizer has \"%.40s\" behind ByteLevel",
					tokenizer_step(step));
	if (is(step, "Split"))
		rc = read_split(l, step);
	else if (is(step, "Digits"))
		rc = read_digits(l, step);
	else if (is(step, "ByteLevel"))
		rc = read_byte_level(l, step, *first);
	else
		rc = tokenizer_refuse(l, "the pre_tokenizer \"%.40s\" is not supported",
				      tokenizer_step(step));
	*done = is(step, "ByteLevel");
	*first = false;
	return rc;
}

/* The pre_tokenizer of models with byte_fallback: spaces become U+2581, a piece may get one in
 * front, and the text may be split where they are. Files before version 0.14 of the library have
 * add_prefix_space instead of prepend_scheme, and always split. */
static int read_metaspace(struct tokenizer_json *l, const json_t *step)
{
	const char *scheme = json_string_value(json_object_get(step, "prepend_scheme"));
	struct tokenizer *t = l->t;
	bool prefix, split;
	int rc;

	if (!is(step, "Metaspace") || t->metaspace || !says(step, "replacement", METASPACE))
		return tokenizer_refuse(
			l,
			"the pre_tokenizer \"%.40s\" is not supported in a model with "
			"byte_fallback",
			tokenizer_step(step));
	rc = tokenizer_flag(l, step, "add_prefix_space", true, &prefix);
	if (rc == 0)
		rc = tokenizer_flag(l, step, "split", true, &split);
	if (rc != 0)
		return rc;
	t->metaspace = true;
	t->prefix_space = prefix ? PREFIX_ALL : PREFIX_NONE;
	if (scheme && strcmp(scheme, "first") == 0)
		t->prefix_space = PREFIX_FIRST;
	else if (scheme && strcmp(scheme, "never") == 0)
		t->prefix_space = PREFIX_NONE;
	else if (scheme && strcmp(scheme, "always") != 0)
		return tokenizer_refuse(l, "the prepend_scheme \"%.40s\" is not supported", scheme);
	return split ? add_regex(l, " [^ ]*", false) : 0;
}

/* ---- decoder ---- */

/* What is done there to the pieces is done here while loading, except that nothing strips the
 * space in front of a text. */
static int read_char_decoder(struct tokenizer_json *l, const json_t *decoder)
{
	const json_t *list;
	int rc;

	if (absent(decoder) || is(decoder, "ByteFallback") || is(decoder, "Fuse") ||
	    is(decoder, "Strip") || is(decoder, "Metaspace") || replaces(decoder, METASPACE, " "))
		return 0;
	if (!is(decoder, "Sequence"))
		return tokenizer_refuse(l, "the decoder \"%.40s\" is not supported",
					tokenizer_step(decoder));
	rc = members(l, decoder, "decoders", &list);
	for (size_t i = 0; rc == 0 && i < json_array_size(list); i++)
		rc = read_char_decoder(l, json_array_get(list, i));
	return rc;
}

/* ---- post_processor ---- */

static int push_special(struct tokenizer_json *l, const json_t *tokens, const char *name,
			struct bpe_ids *to)
{
	const json_t *ids = json_object_get(json_object_get(tokens, name), "ids");

	if (!json_is_array(ids))
		return tokenizer_refuse(l, "the post_processor does not give the ids of \"%.80s\"",
					name);
	for (size_t i = 0; i < json_array_size(ids); i++) {
		const json_t *value = json_array_get(ids, i);
		json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
		if (id < 0 || id >= l->t->bpe.size || !tokenizer_has(l->t, (int)id))
			return tokenizer_refuse(
				l, "the post_processor's \"%.80s\" is not the id of a token", name);
		if (bpe_push(to, (int32_t)id) != 0)
			return fail(l->why, ENOMEM, "%s: out of memory", l->path);
	}
	return 0;
}

static int read_template(struct tokenizer_json *l, const json_t *template)
{
	const json_t *single = json_object_get(template, "single");
	const json_t *tokens = json_object_get(template, "special_tokens");
	int texts = 0, rc = 0;

	for (size_t i = 0; rc == 0 && i < json_array_size(single); i++) {
		const json_t *item = json_array_get(single, i);
		const json_t *special = json_object_get(item, "SpecialToken");
		const char *name = json_string_value(json_object_get(special, "id"));
		if (json_object_get(item, "Sequence"))
			texts++;
		else if (name)
			rc = push_special(l, tokens, name, texts ? &l->t->after : &l->t->before);
		else
			rc = tokenizer_refuse(l,
					      "the post_processor's template has an item that is "
					      "neither text nor token");
	}
	if (rc == 0 && texts != 1)
		rc = tokenizer_refuse(l, "the post_processor's template has the text %d times",
				      texts);
	return rc;
}

static int read_post_processor(struct tokenizer_json *l, const json_t *step, bool *template)
{
	const json_t *list;
	int rc;

	/* ByteLevel concerns offsets into the text only. */
	if (absent(step) || is(step, "ByteLevel"))
		return 0;
	if (is(step, "TemplateProcessing")) {
		if (*template)
			return tokenizer_refuse(l, "the post_processor has two templates");
		*template = true;
		return read_template(l, step);
	}
	if (!is(step, "Sequence"))
		return tokenizer_refuse(l, "the post_processor \"%.40s\" is not supported",
					tokenizer_step(step));
	rc = members(l, step, "processors", &list);
	for (size_t i = 0; rc == 0 && i < json_array_size(list); i++)
		rc = read_post_processor(l, json_array_get(list, i), template);
	return rc;
}

int tokenizer_read_post_processor(struct tokenizer_json *l)
{
	bool template = false;

	return read_post_processor(l, json_object_get(l->root, "post_processor"), &template);
}

/* ---- together ---- */

/* Byte-level models: splits, the last step is ByteLevel. */
static int read_byte_level_steps(struct tokenizer_json *l)
{
	const json_t *pre = json_object_get(l->root, "pre_tokenizer");
	const json_t *decoder = json_object_get(l->root, "decoder");
	bool first = true, done = false;
	int rc;

	if (absent(pre))
		return tokenizer_refuse(
			l, "there is no pre_tokenizer: only byte-level tokenizers are supported");
	rc = read_pre_tokenizer(l, pre, &first, &done);
	if (rc == 0 && !done)
		rc = tokenizer_refuse(l, "the pre_tokenizer has no ByteLevel: only byte-level "
					 "tokenizers are supported");
	if (rc == 0 && !absent(decoder) && !is(decoder, "ByteLevel"))
		rc = tokenizer_refuse(l, "the decoder \"%.40s\" is not supported",
				      tokenizer_step(decoder));
	return rc;
}

/* Models with byte_fallback. */
static int read_char_steps(struct tokenizer_json *l)
{
	const json_t *pre = json_object_get(l->root, "pre_tokenizer");
	int rc = 0;

	if (l->t->prepend && !l->t->metaspace)
		return tokenizer_refuse(l, "the normalizer has Prepend without Replace");
	if (!absent(pre))
		rc = read_metaspace(l, pre);
	return rc == 0 ? read_char_decoder(l, json_object_get(l->root, "decoder")) : rc;
}

int tokenizer_read_pipeline(struct tokenizer_json *l)
{
	int rc = read_normalizer(l, json_object_get(l->root, "normalizer"));

	l->t->split = pretokenizer_new();
	if (!l->t->split)
		return fail(l->why, ENOMEM, "%s: out of memory", l->path);
	if (rc != 0)
		return rc;
	return l->t->bpe.by_char ? read_char_steps(l) : read_byte_level_steps(l);
}
