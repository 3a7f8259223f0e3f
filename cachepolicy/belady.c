/* SPDX-License-Identifier: Apache-2.0
 *
 * Belady's MIN: the expert whose next use is farthest goes first (L. A. Belady, A study of
 * replacement algorithms for a virtual-storage computer, IBM Systems Journal 5 (2), 1966).
 *
 * It needs the future, so it is no policy for a daemon but the bound that others are measured by.
 * For experts of one size, events of one member and forced=1 it is the optimum. Without forced it
 * need not keep what it misses: it does not if the next use of that is farther away than that of
 * all that could go. With events of many members, as none of them may push another one out, and
 * with sizes that differ, it is no proven optimum, only far better than what cannot see ahead.
 *
 * forced: 0, since the daemon can serve an expert without keeping it.
 *
 * 36 bytes for each expert of the model, and 4 for each use in the future; a use costs O(log n).
 */
#include "cachepolicy/belady.h"
#include "cachepolicy/heap.h"

#include <errno.h>
#include <stdlib.h>

#define NEVER UINT32_MAX

enum { FORCED };

static const struct cp_param params[] = {
	[FORCED] = { "forced", "1: keep whatever was missed", 0, 1, 0 },
	{ .name = NULL },
};

struct cp_future {
	uint32_t n;
	size_t *first;   /* n + 1: where the uses of each expert begin in event[] */
	uint32_t *event; /* their events, from 1, in order */
};

struct belady {
	struct cp_ranked base; /* rank: the next use, negative */
	const struct cp_future *future;
	size_t *ahead; /* of each expert: the first of its uses that is not past */
	uint32_t now;  /* number of the running event, from 1 */
};

static bool index_of(uint32_t layers, uint32_t experts, cp_key key, size_t *i)
{
	*i = (size_t)(key >> 16) * experts + (key & 0xffff);
	return key >> 16 < layers && (key & 0xffff) < experts;
}

int cp_future_create(uint32_t layers, uint32_t experts, const struct cp_use *uses,
		     const size_t *ends, size_t events, struct cp_future **out)
{
	uint64_t n = (uint64_t)layers * experts;
	size_t all = events ? ends[events - 1] : 0, i, k = 0;
	struct cp_future *f;

	if (n == 0 || n > UINT32_MAX - 16 || events >= NEVER)
		return -EINVAL;
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->n = (uint32_t)n;
	f->first = calloc(n + 1, sizeof(f->first[0]));
	f->event = calloc(all ? all : 1, sizeof(f->event[0]));
	if (!f->first || !f->event) {
		cp_future_destroy(f);
		return -ENOMEM;
	}
	/* Counts, then their sums: where each one ends. Filled from the back, where it begins. */
	for (k = 0; k < all; k++)
		if (index_of(layers, experts, uses[k].key, &i))
			f->first[i]++;
	for (i = 1; i <= n; i++)
		f->first[i] += f->first[i - 1];
	for (size_t e = events; e-- > 0;)
		for (k = ends[e]; k-- > (e ? ends[e - 1] : 0);)
			if (index_of(layers, experts, uses[k].key, &i))
				f->event[--f->first[i]] = (uint32_t)e + 1;
	*out = f;
	return 0;
}

void cp_future_destroy(struct cp_future *f)
{
	if (!f)
		return;
	free(f->first);
	free(f->event);
	free(f);
}

static struct belady *belady_of(struct cp_order *o)
{
	return (struct belady *)o;
}

static int create(struct cp_order *o, const char *inner)
{
	struct belady *b = belady_of(o);

	(void)inner;
	b->ahead = calloc(o->n, sizeof(b->ahead[0]));
	return b->ahead ? cp_heap_create(cp_heap_of(o), o) : -ENOMEM;
}

static void destroy(struct cp_order *o)
{
	free(belady_of(o)->ahead);
	cp_heap_destroy(cp_heap_of(o));
}

static void begin(struct cp_order *o, uint64_t now)
{
	(void)now;
	belady_of(o)->now++;
}

/* The event after the running one that uses i next. */
static uint32_t next_use(struct belady *b, uint32_t i)
{
	const struct cp_future *f = b->future;
	size_t at = f->first[i] + b->ahead[i];

	while (at < f->first[i + 1] && f->event[at] <= b->now)
		at++;
	b->ahead[i] = at - f->first[i];
	return at < f->first[i + 1] ? f->event[at] : NEVER;
}

static void release(struct cp_order *o, uint32_t i)
{
	cp_heap_put(cp_heap_of(o), i, -(double)next_use(belady_of(o), i), 0);
}

static uint32_t victim(struct cp_order *o, uint32_t want)
{
	struct belady *b = belady_of(o);
	uint32_t farthest = cp_heap_top(cp_heap_of(o));

	if (farthest != CP_NONE && want != CP_NONE && o->param[FORCED] == 0 &&
	    next_use(b, want) > next_use(b, farthest))
		return CP_NONE;
	return farthest;
}

static const struct cp_policy belady = {
	.name = "belady",
	.about = "the next use is farthest away: knows the future",
	.params = params,
	.size = sizeof(struct belady),
	.create = create,
	.destroy = destroy,
	.begin = begin,
	.hold = cp_ranked_hold,
	.release = release,
	.victim = victim,
};

int cp_create_belady(const struct cp_config *cfg, const struct cp_future *f, struct cp_cache **out)
{
	int err;

	if ((uint64_t)cfg->layers * cfg->experts != f->n)
		return -EINVAL;
	err = cp_create(&belady, cfg, out);
	if (!err)
		belady_of(cp_order_of(*out))->future = f;
	return err;
}
