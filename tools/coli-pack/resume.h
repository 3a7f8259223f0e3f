/* SPDX-License-Identifier: Apache-2.0
 *
 * What an earlier run has left: the records of the shards, one by one, against the plan.
 */
#ifndef COLI_PACK_RESUME_H
#define COLI_PACK_RESUME_H

#include "tools/coli-pack/output.h"
#include "tools/coli-pack/state.h"

/* Sets written[e] and check[e] (the payload's checksum) for the experts whose records are whole,
 * and cuts each shard behind the last of them. The payloads of those beyond the state's durable
 * mark, and of each shard's last, are read and compared; the others are known to be on disk.
 * Returns the number found, or negative errno with the sentence in why. */
int64_t resume_scan(const struct plan *p, const struct output *o, const struct state *s,
		    bool *written, uint64_t *check, char *why);

#endif
