/* SPDX-License-Identifier: Apache-2.0
 *
 * What an earlier run has left: the records of the shards, one by one, against the plan.
 */
#ifndef COLI_PACK_RESUME_H
#define COLI_PACK_RESUME_H

#include "tools/coli-pack/output.h"
#include "tools/coli-pack/state.h"

/* Sets there[i] and check[i] (the payload's checksum) for the parts of p->place whose records are
 * whole, written[e] for the experts that have all their parts, and cuts each shard behind the last
 * whole record before the first that is not. The payloads of those beyond the state's durable mark,
 * and of each shard's last, are read and compared; the others are known to be on disk. Where a
 * drive has lost what the mark promised, the mark is lowered. Returns the number of such experts,
 * or negative errno with the sentence in why. */
int64_t resume_scan(const struct plan *p, const struct output *o, struct state *s, bool *there,
		    uint64_t *check, bool *written, char *why);

#endif
