/* SPDX-License-Identifier: Apache-2.0
 *
 * Where coli-pack puts experts: over one to nine drives of equal and unequal speed, cut and whole,
 * with and without copies. First what must hold always, then the proportions.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "expertfs/fail.h" /* before cmocka.h, which has a macro of that name */
#include <cmocka.h>

#include "expertfs/shard.h"
#include "tools/coli-pack/placement.h"

#define PER_LAYER  60u
#define LAYERS     7u
#define EXPERTS    (LAYERS * PER_LAYER)
#define MAX_DRIVES 9u
#define MiB        (1ull << 20)

static char why[WHY_MAX];
static uint64_t bytes[EXPERTS];
static uint8_t copies[EXPERTS];

static const uint64_t equal[MAX_DRIVES] = { 7, 7, 7, 7, 7, 7, 7, 7, 7 };
static const uint64_t mixed[MAX_DRIVES] = { 7000000000, 3500000000,  3400000000,
					    550000000,  7100000000,  1,
					    120000000,  14000000000, 6900000000 };

static struct placement make(enum layout layout, uint32_t drives, const uint64_t *speed,
			     uint64_t size, unsigned n)
{
	struct to_place t = { .layout = layout,
			      .experts = EXPERTS,
			      .per_layer = PER_LAYER,
			      .drives = drives,
			      .speed = speed,
			      .bytes = bytes,
			      .copies = copies };
	struct placement p;

	for (uint32_t e = 0; e < EXPERTS; e++) {
		/* The last layer is larger, as the MTP layer may be; some have a copy more. */
		bytes[e] = e / PER_LAYER == LAYERS - 1 ? 2 * size - 192 : size;
		copies[e] = (uint8_t)(n + (n < drives && e % 11 == 3));
	}
	assert_int_equal(placement_make(&t, &p, why), 0);
	return p;
}

/* One copy of one expert: parts[0..n). */
static void check_copy(const struct part *parts, uint32_t n, enum layout layout, uint64_t size)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(parts[i].part, i);
		assert_int_equal(parts[i].parts, n);
		assert_int_equal(parts[i].first, at);
		assert_int_equal(at % SHARD_ALIGN, 0);
		if (n > 1)
			assert_true(parts[i].bytes >= STRIPE_MIN);
		at += parts[i].bytes;
	}
	assert_int_equal(at, size);
	if (layout == LAYOUT_WHOLE)
		assert_int_equal(n, 1);
}

/* Every byte of every copy once, aligned, no drive twice, the records of a shard one behind the
 * other. */
static void check_rules(const struct placement *p, enum layout layout)
{
	uint64_t end[MAX_DRIVES];

	for (uint32_t d = 0; d < p->drives; d++)
		end[d] = SHARD_ALIGN;
	assert_int_equal(p->start[0], 0);
	for (uint32_t e = 0; e < p->experts; e++) {
		bool used[MAX_DRIVES] = { false };
		uint32_t i = p->start[e];
		for (unsigned c = 0; c < copies[e]; c++) {
			uint32_t n = 0;
			for (; i + n < p->start[e + 1] && p->part[i + n].copy == c; n++) {
				const struct part *x = &p->part[i + n];
				assert_int_equal(x->expert, e);
				assert_true(x->drive < p->drives);
				assert_false(used[x->drive]);
				used[x->drive] = true;
				assert_int_equal(x->offset, end[x->drive]);
				end[x->drive] += record_bytes(x->bytes);
			}
			check_copy(&p->part[i], n, layout, bytes[e]);
			i += n;
		}
		assert_int_equal(i, p->start[e + 1]);
	}
	for (uint32_t d = 0; d < p->drives; d++)
		assert_int_equal(p->shard_bytes[d], end[d]);
}

static void test_rules(void **state)
{
	(void)state;
	static const uint64_t sizes[] = {
		100, 4096, 27648, 131008, 196608, 3 * MiB, 20 * MiB - 64
	};

	for (int layout = LAYOUT_STRIPE; layout <= LAYOUT_WHOLE; layout++)
		for (uint32_t drives = 1; drives <= MAX_DRIVES; drives++)
			for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
				for (unsigned n = 1; n <= drives && n <= 4; n++)
					for (int m = 0; m < 2; m++) {
						struct placement p =
							make((enum layout)layout, drives,
							     m ? mixed : equal, sizes[s], n);
						check_rules(&p, (enum layout)layout);
						placement_free(&p);
					}
}

/* Bytes of copy c of experts from..to-1 on a drive. */
static uint64_t load_of(const struct placement *p, uint32_t drive, unsigned copy, uint32_t from,
			uint32_t to)
{
	uint64_t sum = 0;

	for (uint32_t i = p->start[from]; i < p->start[to]; i++)
		if (p->part[i].drive == drive && p->part[i].copy == copy)
			sum += p->part[i].bytes;
	return sum;
}

/* The load of each drive must be its share, but for `slack` bytes. */
static void check_shares(const struct placement *p, const uint64_t *speed, uint32_t from,
			 uint32_t to, double slack)
{
	double total = 0, speeds = 0;

	for (uint32_t d = 0; d < p->drives; d++) {
		total += (double)load_of(p, d, 0, from, to);
		speeds += (double)speed[d];
	}
	for (uint32_t d = 0; d < p->drives; d++) {
		double want = total * (double)speed[d] / speeds;
		double is = (double)load_of(p, d, 0, from, to);
		if (is < want - slack || is > want + slack)
			fail_msg("drive %u of %u has %.0f bytes, not %.0f", d, p->drives, is, want);
	}
}

/* The first copies lie in proportion to speed: within an expert and a half, and not only in all,
 * but in each layer. */
static void test_whole_in_proportion(void **state)
{
	(void)state;
	const uint64_t size = 20 * MiB;

	for (uint32_t drives = 1; drives <= MAX_DRIVES; drives++)
		for (int m = 0; m < 2; m++) {
			const uint64_t *speed = m ? mixed : equal;
			struct placement p = make(LAYOUT_WHOLE, drives, speed, size, 1);
			check_shares(&p, speed, 0, EXPERTS, 3 * (double)size);
			for (uint32_t l = 0; l < LAYERS - 1; l++)
				check_shares(&p, speed, l * PER_LAYER, (l + 1) * PER_LAYER,
					     2 * (double)size);
			placement_free(&p);
		}
}

/* Equal drives take turns, and no expert number is on one drive in all layers. */
static void test_whole_in_turns(void **state)
{
	(void)state;
	for (uint32_t drives = 2; drives <= MAX_DRIVES; drives++) {
		struct placement p = make(LAYOUT_WHOLE, drives, equal, 27648, 1);
		bool moved = false;
		for (uint32_t e = 0; e < EXPERTS; e++) {
			uint16_t d = p.part[p.start[e]].drive;
			if (e % PER_LAYER)
				assert_int_equal(d, (p.part[p.start[e - 1]].drive + 1) % drives);
			moved |= e >= PER_LAYER && d != p.part[p.start[e - PER_LAYER]].drive;
		}
		assert_true(moved);
		placement_free(&p);
	}
}

/* Each part is its drive's share of the expert to 4 KiB, where that is long enough. */
static void test_stripe_in_proportion(void **state)
{
	(void)state;
	static const uint64_t speed[4] = { 7000, 3500, 3500, 1750 };

	for (uint32_t drives = 2; drives <= 4; drives++) {
		struct placement p = make(LAYOUT_STRIPE, drives, speed, 20 * MiB, 1);
		uint64_t sum = 0;
		for (uint32_t d = 0; d < drives; d++)
			sum += speed[d];
		for (uint32_t i = 0; i < placement_parts(&p); i++) {
			const struct part *x = &p.part[i];
			if (copies[x->expert] > 1)
				continue;
			double want =
				(double)bytes[x->expert] * (double)speed[x->drive] / (double)sum;
			assert_int_equal(x->parts, drives);
			assert_true((double)x->bytes > want - SHARD_ALIGN &&
				    (double)x->bytes < want + SHARD_ALIGN);
		}
		placement_free(&p);
	}
}

/* Every drive has the first part of some experts, and no more of them than the others. */
static void test_first_part_rotates(void **state)
{
	(void)state;
	for (uint32_t drives = 2; drives <= 6; drives++) {
		struct placement p = make(LAYOUT_STRIPE, drives, equal, 20 * MiB, 1);
		uint32_t first[MAX_DRIVES] = { 0 };
		for (uint32_t i = 0; i < placement_parts(&p); i++)
			if (p.part[i].part == 0 && copies[p.part[i].expert] == 1)
				first[p.part[i].drive]++;
		for (uint32_t d = 0; d < drives; d++)
			assert_true(first[d] > EXPERTS / drives * 8 / 10 &&
				    first[d] < EXPERTS / drives * 12 / 10);
		placement_free(&p);
	}
}

/* 130 KiB are two parts of 64 KiB, 27 KiB none: fewer drives an expert, and all drives still get
 * their share. */
static void test_small_experts(void **state)
{
	(void)state;
	static const uint64_t sizes[] = { 130 * 1024, 27648 };

	for (int s = 0; s < 2; s++) {
		struct placement p = make(LAYOUT_STRIPE, 5, equal, sizes[s], 1);
		for (uint32_t e = 0; e < EXPERTS - PER_LAYER; e++)
			assert_int_equal(p.part[p.start[e]].parts, s ? 1 : 2);
		check_shares(&p, equal, 0, EXPERTS, 3 * (double)sizes[s]);
		placement_free(&p);
	}
}

/* A drive that is too slow for a part of 64 KiB still gets whole experts, by its speed. */
static void test_slow_drive(void **state)
{
	(void)state;
	static const uint64_t speed[2] = { 9000, 1000 };
	struct placement p = make(LAYOUT_STRIPE, 2, speed, 400 * 1024, 1);

	for (uint32_t e = 0; e < EXPERTS - PER_LAYER; e++)
		assert_int_equal(p.part[p.start[e]].parts, 1);
	check_shares(&p, speed, 0, EXPERTS - PER_LAYER, 2 * 400 * 1024);
	placement_free(&p);
}

/* Two copies on equal drives: each drive has as much of the first as of the second, since a reader
 * who takes the first would otherwise leave drives idle. */
static void test_copies_even(void **state)
{
	(void)state;
	for (int layout = LAYOUT_STRIPE; layout <= LAYOUT_WHOLE; layout++)
		for (uint32_t drives = 2; drives <= 8; drives++) {
			struct placement p = make((enum layout)layout, drives, equal, 20 * MiB, 2);
			for (uint32_t d = 0; d < drives; d++)
				for (unsigned c = 0; c < 2; c++) {
					double is = (double)load_of(&p, d, c, 0, EXPERTS);
					double all = 0;
					for (uint32_t i = 0; i < drives; i++)
						all += (double)load_of(&p, i, c, 0, EXPERTS);
					if (is < all / drives * 0.9 || is > all / drives * 1.1)
						fail_msg("%s, drive %u of %u, copy %u: %.3f",
							 layout ? "whole" : "stripe", d, drives, c,
							 is / all);
				}
			placement_free(&p);
		}
}

/* Stripes of two copies over drives of 4, 1, 1, 1 and 1: the fast drive alone, the others together.
 */
static void test_copies_balanced(void **state)
{
	(void)state;
	static const uint64_t speed[5] = { 1000, 4000, 1000, 1000, 1000 };
	struct placement p = make(LAYOUT_STRIPE, 5, speed, 20 * MiB, 2);

	for (uint32_t i = 0; i < placement_parts(&p); i++)
		if (copies[p.part[i].expert] == 2)
			assert_int_equal(p.part[i].parts, p.part[i].drive == 1 ? 1 : 4);
	placement_free(&p);
}

/* What a resumed pack relies on. */
static void test_repeatable(void **state)
{
	(void)state;
	struct placement a = make(LAYOUT_STRIPE, 9, mixed, 3 * MiB, 2);
	struct placement b = make(LAYOUT_STRIPE, 9, mixed, 3 * MiB, 2);

	assert_int_equal(placement_parts(&a), placement_parts(&b));
	for (uint32_t i = 0; i < placement_parts(&a); i++) {
		const struct part *x = &a.part[i], *y = &b.part[i];
		assert_true(x->offset == y->offset && x->first == y->first &&
			    x->bytes == y->bytes && x->expert == y->expert &&
			    x->drive == y->drive && x->copy == y->copy && x->part == y->part &&
			    x->parts == y->parts);
	}
	placement_free(&a);
	placement_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_whole_in_proportion),
		cmocka_unit_test(test_whole_in_turns),
		cmocka_unit_test(test_stripe_in_proportion),
		cmocka_unit_test(test_first_part_rotates),
		cmocka_unit_test(test_small_experts),
		cmocka_unit_test(test_slow_drive),
		cmocka_unit_test(test_copies_even),
		cmocka_unit_test(test_copies_balanced),
		cmocka_unit_test(test_repeatable),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
