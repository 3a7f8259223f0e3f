/* SPDX-License-Identifier: Apache-2.0
 *
 * ARC: recency against frequency, balanced by what the ghosts say (Megiddo and Modha: ARC: A
 * Self-Tuning, Low Overhead Replacement Cache, FAST 2003, figure 4).
 *
 *	T1  resident, used once of late       B1  ghosts of T1
 *	T2  resident, used more than once     B2  ghosts of T2
 *
 * All four in order of use. T1 is meant to hold p bytes: a miss that finds its ghost in B1 says
 * that p was too small, one in B2 that it was too large. The victim is the least recent of T1 if
 * that holds more than p, else of T2.
 *
 * What differs from the paper, where every access is one page of one size: bytes are counted, not
 * pages; all members of an event move p before the first of them needs room; when nothing of the
 * list that should give may go, the other one gives; and the ghosts are cut after the newcomer is
 * in instead of before, to the same end: T1 and B1 together name no more than the capacity holds,
 * all four no more than twice that.
 *
 * No parameters. 25 bytes for each expert of the model; every call takes constant time, counting a
 * ghost's fall to the admission that made it.
 */
#include "cachepolicy/lists.h"

#include <math.h>

enum { T1, T2, B1, B2, LISTS };

struct arc {
	struct cp_listed base;
	double p; /* bytes that T1 should hold */
};

static struct arc *arc_of(struct cp_order *o)
{
	return (struct arc *)o;
}

static int create(struct cp_order *o, const char *inner)
{
	(void)inner;
	return cp_listed_create(o, LISTS);
}

static bool b1_or_b2(const struct arc *a, uint32_t i)
{
	return cp_lists_of(&a->base.lists, i) == B1 || cp_lists_of(&a->base.lists, i) == B2;
}

/* The mark is for what was wanted while it was a ghost: another member may push the ghost out. */
static void use(struct cp_order *o, uint32_t i, uint32_t weight)
{
	struct arc *a = arc_of(o);
	double bytes = (double)o->entry[i].bytes;
	double b1 = (double)a->base.lists.bytes[B1], b2 = (double)a->base.lists.bytes[B2];

	(void)weight;
	a->base.mark[i] = b1_or_b2(a, i);
	switch (cp_lists_of(&a->base.lists, i)) {
	case T1:
		cp_lists_assign(&a->base.lists, i, T2, o->entry[i].bytes);
		break;
	case B1:
		a->p = fmin((double)o->capacity, a->p + bytes * fmax(1, b2 / b1));
		break;
	case B2:
		a->p = fmax(0, a->p - bytes * fmax(1, b1 / b2));
		break;
	default:
		break;
	}
}

static void drop_oldest_ghost(struct arc *a, unsigned list)
{
	cp_lists_assign(&a->base.lists, cp_lists_oldest(&a->base.lists, list), CP_NONE, 0);
}

static void trim_ghosts(struct cp_order *o)
{
	struct arc *a = arc_of(o);
	const uint64_t *bytes = a->base.lists.bytes;
	double capacity = (double)o->capacity;

	a->p = fmin(a->p, capacity);
	while (bytes[B1] && (double)bytes[T1] + (double)bytes[B1] > capacity)
		drop_oldest_ghost(a, B1);
	while (bytes[B2] &&
	       (double)bytes[T1] + (double)bytes[T2] + (double)bytes[B1] + (double)bytes[B2] >
		       2 * capacity)
		drop_oldest_ghost(a, B2);
}

static void admit(struct cp_order *o, uint32_t i)
{
	struct arc *a = arc_of(o);

	cp_lists_assign(&a->base.lists, i, a->base.mark[i] || b1_or_b2(a, i) ? T2 : T1,
			o->entry[i].bytes);
	a->base.mark[i] = 0;
	trim_ghosts(o);
}

static void remove_entry(struct cp_order *o, uint32_t i)
{
	struct cp_lists *l = &arc_of(o)->base.lists;

	cp_lists_move(l, i, cp_lists_of(l, i) == T1 ? B1 : B2, o->entry[i].bytes);
}

static uint32_t victim(struct cp_order *o, uint32_t want)
{
	struct arc *a = arc_of(o);
	double t1 = (double)a->base.lists.bytes[T1];
	bool wants_b2 = want != CP_NONE && cp_lists_of(&a->base.lists, want) == B2;
	unsigned list = t1 > 0 && (t1 > a->p || (wants_b2 && t1 == a->p)) ? T1 : T2;
	uint32_t i = cp_lists_oldest(&a->base.lists, list);

	return i != CP_NONE ? i : cp_lists_oldest(&a->base.lists, list == T1 ? T2 : T1);
}

const struct cp_policy cp_arc = {
	.name = "arc",
	.about = "recency against frequency, balanced by the ghosts of both",
	.size = sizeof(struct arc),
	.create = create,
	.destroy = cp_listed_destroy,
	.use = use,
	.admit = admit,
	.remove = remove_entry,
	.hold = cp_listed_unlink,
	.release = cp_listed_link,
	.victim = victim,
	.resize = trim_ghosts,
};
