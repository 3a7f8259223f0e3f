/* SPDX-License-Identifier: Apache-2.0
 *
 * What speculation costs: see draft_cost.h.
 */
#include "engine/draft_cost.h"

#include <string.h>

/* Of this phase. */
static struct profile_drafts *booked(const struct draft_cost *d)
{
	return &d->profile->drafts[d->profile->phase];
}

void draft_cost_guess(struct draft_cost *d)
{
	d->part = profile_hold(d->profile, PART_SPECULATION);
	if (d->profile->on)
		experts_get_stats(d->experts, &d->before);
}

void draft_cost_guessed(struct draft_cost *d)
{
	struct experts_stats now;

	profile_release(d->profile, d->part);
	if (!d->profile->on)
		return;
	experts_get_stats(d->experts, &now);
	booked(d)->mtp.opened += now.opened - d->before.opened;
	booked(d)->mtp.bytes += now.bytes - d->before.bytes;
}

/* Time of this phase so far, but for the time to guess. */
static double outside(const struct draft_cost *d)
{
	struct profile *p = d->profile;

	profile_enter(p, p->part); /* up to now */
	return profile_seconds(p, p->phase) - p->seconds[p->phase][PART_SPECULATION];
}

void draft_cost_check(struct draft_cost *d, int n)
{
	if (!d->profile->on)
		return;
	d->checking = true;
	d->since = outside(d);
	memset(d->first, 0, sizeof(d->first));
	booked(d)->rows += (uint64_t)n;
}

void draft_cost_checked(struct draft_cost *d)
{
	if (!d->checking)
		return;
	d->checking = false;
	booked(d)->check_s += outside(d) - d->since;
}

void draft_cost_layer(struct draft_cost *d, int layer, const int32_t *ids, int n,
		      const int32_t *start, const int32_t *row)
{
	/* The MTP layer may run behind the others, for rows that wait for want of room. */
	if (!d || !d->checking || layer >= d->file->config.layers)
		return;
	for (int i = 0; i < n; i++) {
		struct profile_experts *first = &d->first[row[start[ids[i]]]];
		first->opened++;
		first->bytes += d->file->layer_layout[layer]->bytes;
	}
}

void draft_cost_keep(struct draft_cost *d, int kept, int rows)
{
	if (!d->profile->on)
		return;
	for (int i = kept; i < rows; i++) {
		booked(d)->wrong.opened += d->first[i].opened;
		booked(d)->wrong.bytes += d->first[i].bytes;
		booked(d)->wrong_rows++;
	}
}
