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
INLINE void put_nibbles(struct shape s, struct unpacked *u, int low, int high, const uint8_t *p,
			size_t ld, const int8_t *table)
{
	struct codes c[4], lo[4], hi[4];

	take_rows(u, p, ld, c);
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
 */

/* Blocks of `size` bytes begin with a half, the scale, and perhaps another, the minimum. */
INLINE void half_scales(const uint8_t *p, size_t ld, int groups, size_t size, bool has_min,
			struct unpacked *u)
{
	for (int g = 0; g < groups; g++, p += size) {
		struct codes w = take_words(u, p, ld);
		store_floats(u->scale[g], half_floats(w, 0));
		if (has_min)
			store_floats(u->min[g], half_floats(w, 1));
	}
}

INLINE void block_nibbles(struct shape s, const uint8_t *p, size_t ld, int groups, size_t size,
			  size_t at, const int8_t *table, struct unpacked *u)
{
	for (int g = 0; g < groups; g++)
		put_nibbles(s, u, g * GROUP, g * GROUP + 16, p + (size_t)g * size + at, ld, table);
}

/* Blocks whose four bytes at `at` hold the fifth bits of the codes, whose nibbles follow: four bits
 * become a byte each. */
INLINE void block_fives(struct shape s, const uint8_t *p, size_t ld, int groups, size_t size,
			size_t at, struct unpacked *u)
{
	for (int g = 0; g < groups; g++, p += size) {
		numbers h, five[GROUP / 4];
		struct codes c[4], lo[4], hi[4];
		store_codes((uint8_t *)&h, take_words(u, p + at, ld));
		for (int k = 0; k < GROUP / 4; k++)
			five[k] = (h >> 4 * k & 15) * 0x00204081u & 0x01010101u;
		take_rows(u, p + at + 4, ld, c);
		for (int k = 0; k < 4; k++) {
			lo[k] = join(low_nibbles(c[k]), load_codes((const uint8_t *)&five[k]), 4);
			hi[k] = join(high_nibbles(c[k]), load_codes((const uint8_t *)&five[4 + k]),
				     4);
		}
		put(s, u, g * GROUP, lo);
		put(s, u, g * GROUP + 16, hi);
	}
}

static const int8_t iq4[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
				1,    13,   25,  38,  53,  69,  89,  113 };
static const int8_t fp4[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };

INLINE void q4_0(struct shape s, const uint8_t *p, size_t ld, int groups, struct unpacked *u)
{
	half_scales(p, ld, groups, 18, false, u);
	block_nibbles(s, p, ld, groups, 18, 2, NULL, u);
}

INLINE void q4_1(struct shape s, const uint8_t *p, size_t ld, int groups, struct unpacked *u)
{
	half_scales(p, ld, groups, 20, true, u);
	block_nibbles(s, p, ld, groups, 20, 4, NULL, u);
}

INLINE void q5_0(struct shape s, const uint8_t *p, size_t ld, int groups, struct unpacked *u)
{
	half_scales(p, ld, groups, 22, false, u);
	block_fives(s, p, ld, groups, 22, 2, u);
}

INLINE void q5_1(struct shape s, const uint8_t *p, size_t ld, int groups, struct unpacked *u)
{
	half_scales(p, ld, groups, 24, true, u);
	block_fives(s, p, ld, groups, 24, 4, u);
}

INLINE void q8_0(struct shape s, const uint8_t *p, size_t ld, int groups, struct unpacked *u)
{
	half_scales(p, ld, groups, 34, false, u);
	for (int g = 0; g < groups; g++)
		for (int i = 0; i < GROUP; i += 16) {
			struct codes c[4];
			take_rows(u, p + 34 * g + 2 + i, ld, c);
			put(s, u, g * GROUP + i, c);
		}
}

INLINE void iq4_nl(struct shape s, const uint8_t *p, size_t ld, int groups, struct unpacked *u)
{
	half_scales(p, ld, groups, 18, false, u);
	block_nibbles(s, p, ld, groups, 18, 2, iq4, u);
}

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
	block_nibbles(s, p, ld, groups, 17, 1, fp4, u);
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
			put_nibbles(s, u, 64 * c + i, 64 * c + 32 + i, p + 16 + 32 * c + i, ld,
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
	uint32_t w[3][WBLOCK]; /* 16 bytes would reach beyond the block */
	float d[WBLOCK];

	for (int i = 0; i < 3; i++)
		store_codes((uint8_t *)w[i], take_words(u, p + 96 + 4 * i, ld));
	store_floats(d, half_floats(take_words(u, p + 106, ld), 1));
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
		put_nibbles(s, u, 32 * k, 32 * k + 16, p + 8 + 16 * k, ld, iq4);
	}
}

#endif
