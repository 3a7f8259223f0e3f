/* SPDX-License-Identifier: Apache-2.0
 *
 * Hot set: LRU, with the most popular experts kept out of it.
 *
 * What people do by hand when they pin the experts of last week's statistics, learned from the use
 * itself: an expert that is let go is protected if there is room in the share of the capacity that
 * is set aside, or if it has more uses of late (popularity.h) than the least popular protected
 * one, which then goes back to the recent end of the LRU list. The victim is the least recently
 * used one that is not protected; only when there is none, the least popular protected one.
 *
 * share, half_life: three quarters and 16 passes are best on the mean of the first halves of the
 * traces in tests/data/traces; half gives 0.3 percent points less (tests/bench/policies.sh tune).
 *
 * 69 bytes for each expert of the model; a use costs O(log n).
 */
#include "cachepolicy/heap.h"
#include "cachepolicy/lists.h"
#include "cachepolicy/popularity.h"

#include <math.h>

enum { SHARE = CP_HALF_LIFE + 1 };

static const struct cp_param params[] = {
	CP_HALF_LIFE_PARAM(16),
	[SHARE] = { "share", "of the capacity that is protected", 0, 1, 0.75 },
	{ .name = NULL },
};

struct hotset {
	struct cp_listed base; /* one: what may go and is not protected, by its last use */
	struct cp_heap hot;    /* what may go and is protected, by its popularity */
	uint64_t hot_bytes;
};

static struct hotset *hotset_of(struct cp_order *o)
{
	return (struct hotset *)o;
}

static int create(struct cp_order *o, const char *inner)
{
	struct hotset *h = hotset_of(o);
	int err = cp_heap_create(&h->hot, o);

	if (!err)
		err = cp_counting_create(o);
	return err ? err : cp_listed_create_one(o, inner);
}

static void destroy(struct cp_order *o)
{
	cp_heap_destroy(&hotset_of(o)->hot);
	cp_counting_destroy(o);
	cp_listed_destroy(o);
}

static void hold(struct cp_order *o, uint32_t i)
{
	struct hotset *h = hotset_of(o);

	if (cp_heap_has(&h->hot, i)) {
		cp_heap_take(&h->hot, i);
		h->hot_bytes -= o->entry[i].bytes;
	}
	cp_listed_unlink(o, i);
}

static void release(struct cp_order *o, uint32_t i)
{
	struct hotset *h = hotset_of(o);
	double rank = cp_popularity_log2(o->popularity, i);
	double room = o->param[SHARE] * (double)o->capacity - (double)o->entry[i].bytes;
	uint32_t least;

	while ((double)h->hot_bytes > room && (least = cp_heap_top(&h->hot)) != CP_NONE &&
	       h->hot.of[least].rank < rank) {
		hold(o, least);
		cp_listed_link(o, least);
	}
	if ((double)h->hot_bytes > room || rank == -HUGE_VAL) {
		cp_listed_link(o, i);
		return;
	}
	cp_heap_put(&h->hot, i, rank, 0);
	h->hot_bytes += o->entry[i].bytes;
}

static uint32_t victim(struct cp_order *o, uint32_t want)
{
	uint32_t i = cp_lists_oldest(&cp_listed_of(o)->lists, 0);

	(void)want;
	return i != CP_NONE ? i : cp_heap_top(&hotset_of(o)->hot);
}

const struct cp_policy cp_hotset = {
	.name = "hotset",
	.about = "least recently used, with the most popular ones protected",
	.params = params,
	.size = sizeof(struct hotset),
	.create = create,
	.destroy = destroy,
	.begin = cp_counting_begin,
	.use = cp_counting_use,
	.admit = cp_listed_enter,
	.remove = cp_listed_leave,
	.hold = hold,
	.release = release,
	.victim = victim,
	.seed = cp_counting_seed,
};
