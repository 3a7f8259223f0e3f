/* SPDX-License-Identifier: Apache-2.0
 *
 * Belady's MIN: the bound, for a simulator that knows the future. Not to be had by name.
 */
#ifndef CACHEPOLICY_BELADY_H
#define CACHEPOLICY_BELADY_H

#include "cachepolicy/policy.h"

/* When each expert will be used. Read-only once made: caches in several threads may share one. */
struct cp_future;

/* The events are uses[0 .. ends[0]), uses[ends[0] .. ends[1]) and so on. Keys outside the geometry
 * are ignored. 0, -ENOMEM, or -EINVAL (the geometry, or 2^32 - 1 events or more). */
int cp_future_create(uint32_t layers, uint32_t experts, const struct cp_use *uses,
		     const size_t *ends, size_t events, struct cp_future **out);
void cp_future_destroy(struct cp_future *f);

/* A cache that is given just these events with cp_event(), in order; cp_victim_for() then may say
 * that `want` is better not kept. Errors of cp_create(). The future must outlive the cache and
 * have the same geometry. Parameter forced=1: whatever is missed is kept if there is any way. */
int cp_create_belady(const struct cp_config *cfg, const struct cp_future *f, struct cp_cache **out);

#endif
