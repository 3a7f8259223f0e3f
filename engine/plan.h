/* SPDX-License-Identifier: Apache-2.0
 *
 * What an engine takes of the machine before it is opened: options completed, memory counted and
 * compared with what there is; and the choice of context and chunk by it (engine_plan()).
 */
#ifndef ENGINE_PLAN_H
#define ENGINE_PLAN_H

#include "engine/engine.h"

struct plan {
	struct engine_options options; /* completed */
	struct mount_stats mount;
	size_t experts; /* experts_bytes() */
	struct engine_memory memory;
};

/* Looks at the mount's files as well. -ENOMEM with the amounts if the memory is not there, or
 * another negative errno with the sentence. */
int engine_plan_make(const struct modelfile *file, const struct engine_options *o, struct plan *out,
		     char *why);

/* Rows that there must be room for: a chunk, and what engine_feed_drafts() takes at once. */
int plan_rows(const struct engine_options *o);
/* Of the key-value cache: the MTP layer's, if it is used, are behind those of the others. */
int plan_cache_layers(const struct modelfile *file, const struct engine_options *o);

#endif
