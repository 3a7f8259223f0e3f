/* SPDX-License-Identifier: Apache-2.0
 *
 * What policy.c and the policies share; nobody else includes this.
 */
#ifndef CACHEPOLICY_POLICIES_H
#define CACHEPOLICY_POLICIES_H

#include "cachepolicy/policy.h"

/* The first member of each policy's own cache. */
struct cp_cache {
	const struct cp_policy *policy;
};

/* A key's place in a table of layers * experts entries. False if it lies outside the geometry. */
static inline bool cp_index(const struct cp_config *cfg, cp_key key, uint32_t *index)
{
	uint32_t layer = key >> 16, expert = key & 0xffff;

	if (layer >= cfg->layers || expert >= cfg->experts)
		return false;
	*index = layer * cfg->experts + expert;
	return true;
}

extern const struct cp_policy cp_lru;

#endif
