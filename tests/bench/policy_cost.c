/* SPDX-License-Identifier: Apache-2.0
 *
 * What one access costs: nanoseconds for each use, with all that it brings along (the event, victims,
 * evictions, admissions), for every policy. Not a test: it prints a table to be read.
 *
 *	policy_cost [POLICY...]     default: all of them
 *
 * 20,480 experts in 80 layers of 256, of which each token asks for 8 a layer, layer after layer.
 * Popularity follows Zipf's law, another order in each layer, and three of ten experts are those of
 * the token before. The cache holds 20, 50 or 95 % of all; "events" names the experts of a layer at
 * once (cachesim), "opens" one by one with a pin for each (the daemon). Each figure is the median
 * of several runs; each run goes over the same tokens, after as many that fill the cache.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cachepolicy/policy.h"

enum { LAYERS = 80, EXPERTS = 256, CHOSEN = 8, TOKENS = 400, RUNS = 15 };

#define N      (LAYERS * EXPERTS)
#define REPEAT 0.3
#define SKEW   0.8

static const double shares[] = { 0.20, 0.50, 0.95 };
enum { SHARES = sizeof(shares) / sizeof(shares[0]) };

static struct cp_use uses[TOKENS][LAYERS][CHOSEN];

/* xorshift64*: the same traffic everywhere. */
static double draw(void)
{
	static uint64_t x = 1;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	return (double)((x * UINT64_C(2685821657736338717)) >> 11) * 0x1p-53;
}

static bool among(const struct cp_use *set, int n, cp_key key)
{
	for (int k = 0; k < n; k++)
		if (set[k].key == key)
			return true;
	return false;
}

static void make_layer(unsigned layer)
{
	unsigned order[EXPERTS];
	double sum[EXPERTS + 1] = { 0 };

	for (unsigned r = 0; r < EXPERTS; r++) {
		unsigned other = (unsigned)(draw() * (r + 1));

		order[r] = order[other];
		order[other] = r;
		sum[r + 1] = sum[r] + pow(r + 1, -SKEW);
	}
	for (int t = 0; t < TOKENS; t++) {
		struct cp_use *set = uses[t][layer];
		int n = 0;

		for (int k = 0; t && k < CHOSEN; k++)
			if (draw() < REPEAT)
				set[n++] = uses[t - 1][layer][k];
		while (n < CHOSEN) {
			double at = draw() * sum[EXPERTS];
			unsigned r = 0;

			while (sum[r + 1] <= at && r < EXPERTS - 1)
				r++;
			if (!among(set, n, cp_key_of(layer, order[r])))
				set[n++] = (struct cp_use){ cp_key_of(layer, order[r]), 1 };
		}
	}
}

static void serve(struct cp_cache *c, cp_key key)
{
	cp_key out;

	if (cp_resident(c, key))
		return;
	while (!cp_fits(c, 1)) {
		if (!cp_victim_for(c, key, &out))
			return;
		cp_remove(c, out);
	}
	cp_admit(c, key, 1);
}

static void by_events(struct cp_cache *c, const struct cp_use *set)
{
	cp_event(c, 0, set, CHOSEN);
	for (int k = 0; k < CHOSEN; k++)
		serve(c, set[k].key);
}

/* All are held until the layer has been computed. */
static void by_opens(struct cp_cache *c, const struct cp_use *set)
{
	bool kept[CHOSEN];

	for (int k = 0; k < CHOSEN; k++) {
		cp_open(c, 0, set[k]);
		serve(c, set[k].key);
		kept[k] = cp_pin(c, set[k].key);
	}
	for (int k = 0; k < CHOSEN; k++)
		if (kept[k])
			cp_unpin(c, set[k].key);
}

static double cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void replay(struct cp_cache *c, void (*ask)(struct cp_cache *, const struct cp_use *))
{
	for (int t = 0; t < TOKENS; t++)
		for (unsigned l = 0; l < LAYERS; l++)
			ask(c, uses[t][l]);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* ns a use, and the hit rate. Negative if there is no such policy or no memory. */
static double measure(const char *policy, double share,
		      void (*ask)(struct cp_cache *, const struct cp_use *), double *hits)
{
	struct cp_config cfg = { .capacity = (uint64_t)(share * N),
				 .layers = LAYERS,
				 .experts = EXPERTS };
	struct cp_stats before, after;
	double time[RUNS];
	struct cp_cache *c;

	if (cp_create_spec(policy, &cfg, &c) != 0)
		return -1;
	replay(c, ask);
	cp_stats(c, &before);
	for (int r = 0; r < RUNS; r++) {
		double start = cpu_ns();

		replay(c, ask);
		time[r] = cpu_ns() - start;
	}
	cp_stats(c, &after);
	*hits = (double)(after.hits - before.hits) / (double)(after.uses - before.uses);
	cp_destroy(c);
	qsort(time, RUNS, sizeof(time[0]), compare);
	return time[RUNS / 2] / (TOKENS * LAYERS * CHOSEN);
}

static int print_row(const char *policy)
{
	printf("%-12s", policy);
	for (int opens = 0; opens < 2; opens++) {
		for (int s = 0; s < SHARES; s++) {
			double hits = 0,
			       ns = measure(policy, shares[s], opens ? by_opens : by_events, &hits);

			if (ns < 0) {
				fprintf(stderr, "policy_cost: %s: no such policy, or no memory\n",
					policy);
				return 1;
			}
			printf(" %6.0f (%2.0f %%)", ns, 100 * hits);
		}
		fflush(stdout);
	}
	putchar('\n');
	return 0;
}

int main(int argc, char **argv)
{
	const char *const *policy = argc > 1 ? (const char *const *)argv + 1 : cp_policy_names();
	int status = 0;

	for (unsigned l = 0; l < LAYERS; l++)
		make_layer(l);
	printf("ns a use (hit rate), %d experts\n%-12s", N, "policy");
	for (int opens = 0; opens < 2; opens++)
		for (int s = 0; s < SHARES; s++)
			printf(" %s %2.0f %%   ", opens ? "opens " : "events", 100 * shares[s]);
	putchar('\n');
	for (; *policy && !status; policy++)
		status = print_row(*policy);
	return status;
}
