/* SPDX-License-Identifier: Apache-2.0
 *
 * Experts in the order of a number, for policies that score: a binary heap that knows where each
 * expert is in it, so that any of them can be taken out. The smallest rank is on top; of equal
 * ranks the smaller tie, of equal ties the smaller number of the expert: the same order on every
 * machine.
 *
 * 28 bytes for each expert of the order. Putting in and taking out cost O(log n), looking at the
 * top nothing.
 */
#ifndef CACHEPOLICY_HEAP_H
#define CACHEPOLICY_HEAP_H

#include "cachepolicy/policies.h"

struct cp_rank {
	double rank;
	uint64_t tie;
	uint32_t place; /* in slot[], or CP_NONE */
};

struct cp_heap {
	struct cp_rank *of; /* of each expert; rank and tie stay when it leaves the heap */
	uint32_t *slot;     /* the heap: experts */
	uint32_t used;
};

int cp_heap_create(struct cp_heap *h, const struct cp_order *o); /* 0, -ENOMEM */
void cp_heap_destroy(struct cp_heap *h);
void cp_heap_put(struct cp_heap *h, uint32_t i, double rank, uint64_t tie); /* i is not in it */
void cp_heap_take(struct cp_heap *h, uint32_t i); /* nothing if it is not in it */

static inline uint32_t cp_heap_top(const struct cp_heap *h)
{
	return h->used ? h->slot[0] : CP_NONE;
}

static inline bool cp_heap_has(const struct cp_heap *h, uint32_t i)
{
	return h->of[i].place != CP_NONE;
}

/* Policies that are a heap of what may go and no more share these hooks. */
struct cp_ranked {
	struct cp_order base;
	struct cp_heap heap;
	uint64_t clock; /* the last tie given, where ties are ages */
};

static inline struct cp_heap *cp_heap_of(struct cp_order *o)
{
	return &((struct cp_ranked *)o)->heap;
}

/* i is the youngest. */
static inline uint64_t cp_ranked_renew(struct cp_order *o, uint32_t i)
{
	return cp_heap_of(o)->of[i].tie = ++((struct cp_ranked *)o)->clock;
}

/* Of those that were never used the one that came first goes first. */
void cp_ranked_admit(struct cp_order *o, uint32_t i);
void cp_ranked_hold(struct cp_order *o, uint32_t i);
uint32_t cp_ranked_victim(struct cp_order *o, uint32_t want);

#endif
