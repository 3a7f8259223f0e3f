/* SPDX-License-Identifier: Apache-2.0
 *
 * Splitting text into the pieces that are merged on their own: a list of regular expressions. The
 * matches of one and the gaps between them are pieces ("Isolated"), and each of these is
 * split by the next one as if it stood alone (tokenizers, pre_tokenizers/split.rs and sequence.rs).
 */
#ifndef ENGINE_PRETOKENIZE_H
#define ENGINE_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>

/* Most expressions in a list; DeepSeek-V3 has three. */
#define PRETOKENIZE_MAX 16

/* The pattern that ByteLevel has built in (GPT-2's). */
extern const char PRETOKENIZE_BYTE_LEVEL[];

struct pretokenizer;       /* opaque; never changed by splitting */
struct pretokenizer_state; /* working memory of one thread */

/* An empty list: then all text is one piece. NULL if out of memory. */
struct pretokenizer *pretokenizer_new(void);
void pretokenizer_free(struct pretokenizer *p); /* NULL is fine */
/* Appends an expression; literal: a plain string. 0, -ENOMEM, or -EINVAL with what is wrong with
 * it. */
int pretokenizer_add(struct pretokenizer *p, const char *regex, bool literal, char *why);

struct pretokenizer_state *pretokenizer_start(const struct pretokenizer *p);
void pretokenizer_end(struct pretokenizer_state *s); /* NULL is fine */

/* Calls emit(ctx, piece, bytes) for the pieces of text, in order; none is empty. The text is valid
 * UTF-8. Stops at the first emit that returns non-zero and returns that; else 0, -ENOMEM, or -ELOOP
 * with the sentence in why. */
int pretokenize(struct pretokenizer_state *s, const char *text, size_t bytes,
		int (*emit)(void *ctx, const char *piece, size_t bytes), void *ctx, char *why);

#endif
