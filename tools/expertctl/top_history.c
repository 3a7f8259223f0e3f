/* SPDX-License-Identifier: Apache-2.0
 *
 * From counters to rates, and the rates of the last minutes; see top.h.
 */
#include "tools/expertctl/top.h"

#include <math.h>
#include <stdlib.h>

void top_series_add(struct top_series *s, double v)
{
	s->value[s->next] = (float)v;
	s->next = (s->next + 1) % TOP_HISTORY;
	if (s->n < TOP_HISTORY)
		s->n++;
}

double top_series_at(const struct top_series *s, unsigned back)
{
	if (back >= s->n)
		return NAN;
	return (double)s->value[(s->next + TOP_HISTORY - 1 - back) % TOP_HISTORY];
}

bool top_history_init(struct top_history *h)
{
	*h = (struct top_history){
		.opens_rate = NAN, .evictions_rate = NAN, .hit_rate = NAN, .bytes_rate = NAN
	};
	h->drive = calloc(TOP_DRIVES, sizeof(*h->drive));
	return h->drive != NULL;
}

void top_history_free(struct top_history *h)
{
	free(h->drive);
	h->drive = NULL;
}

const struct top_drive_rate *top_history_drive(const struct top_history *h, unsigned number)
{
	for (unsigned i = 0; i < h->drives; i++)
		if (h->drive[i].number == number)
			return &h->drive[i];
	return NULL;
}

static struct top_drive_rate *rate_of(struct top_history *h, unsigned number)
{
	for (unsigned i = 0; i < h->drives; i++)
		if (h->drive[i].number == number)
			return &h->drive[i];
	if (h->drives == TOP_DRIVES)
		return NULL;
	h->drive[h->drives] = (struct top_drive_rate){ .number = number, .bytes = NAN };
	return &h->drive[h->drives++];
}

/* A counter that fell is another drive's, or the daemon's after a restart. */
static double rate(double now, double before, double seconds)
{
	return seconds > 0 && now >= before ? (now - before) / seconds : NAN;
}

static void add_drives(struct top_history *h, const struct top_sample *s, double seconds,
		       bool average)
{
	h->bytes_rate = 0;
	for (unsigned i = 0; i < s->drives; i++) {
		const struct top_drive *d = &s->drive[i];
		struct top_drive_rate *r = rate_of(h, d->number);
		if (!r)
			continue;
		r->rate = rate(d->bytes, average ? 0 : r->bytes, seconds);
		r->bytes = d->bytes;
		if (r->rate > 0)
			h->bytes_rate += r->rate;
		if (!average) {
			top_series_add(&r->rates, r->rate);
			r->best = r->rate > r->best ? r->rate : r->best;
		}
	}
	if (!average)
		top_series_add(&h->bytes_rates, h->bytes_rate);
}

void top_history_add(struct top_history *h, const struct top_sample *s)
{
	/* A daemon that is younger than the last one was: started anew. */
	bool average = !h->begun || s->uptime < h->uptime;
	double seconds = average ? s->uptime : s->time - h->time;
	double opens = s->opens - (average ? 0 : h->opens);
	double hits = s->hits - (average ? 0 : h->hits);

	h->opens_rate = rate(s->opens, average ? 0 : h->opens, seconds);
	h->evictions_rate = rate(s->evictions, average ? 0 : h->evictions, seconds);
	h->hit_rate = opens > 0 && hits >= 0 ? hits / opens : NAN;
	if (!average)
		top_series_add(&h->hit_rates, h->hit_rate);
	add_drives(h, s, seconds, average);
	h->begun = true;
	h->time = s->time;
	h->uptime = s->uptime;
	h->opens = s->opens;
	h->hits = s->hits;
	h->evictions = s->evictions;
}

void top_history_gap(struct top_history *h)
{
	top_series_add(&h->hit_rates, NAN);
	top_series_add(&h->bytes_rates, NAN);
	for (unsigned i = 0; i < h->drives; i++)
		top_series_add(&h->drive[i].rates, NAN);
}
