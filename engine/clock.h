/* SPDX-License-Identifier: Apache-2.0
 *
 * Seconds on a clock that only goes forward.
 */
#ifndef ENGINE_CLOCK_H
#define ENGINE_CLOCK_H

#include <time.h>

static inline double clock_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif
