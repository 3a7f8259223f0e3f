/* SPDX-License-Identifier: Apache-2.0
 *
 * What --memory has to hold, and whether machine and cgroup have it.
 *
 *	total = tables + threads + buffers + usage + moving + hot drive + hot store
 *
 * A budget below the other terms leaves a hot store of nothing: the daemon then works from the
 * drives alone.
 */
#ifndef EXPERTFS_BUDGET_H
#define EXPERTFS_BUDGET_H

#include "expertfs/fs.h"

/* asked: --memory in bytes, or UINT64_MAX: half of what is available. threads: all of the daemon's.
 * hot_dir: there is a hot drive. Fills *b; -ENOMEM and the missing amount if the hot store, filled,
 * would not fit into what is available. */
int budget_make(uint64_t asked, const struct store *s, const struct backing_source *source,
		int threads, bool hot_dir, struct budget *b, char *why);

/* "memory 2.00 GiB: hot store 1.98 GiB (96 of 384 experts, in huge pages), tables 3.1 MiB, ..." */
void budget_text(const struct budget *b, const struct store *s, const struct backing_source *source,
		 char *text, size_t size);

#endif
