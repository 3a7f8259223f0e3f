/* SPDX-License-Identifier: Apache-2.0
 *
 * Dealing experts out. See placement.h for the rules.
 */
#include "tools/coli-pack/placement.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/fail.h"
#include "expertfs/shard.h"

typedef unsigned __int128 wide;

struct dealer {
	const struct to_place *t;
	struct placement *p;
	uint32_t room;              /* parts that fit p->part */
	uint64_t *load[COPIES_MAX]; /* bytes of this copy of all experts, a drive */
	uint32_t turn[COPIES_MAX];  /* the drive that comes first among equals */
	/* Of the expert at hand. */
	uint16_t *order; /* drives, the fastest first */
	uint16_t *group; /* a drive: the copy that may use it */
	uint16_t *set;   /* the drives of one copy; those that get a part come first */
	uint8_t *in;     /* a drive: whether it is among them */
	uint64_t *cut;   /* where the parts begin, and the end */
};

static uint32_t after(uint32_t drive, uint32_t turn, uint32_t drives)
{
	return (drive + drives - turn % drives) % drives;
}

/* Whether drive a is to get `bytes` rather than b, which comes later among equals. */
static bool is_less_loaded(const struct dealer *d, unsigned copy, uint64_t bytes, uint16_t a,
			   uint16_t b)
{
	const uint64_t *load = d->load[copy], *speed = d->t->speed;
	wide x = ((wide)2 * load[a] + bytes) * speed[b], y = ((wide)2 * load[b] + bytes) * speed[a];

	if (x != y)
		return x < y;
	return after(a, d->turn[copy], d->t->drives) < after(b, d->turn[copy], d->t->drives);
}

/* Sorts set[0..n): those that are to get `bytes` each come first. */
static void rank(struct dealer *d, unsigned copy, uint64_t bytes, uint32_t n)
{
	for (uint32_t i = 1; i < n; i++) {
		uint16_t drive = d->set[i];
		uint32_t j = i;
		for (; j > 0 && is_less_loaded(d, copy, bytes, drive, d->set[j - 1]); j--)
			d->set[j] = d->set[j - 1];
		d->set[j] = drive;
	}
}

/* Whether the slowest of set[0..k) gets a part that is worth it. */
static bool is_worth(const struct dealer *d, uint64_t bytes, uint32_t k)
{
	uint64_t least = UINT64_MAX;
	wide sum = 0;

	for (uint32_t i = 0; i < k; i++) {
		uint64_t speed = d->t->speed[d->set[i]];
		least = speed < least ? speed : least;
		sum += speed;
	}
	return (wide)bytes * least >= sum * STRIPE_MIN;
}

/* Moves those that get a part to the front of set[0..n); at most `most` parts. Returns how many. */
static uint32_t choose(struct dealer *d, unsigned copy, uint64_t bytes, uint32_t n, uint64_t most)
{
	uint32_t k = most < n ? (uint32_t)most : n;

	assert(k > 0); /* there are as many drives as copies, at least */
	if (k < n || !is_worth(d, bytes, k))
		rank(d, copy, bytes / k, n);
	while (k > 1 && !is_worth(d, bytes, k))
		k--;
	return k;
}

/* The drive with the expert's first bytes changes, so that none gets more of what is read alone,
 * and rounding does not always favour the same: set[0..k) in order of number from turn on. */
static void rotate(struct dealer *d, uint32_t k, uint32_t turn)
{
	const uint32_t drives = d->t->drives;

	memset(d->in, 0, drives);
	for (uint32_t i = 0; i < k; i++)
		d->in[d->set[i]] = 1;
	for (uint32_t i = 0, n = 0; i < drives; i++) {
		uint16_t drive = (uint16_t)((i + turn) % drives);
		if (d->in[drive])
			d->set[n++] = drive;
	}
}

/* Cuts `bytes` over set[0..k) at the 4 KiB before the proportion: no part that is worth it becomes
 * shorter than STRIPE_MIN by that, a multiple of 4 KiB, nor the last one. */
static void cut(struct dealer *d, uint64_t bytes, uint32_t k)
{
	wide sum = 0, so_far = 0;

	for (uint32_t i = 0; i < k; i++)
		sum += d->t->speed[d->set[i]];
	d->cut[0] = 0;
	for (uint32_t i = 0; i + 1 < k; i++) {
		so_far += d->t->speed[d->set[i]];
		uint64_t end = (uint64_t)(bytes * so_far / sum);
		d->cut[i + 1] = end - end % SHARD_ALIGN;
	}
	d->cut[k] = bytes;
}

/* Splits the drives among the copies, as evenly in speed as dealing the fastest first can. */
static void split(struct dealer *d, unsigned copies, uint32_t turn)
{
	const uint32_t drives = d->t->drives;
	wide sum[COPIES_MAX] = { 0 };

	for (uint32_t i = 0; i < drives; i++) {
		uint16_t drive = (uint16_t)((i + turn) % drives);
		uint32_t j = i;
		/* Drives that are alike (to a tenth) take turns, or some would always be many. */
		for (; j > 0 &&
		       d->t->speed[d->order[j - 1]] < d->t->speed[drive] - d->t->speed[drive] / 10;
		     j--)
			d->order[j] = d->order[j - 1];
		d->order[j] = drive;
	}
	for (uint32_t i = 0; i < drives; i++) {
		unsigned least = 0;
		for (unsigned c = 1; c < copies; c++)
			if (sum[c] < sum[least])
				least = c;
		sum[least] += d->t->speed[d->order[i]];
		/* No copy has the larger or faster set for good. */
		d->group[d->order[i]] = (uint16_t)((least + turn / drives) % copies);
	}
}

static int add_part(struct dealer *d, const struct part *x, char *why)
{
	struct placement *p = d->p;
	uint32_t n = p->start[x->expert + 1];

	if (n == d->room) {
		uint32_t room = d->room < 1024 ? 1024 : 2 * d->room;
		struct part *more =
			n > UINT32_MAX / 4 ? NULL : reallocarray(p->part, room, sizeof(*more));
		if (!more)
			return fail(why, ENOMEM, "out of memory for %u parts of experts", room);
		p->part = more;
		d->room = room;
	}
	p->part[n] = *x;
	p->part[n].offset = p->shard_bytes[x->drive];
	p->start[x->expert + 1]++;
	p->shard_bytes[x->drive] += record_bytes(x->bytes);
	d->load[x->copy][x->drive] += x->bytes;
	return 0;
}

/* The drives that this copy may use into set; returns how many. */
static uint32_t gather(struct dealer *d, unsigned copy, uint32_t expert, bool grouped)
{
	const struct placement *p = d->p;
	uint32_t n = 0;

	for (uint32_t i = 0; i < d->t->drives; i++) {
		bool taken = grouped && d->group[i] != copy;
		for (uint32_t j = p->start[expert]; !grouped && j < p->start[expert + 1]; j++)
			taken |= p->part[j].drive == i;
		if (!taken)
			d->set[n++] = (uint16_t)i;
	}
	return n;
}

static int place_copy(struct dealer *d, uint32_t expert, unsigned copy, char *why)
{
	const struct to_place *t = d->t;
	bool stripe = t->layout == LAYOUT_STRIPE;
	uint64_t bytes = t->bytes[expert];
	uint64_t most = stripe && bytes >= 2 * STRIPE_MIN ? bytes / STRIPE_MIN : 1;
	uint32_t n = gather(d, copy, expert, stripe && t->copies[expert] > 1);
	int err = 0;

	uint32_t k = choose(d, copy, bytes, n, most);
	rotate(d, k, expert + expert / t->per_layer);
	cut(d, bytes, k);
	for (uint32_t i = 0; i < k && !err; i++) {
		struct part x = { .first = d->cut[i],
				  .bytes = d->cut[i + 1] - d->cut[i],
				  .expert = expert,
				  .drive = d->set[i],
				  .copy = (uint16_t)copy,
				  .part = (uint16_t)i,
				  .parts = (uint16_t)k };
		err = add_part(d, &x, why);
	}
	d->turn[copy] = d->set[k - 1] + 1u;
	return err;
}

/* A layer that finds all drives equally full begins with another drive than the one before. */
static void begin_layer(struct dealer *d, uint32_t layer)
{
	for (unsigned c = 0; c < COPIES_MAX; c++) {
		bool even = true;
		for (uint32_t i = 1; i < d->t->drives; i++)
			even &= (wide)d->load[c][i] * d->t->speed[0] ==
				(wide)d->load[c][0] * d->t->speed[i];
		if (even)
			d->turn[c] = layer + c;
	}
}

static int deal(struct dealer *d, char *why)
{
	const struct to_place *t = d->t;
	int err = 0;

	for (uint32_t i = 0; i < t->drives; i++)
		d->p->shard_bytes[i] = SHARD_ALIGN;
	for (uint32_t e = 0; e < t->experts && !err; e++) {
		if (e % t->per_layer == 0)
			begin_layer(d, e / t->per_layer);
		d->p->start[e + 1] = d->p->start[e];
		if (t->layout == LAYOUT_STRIPE && t->copies[e] > 1)
			split(d, t->copies[e], e + e / t->per_layer);
		for (unsigned c = 0; c < t->copies[e] && !err; c++)
			err = place_copy(d, e, c, why);
	}
	return err;
}

int placement_make(const struct to_place *t, struct placement *out, char *why)
{
	struct dealer d = { .t = t, .p = out };
	uint64_t *loads = calloc((size_t)COPIES_MAX * t->drives, sizeof(*loads));
	uint16_t *work = calloc((size_t)3 * t->drives, sizeof(*work));

	*out = (struct placement){ .experts = t->experts, .drives = t->drives };
	out->start = calloc((size_t)t->experts + 1, sizeof(*out->start));
	out->shard_bytes = calloc(t->drives, sizeof(*out->shard_bytes));
	d.cut = calloc((size_t)t->drives + 1, sizeof(*d.cut));
	d.in = calloc(t->drives, sizeof(*d.in));
	int err = 0;
	if (!loads || !work || !d.cut || !d.in || !out->start || !out->shard_bytes) {
		err = fail(why, ENOMEM, "out of memory for the plan");
	} else {
		for (unsigned c = 0; c < COPIES_MAX; c++)
			d.load[c] = loads + (size_t)c * t->drives;
		d.order = work;
		d.group = work + t->drives;
		d.set = work + (size_t)2 * t->drives;
		err = deal(&d, why);
	}
	if (err)
		placement_free(out);
	free(d.in);
	free(d.cut);
	free(work);
	free(loads);
	return err;
}

void placement_free(struct placement *p)
{
	free(p->part);
	free(p->start);
	free(p->shard_bytes);
	*p = (struct placement){ 0 };
}
