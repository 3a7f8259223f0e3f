/* SPDX-License-Identifier: Apache-2.0
 *
 * LFU with aging: the expert with the fewest uses of late goes first.
 *
 * Counts halve every half_life passes over the layers (popularity.h). Plain LFU never forgets: it
 * keeps the experts of the first subject of the day for ever. They are kept for experts that are
 * not resident as well, so one that comes back is not a stranger. Of equal counts, the one whose
 * last use is longer ago goes.
 *
 * half_life: routing is steady over some tokens and changes with the subject. On the first halves
 * of the traces in tests/data/traces 2 to 8 passes differ by half a percent point on the mean, 48
 * gives two points less; 6 stays away from both ends (tests/bench/policies.sh tune).
 *
 * 44 bytes for each expert of the model; a use costs O(log n).
 */
#include "cachepolicy/heap.h"
#include "cachepolicy/popularity.h"

static const struct cp_param params[] = {
	CP_HALF_LIFE_PARAM(6),
	{ .name = NULL },
};

/* A struct cp_ranked, rank: the popularity, tie: the last use, or the arrival without one. */

static int create(struct cp_order *o, const char *inner)
{
	int err = cp_heap_create(cp_heap_of(o), o);

	(void)inner;
	return err ? err : cp_counting_create(o);
}

static void destroy(struct cp_order *o)
{
	cp_heap_destroy(cp_heap_of(o));
	cp_counting_destroy(o);
}

static void use(struct cp_order *o, uint32_t i, uint32_t weight)
{
	cp_counting_use(o, i, weight);
	cp_ranked_renew(o, i);
}

static void release(struct cp_order *o, uint32_t i)
{
	cp_heap_put(cp_heap_of(o), i, cp_popularity_log2(o->popularity, i),
		    cp_heap_of(o)->of[i].tie);
}

const struct cp_policy cp_lfu = {
	.name = "lfu",
	.about = "least often used, with counts that age",
	.params = params,
	.size = sizeof(struct cp_ranked),
	.create = create,
	.destroy = destroy,
	.begin = cp_counting_begin,
	.use = use,
	.admit = cp_ranked_admit,
	.hold = cp_ranked_hold,
	.release = release,
	.victim = cp_ranked_victim,
	.seed = cp_counting_seed,
};
