/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether lookahead is on for the next token: a trial of some tokens with it and some without, again
 * and again. Pure arithmetic; its caller measures.
 */
#ifndef ENGINE_LOOKAHEAD_TRIAL_H
#define ENGINE_LOOKAHEAD_TRIAL_H

#include <stdbool.h>

enum lookahead_mode { LOOKAHEAD_AUTO, LOOKAHEAD_ON, LOOKAHEAD_OFF };

/* "auto", "on", "off". */
const char *lookahead_mode_name(enum lookahead_mode mode);

/* A trial has 16 tokens: 4 with, 4 without, 4 without, 4 with, so that a speed that rises or falls
 * evenly, as while a store fills, favours neither; medians are compared, so that a token held up by
 * something else does not decide. Then 128 tokens of the better kind. */
#define TRIAL_BLOCK  4
#define TRIAL_TOKENS 16
#define TRIAL_KEEP   128

/* Less of the time waited than this: nothing to gain. */
#define TRIAL_WAITS 0.02
/* So much quicker it must be with guesses: they cost reads and memory. */
#define TRIAL_GAIN 0.01

struct lookahead_trial {
	enum lookahead_mode mode;
	bool on; /* for the next token; out */
	bool verdict;
	int token; /* of TRIAL_TOKENS + TRIAL_KEEP */
	int trials;
	/* Of the trial under way. */
	int n[2];                            /* tokens without, with */
	double seconds[2][TRIAL_TOKENS / 2]; /* ascending */
	double all, waited;
	double on_s, off_s; /* a token, of the last trial; 0: none */
};

void trial_begin(struct lookahead_trial *t, enum lookahead_mode mode);
/* A token took so many seconds, `waited` of them for experts. */
void trial_token(struct lookahead_trial *t, double seconds, double waited);

#endif
