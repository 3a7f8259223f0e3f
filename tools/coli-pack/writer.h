/* SPDX-License-Identifier: Apache-2.0
 *
 * From chunks to dense.bin and shards: quantises on all cores, writes, and marks what is on disk.
 */
#ifndef COLI_PACK_WRITER_H
#define COLI_PACK_WRITER_H

#include <signal.h>

#include "tools/coli-pack/output.h"
#include "tools/coli-pack/progress.h"
#include "tools/coli-pack/state.h"

struct packing {
	const struct plan *plan;
	struct output *out;
	struct state *state; /* state->dense: where to begin; moved on */
	bool *there;         /* a part of plan->place; grows */
	uint64_t *check;     /* its payload's checksum, where it is there */
	bool *written;       /* an expert: all its parts are there */
	struct pack_progress progress;
	const volatile sig_atomic_t *stop; /* set by a signal: end at the next whole thing */
};

/* Writes all that is not written yet. 0; -EINTR if *stop was set, all that is whole being synced
 * and marked; or negative errno with the sentence in why. -EINVAL and -EDOM mean the checkpoint. */
int write_all(struct packing *k, char *why);

#endif
