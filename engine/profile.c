/* SPDX-License-Identifier: Apache-2.0
 *
 * Phases of a profile.
 */
#include "engine/profile.h"

const char *profile_phase_name(enum profile_phase phase)
{
	return phase == PROFILE_PROMPT ? "prompt" : "decode";
}

const char *profile_part_name(enum profile_part part)
{
	static const char *const names[] = { "other", "attention", "router",     "experts",
					     "wait",  "head",      "speculation" };

	return names[part];
}

static void book_counts(struct profile *p, const struct profile_counts *now)
{
	struct profile_counts *c = &p->counts[p->phase];

	c->experts += now->experts - p->before.experts;
	c->expert_bytes += now->expert_bytes - p->before.expert_bytes;
	if (now->bytes_read < 0 || p->before.bytes_read < 0)
		c->bytes_read = -1;
	else if (c->bytes_read >= 0)
		c->bytes_read += now->bytes_read - p->before.bytes_read;
}

void profile_begin(struct profile *p, enum profile_phase phase, const struct profile_counts *now)
{
	if (p->since > 0) {
		profile_enter(p, PART_OTHER);
		book_counts(p, now);
	}
	p->on = true;
	p->phase = phase;
	p->part = PART_OTHER;
	p->since = clock_seconds();
	p->before = *now;
}

void profile_end(struct profile *p, const struct profile_counts *now)
{
	profile_enter(p, PART_OTHER);
	book_counts(p, now);
	p->on = false;
	p->since = 0;
}

double profile_seconds(const struct profile *p, enum profile_phase phase)
{
	double sum = 0;

	for (int i = 0; i < PROFILE_PARTS; i++)
		sum += p->seconds[phase][i];
	return sum;
}
