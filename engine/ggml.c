/* SPDX-License-Identifier: Apache-2.0
 *
 * The block formats of GGUF to floats; see ggml.h. Compiled once per instruction set with
 * -DKERNEL_ISA=NAME and without fused multiply-adds.
 *
 * In the drawings f16 is an IEEE half, lo and hi are the nibbles of a byte. A block of 32 has
 * elements 0..15 in the low nibbles and 16..31 in the high ones.
 */
#include "engine/ggml.h"

#include <string.h>

#include "engine/ggml_grid.h"

#define PASTE_(a, b) a##b
#define PASTE(a, b)  PASTE_(a, b)
#define ROW          PASTE(ggml_row_, KERNEL_ISA)

#define INLINE static inline __attribute__((always_inline))

INLINE void f16(const uint8_t *p, float *y, size_t n)
{
	size_t i = 0;

#ifdef __F16C__ /* which no compiler makes of the loop by itself */
	for (; i + 8 <= n; i += 8)
		_mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128(
						(const __m128i *)(const void *)(p + 2 * i))));
#endif
	for (; i < n; i++)
		y[i] = ggml_half(p + 2 * i);
}

/* f16 d; i8 q[32]:  d q */
INLINE void q8_0(const uint8_t *p, float *y)
{
	float d = ggml_half(p);

	for (int j = 0; j < 32; j++)
		y[j] = d * (float)(int8_t)p[2 + j];
}

/* f16 d; u8 q[16]:  d (q - 8) */
INLINE void q4_0(const uint8_t *p, float *y)
{
	float d = ggml_half(p);

	for (int j = 0; j < 16; j++) {
		y[j] = d * (float)((p[2 + j] & 15) - 8);
		y[j + 16] = d * (float)((p[2 + j] >> 4) - 8);
	}
}

/* f16 d, m; u8 q[16]:  d q + m */
INLINE void q4_1(const uint8_t *p, float *y)
{
	float d = ggml_half(p), m = ggml_half(p + 2);

	for (int j = 0; j < 16; j++) {
		y[j] = d * (float)(p[4 + j] & 15) + m;
		y[j + 16] = d * (float)(p[4 + j] >> 4) + m;
	}
}

/* Element j of a block of 32 with its fifth bit, which is bit j of h. */
INLINE int five(const uint8_t *q, uint32_t h, int j)
{
	int nibble = j < 16 ? q[j] & 15 : q[j - 16] >> 4;

	return nibble | (int)(h >> j & 1) << 4;
}

/* f16 d; u32 h; u8 q[16]:  d (q5 - 16) */
INLINE void q5_0(const uint8_t *p, float *y)
{
	float d = ggml_half(p);
	uint32_t h;

	memcpy(&h, p + 2, sizeof(h));
	for (int j = 0; j < 32; j++)
		y[j] = d * (float)(five(p + 6, h, j) - 16);
}

/* f16 d, m; u32 h; u8 q[16]:  d q5 + m */
INLINE void q5_1(const uint8_t *p, float *y)
{
	float d = ggml_half(p), m = ggml_half(p + 2);
	uint32_t h;

	memcpy(&h, p + 4, sizeof(h));
	for (int j = 0; j < 32; j++)
		y[j] = d * (float)five(p + 8, h, j) + m;
}

/* u8 s[16]; u8 q[64]; f16 d, dmin. Halves of 128; in each, four times 32 elements from two bits of
 * the same 32 bytes; every 16 elements have a byte of s, scale low and minimum high:
 * (d lo) q - (dmin hi) */
INLINE void q2_k(const uint8_t *p, float *y)
{
	float d = ggml_half(p + 80), dmin = ggml_half(p + 82);

	for (int g = 0; g < 16; g++, y += 16) { /* 128 (g / 8) + 32 (g / 2 % 4) + 16 (g % 2) */
		const uint8_t *q = p + 16 + g / 8 * 32 + g % 2 * 16;
		float scale = d * (float)(p[g] & 15), min = dmin * (float)(p[g] >> 4);
		for (int l = 0; l < 16; l++)
			y[l] = scale * (float)(q[l] >> (g / 2 % 4 * 2) & 3) - min;
	}
}

/* u8 h[32]; u8 q[64]; u8 s[12]; f16 d. Order as in Q2_K; a third bit, 4, is taken off where h has
 * none: bit 4 half + j of h[16 t + l]. Scales of six bits less 32: four in s[0..7], the two upper
 * ones in s[8..11]:  (d scale) q3 */
INLINE void q3_k(const uint8_t *p, float *y)
{
	const uint8_t *s = p + 96;
	float d = ggml_half(p + 108);

	for (int g = 0; g < 16; g++, y += 16) {
		const uint8_t *q = p + 32 + g / 8 * 32 + g % 2 * 16, *h = p + g % 2 * 16;
		int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4, high = s[8 + g % 4] >> (g / 4 * 2) & 3;
		float scale = d * (float)((low | high << 4) - 32);
		for (int l = 0; l < 16; l++)
			y[l] = scale * (float)((q[l] >> (g / 2 % 4 * 2) & 3) -
					       (h[l] >> (g / 2) & 1 ? 0 : 4));
	}
}

/* Six bits each of scale and minimum k of 8, from twelve bytes. */
INLINE void scale_min(const uint8_t *s, int k, float *scale, float *min)
{
	int sc = k < 4 ? s[k] & 63 : (s[k + 4] & 15) | (s[k - 4] >> 6) << 4;
	int mn = k < 4 ? s[k + 4] & 63 : s[k + 4] >> 4 | (s[k] >> 6) << 4;

	*scale *= (float)sc;
	*min *= (float)mn;
}

/* f16 d, dmin; u8 s[12]; u8 q[128]. Four times 64 elements: 32 low nibbles, then 32 high ones:
 * (d scale) q - (dmin min) */
INLINE void q4_k(const uint8_t *p, float *y)
{
	const uint8_t *q = p + 16;

	for (int k = 0; k < 8; k++, y += 32) {
		float scale = ggml_half(p), min = ggml_half(p + 2);
		scale_min(p + 4, k, &scale, &min);
		for (int l = 0; l < 32; l++)
			y[l] = scale * (float)(q[k / 2 * 32 + l] >> k % 2 * 4 & 15) - min;
	}
}

/* f16 d, dmin; u8 s[12]; u8 h[32]; u8 q[128]. As Q4_K, with bit k of h[l] as the fifth one. */
INLINE void q5_k(const uint8_t *p, float *y)
{
	const uint8_t *h = p + 16, *q = p + 48;

	for (int k = 0; k < 8; k++, y += 32) {
		float scale = ggml_half(p), min = ggml_half(p + 2);
		scale_min(p + 4, k, &scale, &min);
		for (int l = 0; l < 32; l++)
			y[l] = scale * (float)((q[k / 2 * 32 + l] >> k % 2 * 4 & 15) |
					       (h[l] >> k & 1) << 4) -
			       min;
	}
}

/* u8 ql[128]; u8 qh[64]; i8 s[16]; f16 d. Halves of 128; in each, 64 low and then 64 high nibbles
 * of the same 64 bytes; two upper bits from 32 bytes of qh:  (d s) (q6 - 32) */
INLINE void q6_k(const uint8_t *p, float *y)
{
	float d = ggml_half(p + 208);

	for (int g = 0; g < 16; g++, y += 16) { /* 16 elements with one scale */
		const uint8_t *ql = p + g / 8 * 64 + g % 4 * 16;
		const uint8_t *qh = p + 128 + g / 8 * 32 + g % 2 * 16;
		float scale = d * (float)(int8_t)p[192 + g];
		for (int l = 0; l < 16; l++)
			y[l] = scale * (float)(((ql[l] >> g % 8 / 4 * 4 & 15) |
						(qh[l] >> g % 8 / 2 * 2 & 3) << 4) -
					       32);
	}
}

static const int8_t iq4[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
				1,    13,   25,  38,  53,  69,  89,  113 };

/* f16 d; u8 q[16]:  d table[q] */
INLINE void iq4_nl(const uint8_t *p, float *y)
{
	float d = ggml_half(p);

	for (int j = 0; j < 16; j++) {
		y[j] = d * (float)iq4[p[2 + j] & 15];
		y[j + 16] = d * (float)iq4[p[2 + j] >> 4];
	}
}

/* f16 d; u16 sh; u8 sl[4]; u8 q[128]. Eight times 32 elements, each with a scale of six bits less
 * 32, four of them in sl and two in sh:  (d scale) table[q] */
INLINE void iq4_xs(const uint8_t *p, float *y)
{
	float d = ggml_half(p);
	uint16_t sh;

	memcpy(&sh, p + 2, sizeof(sh));
	for (int b = 0; b < 8; b++, y += 32) {
		int s = (p[4 + b / 2] >> b % 2 * 4 & 15) | (sh >> 2 * b & 3) << 4;
		float scale = d * (float)(s - 32);
		for (int j = 0; j < 16; j++) {
			y[j] = scale * (float)iq4[p[8 + b * 16 + j] & 15];
			y[j + 16] = scale * (float)iq4[p[8 + b * 16 + j] >> 4];
		}
	}
}

/* The FP4 numbers (E2M1), doubled. */
static const int8_t fp4[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };

/* u8 e; u8 q[16]:  2^(e - 128) fp4[q], the exponent's subnormals too */
INLINE void mxfp4(const uint8_t *p, float *y)
{
	union {
		uint32_t u;
		float f;
	} d = { .u = p[0] < 2 ? 0x00200000u << p[0] : (p[0] - 1u) << 23 };

	for (int j = 0; j < 16; j++) {
		y[j] = d.f * (float)fp4[p[1 + j] & 15];
		y[j + 16] = d.f * (float)fp4[p[1 + j] >> 4];
	}
}

/* A block of ggml_grid.h, with a scale for each `every` columns. */
INLINE void grid(grid_unpack *unpack, int every, int offset, const uint8_t *p, float *y)
{
	uint8_t codes[256];
	float scale[16];

	unpack(p, (struct grid_block){ codes, scale, 4, 1 });
	for (int j = 0; j < 256; j++)
		y[j] = scale[j / every] * (float)((int8_t)codes[j] - offset);
}

#define GRID(name, every, offset)                                                                  \
	INLINE void name(const uint8_t *p, float *y)                                               \
	{                                                                                          \
		grid(grid_##name, every, offset, p, y);                                            \
	}

GRID(iq1_s, 32, 9)
GRID(iq1_m, 16, 9)
GRID(iq2_xxs, 32, 0)
GRID(iq2_xs, 16, 0)
GRID(iq2_s, 16, 0)
GRID(iq3_xxs, 32, 0)
GRID(iq3_s, 32, 0)

/* u8 q[48]; u8 h[4]; f16 d. A byte is a fraction, in 256ths, whose first five ternary digits are elements,
 * four in h. Five times 32 elements from the same 32 bytes, five times 16, four times 4:  d (digit - 1) */
INLINE void tq1_0(const uint8_t *p, float *y)
{
	static const uint8_t power[5] = { 1, 3, 9, 27, 81 };
	float d = ggml_half(p + 52);

	for (int i = 0; i < 52; i++) {
		int step = i < 32 ? 32 : i < 48 ? 16 : 4;
		float *to = y + (i < 32 ? i : i < 48 ? 160 + i - 32 : 240 + i - 48);
		for (int n = 0; n < (i < 48 ? 5 : 4); n++)
			to[n * step] = d * (float)(((uint8_t)(p[i] * power[n]) * 3 >> 8) - 1);
	}
}

/* u8 q[64]; f16 d. Halves of 128; in each, four times 32 elements from two bits of the same 32 bytes:
 * d (q - 1) */
INLINE void tq2_0(const uint8_t *p, float *y)
{
	float d = ggml_half(p + 64);

	for (int j = 0; j < 256; j++)
		y[j] = d * (float)((p[j / 128 * 32 + j % 32] >> j % 128 / 32 * 2 & 3) - 1);
}

ggml_row ROW;

void ROW(enum wtype type, const uint8_t *src, float *dst, size_t n)
{
	switch (type) {
#define BLOCKS(wtype, function, elements, bytes)                                                   \
	case wtype:                                                                                \
		for (size_t i = 0; i < n; i += (elements), src += (bytes))                         \
			function(src, dst + i);                                                    \
		break
		BLOCKS(W_Q8_0, q8_0, 32, 34);
		BLOCKS(W_Q4_0, q4_0, 32, 18);
		BLOCKS(W_Q4_1, q4_1, 32, 20);
		BLOCKS(W_Q5_0, q5_0, 32, 22);
		BLOCKS(W_Q5_1, q5_1, 32, 24);
		BLOCKS(W_Q2_K, q2_k, 256, 84);
		BLOCKS(W_Q3_K, q3_k, 256, 110);
		BLOCKS(W_Q4_K, q4_k, 256, 144);
		BLOCKS(W_Q5_K, q5_k, 256, 176);
		BLOCKS(W_Q6_K, q6_k, 256, 210);
		BLOCKS(W_IQ4_NL, iq4_nl, 32, 18);
		BLOCKS(W_IQ4_XS, iq4_xs, 256, 136);
		BLOCKS(W_MXFP4, mxfp4, 32, 17);
		BLOCKS(W_IQ1_S, iq1_s, 256, 50);
		BLOCKS(W_IQ1_M, iq1_m, 256, 56);
		BLOCKS(W_IQ2_XXS, iq2_xxs, 256, 66);
		BLOCKS(W_IQ2_XS, iq2_xs, 256, 74);
		BLOCKS(W_IQ2_S, iq2_s, 256, 82);
		BLOCKS(W_IQ3_XXS, iq3_xxs, 256, 98);
		BLOCKS(W_IQ3_S, iq3_s, 256, 110);
		BLOCKS(W_TQ1_0, tq1_0, 256, 54);
		BLOCKS(W_TQ2_0, tq2_0, 256, 66);
	case W_F16:
		f16(src, dst, n);
		break;
	case W_F32:
	case W_BF16:
	case W_Q8:
	case W_Q4:
		break; /* quant.c's and kernel_isa.c's */
	}
}
