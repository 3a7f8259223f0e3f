/* SPDX-License-Identifier: Apache-2.0
 *
 * What --memory has to hold, and whether machine and cgroup have it.
 *
 *	total = fixed (tables, stacks, read buffers) + capacity of the hot store
 *
 * A budget below the fixed part leaves a hot store of nothing: the daemon then works from the
 * drives alone.
 */
#ifndef EXPERTFS_BUDGET_H
#define EXPERTFS_BUDGET_H

#include "expertfs/fs.h"

/* Memory that can still be had: MemAvailable, and what the limits of our cgroup (v1 or v2, and of
 * the groups above it) leave, whichever is least. Bytes; 0 if /proc is not there. */
uint64_t memory_available(void);

/* asked: --memory in bytes, or UINT64_MAX: half of what is available. threads: all of the daemon's.
 * Fills *b; -ENOMEM and the missing amount if the hot store, filled, would not fit into what is
 * available. */
int budget_make(uint64_t asked, const struct store *s, const struct backing_source *source,
		int threads, struct budget *b, char *why);

/* "2.0 GiB = 3.1 MiB tables and buffers + 2.0 GiB hot store (96 of 384 experts)" into text. */
void budget_text(const struct budget *b, const struct store *s, const struct backing_source *source,
		 char *text, size_t size);

#endif
