/* SPDX-License-Identifier: Apache-2.0
 *
 * How likely is an expert to be chosen when its layer is visited next? The guess behind the policy
 * `expert`, learned while it runs, for all experts of a model, resident or not.
 *
 * A visit is one layer event. For each expert there are three decayed rates of use. From these and
 * the past (expert_past.h) come six inputs, logarithms of probabilities but for the last two:
 *
 *	GUESS_RECENT  rate of use, half-life one visit
 *	GUESS_FAST    rate of use, half-life 10 visits: what the text is about now
 *	GUESS_SLOW    rate of use, half-life 100 visits: what the expert is for
 *	GUESS_ECHO    use in the visits that came after ones that chose much the same set as the
 *	              last visit did
 *	GUESS_LAST    1 if it was chosen in the last visit
 *	GUESS_BIAS    1
 *
 * and their weighted sum is the guess, as log odds. The weights are learned by logistic regression,
 * one step a visit: what was guessed for the experts of this layer against what was chosen. A model
 * has so many experts that some ten tokens teach the mixture, and it follows when traffic turns
 * from drifting to repeating. Weighing rates of several half-lives by what they proved worth is
 * the idea of context mixing (Mahoney, "Adaptive weighing of context models for lossless data
 * compression", 2005).
 *
 * 40 bytes for each expert, 1,100 for each layer, with the past. A use costs constant time, a close
 * and a preview one pass over the experts of the layer. No locks: the caller's.
 */
#ifndef CACHEPOLICY_EXPERT_GUESS_H
#define CACHEPOLICY_EXPERT_GUESS_H

#include <stdbool.h>
#include <stdint.h>

#include "cachepolicy/expert_past.h"

enum {
	GUESS_RECENT,
	GUESS_FAST,
	GUESS_SLOW,
	GUESS_RATES, /* those above */
	GUESS_ECHO = GUESS_RATES,
	GUESS_LAST,
	GUESS_BIAS,
	GUESS_INPUTS
};

#define GUESS_NO_LAYER UINT32_MAX

struct guess_layer;

struct guess {
	uint32_t layers, experts;
	uint32_t stride; /* whole_lanes(experts): a layer's part of each array */
	struct past past;
	float *rate[GUESS_RATES]; /* logarithm, less the decay of its layer since the start */
	float *echo; /* GUESS_ECHO as of the last visit; before the first one: seeded heat */
	struct guess_layer *layer;
	float weight[GUESS_INPUTS];
	float slope2[GUESS_INPUTS]; /* decayed squares of the gradient, which scale the steps */
	uint64_t visits;            /* of all layers */

	/* The visit that goes on: */
	uint32_t open;     /* its layer, or GUESS_NO_LAYER */
	uint32_t *members; /* experts that were chosen, in the order of their use */
	uint32_t n;
	float *fresh;     /* GUESS_ECHO after this visit, if it were over now */
	uint32_t fresh_n; /* members that fresh knows; UINT32_MAX if it was not made yet */
	float *taught;    /* 1 for members while it is learned from, else 0 */
	float *teaches;   /* 1 for experts, 0 beyond them */
};

int guess_create(struct guess *g, uint32_t layers, uint32_t experts); /* 0 or -ENOMEM */
void guess_destroy(struct guess *g);                                  /* also after an error */

/* The layer of the open visit chose this expert, once; without an open visit this begins one.
 * layer: that of the open visit, if there is one. */
void guess_use(struct guess *g, uint32_t layer, uint32_t expert);
/* The visit is over: learns from it. Nothing happens if none is open. */
void guess_close(struct guess *g);
/* Makes the guesses for the layer of the open visit as if it were over. False if they are the same
 * as after the last call. */
bool guess_preview(struct guess *g);

/* Log odds that this expert is chosen at the next visit of its layer. For the open layer: at the
 * next but the open one, as of the last preview (which must have been made), and for those not
 * chosen. */
float guess_log_odds(const struct guess *g, uint32_t layer, uint32_t expert);
/* The same for one that the open visit chose. */
float guess_member_log_odds(const struct guess *g, uint32_t expert);
/* That of guess_log_odds() for all experts of a layer, and something finite up to g->stride, with
 * `plus` added to each. */
void guess_layer_log_odds(const struct guess *g, uint32_t layer, const float *plus, float *odds);
/* The inputs of such a guess. */
void guess_inputs(const struct guess *g, uint32_t layer, uint32_t expert, float x[GUESS_INPUTS]);

/* A decayed count of uses from before. Counts until the first visit of the layer, and then as the
 * start of its rates. */
void guess_seed(struct guess *g, uint32_t layer, uint32_t expert, double heat);
/* Experts that the last visit of this layer that is closed chose; 0 if there was none. */
uint32_t guess_last_size(const struct guess *g, uint32_t layer);
/* Was this layer ever visited or seeded? Without, its guesses say nothing. */
bool guess_knows(const struct guess *g, uint32_t layer);

#endif
