/* SPDX-License-Identifier: Apache-2.0
 *
 * The past and its echo: expert_past.h.
 */
#include "cachepolicy/expert_past.h"

#include <errno.h>
#include <stdlib.h>

#include "cachepolicy/expert_lanes.h"

enum {
	ROOM = 8,   /* in a ring, for so many members for each expert of the layer */
	PLANES = 17 /* a set has 65,536 members at most */
};

/* What an earlier visit says counts by about the third power of its closeness: a share of equal
 * members (the second power is worse by 0.1 points, the fourth the same). The mean rate counts as
 * much as one visit of the same set. */
static const float mean_weight = 1.0f;

int past_create(struct past *p, uint32_t layers, uint32_t experts, uint32_t stride)
{
	*p = (struct past){ .layers = layers, .experts = experts, .stride = stride };
	p->seen = calloc((size_t)layers * stride, sizeof(p->seen[0]));
	p->ring = calloc((size_t)layers * experts, ROOM * sizeof(p->ring[0]));
	p->layer = calloc(layers, sizeof(p->layer[0]));
	return p->seen && p->ring && p->layer ? 0 : -ENOMEM;
}

void past_destroy(struct past *p)
{
	free(p->seen);
	free(p->ring);
	free(p->layer);
}

uint32_t past_last_size(const struct past *p, uint32_t layer)
{
	const struct past_layer *l = &p->layer[layer];

	return l->visits ? l->visit[(l->visits - 1) % PAST_VISITS].size : 0;
}

/* By the members of later visits, which were many. */
static bool is_overwritten(const struct past *p, const struct past_layer *l,
			   const struct past_visit *v)
{
	return l->end - v->start > (uint64_t)ROOM * p->experts;
}

/* Numbers of 0 to n for each of the 64 visits, bit by bit: bit v of plane k is bit k of the number
 * of visit v. So one step adds to all of them. No loop ends, and no branch is taken, where only the
 * numbers say so: a processor cannot foresee that. */
struct counts {
	uint64_t plane[PLANES];
	unsigned planes;
};

static void count_common(struct counts *c, const uint64_t *seen, const uint32_t *members,
			 uint32_t n)
{
	c->planes = 0;
	for (uint32_t k = 0; k < n; k++) {
		uint64_t carry = seen[members[k]];

		if (k + 1 == UINT32_C(1) << c->planes)
			c->plane[c->planes++] = 0;
		for (unsigned b = 0; b < c->planes; b++) {
			uint64_t both = c->plane[b] & carry;

			c->plane[b] ^= carry;
			carry = both;
		}
	}
}

static uint32_t most_of(const struct counts *c)
{
	uint64_t among = ~UINT64_C(0);
	uint32_t most = 0;

	for (unsigned b = c->planes; b-- > 0;) {
		uint64_t some = c->plane[b] & among;

		among = some ? some : among;
		most |= (uint32_t)(some != 0) << b;
	}
	return most;
}

/* Those with just this number. */
static uint64_t equal_to(const struct counts *c, uint32_t n)
{
	uint64_t is = ~UINT64_C(0);

	for (unsigned b = 0; b < c->planes; b++)
		is &= n >> b & 1 ? c->plane[b] : ~c->plane[b];
	return is;
}

static void add_members(const uint16_t *members, uint32_t n, float closeness, float *echo)
{
	uint32_t k = 0;

	for (; k + 4 <= n; k += 4) { /* most of the time of an echo is spent in here */
		echo[members[k]] += closeness;
		echo[members[k + 1]] += closeness;
		echo[members[k + 2]] += closeness;
		echo[members[k + 3]] += closeness;
	}
	for (; k < n; k++)
		echo[members[k]] += closeness;
}

/* The set that an echo is made for, and what there is to be heard. */
struct listener {
	const struct past_layer *layer;
	const uint16_t *ring;
	const uint32_t *members;
	uint32_t n;
	float *echo;
};

/* Adds what came after these visits, each of which has so many members in common with the set, and
 * returns how much that counts. The third power of the closeness is made of the sizes of both sets
 * and of what they have in common. */
static float add_successors(const struct listener *a, uint64_t visits, uint32_t common)
{
	const struct past_visit *visit = a->layer->visit;
	unsigned last = (a->layer->visits - 1) % PAST_VISITS;
	float cube = (float)common * (float)common * (float)common / (float)a->n;
	float closeness = 0, sum = 0;
	uint32_t size = 0;

	for (; visits; visits &= visits - 1) {
		unsigned v = (unsigned)__builtin_ctzll(visits);
		const struct past_visit *next = &visit[(v + 1) % PAST_VISITS];

		if (visit[v].size != size) {
			size = visit[v].size;
			closeness = cube / ((float)size * (float)(size > a->n ? size : a->n));
		}
		sum += closeness;
		if (v != last)
			add_members(a->ring + next->at, next->size, closeness, a->echo);
		else /* by the set itself */
			for (uint32_t k = 0; k < a->n; k++)
				a->echo[a->members[k]] += closeness;
	}
	return sum;
}

/* The visits after which another one is still known. */
static uint64_t with_successor(const struct past *p, const struct past_layer *l)
{
	uint64_t known = ~UINT64_C(0);

	for (unsigned v = 0; v < PAST_VISITS && l->overwriting; v++)
		if (v != (l->visits - 1) % PAST_VISITS &&
		    is_overwritten(p, l, &l->visit[(v + 1) % PAST_VISITS]))
			known &= ~(UINT64_C(1) << v);
	return known;
}

/* Fills the echo with shares that are not yet divided by the sum that it returns. */
static float listen(const struct past *p, uint32_t layer, const struct listener *a)
{
	uint64_t known = with_successor(p, a->layer);
	float sum = mean_weight;
	struct counts common;
	uint32_t most;

	count_common(&common, p->seen + (size_t)layer * p->stride, a->members, a->n);
	most = most_of(&common);
	/* Weaker ones by far are only noise. */
	for (uint32_t n = most; n && 3 * n >= most; n--)
		sum += add_successors(a, equal_to(&common, n) & known, n);
	return sum;
}

void past_listen(const struct past *p, uint32_t layer, const uint32_t *members, uint32_t n,
		 float *echo)
{
	struct listener a = { .layer = &p->layer[layer],
			      .ring = p->ring + (size_t)layer * ROOM * p->experts,
			      .members = members,
			      .n = n,
			      .echo = echo };
	lanes mean = lanes_all(mean_weight * (float)n / (float)p->experts), less;
	uint32_t stride = p->stride;

	for (size_t x = 0; x < stride; x += LANES)
		lanes_store(echo + x, mean);
	less = lanes_log(lanes_all(listen(p, layer, &a)));
	for (size_t x = 0; x < stride; x += LANES)
		lanes_store(echo + x, lanes_rough_log(lanes_load(echo + x)) - less);
}

/* The bit of the visit that is forgotten now. */
static void forget(const struct past *p, const struct past_layer *l, uint64_t *seen,
		   const uint16_t *ring)
{
	const struct past_visit *old = &l->visit[l->visits % PAST_VISITS];
	uint64_t keep = ~(UINT64_C(1) << l->visits % PAST_VISITS);

	if (is_overwritten(p, l, old)) {
		for (uint32_t x = 0; x < p->experts; x++)
			seen[x] &= keep;
		return;
	}
	for (uint32_t k = 0; k < old->size; k++)
		seen[ring[old->at + k]] &= keep;
}

void past_add(struct past *p, uint32_t layer, const uint32_t *members, uint32_t n)
{
	struct past_layer *l = &p->layer[layer];
	struct past_visit *v = &l->visit[l->visits % PAST_VISITS];
	uint64_t *seen = p->seen + (size_t)layer * p->stride;
	uint64_t bit = UINT64_C(1) << l->visits % PAST_VISITS;
	uint32_t room = ROOM * p->experts;
	uint16_t *ring = p->ring + (size_t)layer * room;

	if (l->visits >= PAST_VISITS)
		forget(p, l, seen, ring);
	if (n > room - l->at) { /* a visit's members lie in a row */
		l->end += room - l->at;
		l->at = 0;
	}
	*v = (struct past_visit){ .start = l->end, .at = l->at, .size = n };
	for (uint32_t k = 0; k < n; k++) {
		seen[members[k]] |= bit;
		ring[l->at + k] = (uint16_t)members[k];
	}
	l->at += n;
	l->end += n;
	l->visits++;
	v = &l->visit[l->visits < PAST_VISITS ? 0 : l->visits % PAST_VISITS];
	l->overwriting = is_overwritten(p, l, v);
}
