/* SPDX-License-Identifier: Apache-2.0
 *
 * The one clock of the daemon and of the tools' lines of progress: monotonic nanoseconds.
 */
#ifndef EXPERTFS_CLOCK_H
#define EXPERTFS_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
