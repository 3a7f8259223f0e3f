/* SPDX-License-Identifier: Apache-2.0
 *
 * With or without lookahead.
 */
#include "engine/lookahead_trial.h"

const char *lookahead_mode_name(enum lookahead_mode mode)
{
	static const char *const names[] = { "auto", "on", "off" };

	return names[mode];
}

void trial_begin(struct lookahead_trial *t, enum lookahead_mode mode)
{
	*t = (struct lookahead_trial){ .mode = mode,
				       .on = mode != LOOKAHEAD_OFF,
				       .verdict = mode != LOOKAHEAD_OFF };
}

/* on off off on */
static bool on_in_trial(int token)
{
	int block = token / TRIAL_BLOCK;

	return block % 4 == 0 || block % 4 == 3;
}

static void add(struct lookahead_trial *t, double seconds, double waited)
{
	double *s = t->seconds[t->on];
	int at = t->n[t->on]++;

	for (; at > 0 && s[at - 1] > seconds; at--)
		s[at] = s[at - 1];
	s[at] = seconds;
	t->all += seconds;
	t->waited += waited;
}

/* Of an even number. */
static double median(const double *ascending, int n)
{
	return (ascending[n / 2 - 1] + ascending[n / 2]) / 2;
}

static void decide(struct lookahead_trial *t)
{
	t->off_s = median(t->seconds[false], t->n[false]);
	t->on_s = median(t->seconds[true], t->n[true]);
	t->trials++;
	t->verdict = t->waited >= TRIAL_WAITS * t->all && t->on_s < (1 - TRIAL_GAIN) * t->off_s;
	t->n[false] = t->n[true] = 0;
	t->all = t->waited = 0;
}

void trial_token(struct lookahead_trial *t, double seconds, double waited)
{
	if (t->mode != LOOKAHEAD_AUTO)
		return;
	if (t->token < TRIAL_TOKENS)
		add(t, seconds, waited);
	t->token++;
	if (t->token == TRIAL_TOKENS)
		decide(t);
	if (t->token == TRIAL_TOKENS + TRIAL_KEEP)
		t->token = 0;
	t->on = t->token < TRIAL_TOKENS ? on_in_trial(t->token) : t->verdict;
}
