/* SPDX-License-Identifier: Apache-2.0
 *
 * Latencies in buckets that grow by 2^(1/4), from 1 us: percentiles within 19 %. Not thread-safe.
 */
#ifndef EXPERTFS_HISTOGRAM_H
#define EXPERTFS_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_BUCKETS 128 /* up to 2^32 us */

struct histogram {
	uint64_t count[HISTOGRAM_BUCKETS], total;
};

void histogram_add(struct histogram *h, uint64_t ns);
/* share in 0..1. Milliseconds (the upper end of the bucket), 0 if nothing was added. */
double histogram_ms(const struct histogram *h, double share);

#endif
