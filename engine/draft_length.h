/* SPDX-License-Identifier: Apache-2.0
 *
 * How many tokens to guess ahead, by what the clock says.
 *
 * Whether speculation helps nobody can say beforehand: a guess that is right saves a pass through
 * the dense weights, but each row that is checked brings experts of its own from the drive. So
 * lengths are tried against each other and the faster one is kept for a while: first none against
 * one; if the longer one wins, against the next, and so on. A trial is four short turns, A B B A,
 * in which a drift, as of a cache that fills, counts for both alike. The better a choice has held,
 * the later it is doubted.
 *
 * Knows no engine and reads no clock.
 */
#ifndef ENGINE_DRAFT_LENGTH_H
#define ENGINE_DRAFT_LENGTH_H

#include <stdbool.h>

/* 0, 1, 2, 4, 8 tokens: what a longer one gains becomes less and less. */
#define DRAFT_LENGTHS 5

struct draft_length {
	int count;           /* of the lengths, those that may be used */
	int best, candidate; /* indices; the same while nothing is tried */
	int turn;            /* of a trial, 0 .. 3 */
	int up;              /* direction in which the next trial goes: 1 or -1 */
	int hold, left;      /* tokens between two trials; tokens until this turn or pause ends */
	int tokens[2];       /* of the trial: with the best, with the candidate */
	double seconds[2];
	double rate[DRAFT_LENGTHS]; /* tokens a second when last tried; 0: never */
};

/* max: the longest that may be used; 0: nothing to choose from. */
void draft_length_init(struct draft_length *d, int max);
/* Tokens to guess in the next step. */
int draft_length_next(const struct draft_length *d);
/* A step of this length gave so many tokens, >= 1. */
void draft_length_step(struct draft_length *d, int tokens, double seconds);
/* Tokens that the i-th length means. */
int draft_length_of(int i);

#endif
