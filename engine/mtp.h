/* SPDX-License-Identifier: Apache-2.0
 *
 * The MTP layer (multi-token prediction: DeepSeek-V3, arXiv 2412.19437, 2.2; GLM-5.2 stores one
 * behind its last layer): guesses the token after the next one, so that the model can check
 * several at once. What it says decides how fast tokens come, never which.
 *
 * Row i of the layer, at position i, joins what the model made of token i with token i + 1:
 *
 *	z = join [ rms(embed[token i + 1]) ; rms(g) ]     g: what the model's head got of token i
 *	z = layer(z)                                      attention over rows 0 .. i, experts
 *	x = rms(z)                                        head x: logits of token i + 2
 *
 * To guess further, row i + 1 takes x in place of the g that is not known yet, and the token
 * guessed. When the model has computed the real g, the row is computed anew. The GLM models were
 * trained with one layer that serves all steps so (vLLM and SGLang run them the same way).
 *
 * Rows are computed when a guess is wanted, not before. Only the one that is guessed from goes through
 * the whole layer: of those before it what it looks back at is enough, which opens no expert.
 */
#ifndef ENGINE_MTP_H
#define ENGINE_MTP_H

#include <stdint.h>

#include "engine/forward.h"

struct mtp {
	struct forward *forward; /* not owned; its cache has a layer more */
	int room;                /* rows that may be due: a chunk, and the one before it */
	float *hidden;           /* [room][hidden], g of the rows due, from position first on */
	int32_t *next;           /* [room], the token after each; that of the last is not known */
	int first, due;
	int guessed;  /* position of the row that guesses on; -1: there is none */
	float *joint; /* [min(room, ATTENTION_ROWS)][2 hidden] */
	float *x;     /* [hidden], of the last guess */
	void *memory;
};

/* Bytes that mtp_init() takes. */
size_t mtp_bytes(const struct model_config *c, int chunk);
/* forward is ready, its weights hold the MTP layer. 0 or -ENOMEM. */
int mtp_init(struct mtp *m, struct forward *forward, char *why);
void mtp_free(struct mtp *m); /* a zeroed one is fine */

/* The n tokens at position .. position + n - 1 went through the model in the last forward_run(),
 * n <= chunk. If they do not follow those before, the rows between stay as they are: guesses are
 * worse, no more. */
void mtp_follow(struct mtp *m, const int32_t *ids, int position, int n);
/* The context is cut back to `position` tokens. */
void mtp_cut(struct mtp *m, int position);
/* Takes in all rows due whose next token is known. */
void mtp_catch_up(struct mtp *m);
/* Logits [vocab] of what comes after `token`, which comes next in the context, or, if this was
 * called before since the last mtp_follow(), after the token that was guessed then. -EINVAL if there is
 * nothing to begin from, -ERANGE behind the end of the context. */
int mtp_guess(struct mtp *m, int32_t token, float *logits, char *why);

#endif
