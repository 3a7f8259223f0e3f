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
 * Within 32 columns, w = scale * (code - offset) + min; scales may be of 16 columns. The offset is one
 * of the format (kernel_blocks.c). p points at the first row's blocks, rows lie ld bytes apart.
 */
#ifndef ENGINE_KERNEL_UNPACK_H
#define ENGINE_KERNEL_UNPACK_H

#include "engine/kernel_lanes.h"

#include "engine/ggml.h"

#define CHUNK  256 /* columns unpacked at once */
#define GROUP  32
#define GROUPS (CHUNK / GROUP)

struct unpacked {
	_Alignas(64) uint8_t codes[CHUNK * WBLOCK]; /* [CHUNK / 4][WBLOCK][4] */
	float scale[2 * GROUPS][WBLOCK];            /* of a group each, or of 16 columns each */
	float min[GROUPS][WBLOCK];
};

typedef void unpack_fn(const uint8_t *p, size_t ld, int groups, struct unpacked *u);

/* 16 columns from column `first` on. */
INLINE void put(struct unpacked *u, int first, const struct codes *c)
{
	for (int k = 0; k < 4; k++)
		store_codes(u->codes + (first + 4 * k) * WBLOCK, c[k]);
}

/* 16 bytes of each row, whose low nibbles are 16 columns from `low` on and whose high ones are those
 * from `high` on. With a table the nibbles are places in it. */
INLINE void put_nibbles(struct unpacked *u, int low, int high, const uint8_t *p, size_t ld,
			const int8_t *table)
{
	struct codes c[4], lo[4], hi[4];

	load_rows(p, ld, c);
	for (int k = 0; k < 4; k++) {
		lo[k] = low_nibbles(c[k]);
		hi[k] = high_nibbles(c[k]);
		if (table) {
			lo[k] = look_up(table, lo[k]);
			hi[k] = look_up(table, hi[k]);
		}
	}
	put(u, low, lo);
	put(u, high, hi);
}

/* 16 bytes of each row as 4 little-endian words. */
INLINE void load_words(const uint8_t *p, size_t ld, uint32_t words[4][WBLOCK])
{
	struct codes c[4];

	load_rows(p, ld, c);
	for (int k = 0; k < 4; k++)
		store_codes((uint8_t *)words[k], c[k]);
}

/* A half of each row, as it is: converted later, when the stores of two bytes are over. */
INLINE void load_halves(const uint8_t *p, size_t ld, uint16_t *to)
{
	for (size_t r = 0; r < WBLOCK; r++)
		memcpy(to + r, p + r * ld, sizeof(*to));
}

/* -- blocks of 32 ---------------------------------------------------------------------------------
 */

/* Blocks of `size` bytes begin with a half, the scale, and perhaps another, the minimum. */
INLINE void half_scales(const uint8_t *p, size_t ld, int groups, size_t size, bool has_min,
			struct unpacked *u)
{
	uint16_t scale[GROUPS][WBLOCK], min[GROUPS][WBLOCK];

	for (int g = 0; g < groups; g++) {
		load_halves(p + (size_t)g * size, ld, scale[g]);
		if (has_min)
			load_halves(p + (size_t)g * size + 2, ld, min[g]);
	}
	for (int g = 0; g < groups; g++) {
		store_floats(u->scale[g], load_scales(scale[g]));
		if (has_min)
			store_floats(u->min[g], load_scales(min[g]));
	}
}

INLINE void block_nibbles(const uint8_t *p, size_t ld, int groups, size_t size, size_t at,
			  const int8_t *table, struct unpacked *u)
{
	for (int g = 0; g < groups; g++)
		put_nibbles(u, g * GROUP, g * GROUP + 16, p + (size_t)g * size + at, ld, table);
}

/* Bit j of the four bytes at p is the fifth of code j: four bits become a byte each. */
INLINE void fifth_bits(const uint8_t *p, size_t ld, uint8_t *codes)
{
	uint32_t h[WBLOCK], five[GROUP / 4][WBLOCK];

	for (size_t r = 0; r < WBLOCK; r++)
		memcpy(h + r, p + r * ld, sizeof(*h));
	for (int k = 0; k < GROUP / 4; k++)
		for (int r = 0; r < WBLOCK; r++)
			five[k][r] = (h[r] >> 4 * k & 15) * 0x00204081u & 0x01010101u;
	for (int k = 0; k < GROUP / 4; k++, codes += 4 * WBLOCK)
		store_codes(codes,
			    join(load_codes(codes), load_codes((const uint8_t *)five[k]), 4));
}

static const int8_t iq4[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
				1,    13,   25,  38,  53,  69,  89,  113 };
static const int8_t fp4[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };

INLINE void q4_0(const uint8_t *p, size_t ld, int groups, struct unpacked *u)
{
	half_scales(p, ld, groups, 18, false, u);
	block_nibbles(p, ld, groups, 18, 2, NULL, u);
}

INLINE void q4_1(const uint8_t *p, size_t ld, int groups, struct unpacked *u)
{
	half_scales(p, ld, groups, 20, true, u);
	block_nibbles(p, ld, groups, 20, 4, NULL, u);
}

INLINE void q5_0(const uint8_t *p, size_t ld, int groups, struct unpacked *u)
{
	half_scales(p, ld, groups, 22, false, u);
	block_nibbles(p, ld, groups, 22, 6, NULL, u);
	for (int g = 0; g < groups; g++)
		fifth_bits(p + 22 * g + 2, ld, u->codes + g * GROUP * WBLOCK);
}

INLINE void q5_1(const uint8_t *p, size_t ld, int groups, struct unpacked *u)
{
	half_scales(p, ld, groups, 24, true, u);
	block_nibbles(p, ld, groups, 24, 8, NULL, u);
	for (int g = 0; g < groups; g++)
		fifth_bits(p + 24 * g + 4, ld, u->codes + g * GROUP * WBLOCK);
}

INLINE void q8_0(const uint8_t *p, size_t ld, int groups, struct unpacked *u)
{
	half_scales(p, ld, groups, 34, false, u);
	for (int g = 0; g < groups; g++)
		for (int i = 0; i < GROUP; i += 16) {
			struct codes c[4];
			load_rows(p + 34 * g + 2 + i, ld, c);
			put(u, g * GROUP + i, c);
		}
}

INLINE void iq4_nl(const uint8_t *p, size_t ld, int groups, struct unpacked *u)
{
	half_scales(p, ld, groups, 18, false, u);
	block_nibbles(p, ld, groups, 18, 2, iq4, u);
}

INLINE void mxfp4(const uint8_t *p, size_t ld, int groups, struct unpacked *u)
{
	for (int g = 0; g < groups; g++) {
		uint32_t e[WBLOCK];
		for (size_t r = 0; r < WBLOCK; r++)
			e[r] = p[17 * g + (int)(r * ld)];
		for (int r = 0; r < WBLOCK; r++)
			e[r] = e[r] < 2 ? 0x00200000u << e[r] : (e[r] - 1u) << 23;
		memcpy(u->scale[g], e, sizeof(e));
	}
	block_nibbles(p, ld, groups, 17, 1, fp4, u);
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
	uint16_t halves[2][WBLOCK];
	float d[WBLOCK], dmin[WBLOCK];

	load_words(p, ld, w);
	for (int r = 0; r < WBLOCK; r++) {
		halves[0][r] = (uint16_t)w[0][r];
		halves[1][r] = (uint16_t)(w[0][r] >> 16);
	}
	store_floats(d, load_scales(halves[0]));
	store_floats(dmin, load_scales(halves[1]));
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

INLINE void q4_k(const uint8_t *p, size_t ld, int groups, struct unpacked *u)
{
	(void)groups;
	scales_and_mins(p, ld, u);
	for (int c = 0; c < 4; c++)
		for (int i = 0; i < 32; i += 16)
			put_nibbles(u, 64 * c + i, 64 * c + 32 + i, p + 16 + 32 * c + i, ld, NULL);
}

INLINE void q5_k(const uint8_t *p, size_t ld, int groups, struct unpacked *u)
{
	(void)groups;
	scales_and_mins(p, ld, u);
	for (int i = 0; i < 32; i += 16) {
		struct codes h[4], q[4], lo[4], hi[4];
		load_rows(p + 16 + i, ld, h);
		for (int c = 0; c < 4; c++) {
			load_rows(p + 48 + 32 * c + i, ld, q);
			for (int k = 0; k < 4; k++) {
				lo[k] = join(low_nibbles(q[k]), bits(h[k], 2 * c, 1), 4);
				hi[k] = join(high_nibbles(q[k]), bits(h[k], 2 * c + 1, 1), 4);
			}
			put(u, 64 * c + i, lo);
			put(u, 64 * c + 32 + i, hi);
		}
	}
}

/* 64 codes: four times 16, 32 columns apart, that share 16 bytes of two upper bits each. */
INLINE void q6_k_part(const uint8_t *low, const uint8_t *high, size_t ld, int first,
		      struct unpacked *u)
{
	struct codes a[4], b[4], h[4], to[4][4];

	load_rows(low, ld, a);
	load_rows(low + 32, ld, b);
	load_rows(high, ld, h);
	for (int k = 0; k < 4; k++) {
		to[0][k] = join(low_nibbles(a[k]), bits(h[k], 0, 3), 4);
		to[1][k] = join(low_nibbles(b[k]), bits(h[k], 2, 3), 4);
		to[2][k] = join(high_nibbles(a[k]), bits(h[k], 4, 3), 4);
		to[3][k] = join(high_nibbles(b[k]), bits(h[k], 6, 3), 4);
	}
	for (int i = 0; i < 4; i++)
		put(u, first + 32 * i, to[i]);
}

INLINE void q6_k(const uint8_t *p, size_t ld, int groups, struct unpacked *u)
{
	uint32_t w[4][WBLOCK];
	uint16_t halves[WBLOCK];
	float d[WBLOCK];

	(void)groups;
	load_halves(p + 208, ld, halves);
	load_words(p + 192, ld, w);
	for (int n = 0; n < 2; n++)
		for (int i = 0; i < 32; i += 16)
			q6_k_part(p + 64 * n + i, p + 128 + 32 * n + i, ld, 128 * n + i, u);
	store_floats(d, load_scales(halves));
	for (int k = 0; k < 16; k++)
		for (int r = 0; r < WBLOCK; r++)
			u->scale[k][r] = d[r] * (float)signed_byte_of(w, k, r);
}

INLINE void q3_k_scales(const uint8_t *p, size_t ld, struct unpacked *u)
{
	uint32_t w[3][WBLOCK]; /* 16 bytes would reach beyond the block */
	uint16_t halves[WBLOCK];
	float d[WBLOCK];

	for (size_t r = 0; r < WBLOCK; r++)
		for (size_t i = 0; i < 3; i++)
			memcpy(&w[i][r], p + r * ld + 96 + 4 * i, 4);
	load_halves(p + 108, ld, halves);
	store_floats(d, load_scales(halves));
	for (int k = 0; k < 16; k++)
		for (int r = 0; r < WBLOCK; r++) {
			int low = k < 8 ? byte_of(w, k, r) & 15 : byte_of(w, k - 8, r) >> 4;
			int high = byte_of(w, 8 + k % 4, r) >> (k / 4 * 2) & 3;
			u->scale[k][r] = d[r] * (float)((low | high << 4) - 32);
		}
}

INLINE void q3_k(const uint8_t *p, size_t ld, int groups, struct unpacked *u)
{
	(void)groups;
	q3_k_scales(p, ld, u);
	for (int i = 0; i < 32; i += 16) {
		struct codes h[4], q[4], to[4];
		load_rows(p + i, ld, h);
		for (int n = 0; n < 2; n++) {
			load_rows(p + 32 + 32 * n + i, ld, q);
			for (int j = 0; j < 4; j++) {
				for (int k = 0; k < 4; k++)
					to[k] = join(bits(q[k], 2 * j, 3), bits(h[k], 4 * n + j, 1),
						     2);
				put(u, 128 * n + 32 * j + i, to);
			}
		}
	}
}

INLINE void iq4_xs(const uint8_t *p, size_t ld, int groups, struct unpacked *u)
{
	uint32_t w[4][WBLOCK];
	uint16_t halves[WBLOCK];
	float d[WBLOCK];

	(void)groups;
	load_words(p, ld, w); /* f16 d; u16 sh; u8 sl[4], and what follows */
	for (int r = 0; r < WBLOCK; r++)
		halves[r] = (uint16_t)w[0][r];
	store_floats(d, load_scales(halves));
	for (int k = 0; k < 8; k++) {
		for (int r = 0; r < WBLOCK; r++) {
			uint32_t s = (w[1][r] >> 4 * k & 15) | (w[0][r] >> (16 + 2 * k) & 3) << 4;
			u->scale[k][r] = d[r] * (float)((int)s - 32);
		}
		put_nibbles(u, 32 * k, 32 * k + 16, p + 8 + 16 * k, ld, iq4);
	}
}

#endif
