/* SPDX-License-Identifier: Apache-2.0
 *
 * Replaying traces: each policy at each capacity, exactly as the daemon serves a layer event.
 */
#ifndef CACHESIM_REPLAY_H
#define CACHESIM_REPLAY_H

#include "tools/cachesim/trace.h"

struct result {
	uint64_t capacity; /* bytes */
	uint64_t events, uses, hits;
	uint64_t bytes, hit_bytes; /* of all uses, and of the hits */
};

static inline double result_hit_rate(const struct result *r)
{
	return r->uses ? (double)r->hits / (double)r->uses : 0;
}

static inline double result_byte_hit_rate(const struct result *r)
{
	return r->bytes ? (double)r->hit_bytes / (double)r->bytes : 0;
}

static inline double result_misses_per_token(const struct result *r, const struct trace *t)
{
	return (double)(r->uses - r->hits) / (double)t->passes;
}

/* What is to be replayed: all of them with all of them. The capacity c of trace t is capacity[t *
 * capacities + c]; the result of policy p there is result[(t * policies + p) * capacities + c],
 * that of Belady's MIN belady[t * capacities + c]. */
struct grid {
	struct trace **trace;
	size_t traces;
	const char **policy; /* specs; "belady", "belady:forced=0" or 1 besides those of policy.h */
	size_t policies;
	const uint64_t *capacity;
	size_t capacities;
	struct result *result, *belady; /* by grid_run() */
};

/* Is this a spec that grid_run() takes? 0 or the errors of cp_spec_check(). */
int grid_spec_check(const char *spec);

/* Runs it on all cores. 0 or -errno; grid_free() frees the results. */
int grid_run(struct grid *g, char *why);
void grid_free(struct grid *g);

/* One replay into a fresh cache. */
void replay(const struct trace *t, struct cp_cache *c, struct result *r);

#endif
