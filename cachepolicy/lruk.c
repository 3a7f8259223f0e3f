/* SPDX-License-Identifier: Apache-2.0
 *
 * LRU-K: the one whose k-th last use is longest ago goes first (O'Neil, O'Neil, Weikum: The LRU-K
 * Page Replacement Algorithm For Database Disk Buffering, SIGMOD 1993).
 *
 * Those with fewer than k uses go before all others, the least recently used first. An event
 * counts as one use of each member, so the uses that are correlated fall together by themselves
 * and the paper's correlated reference period is not needed; its retained information is kept for
 * ever, as the table has a place for each expert anyway.
 *
 * k: 2 by the paper, which found little more in 3. It is at most MOST.
 *
 * 60 bytes for each expert of the model; a use costs O(log n).
 */
#include "cachepolicy/heap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4 };
enum { K };

static const struct cp_param params[] = {
	[K] = { "k", "uses looked back", 1, MOST, 2 },
	{ .name = NULL },
};

struct lruk {
	/* rank: the k-th last use, tie: the last one, or the arrival without one */
	struct cp_ranked base;
	uint64_t (*uses)[MOST]; /* the last one first; 0 is never */
};

static struct lruk *lruk_of(struct cp_order *o)
{
	return (struct lruk *)o;
}

static int create(struct cp_order *o, const char *inner)
{
	(void)inner;
	lruk_of(o)->uses = calloc(o->n, sizeof(lruk_of(o)->uses[0]));
	return lruk_of(o)->uses ? cp_heap_create(cp_heap_of(o), o) : -ENOMEM;
}

static void destroy(struct cp_order *o)
{
	free(lruk_of(o)->uses);
	cp_heap_destroy(cp_heap_of(o));
}

static void use(struct cp_order *o, uint32_t i, uint32_t weight)
{
	struct lruk *l = lruk_of(o);

	(void)weight;
	memmove(&l->uses[i][1], &l->uses[i][0], (MOST - 1) * sizeof(l->uses[i][0]));
	l->uses[i][0] = cp_ranked_renew(o, i);
}

static void release(struct cp_order *o, uint32_t i)
{
	struct lruk *l = lruk_of(o);

	cp_heap_put(cp_heap_of(o), i, (double)l->uses[i][(unsigned)o->param[K] - 1],
		    cp_heap_of(o)->of[i].tie);
}

static void tuned(struct cp_order *o)
{
	for (uint32_t i = 0; i < o->n; i++) {
		if (cp_heap_has(cp_heap_of(o), i)) {
			cp_ranked_hold(o, i);
			release(o, i);
		}
	}
}

const struct cp_policy cp_lruk = {
	.name = "lruk",
	.about = "the k-th last use is longest ago",
	.params = params,
	.size = sizeof(struct lruk),
	.create = create,
	.destroy = destroy,
	.use = use,
	.admit = cp_ranked_admit,
	.hold = cp_ranked_hold,
	.release = release,
	.victim = cp_ranked_victim,
	.tuned = tuned,
};
