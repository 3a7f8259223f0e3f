/* SPDX-License-Identifier: Apache-2.0
 *
 * How many tokens to guess ahead.
 */
#include "engine/draft_length.h"

/* A turn of eight tokens is long enough to meet right and wrong guesses, and 32 are lost at most
 * where guessing does not help. */
#define TURN_TOKENS 8
#define HOLD_FIRST  64
#define HOLD_MOST   512

/* A longer draft must gain this much: less is noise, and costs reads that others may want. */
#define WORTH 1.03

int draft_length_of(int i)
{
	return i ? 1 << (i - 1) : 0;
}

static void begin_trial(struct draft_length *d)
{
	d->candidate = d->best + d->up;
	if (d->candidate < 0 || d->candidate >= d->count) {
		d->up = -d->up;
		d->candidate = d->best + d->up;
	}
	d->turn = 0;
	d->left = TURN_TOKENS;
	d->tokens[0] = d->tokens[1] = 0;
	d->seconds[0] = d->seconds[1] = 0;
}

void draft_length_init(struct draft_length *d, int max)
{
	*d = (struct draft_length){ .count = 1, .up = 1, .hold = HOLD_FIRST };
	while (d->count < DRAFT_LENGTHS && draft_length_of(d->count) <= max)
		d->count++;
	if (d->count > 1)
		begin_trial(d);
}

/* Which of the two has this turn: 0 the best, 1 the candidate. */
static int side(const struct draft_length *d)
{
	return d->turn == 1 || d->turn == 2;
}

int draft_length_next(const struct draft_length *d)
{
	return draft_length_of(d->candidate != d->best && side(d) ? d->candidate : d->best);
}

static double rate(const struct draft_length *d, int which)
{
	return d->seconds[which] > 0 ? d->tokens[which] / d->seconds[which] : 0;
}

static void pause_trials(struct draft_length *d)
{
	d->candidate = d->best;
	d->left = d->hold;
	d->up = -d->up; /* the next one looks the other way */
}

static void end_trial(struct draft_length *d)
{
	double best = rate(d, 0), candidate = rate(d, 1);

	d->rate[d->best] = best;
	d->rate[d->candidate] = candidate;
	/* The shorter of the two wins where they are even. */
	if (d->up > 0 ? candidate <= best * WORTH : candidate * WORTH <= best) {
		d->hold = 2 * d->hold < HOLD_MOST ? 2 * d->hold : HOLD_MOST;
		pause_trials(d);
		return;
	}
	d->best = d->candidate;
	d->hold = HOLD_FIRST;
	if (d->best + d->up >= 0 && d->best + d->up < d->count)
		begin_trial(d);
	else
		pause_trials(d);
}

void draft_length_step(struct draft_length *d, int tokens, double seconds)
{
	bool trial = d->candidate != d->best;

	if (d->count < 2)
		return;
	if (trial) {
		d->tokens[side(d)] += tokens;
		d->seconds[side(d)] += seconds;
	}
	d->left -= tokens;
	if (d->left > 0)
		return;
	d->left = TURN_TOKENS;
	if (!trial)
		begin_trial(d);
	else if (++d->turn == 4)
		end_trial(d);
}
