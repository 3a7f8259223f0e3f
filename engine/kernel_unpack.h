/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of GGUF's formats (ggml.c draws them) of 16 rows, unpacked for kernel_blocks.c, which alone
 * includes this.
 *
 * What is unpacked lies as q8 does (quant.h): 4 codes of each of 16 rows side by side, so that a vector
 * has the same columns of all rows. Rows are interleaved first, as they lie in the blocks, 16 bytes of
 * each at once, and taken apart then: that moves half as many bytes, and the rest are operations on
 * vectors without regard to rows. Scales are vectors of 16 rows, too.
 *
 * Within 32 columns, w = scale * (code - offset) + min; scales and minima may be of 16 columns. The
 * offset is one of the format (kernel_blocks.c). p points at the first row's blocks, rows lie ld bytes apart.
 */
#ifndef ENGINE_KERNEL_UNPACK_H
#define ENGINE_KERNEL_UNPACK_H

#include "engine/kernel_lanes.h"

#include "engine/ggml.h"

#define CHUNK  256 /* columns unpacked at once */
#define GROUP  32
#define GROUPS (CHUNK / GROUP)

/* How a format's codes are multiplied. */
struct shape {
	int steps; /* calls of dot_q4() to a part, as the codes' size allows; 0: signed codes, dot_q8() */
	bool fine; /* scales and minima of 16 columns */
	bool has_min;
	bool one_row; /* of activations: multiplied as soon as unpacked, not stored */
};

/* A number of each row. */
typedef uint32_t numbers __attribute__((vector_size(4 * WBLOCK)));

struct unpacked {
	_Alignas(64) uint8_t codes[CHUNK * WBLOCK]; /* [CHUNK / 4][WBLOCK][4] */
	struct ints sums[2 * GROUPS];               /* with one_row instead: of 16 columns each */
	float scale[2 * GROUPS][WBLOCK];            /* of a group each, or of 16 columns each */
	float min[2 * GROUPS][WBLOCK];              /* the same */
	const int8_t *x;                            /* with one_row: its codes */
	const int32_t *begin[2]; /* and where the sums of a group's halves begin */
	const uint8_t *ahead;    /* what the next block is read from, see ask_for() */
};

typedef void unpack_fn(struct shape s, const uint8_t *p, size_t ld, int groups, struct unpacked *u);

/* 16 columns times an activation row, added to its sums. */
INLINE struct ints times_row(struct shape s, const struct codes *c, const int8_t *x,
			     struct ints sums)
{
	const int steps = s.steps ? s.steps : 1;

	for (int k = 0; k < 4; k += steps) {
		struct part p = part_begin(sums);
		for (int j = k; j < k + steps; j++)
			p = s.steps ? dot_q4(p, c[j], x + 4 * j)
				    : dot_q8(p, ready_q8(c[j]), x + 4 * j);
		sums = part_end(sums, p);
	}
	return sums;
}

/* 16 columns from column `first` on. */
INLINE void put(struct shape s, struct unpacked *u, int first, const struct codes *c)
{
	if (s.one_row)
		u->sums[first / 16] = times_row(s, c, u->x + first,
						all_ints(u->begin[first / 16 % 2][first / GROUP]));
	for (int k = 0; k < 4 && !s.one_row; k++)
		store_codes(u->codes + (first + 4 * k) * WBLOCK, c[k]);
}

/* The next block's rows lie behind this one's. As much of them is asked for as is read here, in one
 * stream: a processor follows no 16 of them by itself. And a few lines at a time, as no more can be
 * under way. */
INLINE void ask_for(struct unpacked *u, int bytes)
{
	for (int i = 0; i < bytes; i += 64)
		__builtin_prefetch(u->ahead + i);
	u->ahead += bytes;
}

INLINE void take_rows(struct unpacked *u, const uint8_t *p, size_t ld, struct codes *c)
{
	ask_for(u, 16 * WBLOCK);
	load_rows(p, ld, c);
}

/* 16 bytes of each row, whose low nibbles are 16 columns from `low` on and whose high ones are those
 * from `high` on. With a table the nibbles are places in it. */
INLINE void put_nibbles(struct shape s, struct unpacked *u, int low, int high,
			const struct codes *c, const int8_t *table)
{
	struct codes lo[4], hi[4];

	for (int k = 0; k < 4; k++) {
		lo[k] = low_nibbles(c[k]);
		hi[k] = high_nibbles(c[k]);
		if (table) {
			lo[k] = look_up(table, lo[k]);
			hi[k] = look_up(table, hi[k]);
		}
	}
	put(s, u, low, lo);
	put(s, u, high, hi);
}

INLINE void take_nibbles(struct shape s, struct unpacked *u, int low, int high, const uint8_t *p,
			 size_t ld, const int8_t *table)
{
	struct codes c[4];

	take_rows(u, p, ld, c);
	put_nibbles(s, u, low, high, c, table);
}

/* 16 bytes of each row as 4 little-endian words. */
INLINE void load_words(struct unpacked *u, const uint8_t *p, size_t ld, uint32_t words[4][WBLOCK])
{
	struct codes c[4];

	take_rows(u, p, ld, c);
	for (int k = 0; k < 4; k++)
		store_codes((uint8_t *)words[k], c[k]);
}

/* 4 bytes of each row. */
INLINE struct codes take_words(struct unpacked *u, const uint8_t *p, size_t ld)
{
	ask_for(u, 4 * WBLOCK);
	return row_words(p, ld);
}

/* -- blocks of 32 ---------------------------------------------------------------------------------
 *
 * Each format says once what lies in a block; the block is read where it lies, or is part of a chunk that has
 * been loaded as words of each row. That is quicker where four bytes of each row are a gather (HAS_ROW_WORDS),
 * which takes as long as the products of a block: half as long again for Q4_0 with one row.
 */

#define MOST_WORDS (GROUPS * 34 / 4)

struct block {
	struct unpacked *u;
	const uint8_t *p; /* in the first row */
	size_t ld;
	const numbers *words; /* of a chunk, or NULL */
	size_t at;            /* in the chunk's rows; even, as all places in a block are */
	int group;
};

/* The half at byte `at`. */
INLINE struct floats half_at(const struct block *b, size_t at)
{
	size_t i = b->at + at;

	if (b->words)
		return half_floats(load_codes((const uint8_t *)&b->words[i / 4]), i % 4 != 0);
	return half_floats(take_words(b->u, b->p + at, b->ld), 0);
}

/* Four bytes from `at` on. */
INLINE struct codes word_at(const struct block *b, size_t at)
{
	size_t i = (b->at + at) / 4;
	numbers middle;

	if (!b->words)
		return take_words(b->u, b->p + at, b->ld);
	if ((b->at + at) % 4 == 0)
		return load_codes((const uint8_t *)&b->words[i]);
	middle = b->words[i] >> 16 | b->words[i + 1] << 16;
	return load_codes((const uint8_t *)&middle);
}

/* Sixteen, as load_rows() has them. */
INLINE void rows_at(const struct block *b, size_t at, struct codes *c)
{
	if (!b->words)
		take_rows(b->u, b->p + at, b->ld, c);
	for (size_t k = 0; b->words && k < 4; k++)
		c[k] = word_at(b, at + 4 * k);
}

/* Blocks begin with a half, the scale, and perhaps another, the minimum. */
INLINE void block_scale(struct shape s, const struct block *b)
{
	store_floats(b->u->scale[b->group], half_at(b, 0));
	if (s.has_min)
		store_floats(b->u->min[b->group], half_at(b, 2));
}

INLINE void block_nibbles(struct shape s, const struct block *b, size_t at, const int8_t *table)
{
	struct codes c[4];

	rows_at(b, at, c);
	put_nibbles(s, b->u, b->group * GROUP, b->group * GROUP + 16, c, table);
}

/* The four bytes at `at` hold the fifth bits of the codes, whose nibbles follow: four bits become a byte each. */
INLINE void block_fives(struct shape s, const struct block *b, size_t at)
{
	numbers h, five[GROUP / 4];
	struct codes c[4], lo[4], hi[4];

	store_codes((uint8_t *)&h, word_at(b, at));
	for (int k = 0; k < GROUP / 4; k++)
		five[k] = (h >> 4 * k & 15) * 0x00204081u & 0x01010101u;
	rows_at(b, at + 4, c);
	for (int k = 0; k < 4; k++) {
		lo[k] = join(low_nibbles(c[k]), load_codes((const uint8_t *)&five[k]), 4);
		hi[k] = join(high_nibbles(c[k]), load_codes((const uint8_t *)&five[4 + k]), 4);
	}
	put(s, b->u, b->group * GROUP, lo);
	put(s, b->u, b->group * GROUP + 16, hi);
}

static const int8_t iq4[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
				1,    13,   25,  38,  53,  69,  89,  113 };
static const int8_t fp4[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };

INLINE void q4_0_codes(struct shape s, const struct block *b)
{
	block_nibbles(s, b, 2, NULL);
}

INLINE void q4_1_codes(struct shape s, const struct block *b)
{
	block_nibbles(s, b, 4, NULL);
}

INLINE void q5_0_codes(struct shape s, const struct block *b)
{
	block_fives(s, b, 2);
}

INLINE void q5_1_codes(struct shape s, const struct block *b)
{
	block_fives(s, b, 4);
}

INLINE void q8_0_codes(struct shape s, const struct block *b)
{
	for (int i = 0; i < GROUP; i += 16) {
		struct codes c[4];
		rows_at(b, 2 + (size_t)i, c);
		put(s, b->u, b->group * GROUP + i, c);
	}
}

INLINE void iq4_nl_codes(struct shape s, const struct block *b)
{
	block_nibbles(s, b, 2, iq4);
}

typedef void block_codes(struct shape s, const struct block *b);

/* A whole chunk: two blocks are a whole number of words, and the chunk is one of 16 bytes. */
INLINE void chunk_of_words(struct shape s, const uint8_t *p, size_t ld, size_t size,
			   struct unpacked *u, block_codes *codes)
{
	numbers words[MOST_WORDS];

	for (size_t i = 0; i < GROUPS * size / 4; i += 4) {
		struct codes c[4];
		take_rows(u, p + 4 * i, ld, c);
		for (size_t k = 0; k < 4; k++)
			store_codes((uint8_t *)&words[i + k], c[k]);
	}
	for (int g = 0; g < GROUPS; g += 2) {
		struct block b = { .u = u, .words = words + (size_t)g * size / 4, .group = g };
		block_scale(s, &b);
		codes(s, &b);
		b.at = size;
		b.group++;
		block_scale(s, &b);
		codes(s, &b);
	}
}

INLINE void blocks(struct shape s, const uint8_t *p, size_t ld, int groups, size_t size,
		   struct unpacked *u, block_codes *codes)
{
	if (HAS_ROW_WORDS && groups == GROUPS) {
		chunk_of_words(s, p, ld, size, u, codes);
		return;
	}
	for (struct block b = { .u = u, .p = p, .ld = ld }; b.group < groups;
	     b.group++, b.p += size)
		block_scale(s, &b);
	for (struct block b = { .u = u, .p = p, .ld = ld }; b.group < groups;
	     b.group++, b.p += size)
		codes(s, &b);
}

#define BLOCKS_OF_32(name, size)                                                                   \
	INLINE void name(struct shape s, const uint8_t *p, size_t ld, int groups,                  \
			 struct unpacked *u)                                                       \
	{                                                                                          \
		blocks(s, p, ld, groups, size, u, name##_codes);                                   \
	}

BLOCKS_OF_32(q4_0, 18)
BLOCKS_OF_32(q4_1, 20)
BLOCKS_OF_32(q5_0, 22)
BLOCKS_OF_32(q5_1, 24)
BLOCKS_OF_32(q8_0, 34)
BLOCKS_OF_32(iq4_nl, 18)

/* 17 bytes: no words. */
INLINE void mxfp4(struct shape s, const uint8_t *p, size_t ld, int groups, struct unpacked *u)
{
	for (int g = 0; g < groups; g++) {
		numbers e, tiny;
		store_codes((uint8_t *)&e, take_words(u, p + 17 * g, ld));
		e &= 255;
		tiny = (numbers)(e < 2);
		e = (tiny & 0x00200000u << e) | (~tiny & (e - 1) << 23);
		memcpy(u->scale[g], &e, sizeof(e));
	}
	for (int g = 0; g < groups; g++)
		take_nibbles(s, u, g * GROUP, g * GROUP + 16, p + 17 * g + 1, ld, fp4);
}

/* -- blocks of 256, one a chunk -------------------------------------------------------------------
 */

/* Byte k of each row's words, as a number. */
INLINE int byte_of(uint32_t words[][WBLOCK], int k, int r)
{
	return (int)(words[k / 4][r] >> k % 4 * 8 & 255);
}

INLINE int signed_byte_of(uint32_t words[][WBLOCK], int k, int r)
{
	return (int)(words[k / 4][r] << (24 - k % 4 * 8)) >> 24;
}

/* Q4_K's and Q5_K's first 16 bytes: two halves, then eight scales and eight minima of six bits each,
 * taken apart four at a time. */
INLINE void scales_and_mins(const uint8_t *p, size_t ld, struct unpacked *u)
{
	uint32_t w[4][WBLOCK], six[4][WBLOCK];
	float d[WBLOCK], dmin[WBLOCK];

	load_words(u, p, ld, w);
	store_floats(d, half_floats(load_codes((const uint8_t *)w[0]), 0));
	store_floats(dmin, half_floats(load_codes((const uint8_t *)w[0]), 1));
	for (int r = 0; r < WBLOCK; r++) {
		six[0][r] = w[1][r] & 0x3f3f3f3f;
		six[1][r] = (w[3][r] & 0x0f0f0f0f) | (w[1][r] >> 6 & 0x03030303) << 4;
		six[2][r] = w[2][r] & 0x3f3f3f3f;
		six[3][r] = (w[3][r] >> 4 & 0x0f0f0f0f) | (w[2][r] >> 6 & 0x03030303) << 4;
	}
	for (int k = 0; k < 8; k++)
		for (int r = 0; r < WBLOCK; r++) {
			u->scale[k][r] = d[r] * (float)byte_of(six, k, r);
			u->min[k][r] = -dmin[r] * (float)byte_of(six + 2, k, r);
		}
}

INLINE void q4_k(struct shape s, const uint8_t *p, size_t ld, int groups, struct unpacked *u)
{
	(void)groups;
	scales_and_mins(p, ld, u);
	for (int c = 0; c < 4; c++)
		for (int i = 0; i < 32; i += 16)
			take_nibbles(s, u, 64 * c + i, 64 * c + 32 + i, p + 16 + 32 * c + i, ld,
				     NULL);
}

INLINE void q5_k(struct shape s, const uint8_t *p, size_t ld, int groups, struct unpacked *u)
{
	(void)groups;
	scales_and_mins(p, ld, u);
	for (int i = 0; i < 32; i += 16) {
		struct codes h[4], q[4], lo[4], hi[4];
		take_rows(u, p + 16 + i, ld, h);
		for (int c = 0; c < 4; c++) {
			take_rows(u, p + 48 + 32 * c + i, ld, q);
			for (int k = 0; k < 4; k++) {
				lo[k] = join(low_nibbles(q[k]), bits(h[k], 2 * c, 1), 4);
				hi[k] = join(high_nibbles(q[k]), bits(h[k], 2 * c + 1, 1), 4);
			}
			put(s, u, 64 * c + i, lo);
			put(s, u, 64 * c + 32 + i, hi);
		}
	}
}

INLINE void q2_k_scales(const uint8_t *p, size_t ld, struct unpacked *u)
{
	uint32_t w[4][WBLOCK];
	float d[WBLOCK], dmin[WBLOCK];

	load_words(u, p, ld, w);
	const struct codes both = take_words(u, p + 80, ld);
	store_floats(d, half_floats(both, 0));
	store_floats(dmin, half_floats(both, 1));
	for (int k = 0; k < 16; k++)
		for (int r = 0; r < WBLOCK; r++) {
			int b = byte_of(w, k, r);
			u->scale[k][r] = d[r] * (float)(b & 15);
			u->min[k][r] = -dmin[r] * (float)(b >> 4);
		}
}

/* 64 bytes of codes of two bits: four times 32 columns share 32 bytes. */
INLINE void two_bits(struct shape s, const uint8_t *p, size_t ld, struct unpacked *u)
{
	for (int i = 0; i < 64; i += 16) {
		struct codes q[4], to[4];
		take_rows(u, p + i, ld, q);
		for (int j = 0; j < 4; j++) {
			for (int k = 0; k < 4; k++)
				to[k] = bits(q[k], 2 * j, 3);
			put(s, u, i / 32 * 128 + 32 * j + i % 32, to);
		}
	}
}

INLINE void q2_k(struct shape s, const uint8_t *p, size_t ld, int groups, struct unpacked *u)
{
	(void)groups;
	q2_k_scales(p, ld, u);
	two_bits(s, p + 16, ld, u);
}

/* 64 codes: four times 16, 32 columns apart, that share 16 bytes of two upper bits each. */
INLINE void q6_k_part(struct shape s, const uint8_t *low, const uint8_t *high, size_t ld, int first,
		      struct unpacked *u)
{
	struct codes a[4], b[4], h[4], to[4][4];

	take_rows(u, low, ld, a);
	take_rows(u, low + 32, ld, b);
	take_rows(u, high, ld, h);
	for (int k = 0; k < 4; k++) {
		to[0][k] = join(low_nibbles(a[k]), bits(h[k], 0, 3), 4);
		to[1][k] = join(low_nibbles(b[k]), bits(h[k], 2, 3), 4);
		to[2][k] = join(high_nibbles(a[k]), bits(h[k], 4, 3), 4);
		to[3][k] = join(high_nibbles(b[k]), bits(h[k], 6, 3), 4);
	}
	for (int i = 0; i < 4; i++)
		put(s, u, first + 32 * i, to[i]);
}

INLINE void q6_k(struct shape s, const uint8_t *p, size_t ld, int groups, struct unpacked *u)
{
	uint32_t w[4][WBLOCK];
	float d[WBLOCK];

	(void)groups;
	/* At 208, but bytes behind the matrix may not be there to be read. */
	store_floats(d, half_floats(take_words(u, p + 206, ld), 1));
	load_words(u, p + 192, ld, w);
	for (int n = 0; n < 2; n++)
		for (int i = 0; i < 32; i += 16)
			q6_k_part(s, p + 64 * n + i, p + 128 + 32 * n + i, ld, 128 * n + i, u);
	for (int k = 0; k < 16; k++)
		for (int r = 0; r < WBLOCK; r++)
			u->scale[k][r] = d[r] * (float)signed_byte_of(w, k, r);
}

INLINE void q3_k_scales(const uint8_t *p, size_t ld, struct unpacked *u)
{
	uint32_t last[4][WBLOCK], w[3][WBLOCK];
	float d[WBLOCK];

	/* From 96 on 12 bytes and d: two more before them, as those behind may not be there to be read. */
	load_words(u, p + 94, ld, last);
	for (int i = 0; i < 3; i++)
		for (int r = 0; r < WBLOCK; r++)
			w[i][r] = last[i][r] >> 16 | last[i + 1][r] << 16;
	store_floats(d, half_floats(load_codes((const uint8_t *)last[3]), 1));
	for (int k = 0; k < 16; k++)
		for (int r = 0; r < WBLOCK; r++) {
			int low = k < 8 ? byte_of(w, k, r) & 15 : byte_of(w, k - 8, r) >> 4;
			int high = byte_of(w, 8 + k % 4, r) >> (k / 4 * 2) & 3;
			u->scale[k][r] = d[r] * (float)((low | high << 4) - 32);
		}
}

INLINE void q3_k(struct shape s, const uint8_t *p, size_t ld, int groups, struct unpacked *u)
{
	(void)groups;
	q3_k_scales(p, ld, u);
	for (int i = 0; i < 32; i += 16) {
		struct codes h[4], q[4], to[4];
		take_rows(u, p + i, ld, h);
		for (int n = 0; n < 2; n++) {
			take_rows(u, p + 32 + 32 * n + i, ld, q);
			for (int j = 0; j < 4; j++) {
				for (int k = 0; k < 4; k++)
					to[k] = join(bits(q[k], 2 * j, 3), bits(h[k], 4 * n + j, 1),
						     2);
				put(s, u, 128 * n + 32 * j + i, to);
			}
		}
	}
}

INLINE void iq4_xs(struct shape s, const uint8_t *p, size_t ld, int groups, struct unpacked *u)
{
	uint32_t w[4][WBLOCK];
	float d[WBLOCK];

	(void)groups;
	load_words(u, p, ld, w); /* f16 d; u16 sh; u8 sl[4], and what follows */
	store_floats(d, half_floats(load_codes((const uint8_t *)w[0]), 0));
	for (int k = 0; k < 8; k++) {
		for (int r = 0; r < WBLOCK; r++) {
			uint32_t six = (w[1][r] >> 4 * k & 15) | (w[0][r] >> (16 + 2 * k) & 3) << 4;
			u->scale[k][r] = d[r] * (float)((int)six - 32);
		}
		take_nibbles(s, u, 32 * k, 32 * k + 16, p + 8 + 16 * k, ld, iq4);
	}
}

#endif
