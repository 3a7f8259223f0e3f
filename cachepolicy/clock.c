/* SPDX-License-Identifier: Apache-2.0
 *
 * CLOCK: first in, first out, with a second chance (F. J. Corbató, A Paging Experiment with the
 * Multics System, 1968).
 *
 * A hit only sets a bit. The hand looks at the oldest entry: with the bit set, the bit is cleared
 * and the entry begins anew as the youngest; without, it is the victim. An entry comes in with the
 * bit clear, as one use has not shown yet that another will follow.
 *
 * No parameters. 25 bytes for each expert of the model; each step of the hand uses up a bit that a
 * hit has set, so an access takes constant time on the mean.
 */
#include "cachepolicy/lists.h"

static uint32_t victim(struct cp_order *o, uint32_t want)
{
	struct cp_listed *c = cp_listed_of(o);
	uint32_t i;

	(void)want;
	while ((i = cp_lists_oldest(&c->lists, 0)) != CP_NONE && (c->mark[i] || cp_held(o, i))) {
		cp_lists_unlink(&c->lists, i);
		if (c->mark[i])
			cp_lists_link(&c->lists, i);
		c->mark[i] = 0;
	}
	return i;
}

const struct cp_policy cp_clock = {
	.name = "clock",
	.about = "first in, first out, with a second chance after a hit",
	.size = sizeof(struct cp_listed),
	.create = cp_listed_create_one,
	.destroy = cp_listed_destroy,
	.use = cp_listed_mark,
	.admit = cp_listed_enter,
	.remove = cp_listed_leave,
	.release = cp_listed_link,
	.victim = victim,
};
