/* SPDX-License-Identifier: Apache-2.0
 *
 * A ring of seconds; see rates.h.
 */
#include "expertfs/rates.h"

#include <string.h>

#define SECOND_NS 1000000000u

/* The seconds after the newest one become empty, now_s is the newest. */
static void advance(struct rates *r, uint64_t now_s)
{
	uint64_t gap = now_s - r->second;

	if (gap >= RATES_SECONDS)
		memset(r->of, 0, sizeof(r->of));
	else
		for (uint64_t s = r->second + 1; s <= now_s; s++)
			memset(&r->of[s % RATES_SECONDS], 0, sizeof(r->of[0]));
	r->second = now_s;
}

void rates_count(struct rates *r, uint64_t now_ns, bool hit)
{
	uint64_t now_s = now_ns / SECOND_NS;

	if (now_s > r->second)
		advance(r, now_s);
	r->of[r->second % RATES_SECONDS].opens++;
	r->of[r->second % RATES_SECONDS].hits += hit;
}

void rates_minute(const struct rates *r, uint64_t now_ns, uint64_t *opens, uint64_t *hits)
{
	uint64_t now_s = now_ns / SECOND_NS;
	uint64_t old = now_s > r->second ? now_s - r->second : 0;

	*opens = *hits = 0;
	for (uint64_t back = 0; back + old < RATES_SECONDS; back++) {
		/* Within the first minute of the clock the ring has what is before zero: nothing. */
		uint64_t at = (r->second % RATES_SECONDS + RATES_SECONDS - back) % RATES_SECONDS;
		*opens += r->of[at].opens;
		*hits += r->of[at].hits;
	}
}
