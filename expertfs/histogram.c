/* SPDX-License-Identifier: Apache-2.0
 *
 * Latency percentiles without keeping the samples.
 */
#include "expertfs/histogram.h"

#include <math.h>

void histogram_add(struct histogram *h, uint64_t ns)
{
	double us = (double)ns / 1000;
	int i = us <= 1 ? 0 : (int)ceil(4 * log2(us));

	h->count[i < HISTOGRAM_BUCKETS ? i : HISTOGRAM_BUCKETS - 1]++;
	h->total++;
}

double histogram_ms(const struct histogram *h, double share)
{
	uint64_t seen = 0;

	for (int i = 0; i < HISTOGRAM_BUCKETS; i++) {
		seen += h->count[i];
		if (h->total && (double)seen >= share * (double)h->total)
			return exp2(i / 4.0) / 1000;
	}
	return 0;
}
