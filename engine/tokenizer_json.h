/* SPDX-License-Identifier: Apache-2.0
 *
 * The reading of tokenizer.json is split in two: tokenizer_json.c reads the file, the vocabulary,
 * the merges and the added tokens, tokenizer_pipeline.c the members that say what happens around
 * them.
 */
#ifndef ENGINE_TOKENIZER_JSON_H
#define ENGINE_TOKENIZER_JSON_H

#include <jansson.h>

#include "engine/fail.h"
#include "engine/tokenizer_parts.h"

struct tokenizer_json {
	const char *path;
	json_t *root;
	struct tokenizer *t; /* being filled */
	char *why;
};

/* -EINVAL with "PATH: sentence". */
__attribute__((format(printf, 2, 3))) int tokenizer_refuse(const struct tokenizer_json *l,
							   const char *fmt, ...);

/* A boolean member; absent or null is the given value. -EINVAL if it is something else. */
int tokenizer_flag(const struct tokenizer_json *l, const json_t *object, const char *name,
		   bool absent, bool *out);
/* The member "type" of a pipeline's element, "" if there is none. */
const char *tokenizer_step(const json_t *object);

/* normalizer, pre_tokenizer, decoder: what is done to text before the merging. Needs
 * t->bpe.by_char; needed before the vocabulary and the added tokens are read. */
int tokenizer_read_pipeline(struct tokenizer_json *l);
/* post_processor. Needs the ids of t. */
int tokenizer_read_post_processor(struct tokenizer_json *l);

#endif
