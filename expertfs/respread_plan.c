/* SPDX-License-Identifier: Apache-2.0
 *
 * Planning a re-spread; see respread_plan.h for the rules.
 */
#include "expertfs/respread_plan.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/fail.h"

#define NO_DRIVE UINT32_MAX

/* Where an expert lies, taken apart. */
struct lie {
	const struct extent_list *list;
	unsigned copies;
};

static struct lie lie_of(const struct store *s, uint32_t index)
{
	const struct extent_list *l = s->expert[index].packed;

	return (struct lie){ l, extent_list_copies(l) };
}

static bool copy_uses(const struct extent_list *l, unsigned copy, uint32_t drive)
{
	for (uint32_t i = 0; i < l->n; i++)
		if (l->x[i].copy == copy && l->x[i].drive == drive)
			return true;
	return false;
}

/* Whether another copy than this one has a part there. */
static bool others_use(const struct extent_list *l, unsigned copy, uint32_t drive)
{
	for (uint32_t i = 0; i < l->n; i++)
		if (l->x[i].copy != copy && l->x[i].drive == drive)
			return true;
	return false;
}

/* Whether a copy can be read; but = a copy that does not count, or -1. */
static bool can_be_read(const struct store *s, const struct lie *e, int but)
{
	for (unsigned c = 0; c < e->copies; c++)
		if ((int)c != but && store_copy_is_there(s, e->list, c))
			return true;
	return false;
}

bool spread_is_striped(const struct store *s)
{
	uint32_t cut = 0, n;

	for (uint32_t i = 0; i < s->experts; i++) {
		extent_list_copy(s->expert[i].packed, 0, &n);
		cut += n > 1;
	}
	return cut > s->experts / 2;
}

void spread_job_free(struct spread_job *j)
{
	free(j->expert);
	j->expert = NULL;
}

/* -- cutting ------------------------------------------------------------------------------------ */

/* splitmix64: as good as drawn, and the same each time. */
static uint64_t hash(uint64_t a, uint64_t b)
{
	uint64_t z = (a << 20 ^ b) + 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

struct cut {
	uint32_t n;
	uint16_t drive[STORE_DRIVES_MAX];
	uint64_t end[STORE_DRIVES_MAX]; /* of each part, in the expert */
};

/* One drive of several, each as often as it is fast; when one comes or goes, only what it gets or
 * had changes (weighted rendezvous hashing: Schindelhauer and Schomaker, 2005). */
static uint16_t draw(const struct spread_job *job, uint32_t index, const uint16_t *set, uint32_t n)
{
	double best = -1;
	uint16_t drive = set[0];

	for (uint32_t i = 0; i < n; i++) {
		double u = ((double)(hash(index, set[i]) >> 11) + 0.5) * 0x1p-53;
		double score = -(double)job->speed[set[i]] / log(u);
		if (score > best) {
			best = score;
			drive = set[i];
		}
	}
	return drive;
}

/* Whether drive a comes before b: the faster; among equals it changes from expert to expert. */
static bool before(const struct spread_job *job, uint32_t index, uint16_t a, uint16_t b,
		   bool by_speed)
{
	uint64_t x = hash(index, a), y = hash(index, b);

	if (by_speed && job->speed[a] != job->speed[b])
		return job->speed[a] > job->speed[b];
	return x != y ? x < y : a < b;
}

static void sort_drives(const struct spread_job *job, uint32_t index, uint16_t *set, uint32_t n,
			bool by_speed)
{
	for (uint32_t i = 1; i < n; i++) {
		uint16_t drive = set[i];
		uint32_t j = i;
		for (; j > 0 && before(job, index, drive, set[j - 1], by_speed); j--)
			set[j] = set[j - 1];
		set[j] = drive;
	}
}

/* Cuts over c->drive[0..n) in proportion to speed. False: a part is too short. */
static bool cut_over(const struct spread_job *job, uint64_t bytes, uint32_t n, struct cut *c)
{
	unsigned __int128 sum = 0, so_far = 0;
	uint64_t start = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += job->speed[c->drive[i]];
	for (uint32_t i = 0; i < n; i++) {
		so_far += job->speed[c->drive[i]];
		uint64_t at = (uint64_t)(bytes * so_far / sum) + SHARD_ALIGN / 2;
		c->end[i] = i + 1 == n ? bytes : at - at % SHARD_ALIGN;
		if (n > 1 && c->end[i] < start + SPREAD_PART_MIN)
			return false;
		start = c->end[i];
	}
	c->n = n;
	return true;
}

/* set[0..n), n > 0, is sorted in passing. */
static void cut_expert(const struct spread_job *job, uint32_t index, uint64_t bytes, uint16_t *set,
		       uint32_t n, struct cut *c)
{
	uint64_t most = bytes / SPREAD_PART_MIN;
	uint32_t k = most < n ? (uint32_t)most : n;

	sort_drives(job, index, set, n, true);
	for (; k > 1; k--) {
		memcpy(c->drive, set, k * sizeof(*set));
		sort_drives(job, index, c->drive, k, false);
		if (cut_over(job, bytes, k, c))
			return;
	}
	c->n = 1;
	c->drive[0] = draw(job, index, set, n);
	c->end[0] = bytes;
}

static bool is_cut_so(const struct extent_list *l, unsigned copy, const struct cut *c)
{
	uint32_t n;
	const struct extent *x = extent_list_copy(l, copy, &n);

	if (n != c->n)
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (x[i].drive != c->drive[i] || x[i].expert_offset + x[i].length != c->end[i])
			return false;
	return true;
}

/* -- striped ------------------------------------------------------------------------------------ */

/* The copy that is to use the drive that comes: the one that does already, else the slowest. */
static unsigned copy_for_new(const struct spread_job *job, uint32_t index, const struct lie *e)
{
	uint64_t least = UINT64_MAX;
	unsigned chosen = 0;

	for (unsigned i = 0; i < e->copies; i++) {
		unsigned c = (i + index) % e->copies; /* equals take turns */
		uint64_t speed = 0;
		if (copy_uses(e->list, c, job->drive))
			return c;
		for (uint32_t d = 0; d < STORE_DRIVES_MAX; d++)
			speed += copy_uses(e->list, c, d) ? job->speed[d] : 0;
		if (speed && speed < least) { /* 0: on drives that are missing */
			least = speed;
			chosen = c;
		}
	}
	return chosen;
}

/* The drives that a copy is to be cut over into set; returns how many. */
static uint32_t drives_for(const struct spread_job *job, const struct lie *e, unsigned copy,
			   uint16_t *set)
{
	bool any = e->copies == 1;
	uint32_t n = 0;

	for (int round = 0; round < 2 && n == 0; round++, any = true) {
		for (uint32_t d = 0; d < STORE_DRIVES_MAX; d++) {
			bool mine = any || copy_uses(e->list, copy, d) ||
				    (job->kind == SPREAD_ADD && d == job->drive);
			if (job->speed[d] && mine && !others_use(e->list, copy, d))
				set[n++] = (uint16_t)d;
		}
	}
	return n;
}

/* -- the list after a step ---------------------------------------------------------------------- */

/* Copy after copy of `from` into a new list, with the one that the step is about replaced by the
 * parts of c (none: dropped, and those behind it are renumbered). */
static struct extent_list *with_copy(const struct extent_list *from, unsigned copy,
				     const struct cut *c)
{
	uint32_t old, at = 0;
	struct extent_list *l;

	extent_list_copy(from, copy, &old);
	l = extent_list_new(from->n - old + c->n);
	if (!l)
		return NULL;
	for (uint32_t i = 0; i < from->n; i++) {
		if (from->x[i].copy == copy) {
			uint64_t start = 0;
			for (uint32_t p = 0; p < c->n && from->x[i].expert_offset == 0; p++) {
				l->x[at++] = (struct extent){ .length = c->end[p] - start,
							      .expert_offset = start,
							      .drive = c->drive[p],
							      .copy = (uint16_t)copy };
				start = c->end[p];
			}
			continue;
		}
		l->x[at] = from->x[i];
		if (c->n == 0 && from->x[i].copy > copy)
			l->x[at].copy--;
		at++;
	}
	return l;
}

struct extent_list *spread_step_list(struct store *s, const struct spread_job *job,
				     const struct spread_step *step)
{
	struct lie e = lie_of(s, step->index);
	uint64_t bytes = s->expert[step->index].bytes;
	uint16_t set[STORE_DRIVES_MAX];
	struct cut c = { .n = 0 };

	if (step->to == SPREAD_STRIPE) {
		uint32_t n = drives_for(job, &e, step->copy, set);
		cut_expert(job, step->index, bytes, set, n, &c);
	} else if (step->to != SPREAD_DROP) {
		c.n = 1;
		c.drive[0] = step->to;
		c.end[0] = bytes;
	}
	return with_copy(e.list, step->copy, &c);
}

/* -- making the plan ---------------------------------------------------------------------------- */

struct planner {
	struct store *s;
	const struct spread_job *job;
	struct spread_plan *p;
	uint32_t room;                   /* for steps */
	uint32_t lost;                   /* experts that cannot be read */
	uint64_t load[STORE_DRIVES_MAX]; /* bytes of experts there */
	double share[STORE_DRIVES_MAX];  /* of all experts, that it should have */
};

static int push(struct planner *k, uint32_t index, unsigned copy, uint32_t to, char *why)
{
	struct spread_plan *p = k->p;
	struct lie e = lie_of(k->s, index);

	if (!can_be_read(k->s, &e, to == SPREAD_DROP ? (int)copy : -1)) {
		k->lost++;
		return 0;
	}
	if (p->n == k->room) {
		uint32_t room = k->room ? 2 * k->room : 256;
		struct spread_step *more = reallocarray(p->step, room, sizeof(*more));
		if (!more)
			return fail(why, ENOMEM, "out of memory for the plan");
		p->step = more;
		k->room = room;
	}
	p->step[p->n++] = (struct spread_step){ index, (uint16_t)copy, (uint16_t)to };
	if (to == SPREAD_DROP)
		p->dropped++;
	else
		p->bytes += k->s->expert[index].bytes;
	return 0;
}

static void count_loads(struct planner *k)
{
	double all = 0;

	for (uint32_t i = 0; i < k->s->experts; i++) {
		const struct extent_list *l = k->s->expert[i].packed;
		for (uint32_t x = 0; x < l->n; x++)
			k->load[l->x[x].drive] += l->x[x].length;
	}
	for (uint32_t d = 0; d < STORE_DRIVES_MAX; d++)
		all += (double)k->job->speed[d];
	for (uint32_t d = 0; d < STORE_DRIVES_MAX && all > 0; d++)
		k->share[d] = (double)k->job->speed[d] / all;
}

struct placed {
	const struct extent *x;
};

static int by_place(const void *a, const void *b)
{
	const struct extent *x = ((const struct placed *)a)->x;
	const struct extent *y = ((const struct placed *)b)->x;

	if (x->drive != y->drive)
		return x->drive < y->drive ? -1 : 1;
	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* The space of what moved is given back: so nobody else's bytes may lie there. */
static int check_apart(const struct store *s, char *why)
{
	struct placed *all;
	size_t n = 0;
	int err = 0;

	for (uint32_t i = 0; i < s->experts; i++)
		n += s->expert[i].packed->n;
	all = calloc(n + 1, sizeof(*all));
	if (!all)
		return fail(why, ENOMEM, "out of memory for the plan");
	n = 0;
	for (uint32_t i = 0; i < s->experts; i++)
		for (uint32_t x = 0; x < s->expert[i].packed->n; x++)
			all[n++].x = &s->expert[i].packed->x[x];
	qsort(all, n, sizeof(*all), by_place);
	for (size_t i = 1; i < n && !err; i++) {
		const struct extent *x = all[i - 1].x, *y = all[i].x;
		if (x->drive == y->drive && y->offset < x->offset + x->length)
			err = fail(why, EINVAL,
				   "experts of this store share bytes (at %" PRIu64
				   " of drive %u): "
				   "they cannot be moved",
				   y->offset, y->drive);
	}
	free(all);
	return err;
}

/* -- add ---------------------------------------------------------------------------------------- */

static int add_striped(struct planner *k, char *why)
{
	uint16_t set[STORE_DRIVES_MAX];
	struct cut c;
	int err = 0;

	for (uint32_t i = 0; i < k->s->experts && !err; i++) {
		struct lie e = lie_of(k->s, i);
		unsigned copy = copy_for_new(k->job, i, &e);
		uint32_t n = drives_for(k->job, &e, copy, set);
		if (n == 0)
			continue;
		cut_expert(k->job, i, k->s->expert[i].bytes, set, n, &c);
		if (!is_cut_so(e.list, copy, &c))
			err = push(k, i, copy, SPREAD_STRIPE, why);
	}
	return err;
}

/* A whole copy that might go to the new drive. */
struct candidate {
	uint64_t order;
	uint32_t index;
	uint16_t copy, drive;
	bool taken;
};

static int by_order(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	if (x->order != y->order)
		return x->order < y->order ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

/* Of experts first to end, into c; *bytes: of all whole copies there, *there: of those that the new
 * drive has. Returns how many. */
static uint32_t find_candidates(const struct planner *k, uint32_t first, uint32_t end,
				struct candidate *c, double *bytes, double *there)
{
	uint32_t drive = k->job->drive, n = 0, parts;

	for (uint32_t i = first; i < end; i++) {
		struct lie e = lie_of(k->s, i);
		bool has = false;
		for (unsigned copy = 0; copy < e.copies; copy++)
			has = has || copy_uses(e.list, copy, drive);
		for (unsigned copy = 0; copy < e.copies; copy++) {
			const struct extent *x = extent_list_copy(e.list, copy, &parts);
			if (parts != 1)
				continue;
			*bytes += (double)x->length;
			if (x->drive == drive)
				*there += (double)x->length;
			if (has || k->job->speed[x->drive] == 0)
				continue;
			c[n++] = (struct candidate){ hash(i, copy), i, (uint16_t)copy, x->drive,
						     false };
		}
	}
	qsort(c, n, sizeof(*c), by_order);
	return n;
}

/* The next one: of the drive that has most for its share. NULL: there is none. */
static struct candidate *fullest(const struct planner *k, struct candidate *c, uint32_t n)
{
	struct candidate *best = NULL;
	double most = 0;

	for (uint32_t i = 0; i < n; i++) {
		double full = (double)k->load[c[i].drive] / k->share[c[i].drive];
		if (!c[i].taken && (!best || full > most)) {
			best = &c[i];
			most = full;
		}
	}
	return best;
}

static void take(struct planner *k, struct candidate *c, uint32_t n, struct candidate *one)
{
	uint64_t bytes = k->s->expert[one->index].bytes;

	k->load[one->drive] -= bytes;
	k->load[k->job->drive] += bytes;
	for (uint32_t i = 0; i < n; i++) /* its other copies stay where they are */
		c[i].taken = c[i].taken || c[i].index == one->index;
}

static int add_whole(struct planner *k, char *why)
{
	const struct store *s = k->s;
	double bytes = 0, there = 0, share = k->share[k->job->drive];
	uint32_t room = 0, first = 0, end = 0;
	struct candidate *c;
	int err = 0;

	for (uint32_t i = 0; i < s->experts; i++)
		room += lie_of(s, i).copies;
	c = calloc(room + 1, sizeof(*c));
	if (!c)
		return fail(why, ENOMEM, "out of memory for the plan");
	for (; first < s->experts && !err; first = end) {
		struct candidate *one;
		uint32_t n;
		while (end < s->experts && s->expert[end].layer == s->expert[first].layer)
			end++;
		n = find_candidates(k, first, end, c, &bytes, &there);
		while (!err && (one = fullest(k, c, n)) != NULL) {
			double size = (double)s->expert[one->index].bytes;
			if (there + size / 2 > bytes * share)
				break;
			err = push(k, one->index, one->copy, k->job->drive, why);
			take(k, c, n, one);
			there += size;
		}
	}
	free(c);
	return err;
}

/* -- remove and move ---------------------------------------------------------------------------- */

/* The drive that is least full for its speed with that much more; NO_DRIVE: others use them all. */
static uint32_t least_full(const struct planner *k, const struct lie *e, unsigned copy,
			   uint64_t bytes)
{
	uint32_t best = NO_DRIVE;
	double least = 0;

	for (uint32_t d = 0; d < STORE_DRIVES_MAX; d++) {
		if (k->job->speed[d] == 0 || others_use(e->list, copy, d))
			continue;
		double full = (double)(k->load[d] + bytes) / (double)k->job->speed[d];
		if (best == NO_DRIVE || full < least) {
			best = d;
			least = full;
		}
	}
	return best;
}

static int remove_from(struct planner *k, uint32_t index, char *why)
{
	struct lie e = lie_of(k->s, index);
	uint64_t bytes = k->s->expert[index].bytes;
	uint16_t set[STORE_DRIVES_MAX];
	uint32_t to = NO_DRIVE;
	unsigned copy = 0;

	while (copy < e.copies && !copy_uses(e.list, copy, k->job->drive))
		copy++;
	if (copy == e.copies)
		return 0;
	if (k->job->striped)
		to = drives_for(k->job, &e, copy, set) ? SPREAD_STRIPE : NO_DRIVE;
	else
		to = least_full(k, &e, copy, bytes);
	if (to == NO_DRIVE && e.copies == 1)
		return fail(why, EINVAL, "no other drive can take expert %u/%u",
			    k->s->expert[index].layer, k->s->expert[index].expert);
	if (to < STORE_DRIVES_MAX)
		k->load[to] += bytes;
	return push(k, index, copy, to == NO_DRIVE ? SPREAD_DROP : to, why);
}

static int move_to(struct planner *k, uint32_t index, char *why)
{
	struct lie e = lie_of(k->s, index);
	uint32_t drive = k->job->drive, n;
	unsigned copy = 0;

	for (unsigned c = 0; c < e.copies; c++)
		if (copy_uses(e.list, c, drive))
			copy = c;
	extent_list_copy(e.list, copy, &n);
	if (n == 1 && copy_uses(e.list, copy, drive))
		return 0;
	return push(k, index, copy, drive, why);
}

static int move_all(struct planner *k, char *why)
{
	uint8_t *seen = calloc(k->s->experts, 1);
	int err = 0;

	if (!seen)
		return fail(why, ENOMEM, "out of memory for the plan");
	for (uint32_t i = 0; i < k->job->experts && !err; i++) {
		uint32_t index = k->job->expert[i];
		if (!seen[index])
			err = move_to(k, index, why);
		seen[index] = 1;
	}
	free(seen);
	return err;
}

/* -- room --------------------------------------------------------------------------------------- */

/* Follows the plan: a step first needs its new records, then gives the old ones back. */
static int count_room(struct planner *k, char *why)
{
	int64_t balance[STORE_DRIVES_MAX] = { 0 };
	struct spread_plan *p = k->p;

	for (uint32_t i = 0; i < p->n; i++) {
		const struct extent_list *old = k->s->expert[p->step[i].index].packed;
		struct extent_list *now = spread_step_list(k->s, k->job, &p->step[i]);
		if (!now)
			return fail(why, ENOMEM, "out of memory for the plan");
		for (uint32_t x = 0; x < now->n; x++) {
			uint32_t d = now->x[x].drive;
			if (now->x[x].offset)
				continue;
			balance[d] += (int64_t)record_bytes(now->x[x].length);
			if (balance[d] > (int64_t)p->needed[d])
				p->needed[d] = (uint64_t)balance[d];
		}
		for (uint32_t x = 0; x < old->n; x++)
			if (old->x[x].copy == p->step[i].copy)
				balance[old->x[x].drive] -= (int64_t)record_bytes(old->x[x].length);
		free(now);
	}
	return 0;
}

static int plan_kind(struct planner *k, char *why)
{
	int err = 0;

	if (k->job->kind == SPREAD_ADD)
		return k->job->striped ? add_striped(k, why) : add_whole(k, why);
	if (k->job->kind == SPREAD_MOVE)
		err = move_all(k, why);
	for (uint32_t i = 0; i < k->s->experts && !err && k->job->kind == SPREAD_REMOVE; i++)
		err = remove_from(k, i, why);
	if (!err && k->lost)
		err = fail(why, ENODATA, "%" PRIu32 " expert%s no copy on a drive that is there",
			   k->lost, k->lost == 1 ? " has" : "s have");
	return err;
}

int spread_plan_make(struct store *s, const struct spread_job *job, struct spread_plan *p,
		     char *why)
{
	struct planner *k = calloc(1, sizeof(*k));
	int err;

	*p = (struct spread_plan){ 0 };
	if (!k)
		return fail(why, ENOMEM, "out of memory for the plan");
	*k = (struct planner){ .s = s, .job = job, .p = p };
	count_loads(k);
	err = check_apart(s, why);
	err = err ? err : plan_kind(k, why);
	err = err ? err : count_room(k, why);
	free(k);
	if (err)
		spread_plan_free(p);
	return err;
}

void spread_plan_free(struct spread_plan *p)
{
	free(p->step);
	p->step = NULL;
	p->n = 0;
}
