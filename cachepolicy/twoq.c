/* SPDX-License-Identifier: Apache-2.0
 *
 * 2Q: newcomers on probation (Johnson and Shasha: 2Q: A Low Overhead High Performance Buffer
 * Management Replacement Algorithm, VLDB 1994, the full version).
 *
 *	A1in   those that came first, a queue: a hit there changes nothing
 *	A1out  what left A1in, a queue of ghosts: no bytes, only names
 *	Am     what was wanted again while in A1out, an LRU list
 *
 * The victim is the oldest of A1in while that holds more than `in` of the capacity, else the least
 * recent of Am, which is forgotten altogether. So a loop over many experts that are wanted once
 * passes through A1in and leaves Am alone.
 *
 * in, out: the paper's own choice, a quarter for A1in and ghosts of half the capacity.
 *
 * 25 bytes for each expert of the model; every call takes constant time.
 */
#include "cachepolicy/lists.h"

enum { A1IN, A1OUT, AM, LISTS };
enum { IN, OUT };

static const struct cp_param params[] = {
	[IN] = { "in", "share of the capacity that newcomers may fill", 0, 1, 0.25 },
	[OUT] = { "out", "ghosts remembered, as a share of the capacity", 0, 100, 0.5 },
	{ .name = NULL },
};

static struct cp_lists *lists_of(struct cp_order *o)
{
	return &cp_listed_of(o)->lists;
}

static int create(struct cp_order *o, const char *inner)
{
	(void)inner;
	return cp_listed_create(o, LISTS);
}

static double share(const struct cp_order *o, unsigned param)
{
	return o->param[param] * (double)o->capacity;
}

/* The mark is for what was wanted while in A1out: making room for it may push its ghost out. */
static void use(struct cp_order *o, uint32_t i, uint32_t weight)
{
	struct cp_lists *l = lists_of(o);

	(void)weight;
	if (cp_lists_of(l, i) == A1OUT) {
		cp_lists_assign(l, i, CP_NONE, 0);
		cp_listed_of(o)->mark[i] = 1;
	}
}

static void admit(struct cp_order *o, uint32_t i)
{
	uint8_t *wanted_again = &cp_listed_of(o)->mark[i];

	cp_lists_assign(lists_of(o), i, *wanted_again ? AM : A1IN, o->entry[i].bytes);
	*wanted_again = 0;
}

static void trim_ghosts(struct cp_order *o)
{
	struct cp_lists *l = lists_of(o);

	while ((double)l->bytes[A1OUT] > share(o, OUT))
		cp_lists_assign(l, cp_lists_oldest(l, A1OUT), CP_NONE, 0);
}

static void remove_entry(struct cp_order *o, uint32_t i)
{
	struct cp_lists *l = lists_of(o);

	if (cp_lists_of(l, i) == AM)
		cp_lists_assign(l, i, CP_NONE, 0);
	else
		cp_lists_move(l, i, A1OUT, o->entry[i].bytes);
	trim_ghosts(o);
}

/* Am is in order of use: what is in use has no place there. A1in is in order of arrival. */
static void hold(struct cp_order *o, uint32_t i)
{
	if (cp_lists_of(lists_of(o), i) == AM)
		cp_lists_unlink(lists_of(o), i);
}

static uint32_t victim(struct cp_order *o, uint32_t want)
{
	struct cp_lists *l = lists_of(o);
	bool a1in = (double)l->bytes[A1IN] > share(o, IN);
	uint32_t i;

	(void)want;
	i = a1in ? cp_lists_oldest_free(l, o, A1IN) : cp_lists_oldest(l, AM);
	if (i == CP_NONE)
		i = a1in ? cp_lists_oldest(l, AM) : cp_lists_oldest_free(l, o, A1IN);
	return i;
}

const struct cp_policy cp_2q = {
	.name = "2q",
	.about = "newcomers in a queue of their own, LRU for what comes back",
	.params = params,
	.size = sizeof(struct cp_listed),
	.create = create,
	.destroy = cp_listed_destroy,
	.use = use,
	.admit = admit,
	.remove = remove_entry,
	.hold = hold,
	.release = cp_listed_link,
	.victim = victim,
	.resize = trim_ghosts,
	.tuned = trim_ghosts,
};
