/* SPDX-License-Identifier: Apache-2.0
 *
 * Added tokens: those whose literal text is cut out of the input before anything else happens to
 * it, such as <|user|> or <think>.
 *
 * As in the tokenizers library (tokenizer/added_vocabulary.rs) there are two sets of them: tokens
 * that are not "normalized" are sought in the raw text, the others in what is left of it after
 * normalisation. Matching is leftmost-longest. A set is a sorted list; a search narrows the range
 * of the tokens that begin with what has been read.
 */
#ifndef ENGINE_ADDED_TOKENS_H
#define ENGINE_ADDED_TOKENS_H

#include <stdbool.h>
#include <stddef.h>

struct added_token {
	int id;
	char *content; /* the literal text */
	size_t bytes;
	char *key; /* what is sought: the content, normalised if the token is; may be the same
		      pointer */
	size_t key_bytes;
	bool special, normalized;
	bool single_word;    /* no match if a word character touches it */
	bool lstrip, rstrip; /* white space on that side becomes part of the match */
};

struct added_set {
	struct added_token
		*token; /* sorted by key, no two the same; the texts belong to the list */
	int n;
	int first[257]; /* tokens whose key begins with byte b: first[b] up to first[b + 1] */
};

/* The set of those of the n tokens whose normalized is the given one. Their texts must outlive it.
 * 0 or -ENOMEM. */
int added_set_make(struct added_set *set, const struct added_token *tokens, int n, bool normalized);
void added_set_free(struct added_set *set);

/* Finds the first token in text[from..bytes): its key stands at *at; with the white space it absorbs it
 * is *start to *end. With plain, special tokens are passed over. NULL if there is none. */
const struct added_token *added_find(const struct added_set *set, const char *text, size_t bytes,
				     size_t from, bool plain, size_t *at, size_t *start,
				     size_t *end);

#endif
