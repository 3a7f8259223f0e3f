/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.json of a GGUF file: the metadata's lists as gguf_tokenizer.h wants them; see
 * gguf_model.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/fail.h"
#include "expertfs/gguf_model.h"
#include "expertfs/gguf_tokenizer.h"
#include "expertfs/log.h"

/* What is gathered of the metadata; all of it is to be freed. */
struct vocab {
	struct gguf_tokenizer_text *token, *merge;
	size_t tokens, merges;
	float *score;
	int32_t *type;
	char *model, *pre;
};

static void free_vocab(struct vocab *v)
{
	free(v->token);
	free(v->merge);
	free(v->score);
	free(v->type);
	free(v->model);
	free(v->pre);
}

/* *out is NULL, and *n 0, if the key is not there. */
static int take_texts(const struct gguf *g, const char *key, struct gguf_tokenizer_text **out,
		      size_t *n, char *why)
{
	const struct gguf_key *k;
	size_t at = 0;
	int err = gguf_array(g, key, GGUF_STRING, &k, why);

	if (err)
		return err == -ENOENT ? 0 : err;
	*out = calloc(k->count + 1, sizeof(**out));
	if (!*out)
		return fail(why, ENOMEM, "out of memory for the vocabulary");
	for (*n = 0; *n < k->count; ++*n) {
		struct gguf_text t = gguf_array_next(g, k, &at);
		(*out)[*n] = (struct gguf_tokenizer_text){ t.at, t.bytes };
	}
	return 0;
}

/* A list with a number for each token; NULL if the key is not there. */
static int take_numbers(const struct gguf *g, const char *key, enum gguf_kind kind, size_t tokens,
			void **out, char *why)
{
	const struct gguf_key *k;
	int err = gguf_array(g, key, kind, &k, why);

	if (err)
		return err == -ENOENT ? 0 : err;
	if (k->count != tokens)
		return fail(why, EINVAL, "%s: %s has not as many entries as there are tokens",
			    g->part[0].path, k->name);
	*out = calloc(tokens + 1, 4);
	if (!*out)
		return fail(why, ENOMEM, "out of memory for the vocabulary");
	for (size_t i = 0; i < tokens; i++) {
		if (kind == GGUF_F32)
			((float *)*out)[i] = (float)gguf_array_float(g, k, i);
		else
			((int32_t *)*out)[i] = (int32_t)gguf_array_int(g, k, i);
	}
	return 0;
}

static int take_name(const struct gguf *g, const char *key, char **out, char *why)
{
	struct gguf_text t;
	int err = gguf_string(g, key, &t, why);

	if (err)
		return err == -ENOENT ? 0 : err;
	if (memchr(t.at, 0, t.bytes))
		return fail(why, EINVAL, "%s: %s is not a name", g->part[0].path, key);
	*out = strndup(t.at, t.bytes);
	return *out ? 0 : fail(why, ENOMEM, "out of memory");
}

static int take_id(const struct gguf *g, const char *key, int64_t *out, char *why)
{
	int err = gguf_int(g, key, 0, INT32_MAX, out, why);

	if (err == -ENOENT)
		*out = GGUF_TOKENIZER_ABSENT;
	return err == -ENOENT ? 0 : err;
}

static int take_flag(const struct gguf *g, const char *key, int *out, char *why)
{
	bool on = false;
	int err = gguf_bool(g, key, &on, why);

	*out = err == -ENOENT ? GGUF_TOKENIZER_ABSENT : on;
	return err == -ENOENT ? 0 : err;
}

static int gather(const struct gguf *g, struct vocab *v, struct gguf_tokenizer *t, char *why)
{
	void *score = NULL, *type = NULL;
	int err = take_texts(g, "tokenizer.ggml.tokens", &v->token, &v->tokens, why);

	err = err ? err : take_texts(g, "tokenizer.ggml.merges", &v->merge, &v->merges, why);
	err = err ? err
		  : take_numbers(g, "tokenizer.ggml.scores", GGUF_F32, v->tokens, &score, why);
	v->score = score;
	err = err ? err
		  : take_numbers(g, "tokenizer.ggml.token_type", GGUF_I64, v->tokens, &type, why);
	v->type = type;
	err = err ? err : take_name(g, "tokenizer.ggml.model", &v->model, why);
	err = err ? err : take_name(g, "tokenizer.ggml.pre", &v->pre, why);
	err = err ? err : take_id(g, "tokenizer.ggml.bos_token_id", &t->bos, why);
	err = err ? err : take_id(g, "tokenizer.ggml.eos_token_id", &t->eos, why);
	err = err ? err : take_flag(g, "tokenizer.ggml.add_bos_token", &t->add_bos, why);
	err = err ? err : take_flag(g, "tokenizer.ggml.add_eos_token", &t->add_eos, why);
	err = err ? err
		  : take_flag(g, "tokenizer.ggml.add_space_prefix", &t->add_space_prefix, why);
	if (!err && (!v->model || !v->tokens))
		err = fail(why, EINVAL, "it has no vocabulary");
	t->model = v->model;
	t->pre = v->pre;
	t->tokens = v->tokens;
	t->token = v->token;
	t->score = v->score;
	t->type = v->type;
	t->merges = v->merges;
	t->merge = v->merge;
	return err;
}

/* A vocabulary that cannot be had exactly hinders nobody from reading the experts: the engine then
 * says that there is no tokenizer. */
int gguf_vocab_json(const struct gguf *g, char **text, char *why)
{
	struct gguf_tokenizer t = { 0 };
	struct gguf_text whole;
	struct vocab v = { 0 };
	char reason[WHY_MAX];
	size_t bytes;
	int err = gguf_string(g, "tokenizer.huggingface.json", &whole, reason);

	*text = NULL;
	if (!err) {
		*text = strndup(whole.at, whole.bytes);
		return *text ? 0 : fail(why, ENOMEM, "out of memory for tokenizer.json");
	}
	err = err == -ENOENT ? gather(g, &v, &t, reason) : err;
	err = err ? err : gguf_tokenizer_json(&t, text, &bytes, reason);
	free_vocab(&v);
	if (err == -EINVAL) {
		log_line(LOG_WARNING, "%s: no text can be made of its tokens: %s", g->part[0].path,
			 reason);
		*text = strdup("{}");
	}
	return *text ? 0 : fail(why, ENOMEM, "out of memory for tokenizer.json");
}
