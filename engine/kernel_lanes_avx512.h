/* SPDX-License-Identifier: Apache-2.0
 *
 * The lanes of kernel_lanes.h, which includes this and says what each of these does.
 * AVX-512: a vector holds all sixteen. With VNNI products are summed in 32 bits at once.
 */
#ifndef ENGINE_KERNEL_LANES_AVX512_H
#define ENGINE_KERNEL_LANES_AVX512_H

#include <immintrin.h>

#define TILE        8 /* activation rows at once: as many sums, floats and two weights in 32 registers */
#define ABSORB_TILE 4
#ifdef __AVX512VNNI__
#define Q8_BIAS 4 /* dot_q8() adds 128 to the weights: sums begin at bias << 4 instead of 0 */
#else
#define Q8_BIAS 0 /* signs are moved to the activations: no bias */
#endif

struct codes {
	__m512i v;
};

struct ints {
	__m512i v;
};

struct part {
	__m512i v; /* of 32 bits with VNNI, or of 16 */
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

INLINE struct ints all_ints(int32_t x)
{
	return (struct ints){ _mm512_set1_epi32(x) };
}

INLINE struct ints add_ints(struct ints a, struct ints b)
{
	return (struct ints){ _mm512_add_epi32(a.v, b.v) };
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

#ifdef __AVX512VNNI__
INLINE struct codes ready_q8(struct codes c)
{
	return (struct codes){ _mm512_xor_si512(c.v, _mm512_set1_epi8(-128)) };
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
#else
INLINE struct codes ready_q8(struct codes c)
{
	return c;
}

INLINE struct part part_begin(struct ints sums)
{
	(void)sums;
	return (struct part){ _mm512_setzero_si512() };
}

INLINE struct part dot_q4(struct part p, struct codes w, const int8_t *x)
{
	__m512i v = _mm512_set1_epi32(four(x));

	return (struct part){ _mm512_add_epi16(p.v, _mm512_maddubs_epi16(w.v, v)) };
}

INLINE struct part dot_q8(struct part p, struct codes w, const int8_t *x)
{
	__m512i v = _mm512_set1_epi32(four(x));
	__m512i with_sign =
		_mm512_mask_sub_epi8(v, _mm512_movepi8_mask(w.v), _mm512_setzero_si512(), v);

	(void)p;
	return (struct part){ _mm512_maddubs_epi16(_mm512_abs_epi8(w.v), with_sign) };
}

INLINE struct ints part_end(struct ints sums, struct part p)
{
	__m512i one = _mm512_set1_epi16(1);

	return (struct ints){ _mm512_add_epi32(sums.v, _mm512_madd_epi16(p.v, one)) };
}
#endif

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

INLINE struct floats add_scaled(struct floats y, struct floats a, float x)
{
	return (struct floats){ _mm512_fmadd_ps(a.v, _mm512_set1_ps(x), y.v) };
}

INLINE void store_codes(uint8_t *p, struct codes c)
{
	_mm512_storeu_si512(p, c.v);
}

/* 16 bytes at each of four pointers. */
INLINE __m512i quarter(const uint8_t *const *p, size_t at)
{
	__m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const void *)(p[0] + at)));

	v = _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(p[1] + at)), 1);
	v = _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(p[2] + at)), 2);
	return _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(p[3] + at)), 3);
}

/* Without hide() a compiler keeps sixteen offsets, more than it has registers. */
#define hide(x) __asm__("" : "+r"(x))

INLINE void load_rows(const uint8_t *p, size_t ld, struct codes *c)
{
	const uint8_t *q[4] = { p, p + 4 * ld, p + 8 * ld, p + 12 * ld };
	size_t three = 3 * ld;

	hide(q[1]);
	hide(q[2]);
	hide(q[3]);
	hide(three);
	__m512i r0 = quarter(q, 0), r1 = quarter(q, ld);
	__m512i r2 = quarter(q, 2 * ld), r3 = quarter(q, three);
	__m512i a = _mm512_unpacklo_epi32(r0, r1), b = _mm512_unpackhi_epi32(r0, r1);
	__m512i d = _mm512_unpacklo_epi32(r2, r3), e = _mm512_unpackhi_epi32(r2, r3);

	c[0].v = _mm512_unpacklo_epi64(a, d);
	c[1].v = _mm512_unpackhi_epi64(a, d);
	c[2].v = _mm512_unpacklo_epi64(b, e);
	c[3].v = _mm512_unpackhi_epi64(b, e);
}

#define HAS_ROW_WORDS 1

INLINE struct codes row_words(const uint8_t *p, size_t ld)
{
	const __m512i rows = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);

	return (struct codes){ _mm512_i32gather_epi32(
		_mm512_mullo_epi32(rows, _mm512_set1_epi32((int)ld)), p, 1) };
}

#define HAS_HALF_FLOATS 1

INLINE struct floats half_floats(struct codes c, int high)
{
	__m512i v = high ? _mm512_srli_epi32(c.v, 16) : c.v;

	return (struct floats){ _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)) };
}

INLINE struct codes look_up(const int8_t *table, struct codes c)
{
	__m128i t = _mm_loadu_si128((const __m128i *)(const void *)table);

	return (struct codes){ _mm512_shuffle_epi8(_mm512_broadcast_i32x4(t), c.v) };
}

/* A shift by operator: the intrinsics' counts must be literals even before anything is inlined. */
typedef uint16_t shorts __attribute__((vector_size(64)));

INLINE struct codes bits(struct codes c, int shift, int mask)
{
	__m512i v = (__m512i)((shorts)c.v >> shift);

	return (struct codes){ _mm512_and_si512(v, _mm512_set1_epi8((char)mask)) };
}

INLINE struct codes join(struct codes c, struct codes d, int shift)
{
	return (struct codes){ _mm512_or_si512(c.v, (__m512i)((shorts)d.v << shift)) };
}

#endif
