/* SPDX-License-Identifier: Apache-2.0
 *
 * Which experts are hot: from what `expertctl usage --export` wrote of a store of the same model.
 *
 *	layer,expert,heat,uses,loads,last_use,load_ns
 *	3,117,41.5,97,3,1767225600,2100000
 */
#ifndef COLI_PACK_USAGE_H
#define COLI_PACK_USAGE_H

#include "tools/coli-pack/plan.h"

#define USAGE_HEAD "layer,expert,heat,uses,loads,last_use,load_ns"

/* Sets hot[e] for the hottest experts of p->spread.usage, in order of heat until the next one would
 * go beyond p->spread.hot_bytes; those of no heat are not taken. bytes: of each expert. *check: XXH3
 * of the file. 0, or negative errno with the sentence in why: not such a file, an expert that the
 * model has not or that is named twice. */
int usage_hottest(const struct plan *p, const uint64_t *bytes, bool *hot, uint64_t *check,
		  char *why);

#endif
