/* SPDX-License-Identifier: Apache-2.0
 *
 * LFRU: frequency of late and recency in one score; the lowest goes first.
 *
 *	score = (1 - weight) * log2(uses) - weight * log2(age)
 *
 * uses: decayed count (popularity.h), in steps of a quarter of an octave; age: events since the
 * last use. weight 1 is LRU, 0 is LFU with aging, 1/2 is the order by uses / age, the best policy
 * without foresight in 12 of 13 conditions of arXiv 2608.07911.
 *
 * Ages do not grow in step, so no heap keeps this order. But of experts with the same count the
 * oldest has the lowest score, whatever the weight: there is a list for each step of the count,
 * and the victim is the best of their oldest ones. Counts decay together, so the step of a list
 * follows from the time and nothing moves; only what falls out at the low end is collected in one
 * last list, in the order of its fall. The weight can be changed at any time for nothing.
 *
 * weight, half_life: 0.3 and 16 passes are best on the mean of the first halves of the traces in
 * tests/data/traces, by 0.4 percent points over 0.5 and 48 (tests/bench/policies.sh tune).
 *
 * 49 bytes for each expert of the model. A use takes constant time, a victim a look at the 129
 * lists.
 */
#include "cachepolicy/lists.h"
#include "cachepolicy/popularity.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum {
	STEPS = 4,    /* to an octave */
	LEVELS = 128, /* 32 octaves: */
	LOWEST = -48, /* from 2^-12 uses to 2^20 */
	FALLEN = LEVELS,
	LISTS
};

enum { WEIGHT = CP_HALF_LIFE + 1 };

static const struct cp_param params[] = {
	CP_HALF_LIFE_PARAM(16),
	[WEIGHT] = { "weight", "of recency against frequency: 1 is LRU, 0 is LFU", 0, 1, 0.3 },
	{ .name = NULL },
};

struct lfru {
	struct cp_listed base;
	int64_t step;   /* the time in steps: what one use of now is worth */
	uint64_t clock; /* events */
	uint64_t *last; /* the event when it was let go: its last use, unless it was pinned */
};

static struct lfru *lfru_of(struct cp_order *o)
{
	return (struct lfru *)o;
}

static int create(struct cp_order *o, const char *inner)
{
	struct lfru *l = lfru_of(o);
	int err = cp_counting_create(o);

	(void)inner;
	l->last = calloc(o->n, sizeof(l->last[0]));
	if (!err)
		err = l->last ? cp_listed_create(o, LISTS) : -ENOMEM;
	return err;
}

static void destroy(struct cp_order *o)
{
	free(lfru_of(o)->last);
	cp_counting_destroy(o);
	cp_listed_destroy(o);
}

/* The list of a level: the same one as long as the level is in the window. */
static uint32_t list_of(int64_t level)
{
	return (uint32_t)(((level % LEVELS) + LEVELS) % LEVELS);
}

static void begin(struct cp_order *o, uint64_t now)
{
	struct lfru *l = lfru_of(o);
	struct cp_lists *lists = &l->base.lists;
	int64_t step;
	uint32_t i;

	l->clock++;
	cp_counting_begin(o, now);
	step = (int64_t)floor(STEPS * o->popularity->now);
	/* As the window goes up, its lowest level is the next one's highest. */
	for (int k = 0; k < LEVELS && l->step + k < step; k++)
		while ((i = cp_lists_oldest(lists, list_of(l->step + k + LOWEST))) != CP_NONE)
			cp_lists_move(lists, i, FALLEN, o->entry[i].bytes);
	l->step = step;
}

static void release(struct cp_order *o, uint32_t i)
{
	struct lfru *l = lfru_of(o);
	double level = floor(STEPS * cp_popularity_log2(o->popularity, i)) - (double)l->step;
	uint32_t list = FALLEN;

	if (level >= LOWEST)
		list = list_of(l->step + (int64_t)fmin(level, LOWEST + LEVELS - 1));
	l->last[i] = l->clock;
	cp_lists_move(&l->base.lists, i, list, o->entry[i].bytes);
}

static double score(struct cp_order *o, int level, uint32_t i)
{
	double age = (double)(lfru_of(o)->clock - lfru_of(o)->last[i] + 1);

	return (1 - o->param[WEIGHT]) * level / STEPS - o->param[WEIGHT] * log2(age);
}

static uint32_t victim(struct cp_order *o, uint32_t want)
{
	struct lfru *l = lfru_of(o);
	uint32_t best = cp_lists_oldest(&l->base.lists, FALLEN);
	double lowest = best == CP_NONE ? HUGE_VAL : score(o, LOWEST - 1, best);

	(void)want;
	for (int level = LOWEST; level < LOWEST + LEVELS; level++) {
		uint32_t i = cp_lists_oldest(&l->base.lists, list_of(l->step + level));

		if (i != CP_NONE && score(o, level, i) < lowest) {
			lowest = score(o, level, i);
			best = i;
		}
	}
	return best;
}

const struct cp_policy cp_lfru = {
	.name = "lfru",
	.about = "frequency of late and recency in one score",
	.params = params,
	.size = sizeof(struct lfru),
	.create = create,
	.destroy = destroy,
	.begin = begin,
	.use = cp_counting_use,

	.hold = cp_listed_leave,
	.release = release,
	.victim = victim,
	.seed = cp_counting_seed,
};
