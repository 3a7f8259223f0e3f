/* SPDX-License-Identifier: Apache-2.0
 *
 * One pack from the checked plan to the finished store, or to an end that can be resumed.
 */
#ifndef COLI_PACK_PACK_H
#define COLI_PACK_PACK_H

#include <signal.h>

#include "tools/coli-pack/output.h"

/* Writes the store that p and model_json describe to o. restart: what an earlier run has left is
 * removed first. Says on stderr what goes on, and on stdout at the end what was made. 0; -EINTR if
 * *stop was set, the partial store being kept; or negative errno with the sentence in why: then
 * nothing of this run is left, unless it is worth resuming. */
int pack_store(const struct plan *p, struct output *o, const char *model_json, bool restart,
	       const volatile sig_atomic_t *stop, char *why);

#endif
