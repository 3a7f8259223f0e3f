/* SPDX-License-Identifier: Apache-2.0
 *
 * Sixteen lanes, one for each row of a block of weights, as each instruction set has them: what
 * kernel_int8.c is written in. Only that file includes this one.
 *
 *	struct codes    64 bytes: 4 codes of each of 16 rows
 *	struct ints     16 sums of 32 bits
 *	struct part     the same while products are being added, perhaps in 16 bits
 *	struct floats   16 floats
 *
 * Activations: larger_bits() takes the bits of 16 floats without their signs into 16 maxima;
 * put_codes() rounds 16 products x * inv to the nearest integers, ties to even, and adds them up.
 *
 * Sixteen codes that lie together, 4 columns of 4 rows, as floats: floats_q8(), floats_q4();
 * add_four_rows() adds them up by column, (0 + 2) + (1 + 3).
 *
 * A part begins as part_begin(sums), takes at most PART_STEPS calls of dot_q4() or one of dot_q8(),
 * and ends as part_end(sums, part). No sum overflows: 16 bits hold 8 * 2 * 15 * 127 and 2 * 128 *
 * 127. Sums of integers are exact in any order, a float operation rounds the same everywhere (the
 * multiply-add is a fused one in each instruction set), so each set gives the same bits.
 */
#ifndef ENGINE_KERNEL_LANES_H
#define ENGINE_KERNEL_LANES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "engine/quant.h"

#define PART_STEPS 8
#define INLINE     static inline __attribute__((always_inline))

INLINE int32_t four(const int8_t *x)
{
	int32_t v;

	memcpy(&v, x, sizeof(v));
	return v;
}

#if defined(__AVX512VNNI__)

#include <immintrin.h>

#define TILE        8 /* activation rows at once: as many sums, floats and two weights in 32 registers */
#define ABSORB_TILE 4
#define Q8_BIAS     4 /* dot_q8() adds 128 to the weights: sums begin at bias << 4 instead of 0 */

struct codes {
	__m512i v;
};

struct ints {
	__m512i v;
};

struct part {
	__m512i v;
};

struct floats {
	__m512 v;
};

INLINE struct codes load_codes(const uint8_t *p)
{
	return (struct codes){ _mm512_loadu_si512(p) };
}

INLINE struct codes low_nibbles(struct codes c)
{
	return (struct codes){ _mm512_and_si512(c.v, _mm512_set1_epi8(15)) };
}

INLINE struct codes high_nibbles(struct codes c)
{
	return low_nibbles((struct codes){ _mm512_srli_epi16(c.v, 4) });
}

INLINE struct codes ready_q8(struct codes c)
{
	return (struct codes){ _mm512_xor_si512(c.v, _mm512_set1_epi8(-128)) };
}

INLINE struct ints all_ints(int32_t x)
{
	return (struct ints){ _mm512_set1_epi32(x) };
}

INLINE struct ints larger_bits(struct ints max, const float *x)
{
	__m512i b = _mm512_and_si512(_mm512_loadu_si512(x), _mm512_set1_epi32(0x7fffffff));

	return (struct ints){ _mm512_max_epi32(max.v, b) };
}

INLINE int32_t max_of_ints(struct ints a)
{
	return _mm512_reduce_max_epi32(a.v);
}

INLINE struct ints put_codes(struct ints sum, const float *x, float inv, int8_t *codes)
{
	__m512i c = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), _mm512_set1_ps(inv)));

	_mm_storeu_si128((__m128i *)(void *)codes, _mm512_cvtepi32_epi8(c));
	return (struct ints){ _mm512_add_epi32(sum.v, c) };
}

INLINE int32_t sum_of_ints(struct ints a)
{
	return _mm512_reduce_add_epi32(a.v);
}

INLINE struct part part_begin(struct ints sums)
{
	return (struct part){ sums.v };
}

INLINE struct part dot_q4(struct part p, struct codes w, const int8_t *x)
{
	return (struct part){ _mm512_dpbusd_epi32(p.v, w.v, _mm512_set1_epi32(four(x))) };
}

INLINE struct part dot_q8(struct part p, struct codes w, const int8_t *x)
{
	return dot_q4(p, w, x);
}

INLINE struct ints part_end(struct ints sums, struct part p)
{
	(void)sums;
	return (struct ints){ p.v };
}

INLINE struct floats no_floats(void)
{
	return (struct floats){ _mm512_setzero_ps() };
}

INLINE struct floats load_floats(const float *p)
{
	return (struct floats){ _mm512_loadu_ps(p) };
}

INLINE struct floats add_product(struct floats sum, struct floats a, struct floats b)
{
	return (struct floats){ _mm512_add_ps(sum.v, _mm512_mul_ps(a.v, b.v)) };
}

INLINE struct floats signed_floats(__m128i c)
{
	return (struct floats){ _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(c)) };
}

INLINE struct floats floats_q8(const uint8_t *p)
{
	return signed_floats(_mm_loadu_si128((const __m128i *)(const void *)p));
}

INLINE void floats_q4(const uint8_t *p, struct floats *lo, struct floats *hi)
{
	__m128i c = _mm_loadu_si128((const __m128i *)(const void *)p);
	__m128i m = _mm_set1_epi8(15), eight = _mm_set1_epi8(8);

	*lo = signed_floats(_mm_sub_epi8(_mm_and_si128(c, m), eight));
	*hi = signed_floats(_mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(c, 4), m), eight));
}

INLINE void add_four_rows(struct floats f, float *y)
{
	__m256 v = _mm256_add_ps(_mm512_castps512_ps256(f.v), _mm512_extractf32x8_ps(f.v, 1));

	_mm_storeu_ps(y, _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1)));
}

INLINE struct floats load_scales(const uint16_t *p)
{
	return (struct floats){ _mm512_cvtph_ps(
		_mm256_loadu_si256((const __m256i *)(const void *)p)) };
}

/* y + sums * weight_scale * x_scale: one product rounded, the other fused with the sum. */
INLINE struct floats add_group(struct floats y, struct ints sums, struct floats weight_scale,
			       float x_scale)
{
	__m512 t = _mm512_mul_ps(_mm512_cvtepi32_ps(sums.v), weight_scale.v);

	return (struct floats){ _mm512_fmadd_ps(t, _mm512_set1_ps(x_scale), y.v) };
}

INLINE void store_floats(float *p, struct floats f)
{
	_mm512_storeu_ps(p, f.v);
}

#elif defined(__AVX2__)

#include <immintrin.h>

#define TILE        2
#define ABSORB_TILE 1
#define Q8_BIAS     0 /* signs are moved to the activations: no bias */

struct codes {
	__m256i a, b;
};

struct ints {
	__m256i a, b;
};

struct part {
	__m256i a, b; /* of 16 bits */
};

struct floats {
	__m256 a, b;
};

INLINE struct codes load_codes(const uint8_t *p)
{
	const __m256i *v = (const __m256i *)(const void *)p;

	return (struct codes){ _mm256_loadu_si256(v), _mm256_loadu_si256(v + 1) };
}

INLINE struct codes low_nibbles(struct codes c)
{
	__m256i m = _mm256_set1_epi8(15);

	return (struct codes){ _mm256_and_si256(c.a, m), _mm256_and_si256(c.b, m) };
}

INLINE struct codes high_nibbles(struct codes c)
{
	return low_nibbles((struct codes){ _mm256_srli_epi16(c.a, 4), _mm256_srli_epi16(c.b, 4) });
}

INLINE struct codes ready_q8(struct codes c)
{
	return c;
}

INLINE struct ints all_ints(int32_t x)
{
	return (struct ints){ _mm256_set1_epi32(x), _mm256_set1_epi32(x) };
}

INLINE struct ints larger_bits(struct ints max, const float *x)
{
	const __m256i *v = (const __m256i *)(const void *)x, m = _mm256_set1_epi32(0x7fffffff);

	return (struct ints){ _mm256_max_epi32(max.a, _mm256_and_si256(_mm256_loadu_si256(v), m)),
			      _mm256_max_epi32(max.b,
					       _mm256_and_si256(_mm256_loadu_si256(v + 1), m)) };
}

INLINE int32_t max_of_ints(struct ints a)
{
	__m256i v = _mm256_max_epi32(a.a, a.b);
	__m128i h = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));

	h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0x4e));
	return _mm_cvtsi128_si32(_mm_max_epi32(h, _mm_shuffle_epi32(h, 0xb1)));
}

INLINE struct ints put_codes(struct ints sum, const float *x, float inv, int8_t *codes)
{
	__m256 f = _mm256_set1_ps(inv);
	__m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), f));
	__m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), f));
	__m256i w = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);

	_mm_storeu_si128((__m128i *)(void *)codes, _mm_packs_epi16(_mm256_castsi256_si128(w),
								   _mm256_extracti128_si256(w, 1)));
	return (struct ints){ _mm256_add_epi32(sum.a, a), _mm256_add_epi32(sum.b, b) };
}

INLINE int32_t sum_of_ints(struct ints a)
{
	__m256i v = _mm256_add_epi32(a.a, a.b);
	__m128i h = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));

	h = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0x4e));
	return _mm_cvtsi128_si32(_mm_add_epi32(h, _mm_shuffle_epi32(h, 0xb1)));
}

INLINE struct part part_begin(struct ints sums)
{
	(void)sums;
	return (struct part){ _mm256_setzero_si256(), _mm256_setzero_si256() };
}

INLINE struct part dot_q4(struct part p, struct codes w, const int8_t *x)
{
	__m256i v = _mm256_set1_epi32(four(x));

	return (struct part){ _mm256_add_epi16(p.a, _mm256_maddubs_epi16(w.a, v)),
			      _mm256_add_epi16(p.b, _mm256_maddubs_epi16(w.b, v)) };
}

INLINE struct part dot_q8(struct part p, struct codes w, const int8_t *x)
{
	__m256i v = _mm256_set1_epi32(four(x));

	(void)p;
	return (struct part){ _mm256_maddubs_epi16(_mm256_abs_epi8(w.a), _mm256_sign_epi8(v, w.a)),
			      _mm256_maddubs_epi16(_mm256_abs_epi8(w.b),
						   _mm256_sign_epi8(v, w.b)) };
}

INLINE struct ints part_end(struct ints sums, struct part p)
{
	__m256i one = _mm256_set1_epi16(1);

	return (struct ints){ _mm256_add_epi32(sums.a, _mm256_madd_epi16(p.a, one)),
			      _mm256_add_epi32(sums.b, _mm256_madd_epi16(p.b, one)) };
}

INLINE struct floats no_floats(void)
{
	return (struct floats){ _mm256_setzero_ps(), _mm256_setzero_ps() };
}

INLINE struct floats load_floats(const float *p)
{
	return (struct floats){ _mm256_loadu_ps(p), _mm256_loadu_ps(p + 8) };
}

INLINE struct floats add_product(struct floats sum, struct floats a, struct floats b)
{
	return (struct floats){ _mm256_add_ps(sum.a, _mm256_mul_ps(a.a, b.a)),
				_mm256_add_ps(sum.b, _mm256_mul_ps(a.b, b.b)) };
}

INLINE struct floats signed_floats(__m128i c)
{
	return (struct floats){ _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(c)),
				_mm256_cvtepi32_ps(
					_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(c, c))) };
}

INLINE struct floats floats_q8(const uint8_t *p)
{
	return signed_floats(_mm_loadu_si128((const __m128i *)(const void *)p));
}

INLINE void floats_q4(const uint8_t *p, struct floats *lo, struct floats *hi)
{
	__m128i c = _mm_loadu_si128((const __m128i *)(const void *)p);
	__m128i m = _mm_set1_epi8(15), eight = _mm_set1_epi8(8);

	*lo = signed_floats(_mm_sub_epi8(_mm_and_si128(c, m), eight));
	*hi = signed_floats(_mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(c, 4), m), eight));
}

INLINE void add_four_rows(struct floats f, float *y)
{
	__m256 v = _mm256_add_ps(f.a, f.b);

	_mm_storeu_ps(y, _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1)));
}

INLINE struct floats load_scales(const uint16_t *p)
{
	const __m128i *v = (const __m128i *)(const void *)p;

	return (struct floats){ _mm256_cvtph_ps(_mm_loadu_si128(v)),
				_mm256_cvtph_ps(_mm_loadu_si128(v + 1)) };
}

INLINE struct floats add_group(struct floats y, struct ints sums, struct floats weight_scale,
			       float x_scale)
{
	__m256 a = _mm256_mul_ps(_mm256_cvtepi32_ps(sums.a), weight_scale.a);
	__m256 b = _mm256_mul_ps(_mm256_cvtepi32_ps(sums.b), weight_scale.b);
	__m256 s = _mm256_set1_ps(x_scale);

	return (struct floats){ _mm256_fmadd_ps(a, s, y.a), _mm256_fmadd_ps(b, s, y.b) };
}

INLINE void store_floats(float *p, struct floats f)
{
	_mm256_storeu_ps(p, f.a);
	_mm256_storeu_ps(p + 8, f.b);
}

#elif defined(__ARM_FEATURE_DOTPROD)

#include <arm_neon.h>

#define TILE        4
#define ABSORB_TILE 2
#define Q8_BIAS     0

struct codes {
	uint8x16_t v[4];
};

struct ints {
	int32x4_t v[4];
};

struct part {
	int32x4_t v[4];
};

struct floats {
	float32x4_t v[4];
};

INLINE struct codes load_codes(const uint8_t *p)
{
	return (struct codes){ { vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32),
				 vld1q_u8(p + 48) } };
}

INLINE struct codes low_nibbles(struct codes c)
{
	for (int i = 0; i < 4; i++)
		c.v[i] = vandq_u8(c.v[i], vdupq_n_u8(15));
	return c;
}

INLINE struct codes high_nibbles(struct codes c)
{
	for (int i = 0; i < 4; i++)
		c.v[i] = vshrq_n_u8(c.v[i], 4);
	return c;
}

INLINE struct codes ready_q8(struct codes c)
{
	return c;
}

INLINE struct ints all_ints(int32_t x)
{
	int32x4_t v = vdupq_n_s32(x);

	return (struct ints){ { v, v, v, v } };
}

INLINE struct ints larger_bits(struct ints max, const float *x)
{
	for (int i = 0; i < 4; i++) {
		int32x4_t b = vreinterpretq_s32_f32(vabsq_f32(vld1q_f32(x + 4 * i)));
		max.v[i] = vmaxq_s32(max.v[i], b);
	}
	return max;
}

INLINE int32_t max_of_ints(struct ints a)
{
	return vmaxvq_s32(vmaxq_s32(vmaxq_s32(a.v[0], a.v[1]), vmaxq_s32(a.v[2], a.v[3])));
}

INLINE struct ints put_codes(struct ints sum, const float *x, float inv, int8_t *codes)
{
	int16x4_t half[4];

	for (int i = 0; i < 4; i++) {
		int32x4_t c = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 4 * i), inv));
		sum.v[i] = vaddq_s32(sum.v[i], c);
		half[i] = vmovn_s32(c);
	}
	vst1_s8(codes, vmovn_s16(vcombine_s16(half[0], half[1])));
	vst1_s8(codes + 8, vmovn_s16(vcombine_s16(half[2], half[3])));
	return sum;
}

INLINE int32_t sum_of_ints(struct ints a)
{
	return vaddvq_s32(vaddq_s32(vaddq_s32(a.v[0], a.v[1]), vaddq_s32(a.v[2], a.v[3])));
}

INLINE struct part part_begin(struct ints sums)
{
	return (struct part){ { sums.v[0], sums.v[1], sums.v[2], sums.v[3] } };
}

/* Nibbles are below 16, so they may be taken as signed. */
INLINE struct part dot_q4(struct part p, struct codes w, const int8_t *x)
{
	int8x16_t v = vreinterpretq_s8_s32(vdupq_n_s32(four(x)));

	for (int i = 0; i < 4; i++)
		p.v[i] = vdotq_s32(p.v[i], vreinterpretq_s8_u8(w.v[i]), v);
	return p;
}

INLINE struct part dot_q8(struct part p, struct codes w, const int8_t *x)
{
	return dot_q4(p, w, x);
}

INLINE struct ints part_end(struct ints sums, struct part p)
{
	(void)sums;
	return (struct ints){ { p.v[0], p.v[1], p.v[2], p.v[3] } };
}

INLINE struct floats no_floats(void)
{
	float32x4_t v = vdupq_n_f32(0);

	return (struct floats){ { v, v, v, v } };
}

INLINE struct floats load_floats(const float *p)
{
	return (struct floats){ { vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8),
				  vld1q_f32(p + 12) } };
}

INLINE struct floats add_product(struct floats sum, struct floats a, struct floats b)
{
	for (int i = 0; i < 4; i++)
		sum.v[i] = vaddq_f32(sum.v[i], vmulq_f32(a.v[i], b.v[i]));
	return sum;
}

INLINE struct floats signed_floats(int8x16_t c)
{
	int16x8_t a = vmovl_s8(vget_low_s8(c)), b = vmovl_s8(vget_high_s8(c));

	return (struct floats){ { vcvtq_f32_s32(vmovl_s16(vget_low_s16(a))),
				  vcvtq_f32_s32(vmovl_s16(vget_high_s16(a))),
				  vcvtq_f32_s32(vmovl_s16(vget_low_s16(b))),
				  vcvtq_f32_s32(vmovl_s16(vget_high_s16(b))) } };
}

INLINE struct floats floats_q8(const uint8_t *p)
{
	return signed_floats(vreinterpretq_s8_u8(vld1q_u8(p)));
}

INLINE void floats_q4(const uint8_t *p, struct floats *lo, struct floats *hi)
{
	uint8x16_t c = vld1q_u8(p), eight = vdupq_n_u8(8);

	*lo = signed_floats(vreinterpretq_s8_u8(vsubq_u8(vandq_u8(c, vdupq_n_u8(15)), eight)));
	*hi = signed_floats(vreinterpretq_s8_u8(vsubq_u8(vshrq_n_u8(c, 4), eight)));
}

INLINE void add_four_rows(struct floats f, float *y)
{
	vst1q_f32(y, vaddq_f32(vaddq_f32(f.v[0], f.v[2]), vaddq_f32(f.v[1], f.v[3])));
}

INLINE struct floats load_scales(const uint16_t *p)
{
	struct floats f;

	for (int i = 0; i < 4; i++)
		f.v[i] = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i)));
	return f;
}

INLINE struct floats add_group(struct floats y, struct ints sums, struct floats weight_scale,
			       float x_scale)
{
	float32x4_t s = vdupq_n_f32(x_scale);

	for (int i = 0; i < 4; i++) {
		float32x4_t t = vmulq_f32(vcvtq_f32_s32(sums.v[i]), weight_scale.v[i]);
		y.v[i] = vfmaq_f32(y.v[i], t, s);
	}
	return y;
}

INLINE void store_floats(float *p, struct floats f)
{
	for (int i = 0; i < 4; i++)
		vst1q_f32(p + 4 * i, f.v[i]);
}

#else

#define TILE        1
#define ABSORB_TILE 1
#define Q8_BIAS     0

struct codes {
	uint8_t v[4 * WBLOCK];
};

struct ints {
	int32_t v[WBLOCK];
};

/* Vectors of 16 bytes, which every processor with vectors has: 4 codes of 4 rows. */
typedef int16_t shorts __attribute__((vector_size(16)));
typedef int32_t longs __attribute__((vector_size(16)));

struct part {
	shorts v[WBLOCK / 4]; /* two sums a row: even and odd products fall together */
};

struct floats {
	float v[WBLOCK];
};

INLINE struct codes load_codes(const uint8_t *p)
{
	struct codes c;

	memcpy(c.v, p, sizeof(c.v));
	return c;
}

INLINE struct codes low_nibbles(struct codes c)
{
	for (int i = 0; i < 4 * WBLOCK; i++)
		c.v[i] &= 15;
	return c;
}

INLINE struct codes high_nibbles(struct codes c)
{
	for (int i = 0; i < 4 * WBLOCK; i++)
		c.v[i] >>= 4;
	return c;
}

INLINE struct codes ready_q8(struct codes c)
{
	return c;
}

INLINE struct ints all_ints(int32_t x)
{
	struct ints s;

	for (int r = 0; r < WBLOCK; r++)
		s.v[r] = x;
	return s;
}

INLINE struct ints larger_bits(struct ints max, const float *x)
{
	int32_t b[WBLOCK];

	memcpy(b, x, sizeof(b));
	for (int i = 0; i < WBLOCK; i++) {
		b[i] &= 0x7fffffff;
		max.v[i] = b[i] > max.v[i] ? b[i] : max.v[i];
	}
	return max;
}

INLINE int32_t max_of_ints(struct ints a)
{
	for (int i = 1; i < WBLOCK; i++)
		a.v[0] = a.v[i] > a.v[0] ? a.v[i] : a.v[0];
	return a.v[0];
}

/* Below 2^22 adding and taking off 1.5 * 2^23 rounds to the nearest integer. */
INLINE struct ints put_codes(struct ints sum, const float *x, float inv, int8_t *codes)
{
	for (int i = 0; i < WBLOCK; i++) {
		int32_t c = (int32_t)(x[i] * inv + 0x1.8p23f - 0x1.8p23f);
		codes[i] = (int8_t)c;
		sum.v[i] += c;
	}
	return sum;
}

INLINE int32_t sum_of_ints(struct ints a)
{
	for (int i = 1; i < WBLOCK; i++)
		a.v[0] += a.v[i];
	return a.v[0];
}

INLINE struct part part_begin(struct ints sums)
{
	(void)sums;
	return (struct part){ { { 0 } } };
}

/* The low byte of each 16 bits is an even column, the high one an odd one. */
INLINE struct part dot_q4(struct part p, struct codes w, const int8_t *x)
{
	const shorts even = { x[0], x[2], x[0], x[2], x[0], x[2], x[0], x[2] };
	const shorts odd = { x[1], x[3], x[1], x[3], x[1], x[3], x[1], x[3] };

	for (int i = 0; i < WBLOCK / 4; i++) {
		shorts v;
		memcpy(&v, w.v + 16 * i, sizeof(v));
		p.v[i] += (v << 8 >> 8) * even + (v >> 8) * odd;
	}
	return p;
}

INLINE struct part dot_q8(struct part p, struct codes w, const int8_t *x)
{
	return dot_q4(p, w, x);
}

INLINE struct ints part_end(struct ints sums, struct part p)
{
	for (int i = 0; i < WBLOCK / 4; i++) {
		longs sum, v = (longs)p.v[i];
		memcpy(&sum, sums.v + 4 * i, sizeof(sum));
		sum += (v << 16 >> 16) + (v >> 16);
		memcpy(sums.v + 4 * i, &sum, sizeof(sum));
	}
	return sums;
}

INLINE struct floats no_floats(void)
{
	return (struct floats){ { 0 } };
}

INLINE struct floats load_floats(const float *p)
{
	struct floats f;

	memcpy(f.v, p, sizeof(f.v));
	return f;
}

INLINE struct floats add_product(struct floats sum, struct floats a, struct floats b)
{
	for (int i = 0; i < 16; i++)
		sum.v[i] = sum.v[i] + a.v[i] * b.v[i];
	return sum;
}

INLINE struct floats floats_q8(const uint8_t *p)
{
	struct floats f;

	for (int i = 0; i < 16; i++)
		f.v[i] = (int8_t)p[i];
	return f;
}

INLINE void floats_q4(const uint8_t *p, struct floats *lo, struct floats *hi)
{
	for (int i = 0; i < 16; i++) {
		lo->v[i] = (float)((p[i] & 15) - 8);
		hi->v[i] = (float)((p[i] >> 4) - 8);
	}
}

INLINE void add_four_rows(struct floats f, float *y)
{
	for (int j = 0; j < 4; j++)
		y[j] = (f.v[j] + f.v[8 + j]) + (f.v[4 + j] + f.v[12 + j]);
}

INLINE struct floats load_scales(const uint16_t *p)
{
	struct floats f;

	for (int r = 0; r < WBLOCK; r++)
		f.v[r] = half_to_float(p[r]);
	return f;
}

INLINE struct floats add_group(struct floats y, struct ints sums, struct floats weight_scale,
			       float x_scale)
{
	for (int r = 0; r < WBLOCK; r++)
		y.v[r] = fmaf((float)sums.v[r] * weight_scale.v[r], x_scale, y.v[r]);
	return y;
}

INLINE void store_floats(float *p, struct floats f)
{
	memcpy(p, f.v, sizeof(f.v));
}

#endif
#endif
