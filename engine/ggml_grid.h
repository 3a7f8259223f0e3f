/* SPDX-License-Identifier: Apache-2.0
 *
 * The i-quants of GGUF that are points of a grid: what ggml.c and kernel_unpack_low.h share. Only they include
 * this.
 *
 * Such a block has 256 columns, and a place in a table stands for the sizes of 8 or 4 of them at once.
 * Signs are apart, a bit each, set where negative; where there are seven bits for eight signs, the number
 * of negative ones is even. In IQ1 there are no signs: sizes are -1, 0 or 1, and 1/8 is added to
 * all 8, or taken off. So there are codes of 8 bits here as well:
 *
 *	IQ2, IQ3   w = scale * code            code = +- size, of up to 62
 *	IQ1        w = scale * (code - 9)      code = 9 + 8 size +- 1, and scale an eighth of the file's
 *
 * Every product is exact in float32, in any order: d has 11 bits, what multiplies it at most 5, codes 6.
 *
 * In the drawings f16 is an IEEE half, words are little-endian, q are places in the grid. Every place is
 * masked to the size of its table, so any bytes are a block. Source: gguf-py's quants.py, ggml-common.h.
 */
#ifndef ENGINE_GGML_GRID_H
#define ENGINE_GGML_GRID_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "engine/ggml.h"

/* A byte for each element, the first one lowest. */
extern const uint64_t ggml_iq1_grid[2048]; /* 8 + 8 size */
extern const uint64_t ggml_iq2_xxs_grid[256], ggml_iq2_xs_grid[512], ggml_iq2_s_grid[1024];
extern const uint32_t ggml_iq3_xxs_grid[256], ggml_iq3_s_grid[512];
extern const uint64_t ggml_grid_signs[256]; /* 0xff where the byte has a bit */

#define GRID_INLINE static inline __attribute__((always_inline))

/* Where the codes of a block go, four columns at a time, next_codes bytes apart, and the scales of each 32 or
 * 16 columns, next_scale floats apart. */
struct grid_block {
	uint8_t *codes;
	float *scale;
	size_t next_codes, next_scale;
};

typedef void grid_unpack(const uint8_t *p, struct grid_block to);

GRID_INLINE uint32_t grid_u16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

GRID_INLINE uint32_t grid_u32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* Columns 8 i .. 8 i + 7. */
GRID_INLINE void put_8(struct grid_block to, int i, uint64_t codes)
{
	uint8_t *at = to.codes + 2 * (size_t)i * to.next_codes;
	uint32_t low = (uint32_t)codes, high = (uint32_t)(codes >> 32);

	memcpy(at, &low, sizeof(low));
	memcpy(at + to.next_codes, &high, sizeof(high));
}

/* The same of sizes, none of which is 0: so no sum of two bytes is carried on. */
GRID_INLINE void put_signed(struct grid_block to, int i, uint64_t sizes, uint32_t signs)
{
	uint64_t m = ggml_grid_signs[signs];

	put_8(to, i, (sizes ^ m) + (m & 0x0101010101010101));
}

/* The signs of which v's lowest seven bits are the first ones. */
GRID_INLINE uint32_t even_signs(uint32_t v)
{
	v &= 127;
	return v | (uint32_t)__builtin_parity(v) << 7;
}

/* Scale k is d (2 s + 1). */
GRID_INLINE void put_scale(struct grid_block to, int k, float d, uint32_t s)
{
	to.scale[(size_t)k * to.next_scale] = d * (float)(int)(2 * s + 1);
}

/* Scales of four bits, two in a byte. */
GRID_INLINE void nibble_scales(const uint8_t *p, float d, int scales, struct grid_block to)
{
	for (int k = 0; k < scales; k++)
		put_scale(to, k, d, p[k / 2] >> k % 2 * 4 & 15);
}

/* f16 d; { u8 q[4]; u32 v; }[8]. v: four times the signs of 8, then four bits of a scale of 32:
 * d / 8 (2 s + 1) */
GRID_INLINE void grid_iq2_xxs(const uint8_t *p, struct grid_block to)
{
	float d = ggml_half(p) * 0.125f;

	p += 2;
	for (int g = 0; g < 8; g++, p += 8) {
		uint32_t v = grid_u32(p + 4);
		put_scale(to, g, d, v >> 28);
		for (int i = 0; i < 4; i++)
			put_signed(to, 4 * g + i, ggml_iq2_xxs_grid[p[i]], even_signs(v >> 7 * i));
	}
}

/* f16 d; u16 v[32]; u8 s[8]. v: nine bits of q, then the signs; scales of 16 as nibbles: d / 8 (2 s + 1) */
GRID_INLINE void grid_iq2_xs(const uint8_t *p, struct grid_block to)
{
	nibble_scales(p + 66, ggml_half(p) * 0.125f, 16, to);
	for (int i = 0; i < 32; i++) {
		uint32_t v = grid_u16(p + 2 + 2 * i);
		put_signed(to, i, ggml_iq2_xs_grid[v & 511], even_signs(v >> 9));
	}
}

/* f16 d; u8 q[32]; u8 signs[32]; u8 h[8]; u8 s[8]. h: two upper bits of q; scales as in IQ2_XS. */
GRID_INLINE void grid_iq2_s(const uint8_t *p, struct grid_block to)
{
	nibble_scales(p + 74, ggml_half(p) * 0.125f, 16, to);
	for (int g = 0; g < 8; g++)
		for (int i = 0; i < 4; i++) {
			uint32_t q = p[2 + 4 * g + i] | (p[66 + g] >> 2 * i & 3u) << 8;
			put_signed(to, 4 * g + i, ggml_iq2_s_grid[q], p[34 + 4 * g + i]);
		}
}

/* f16 d; u8 q[64]; u32 v[8]. A q is 4 columns; v as in IQ2_XXS: d / 4 (2 s + 1) */
GRID_INLINE void grid_iq3_xxs(const uint8_t *p, struct grid_block to)
{
	float d = ggml_half(p) * 0.25f;
	const uint8_t *q = p + 2;

	for (int g = 0; g < 8; g++) {
		uint32_t v = grid_u32(p + 66 + 4 * g);
		put_scale(to, g, d, v >> 28);
		for (int i = 0; i < 4; i++, q += 2)
			put_signed(to, 4 * g + i,
				   ggml_iq3_xxs_grid[q[0]] | (uint64_t)ggml_iq3_xxs_grid[q[1]]
								     << 32,
				   even_signs(v >> 7 * i));
	}
}

/* f16 d; u8 q[64]; u8 h[8]; u8 signs[32]; u8 s[4]. A q is 4 columns, h its ninth bit; scales of 32 as
 * nibbles: d (2 s + 1) */
GRID_INLINE void grid_iq3_s(const uint8_t *p, struct grid_block to)
{
	nibble_scales(p + 106, ggml_half(p), 8, to);
	for (int g = 0; g < 8; g++)
		for (int i = 0; i < 4; i++) {
			const uint8_t *q = p + 2 + 8 * g + 2 * i;
			uint32_t high = (uint32_t)p[66 + g] >> 2 * i;
			uint64_t low = ggml_iq3_s_grid[q[0] | (high & 1) << 8];
			uint64_t next = ggml_iq3_s_grid[q[1] | (high & 2) << 7];
			put_signed(to, 4 * g + i, low | next << 32, p[74 + 4 * g + i]);
		}
}

/* Point q of IQ1, minus: 1 if an eighth is taken off, else 0. Nothing foretells which: hence no branch. */
GRID_INLINE void put_iq1(struct grid_block to, int i, uint32_t q, uint32_t minus)
{
	put_8(to, i, ggml_iq1_grid[q] + (2 - 2 * minus) * 0x0101010101010101);
}

/* f16 d; u8 q[32]; u16 h[8]. h: four times three upper bits of q, three bits of a scale of 32, and whether
 * the eighth is taken off: d (2 s + 1) */
GRID_INLINE void grid_iq1_s(const uint8_t *p, struct grid_block to)
{
	float d = ggml_half(p) * 0.125f;

	for (int g = 0; g < 8; g++) {
		uint32_t h = grid_u16(p + 34 + 2 * g);
		put_scale(to, g, d, h >> 12 & 7);
		for (int i = 0; i < 4; i++)
			put_iq1(to, 4 * g + i, p[2 + 4 * g + i] | (h >> 3 * i & 7) << 8, h >> 15);
	}
}

/* u8 q[32]; u8 h[16]; u16 s[4]. h: twice three upper bits of q and whether the eighth is taken off; s: four
 * scales of 16, three bits each, and four bits of f16 d, the lowest ones first: d (2 s + 1) */
GRID_INLINE void grid_iq1_m(const uint8_t *p, struct grid_block to)
{
	uint8_t half[2] = { (uint8_t)(p[49] >> 4 | (p[51] & 0xf0)),
			    (uint8_t)(p[53] >> 4 | (p[55] & 0xf0)) };
	float d = ggml_half(half) * 0.125f;

	for (int k = 0; k < 16; k++)
		put_scale(to, k, d, grid_u16(p + 48 + k / 4 * 2) >> k % 4 * 3 & 7);
	for (int k = 0; k < 16; k++)
		for (int i = 0; i < 2; i++) {
			uint32_t h = (uint32_t)p[32 + k] >> 4 * i;
			put_iq1(to, 2 * k + i, p[2 * k + i] | (h & 7) << 8, h >> 3 & 1);
		}
}

#endif
