/* SPDX-License-Identifier: Apache-2.0
 *
 * Replaying traces: replay.h.
 */
#include "tools/cachesim/replay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cachepolicy/belady.h"
#include "expertfs/fail.h"

static const char belady[] = "belady", forced[] = "belady:forced=1";

/* "belady", alone or with parameters. */
static bool is_belady(const char *spec)
{
	size_t length = sizeof(belady) - 1;

	return strncmp(spec, belady, length) == 0 && (!spec[length] || spec[length] == ':');
}

int grid_spec_check(const char *spec)
{
	if (!is_belady(spec))
		return cp_spec_check(spec);
	return strcmp(spec, belady) == 0 || strcmp(spec, "belady:forced=0") == 0 ||
			       strcmp(spec, forced) == 0
		       ? 0
		       : -EINVAL;
}

static void count_hits(const struct trace *t, const struct cp_cache *c, size_t start, size_t end,
		       struct result *r)
{
	for (size_t k = start; k < end; k++) {
		uint64_t bytes = trace_bytes_of(t, t->uses[k].key);

		r->bytes += bytes;
		if (cp_resident(c, t->uses[k].key))
			r->hit_bytes += bytes;
	}
}

/* The loop at the head of policy.h. */
static void serve(const struct trace *t, struct cp_cache *c, cp_key key)
{
	cp_key out;

	if (cp_resident(c, key))
		return;
	while (!cp_fits(c, trace_bytes_of(t, key))) {
		if (!cp_victim_for(c, key, &out))
			return;
		cp_remove(c, out);
	}
	cp_admit(c, key, trace_bytes_of(t, key));
}

void replay(const struct trace *t, struct cp_cache *c, struct result *r)
{
	struct cp_stats stats;
	size_t start = 0;

	memset(r, 0, sizeof(*r));
	for (size_t e = 0; e < t->events; e++) {
		size_t end = t->ends[e];

		count_hits(t, c, start, end, r);
		cp_event(c, t->times[e], &t->uses[start], end - start);
		for (size_t k = start; k < end; k++)
			serve(t, c, t->uses[k].key);
		start = end;
	}
	cp_stats(c, &stats);
	r->capacity = stats.capacity;
	r->events = stats.events;
	r->uses = stats.uses;
	r->hits = stats.hits;
}

static int run_one(const struct trace *t, const struct cp_future *future, const char *spec,
		   uint64_t capacity, struct result *r)
{
	struct cp_config cfg = { .capacity = capacity, .layers = t->layers, .experts = t->experts };
	struct cp_cache *c = NULL;
	int err = is_belady(spec) ? cp_create_belady(&cfg, future, &c)
				  : cp_create_spec(spec, &cfg, &c);

	if (err)
		return err;
	if (strcmp(spec, forced) == 0)
		cp_set(c, "forced", 1);
	replay(t, c, r);
	cp_destroy(c);
	return 0;
}

/* Job j of a grid: the capacities of a policy of a trace follow each other; the last policy is the
 * bound. */
static int run_job(struct grid *g, struct cp_future **future, size_t j)
{
	size_t c = j % g->capacities, p = j / g->capacities % (g->policies + 1);
	size_t t = j / g->capacities / (g->policies + 1);
	struct result *r = p < g->policies ? &g->result[(t * g->policies + p) * g->capacities + c]
					   : &g->belady[t * g->capacities + c];

	return run_one(g->trace[t], future[t], p < g->policies ? g->policy[p] : belady,
		       g->capacity[t * g->capacities + c], r);
}

static int run_jobs(struct grid *g, struct cp_future **future)
{
	size_t jobs = g->traces * (g->policies + 1) * g->capacities;
	int err = 0;

#pragma omp parallel for schedule(dynamic, 1)
	for (size_t j = 0; j < jobs; j++) {
		int e = run_job(g, future, j);

		if (e) {
#pragma omp atomic write
			err = e;
		}
	}
	return err;
}

int grid_run(struct grid *g, char *why)
{
	struct cp_future **future = calloc(g->traces, sizeof(struct cp_future *));
	int err = future ? 0 : -ENOMEM;

	g->result = calloc(g->traces * g->policies * g->capacities, sizeof(g->result[0]));
	g->belady = calloc(g->traces * g->capacities, sizeof(g->belady[0]));
	if (!g->result || !g->belady)
		err = -ENOMEM;
	for (size_t t = 0; !err && t < g->traces; t++)
		err = cp_future_create(g->trace[t]->layers, g->trace[t]->experts, g->trace[t]->uses,
				       g->trace[t]->ends, g->trace[t]->events, &future[t]);
	if (!err)
		err = run_jobs(g, future);
	for (size_t t = 0; future && t < g->traces; t++)
		cp_future_destroy(future[t]);
	free(future);
	return err ? fail(why, -err, "the replay failed: %s", strerror(-err)) : 0;
}

void grid_free(struct grid *g)
{
	free(g->result);
	free(g->belady);
}
