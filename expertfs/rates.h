/* SPDX-License-Identifier: Apache-2.0
 *
 * The last minute: opens and hits in a ring of 60 seconds, for the hit rate of now rather than of
 * the whole life. Counting is two additions but for the first of a second, so it may be done under a
 * lock that each open takes. The caller locks.
 */
#ifndef EXPERTFS_RATES_H
#define EXPERTFS_RATES_H

#include <stdbool.h>
#include <stdint.h>

#define RATES_SECONDS 60

/* All zero at the start. */
struct rates {
	uint64_t second; /* the newest that was counted in */
	struct {
		uint32_t opens, hits;
	} of[RATES_SECONDS]; /* second s lies in of[s % RATES_SECONDS] */
};

/* One open at now_ns (clock_ns()). A time before the newest second counts into that. */
void rates_count(struct rates *r, uint64_t now_ns, bool hit);

/* Sums of this second and the 59 before it. */
void rates_minute(const struct rates *r, uint64_t now_ns, uint64_t *opens, uint64_t *hits);

#endif
