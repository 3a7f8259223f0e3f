/* SPDX-License-Identifier: Apache-2.0
 *
 * LRU: the least recently used expert goes first.
 *
 * A member of an event counts as in use until the next event begins: then the members go to the
 * recent end in their order, behind what was prefetched meanwhile. In the same way a pinned entry
 * is the most recent one when its last pin goes.
 *
 * LRU's weakness is known: the layers of a model come round in a fixed order, and a cache that
 * holds less than one round evicts each expert just before it is wanted again.
 *
 * No parameters. 25 bytes for each expert of the model; every call takes constant time.
 */
#include "cachepolicy/lists.h"

static uint32_t victim(struct cp_order *o, uint32_t want)
{
	(void)want;
	return cp_lists_oldest(&cp_listed_of(o)->lists, 0);
}

const struct cp_policy cp_lru = {
	.name = "lru",
	.about = "least recently used",
	.size = sizeof(struct cp_listed),
	.create = cp_listed_create_one,
	.destroy = cp_listed_destroy,
	.admit = cp_listed_enter,
	.remove = cp_listed_leave,
	.hold = cp_listed_unlink,
	.release = cp_listed_link,
	.victim = victim,
};
