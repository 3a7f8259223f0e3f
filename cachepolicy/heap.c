/* SPDX-License-Identifier: Apache-2.0
 *
 * A heap of experts: heap.h.
 */
#include "cachepolicy/heap.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

int cp_heap_create(struct cp_heap *h, const struct cp_order *o)
{
	h->of = calloc(o->n, sizeof(h->of[0]));
	h->slot = calloc(o->n, sizeof(h->slot[0]));
	if (!h->of || !h->slot)
		return -ENOMEM;
	for (uint32_t i = 0; i < o->n; i++)
		h->of[i].place = CP_NONE;
	return 0;
}

void cp_heap_destroy(struct cp_heap *h)
{
	free(h->of);
	free(h->slot);
}

static bool before(const struct cp_heap *h, uint32_t a, uint32_t b)
{
	const struct cp_rank *x = &h->of[a], *y = &h->of[b];

	if (x->rank != y->rank)
		return x->rank < y->rank;
	return x->tie != y->tie ? x->tie < y->tie : a < b;
}

static void set(struct cp_heap *h, uint32_t place, uint32_t i)
{
	h->slot[place] = i;
	h->of[i].place = place;
}

/* Moves i, whose place is free, up or down from there to where it belongs. */
static void settle(struct cp_heap *h, uint32_t place, uint32_t i)
{
	while (place && before(h, i, h->slot[(place - 1) / 2])) {
		set(h, place, h->slot[(place - 1) / 2]);
		place = (place - 1) / 2;
	}
	for (;;) {
		uint64_t child = 2 * (uint64_t)place + 1;

		if (child + 1 < h->used && before(h, h->slot[child + 1], h->slot[child]))
			child++;
		if (child >= h->used || !before(h, h->slot[child], i))
			break;
		set(h, place, h->slot[child]);
		place = (uint32_t)child;
	}
	set(h, place, i);
}

void cp_heap_put(struct cp_heap *h, uint32_t i, double rank, uint64_t tie)
{
	assert(!cp_heap_has(h, i));
	h->of[i].rank = rank;
	h->of[i].tie = tie;
	settle(h, h->used++, i);
}

void cp_heap_take(struct cp_heap *h, uint32_t i)
{
	uint32_t place = h->of[i].place;

	if (place == CP_NONE)
		return;
	h->of[i].place = CP_NONE;
	if (place != --h->used)
		settle(h, place, h->slot[h->used]);
}

void cp_ranked_admit(struct cp_order *o, uint32_t i)
{
	if (!cp_heap_of(o)->of[i].tie)
		cp_ranked_renew(o, i);
}

void cp_ranked_hold(struct cp_order *o, uint32_t i)
{
	cp_heap_take(cp_heap_of(o), i);
}

uint32_t cp_ranked_victim(struct cp_order *o, uint32_t want)
{
	(void)want;
	return cp_heap_top(cp_heap_of(o));
}
