/* SPDX-License-Identifier: Apache-2.0
 *
 * How likely is an expert to be chosen when its layer is visited next? The guess behind the policy
 * `expert`, learned while it runs, for all experts of a model, resident or not.
 *
 * A visit is one layer event. For each expert there are 64 bits, one for each of the last 64 visits
 * of its layer: was it chosen? and two decayed rates of use. From these come six inputs, logarithms
 * of probabilities but for the first and the last:
 *
 *	GUESS_BIAS    1
 *	GUESS_RECENT  use in the last eight visits, each counting half of the one after it
 *	GUESS_FAST    rate of use, half-life 10 visits: what the text is about now
 *	GUESS_SLOW    rate of use, half-life 100 visits: what the expert is for
 *	GUESS_ECHO    among the earlier visits that chose much the same set as the last one did: the
 *	              share of those after which this expert came next. It finds repetition, and
 *	              that one expert follows another
 *	GUESS_LAST    1 if it was chosen in the last visit
 *
 * and their weighted sum is the guess, as log odds. The weights are learned by logistic regression,
 * one step a visit: what was guessed for the experts of this layer against what was chosen. A model
 * has so many experts that some ten tokens teach the mixture, and it follows when traffic turns
 * from drifting to repeating. Weighing rates of several half-lives by what they proved worth is
 * the idea of context mixing (Mahoney, "Adaptive weighing of context models for lossless data
 * compression", 2005); the echo is his match model for sets.
 *
 * 36 bytes for each expert, 550 for each layer. A use costs constant time, a close and a preview
 * one pass over the experts of the layer. No locks: the caller's.
 */
#ifndef CACHEPOLICY_EXPERT_GUESS_H
#define CACHEPOLICY_EXPERT_GUESS_H

#include <stdbool.h>
#include <stdint.h>

enum { GUESS_BIAS, GUESS_RECENT, GUESS_FAST, GUESS_SLOW, GUESS_ECHO, GUESS_LAST, GUESS_INPUTS };

enum {
	GUESS_MOST_ODDS = 12, /* log odds, either way: nearer to certain is nothing */
	GUESS_ODDS_STEPS = 32,
	GUESS_CHANCES = 2 * GUESS_MOST_ODDS * GUESS_ODDS_STEPS + 1
};

/* Loops over a layer's experts go by so many, for the compiler to do several at once. */
#define GUESS_LANES 8

#define GUESS_NO_LAYER UINT32_MAX

struct guess_layer;

struct guess {
	uint32_t layers, experts;
	uint32_t
		stride; /* experts, up to a multiple of GUESS_LANES: a layer's part of each array */
	uint64_t *seen; /* bit v: chosen v visits ago, the last one being 0 */
	uint16_t
		*past; /* for each layer a ring of the members of its visits, one after the other */
	float *fast,
		*slow; /* log of the rate of use, less the decay of its layer since the start */
	float *echo;   /* GUESS_ECHO as of the last visit; before the first one: seeded heat */
	struct guess_layer *layer;
	float weight[GUESS_INPUTS];
	float recent[256];           /* GUESS_RECENT by the last eight bits of seen */
	float chance[GUESS_CHANCES]; /* probability by log odds, in steps */
	float slope2
		[GUESS_INPUTS]; /* decayed squares of the gradient: the step is scaled by them */
	uint64_t visits;        /* of all layers */

	/* The visit that goes on: */
	uint32_t open;     /* its layer, or GUESS_NO_LAYER */
	uint32_t *members; /* experts that were chosen, in the order of their use */
	uint32_t n;
	float *fresh;     /* GUESS_ECHO after this visit, if it were over now */
	uint32_t fresh_n; /* members that fresh knows; UINT32_MAX if it was not made yet */
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
/* That of guess_log_odds() for all experts of a layer, and something finite up to g->stride. */
void guess_layer_log_odds(const struct guess *g, uint32_t layer, float *odds);
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
