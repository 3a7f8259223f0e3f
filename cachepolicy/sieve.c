/* SPDX-License-Identifier: Apache-2.0
 *
 * SIEVE: one queue and a hand that sifts it (Zhang, Yang, Yue, Vigfusson, Rashmi: SIEVE is Simpler
 * than LRU, NSDI 2024, algorithm 1).
 *
 * A hit sets a bit. The hand goes from the oldest entry to the newest and round again, clears the
 * bits it finds and stops at the first entry without: the victim. Unlike CLOCK it leaves those it
 * passes where they are, so what survived stays at the old end and newcomers are tried soon.
 *
 * An entry that is held and has no bit when the hand comes by leaves the queue and enters it as
 * the newest when it is let go (lists.h).
 *
 * No parameters. 25 bytes for each expert of the model; each step of the hand uses up a bit that a
 * hit has set, so an access takes constant time on the mean.
 */
#include "cachepolicy/lists.h"

struct sieve {
	struct cp_listed base;
	uint32_t hand; /* where to look first, or CP_NONE: at the oldest */
};

static struct sieve *sieve_of(struct cp_order *o)
{
	return (struct sieve *)o;
}

static int create(struct cp_order *o, const char *inner)
{
	sieve_of(o)->hand = CP_NONE;
	return cp_listed_create_one(o, inner);
}

static void leave_queue(struct cp_order *o, uint32_t i)
{
	struct sieve *s = sieve_of(o);

	if (s->hand == i)
		s->hand = cp_lists_newer(&s->base.lists, i);
	cp_lists_unlink(&s->base.lists, i);
}

static void remove_entry(struct cp_order *o, uint32_t i)
{
	leave_queue(o, i);
	cp_listed_leave(o, i);
}

static uint32_t victim(struct cp_order *o, uint32_t want)
{
	struct sieve *s = sieve_of(o);
	uint8_t *visited = s->base.mark;

	(void)want;
	for (;;) {
		if (s->hand == CP_NONE)
			s->hand = cp_lists_oldest(&s->base.lists, 0);
		if (s->hand == CP_NONE || (!visited[s->hand] && !cp_held(o, s->hand)))
			return s->hand;
		if (visited[s->hand]) {
			visited[s->hand] = 0;
			s->hand = cp_lists_newer(&s->base.lists, s->hand);
		} else {
			leave_queue(o, s->hand);
		}
	}
}

const struct cp_policy cp_sieve = {
	.name = "sieve",
	.about = "one queue, a hand that passes over what was hit",
	.size = sizeof(struct sieve),
	.create = create,
	.destroy = cp_listed_destroy,
	.use = cp_listed_mark,
	.admit = cp_listed_enter,
	.remove = remove_entry,
	.release = cp_listed_link,
	.victim = victim,
};
