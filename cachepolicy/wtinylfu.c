/* SPDX-License-Identifier: Apache-2.0
 *
 * W-TinyLFU: who has been asked for more often may stay (Einziger, Friedman, Manes: TinyLFU: A
 * Highly Efficient Cache Admission Policy, ACM Transactions on Storage 13 (4), 2017).
 *
 *	window     where newcomers start, LRU
 *	probation  the main part, LRU, in two segments: used once since it came in,
 *	protected  and more often; what does not fit there any more goes back on probation
 *
 * When the window is full and room is needed, its oldest entry stands against the oldest on
 * probation: the one with the higher frequency stays, in the main part. Frequencies are counted up
 * to 15 for every expert, resident or not, and all are halved after ten uses for each resident
 * entry. The paper counts in a sketch; the experts of a model are few enough to count exactly, and
 * a halving is made up for when a count is next looked at.
 *
 * What comes from another policy (cp_switch()) fills the main part, the oldest first, as nobody has
 * asked for any of it yet.
 *
 * window, protected: 1 % and 80 %, the paper's own choice.
 *
 * 29 bytes for each expert of the model; every call takes constant time, counting the move of an
 * entry from the window or to probation to the use that sent it there.
 */
#include "cachepolicy/lists.h"

#include <errno.h>
#include <stdlib.h>

enum { WINDOW, PROBATION, PROTECTED, LISTS };
enum { WINDOW_SHARE, PROTECTED_SHARE };
enum { MOST_USES = 15, SAMPLE = 10 };

static const struct cp_param params[] = {
	[WINDOW_SHARE] = { "window", "share of the capacity for newcomers", 0, 1, 0.01 },
	[PROTECTED_SHARE] = { "protected", "share of the rest for what was used again", 0, 1, 0.8 },
	{ .name = NULL },
};

struct wtinylfu {
	struct cp_listed base; /* mark: the frequency */
	uint32_t *period;      /* when the frequency was last looked at */
	uint32_t now;          /* halvings so far */
	uint64_t uses;         /* since the last one */
};

static struct wtinylfu *tiny_of(struct cp_order *o)
{
	return (struct wtinylfu *)o;
}

static int create(struct cp_order *o, const char *inner)
{
	struct wtinylfu *w = tiny_of(o);

	(void)inner;
	w->period = calloc(o->n, sizeof(w->period[0]));
	return w->period ? cp_listed_create(o, LISTS) : -ENOMEM;
}

static void destroy(struct cp_order *o)
{
	free(tiny_of(o)->period);
	cp_listed_destroy(o);
}

static uint8_t *frequency(struct wtinylfu *w, uint32_t i)
{
	uint32_t halvings = w->now - w->period[i];

	w->base.mark[i] = halvings < 8 ? (uint8_t)(w->base.mark[i] >> halvings) : 0;
	w->period[i] = w->now;
	return &w->base.mark[i];
}

static uint64_t residents(const struct wtinylfu *w)
{
	const uint32_t *members = w->base.lists.members;

	return (uint64_t)members[WINDOW] + members[PROBATION] + members[PROTECTED];
}

static void use(struct cp_order *o, uint32_t i, uint32_t weight)
{
	struct wtinylfu *w = tiny_of(o);
	uint8_t *f = frequency(w, i);

	(void)weight;
	if (*f < MOST_USES)
		++*f;
	if (++w->uses >= SAMPLE * (residents(w) + 1)) {
		w->uses = 0;
		w->now++;
	}
	if (cp_lists_of(&w->base.lists, i) == PROBATION)
		cp_lists_assign(&w->base.lists, i, PROTECTED, o->entry[i].bytes);
}

static void admit(struct cp_order *o, uint32_t i)
{
	cp_lists_assign(&tiny_of(o)->base.lists, i, WINDOW, o->entry[i].bytes);
}

static double window_share(const struct cp_order *o)
{
	return o->param[WINDOW_SHARE] * (double)o->capacity;
}

static double main_share(const struct cp_order *o)
{
	return (double)o->capacity - window_share(o);
}

static void release(struct cp_order *o, uint32_t i)
{
	struct cp_lists *l = &tiny_of(o)->base.lists;
	double share = o->param[PROTECTED_SHARE] * main_share(o);

	cp_listed_link(o, i);
	while ((double)l->bytes[PROTECTED] > share &&
	       (i = cp_lists_oldest(l, PROTECTED)) != CP_NONE)
		cp_lists_move(l, i, PROBATION, o->entry[i].bytes);
}

static uint32_t victim_of_main(const struct cp_lists *l)
{
	uint32_t i = cp_lists_oldest(l, PROBATION);

	return i != CP_NONE ? i : cp_lists_oldest(l, PROTECTED);
}

static uint32_t victim(struct cp_order *o, uint32_t want)
{
	struct wtinylfu *w = tiny_of(o);
	struct cp_lists *l = &w->base.lists;
	uint32_t candidate, i;

	(void)want;
	while ((candidate = cp_lists_oldest(l, WINDOW)) != CP_NONE &&
	       (double)l->bytes[WINDOW] >= window_share(o)) {
		double room =
			main_share(o) - (double)l->bytes[PROBATION] - (double)l->bytes[PROTECTED];

		i = CP_NONE;
		if ((double)o->entry[candidate].bytes > room) {
			i = victim_of_main(l);
			if (i == CP_NONE || *frequency(w, candidate) <= *frequency(w, i))
				return candidate;
		}
		cp_lists_move(l, candidate, PROBATION, o->entry[candidate].bytes);
		if (i != CP_NONE)
			return i;
	}
	i = victim_of_main(l);
	return i != CP_NONE ? i : candidate;
}

const struct cp_policy cp_wtinylfu = {
	.name = "wtinylfu",
	.about = "a window, then only those that are asked for more often than others",
	.params = params,
	.size = sizeof(struct wtinylfu),
	.create = create,
	.destroy = destroy,
	.use = use,
	.admit = admit,
	.remove = cp_listed_leave,
	.hold = cp_listed_unlink,
	.release = release,
	.victim = victim,
};
