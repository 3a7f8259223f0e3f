/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens into the model with guesses behind them, so that one pass may give several.
 *
 * The caller chooses each token from the logits after the ones before, as without guesses, and
 * hands it in; here it either is what was guessed, and its logits are there already, or it goes
 * through the model with new guesses. So what is chosen, and what is drawn for it, is the same to
 * the bit (Leviathan and others, arXiv 2211.17192, with a guess that is certain of itself; spec:
 * GLM-5.2, 8.5): only how long it takes depends on the guesses.
 */
#ifndef ENGINE_SPECULATE_H
#define ENGINE_SPECULATE_H

#include "engine/draft_length.h"
#include "engine/engine.h"
#include "engine/sampler.h"

/* As the number of guesses: what is faster. */
#define DRAFT_AUTO (-1)
/* The engine's options.draft for it. */
#define DRAFT_AUTO_MOST 8

struct speculation {
	struct engine *engine;
	const struct sampler *sampler;
	int wanted; /* guesses a step, or DRAFT_AUTO */
	size_t vocab;
	float *logits; /* [vocab] */
	struct draft_length length;
	/* The last step: its tokens, how many of them count, and the one whose logits are out. */
	int32_t ids[ENGINE_DRAFT_MAX + 1];
	const float *row;
	int guesses, rows, at;
	bool measured; /* as many guesses as asked for: the step is one to judge by */
	double seconds;
	/* For the report. */
	int steps, drafted, accepted; /* steps with guesses; guesses; those that were right */
	double guess_s;               /* time to guess, part of the steps */
};

/* wanted: DRAFT_AUTO or 0 .. the engine's options.draft; max: options.draft. The sampler says which
 * tokens can come at all. 0 or -ENOMEM. */
int speculate_start(struct speculation *s, struct engine *e, const struct sampler *sampler,
		    int vocab, int wanted, int max, char *why);
/* id joins the context; *logits [vocab] are those after it, until the next call. At most `left`
 * tokens will be chosen from here on, >= 1, and the context has room for as many. */
int speculate_next(struct speculation *s, int32_t id, int left, const float **logits, char *why);
/* Leaves in the context what was handed in, no more: guesses that nobody has come to yet are given
 * up. The last *logits stay as they are. */
void speculate_settle(struct speculation *s);
/* The same, for good. A zeroed one is fine. */
void speculate_end(struct speculation *s);

#endif
