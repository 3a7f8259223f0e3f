/* SPDX-License-Identifier: Apache-2.0
 *
 * Where every expert lies: cut into parts, copied, and dealt out over drives of different speed.
 *
 * Two layouts. A stripe cuts each expert over all drives in proportion to their speed: a miss takes
 * as long as all drives together need for it, whatever else is asked for, so a token waits least.
 * Whole puts each expert on one drive: a drive that is lost takes only its own experts along, but
 * the 8 experts of one layer fall on 4 drives so that the fullest gets 3.5 of them on average where
 * 2 would be even (drawn at random, 20,000 times), and a single miss has one drive's speed. That is
 * why the stripe is the default.
 *
 * Rules that hold for both:
 * - A part is one record and one read. Parts begin on 4 KiB and follow each other from the expert's
 *   first byte to its last.
 * - No two copies of an expert have a drive in common, so the loss of any one drive leaves all
 *   other copies whole. With stripes each copy therefore has a set of drives of its own, as equal
 *   in speed as can be; which set it is changes from expert to expert.
 * - A part is at least STRIPE_MIN long, or the whole expert: experts too small to be cut over all
 *   drives are cut over fewer, and those too small to be cut at all are dealt out whole.
 * - Each copy is dealt out by what its drives hold already: an expert goes where (bytes so far +
 *   half of its own) / speed is least (Sainte-Lague's method of apportionment). This keeps to the
 *   proportion at every moment, not only in the end, so each layer is spread like the whole; with
 *   equal drives it is plain turns. The first drive of a layer moves on from layer to layer, lest
 *   one number be on one drive in all layers.
 * - Everything follows from the arguments alone: the same ones give the same placement.
 */
#ifndef COLI_PACK_PLACEMENT_H
#define COLI_PACK_PLACEMENT_H

#include <stdint.h>

/* A record's head is 4 KiB and a flash drive reads 64 KiB in less time than it takes to answer at
 * all (some 80 us): shorter parts cost more than they bring. */
#define STRIPE_MIN (64u << 10)

#define COPIES_MAX 16

enum layout { LAYOUT_STRIPE, LAYOUT_WHOLE };

struct part {
	uint64_t offset;       /* of the record in its shard */
	uint64_t first, bytes; /* of the expert */
	uint32_t expert;       /* its number in the plan */
	uint16_t drive, copy, part, parts;
};

/* In order of expert, copy, part; the records of each shard are in this order, too. */
struct placement {
	uint32_t experts, drives;
	struct part *part;
	uint32_t *start;       /* experts + 1: where an expert's parts begin in part[] */
	uint64_t *shard_bytes; /* a drive */
};

struct to_place {
	enum layout layout;
	uint32_t experts, per_layer;
	uint32_t drives;       /* 1..65535 */
	const uint64_t *speed; /* a drive; > 0; only the ratios count */
	const uint64_t *bytes; /* an expert; > 0 */
	const uint8_t *copies; /* an expert; 1..COPIES_MAX, and no more than drives */
};

/* 0, or -ENOMEM with the sentence in why. */
int placement_make(const struct to_place *t, struct placement *out, char *why);
void placement_free(struct placement *p);

static inline uint32_t placement_parts(const struct placement *p)
{
	return p->start[p->experts];
}

#endif
