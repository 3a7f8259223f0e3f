/* SPDX-License-Identifier: Apache-2.0
 *
 * How much memory there is to be had.
 */
#ifndef EXPERTFS_MEMORY_H
#define EXPERTFS_MEMORY_H

#include <stdint.h>

/* Memory that can still be had: MemAvailable, and what the limits of our cgroup (v1 or v2, and of
 * the groups above it) leave, whichever is least. Page cache counts as free. Bytes; 0 if /proc is
 * not there. */
uint64_t memory_available(void);
/* The same with another root than "" for /proc and /sys/fs/cgroup, for tests. */
uint64_t memory_available_at(const char *root);

#endif
