/* SPDX-License-Identifier: Apache-2.0
 *
 * Choosing whole copies; see shardsets.h.
 */
#include "expertfs/shardsets.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ORDER(a, b)                                                                                \
	do {                                                                                       \
		if ((a) != (b))                                                                    \
			return (a) < (b) ? -1 : 1;                                                 \
	} while (0)

/* So that the records of an expert, of a copy, of a generation, of a way to cut it lie together,
 * the newest generation first; and in there the parts in order. */
static int in_order(const void *x, const void *y)
{
	const struct shard_record *a = x, *b = y;

	ORDER(a->bad, b->bad);
	ORDER(a->layer, b->layer);
	ORDER(a->expert, b->expert);
	ORDER(a->copy, b->copy);
	ORDER(b->generation, a->generation);
	ORDER(a->parts, b->parts);
	ORDER(a->expert_bytes, b->expert_bytes);
	ORDER(a->part, b->part);
	ORDER(a->part_offset, b->part_offset);
	ORDER(a->part_bytes, b->part_bytes);
	ORDER(a->drive, b->drive);
	ORDER(a->offset, b->offset);
	return 0;
}

static bool same_expert(const struct shard_record *a, const struct shard_record *b)
{
	return a->layer == b->layer && a->expert == b->expert;
}

static bool same_set(const struct shard_record *a, const struct shard_record *b)
{
	return same_expert(a, b) && a->copy == b->copy && a->generation == b->generation &&
	       a->parts == b->parts && a->expert_bytes == b->expert_bytes;
}

static bool same_copy(const struct shard_record *a, const struct shard_record *b)
{
	return same_expert(a, b) && a->copy == b->copy;
}

void shard_contested(struct shard_record *record, uint32_t n,
		     void (*each)(void *arg, struct shard_record *r), void *arg)
{
	if (n)
		qsort(record, n, sizeof(*record), in_order);
	for (uint32_t i = 0, end; i < n; i = end) {
		bool twice = false;
		for (end = i + 1; end < n && same_copy(&record[i], &record[end]); end++)
			twice = twice || !same_set(&record[i], &record[end]) ||
				record[end].part == record[end - 1].part;
		for (uint32_t j = i; twice && j < end; j++)
			each(arg, &record[j]);
	}
}

static bool same_begin(const struct shard_record *a, const struct shard_record *b)
{
	return a->part == b->part && a->part_offset == b->part_offset;
}

/* The first record at or behind `from` of part `part` that begins at `offset` and leads to the end;
 * n if there is none. leads[] is known from `from` on: of the records that begin at one place, as
 * many as there may be, the first tells which. */
static uint32_t follow(const struct shard_record *r, uint32_t from, uint32_t n, uint32_t part,
		       uint64_t offset, const uint32_t *leads)
{
	uint32_t lo = from, hi = n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		if (r[mid].part < part || (r[mid].part == part && r[mid].part_offset < offset))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < n && r[lo].part == part && r[lo].part_offset == offset ? leads[lo] : n;
}

/* A chain of parts through a set of n records, from the first byte to the last. Two moves that were
 * killed may have left parts that were cut in different places: so each record is asked whether a
 * next one fits to its end. leads[]: itself if one does, else the next of those that begin where it
 * does; n: none of them. chain[] gets the indices; returns how many, 0: none. */
static uint32_t find_chain(const struct shard_record *r, uint32_t n, uint32_t *leads,
			   uint32_t *chain)
{
	uint32_t parts = r[0].parts, at, k = 0;

	if (parts > n)
		return 0;
	for (uint32_t i = n; i-- > 0;) {
		uint64_t end = r[i].part_offset + r[i].part_bytes;
		bool ends = end == r[i].expert_bytes;
		if (r[i].part != parts - 1)
			ends = follow(r, i + 1, n, r[i].part + 1, end, leads) < n;
		leads[i] = n;
		if (ends)
			leads[i] = i;
		else if (i + 1 < n && same_begin(&r[i], &r[i + 1]))
			leads[i] = leads[i + 1];
	}
	at = follow(r, 0, n, 0, 0, leads);
	while (at < n) {
		chain[k++] = at;
		if (k == parts)
			return k;
		at = follow(r, at + 1, n, k, r[at].part_offset + r[at].part_bytes, leads);
	}
	return 0;
}

/* Room for one expert's records; as large as the largest needs. */
struct work {
	uint32_t *leads, *chain;
	struct extent *x;
};

static int make_list(struct found_expert *e, const struct extent *x, uint32_t n)
{
	e->list = extent_list_new(n);
	if (!e->list)
		return -ENOMEM;
	memcpy(e->list->x, x, n * sizeof(*x));
	return 0;
}

/* The n records of one expert. A copy of another size than the first whole one is none. */
static int choose_copies(struct found_expert *e, const struct shard_record *r, uint32_t n,
			 struct work *w)
{
	uint32_t used = 0, k;
	uint16_t copies = 0;
	int64_t done = -1; /* the last copy number of which a generation was taken */

	for (uint32_t i = 0, end; i < n; i = end) {
		for (end = i + 1; end < n && same_set(&r[i], &r[end]);)
			end++;
		if (r[i].copy == done || (copies && r[i].expert_bytes != e->bytes))
			continue;
		k = find_chain(r + i, end - i, w->leads, w->chain);
		if (k == 0)
			continue;
		for (uint32_t j = 0; j < k; j++) {
			const struct shard_record *p = &r[i + w->chain[j]];
			w->x[used++] = (struct extent){ .offset = p->offset,
							.length = p->part_bytes,
							.expert_offset = p->part_offset,
							.check = p->check,
							.drive = p->drive,
							.copy = copies };
		}
		done = r[i].copy;
		e->bytes = r[i].expert_bytes;
		copies++;
	}
	return used ? make_list(e, w->x, used) : 0;
}

static int choose_all(const struct shard_record *r, uint32_t n, struct found *f, struct work *w)
{
	int err = 0;

	for (uint32_t i = 0, end; i < n && !err; i = end) {
		struct found_expert *e = &f->expert[f->n++];
		for (end = i + 1; end < n && same_expert(&r[i], &r[end]);)
			end++;
		*e = (struct found_expert){ .layer = r[i].layer,
					    .expert = r[i].expert,
					    .bytes = r[i].expert_bytes };
		err = choose_copies(e, r + i, end - i, w);
		f->whole += e->list != NULL;
	}
	return err;
}

int shard_sets(struct shard_record *record, uint32_t n, struct found *out)
{
	struct work w = { 0 };
	int err = -ENOMEM;

	*out = (struct found){ 0 };
	if (n)
		qsort(record, n, sizeof(*record), in_order);
	while (n && record[n - 1].bad)
		n--;
	w.leads = calloc(n + 1ul, sizeof(*w.leads));
	w.chain = calloc(n + 1ul, sizeof(*w.chain));
	w.x = calloc(n + 1ul, sizeof(*w.x));
	out->expert = calloc(n + 1ul, sizeof(*out->expert));
	if (w.leads && w.chain && w.x && out->expert)
		err = choose_all(record, n, out, &w);
	free(w.leads);
	free(w.chain);
	free(w.x);
	if (err)
		shard_sets_free(out);
	return err;
}

void shard_sets_free(struct found *f)
{
	for (uint32_t i = 0; f->expert && i < f->n; i++)
		free(f->expert[i].list);
	free(f->expert);
	*f = (struct found){ 0 };
}

const struct found_expert *shard_sets_find(const struct found *f, unsigned layer, unsigned expert)
{
	return find_by_name(f->expert, f->n, sizeof(*f->expert), layer, expert);
}
