/* SPDX-License-Identifier: Apache-2.0
 *
 * S3-FIFO: three queues and no lists in order of use (Yang, Zhang, Qiu, Yue, Rashmi: FIFO queues
 * are all you need for cache eviction, SOSP 2023, algorithm 1).
 *
 *	S  small: where newcomers start
 *	M  main: what was hit more than once while in S, and what came back while in G
 *	G  ghosts of S, as many bytes as M may hold
 *
 * Hits only count, up to three. While S holds its share or more, it gives: its oldest entry goes
 * to M (with its count cleared) if it was hit more than once, else it is the victim and leaves its
 * ghost. Otherwise M gives: its oldest entry goes round again for each hit it has had, at a count
 * less, or is the victim.
 *
 * small: the paper's own choice, a tenth; it measured little difference between 5 and 20 %.
 *
 * 25 bytes for each expert of the model; each step past an entry uses up a hit, so an access takes
 * constant time on the mean.
 */
#include "cachepolicy/lists.h"

enum { SMALL, MAIN, GHOST, LISTS };
enum { SHARE };
enum { MOST_HITS = 3 };

static const struct cp_param params[] = {
	[SHARE] = { "small", "share of the capacity that newcomers start in", 0.001, 1, 0.1 },
	{ .name = NULL },
};

static int create(struct cp_order *o, const char *inner)
{
	(void)inner;
	return cp_listed_create(o, LISTS);
}

static void use(struct cp_order *o, uint32_t i, uint32_t weight)
{
	uint8_t *hits = &cp_listed_of(o)->mark[i];

	(void)weight;
	if (o->entry[i].resident && *hits < MOST_HITS)
		++*hits;
}

static void admit(struct cp_order *o, uint32_t i)
{
	struct cp_listed *s = cp_listed_of(o);

	s->mark[i] = 0;
	cp_lists_assign(&s->lists, i, cp_lists_of(&s->lists, i) == GHOST ? MAIN : SMALL,
			o->entry[i].bytes);
}

static double small_share(const struct cp_order *o)
{
	return o->param[SHARE] * (double)o->capacity;
}

static double main_share(const struct cp_order *o)
{
	return (double)o->capacity - small_share(o);
}

static void trim_ghosts(struct cp_order *o)
{
	struct cp_lists *l = &cp_listed_of(o)->lists;

	while (l->bytes[GHOST] && (double)l->bytes[GHOST] > main_share(o))
		cp_lists_assign(l, cp_lists_oldest(l, GHOST), CP_NONE, 0);
}

static void remove_entry(struct cp_order *o, uint32_t i)
{
	struct cp_lists *l = &cp_listed_of(o)->lists;

	if (cp_lists_of(l, i) == SMALL)
		cp_lists_move(l, i, GHOST, o->entry[i].bytes);
	else
		cp_lists_assign(l, i, CP_NONE, 0);
	trim_ghosts(o);
}

static uint32_t victim_of_main(struct cp_order *o)
{
	struct cp_listed *s = cp_listed_of(o);
	uint32_t i;

	while ((i = cp_lists_oldest_free(&s->lists, o, MAIN)) != CP_NONE && s->mark[i]) {
		s->mark[i]--;
		cp_lists_move(&s->lists, i, MAIN, o->entry[i].bytes);
	}
	return i;
}

static uint32_t victim_of_small(struct cp_order *o)
{
	struct cp_listed *s = cp_listed_of(o);
	uint32_t i;

	while ((i = cp_lists_oldest_free(&s->lists, o, SMALL)) != CP_NONE && s->mark[i] > 1) {
		s->mark[i] = 0;
		cp_lists_move(&s->lists, i, MAIN, o->entry[i].bytes);
		/* More than its share is in M now: M gives in S's stead. */
		if ((double)s->lists.bytes[MAIN] > main_share(o))
			return victim_of_main(o);
	}
	/* If all of S was hit, it is in M now. */
	return i != CP_NONE ? i : victim_of_main(o);
}

static uint32_t victim(struct cp_order *o, uint32_t want)
{
	bool small = (double)cp_listed_of(o)->lists.bytes[SMALL] >= small_share(o);
	uint32_t i = small ? CP_NONE : victim_of_main(o);

	(void)want;
	return i != CP_NONE ? i : victim_of_small(o);
}

const struct cp_policy cp_s3fifo = {
	.name = "s3fifo",
	.about = "a small queue for newcomers, a main one for what was hit there",
	.params = params,
	.size = sizeof(struct cp_listed),
	.create = create,
	.destroy = cp_listed_destroy,
	.use = use,
	.admit = admit,
	.remove = remove_entry,
	.release = cp_listed_link,
	.victim = victim,
	.resize = trim_ghosts,
	.tuned = trim_ghosts,
};
