/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading everything that a catalog names, gently: one thread a drive, in order of offset, at the
 * lowest priority of the machine (unless it has to be fast), and in the gaps that a daemon leaves.
 */
#ifndef EXPERTCTL_VERIFY_READ_H
#define EXPERTCTL_VERIFY_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "expertfs/store.h"

/* One extent of one expert. */
struct verify_item {
	uint32_t index; /* of the expert in the store */
	struct extent x;
	int err;       /* 0, -EINPROGRESS: not read; else proof_range()'s error */
	bool bad_head; /* the record's head does not hold, or tells of other bytes than the catalog */
};

struct verify {
	const struct store *store;
	struct verify_item *item; /* sorted by drive, then offset */
	uint64_t n;
	uint64_t total; /* bytes to read: the same range is read once */
	bool fast;      /* at the priority that the process has */

	_Atomic uint64_t done;
	_Atomic bool stop;
	_Atomic bool *busy; /* of each drive: somebody waits for it; STORE_DRIVES_MAX */
};

/* All extents of all experts (index < 0), or of one. 0 or negative errno. */
int verify_begin(struct verify *v, const struct store *s, int64_t index, char *why);
void verify_end(struct verify *v);

/* Starts the threads and calls wait() every so often until they are done, from this thread. */
int verify_run(struct verify *v, void (*wait)(void *arg, struct verify *v), void *arg, char *why);

#endif
