/* SPDX-License-Identifier: Apache-2.0
 *
 * The lanes of kernel_lanes.h, which includes this and says what each of these does.
 * AVX2: two vectors of eight. With AVX-VNNI products are summed in 32 bits at once.
 */
#ifndef ENGINE_KERNEL_LANES_AVX2_H
#define ENGINE_KERNEL_LANES_AVX2_H

#include <immintrin.h>

#define ABSORB_TILE 1
#ifdef __AVXVNNI__
#define TILE    4
#define Q8_BIAS 4 /* dot_q8() adds 128 to the weights: sums begin at bias << 4 instead of 0 */
#else
#define TILE    2
#define Q8_BIAS 0 /* signs are moved to the activations: no bias */
#endif

struct codes {
	__m256i a, b;
};

struct ints {
	__m256i a, b;
};

struct part {
	__m256i a, b; /* of 16 bits, or of 32 with AVX-VNNI */
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

INLINE struct ints all_ints(int32_t x)
{
	return (struct ints){ _mm256_set1_epi32(x), _mm256_set1_epi32(x) };
}

INLINE struct ints add_ints(struct ints a, struct ints b)
{
	return (struct ints){ _mm256_add_epi32(a.a, b.a), _mm256_add_epi32(a.b, b.b) };
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

#ifdef __AVXVNNI__
INLINE struct codes ready_q8(struct codes c)
{
	__m256i sign = _mm256_set1_epi8(-128);

	return (struct codes){ _mm256_xor_si256(c.a, sign), _mm256_xor_si256(c.b, sign) };
}

INLINE struct part part_begin(struct ints sums)
{
	return (struct part){ sums.a, sums.b };
}

INLINE struct part dot_q4(struct part p, struct codes w, const int8_t *x)
{
	__m256i v = _mm256_set1_epi32(four(x));

	return (struct part){ _mm256_dpbusd_avx_epi32(p.a, w.a, v),
			      _mm256_dpbusd_avx_epi32(p.b, w.b, v) };
}

INLINE struct part dot_q8(struct part p, struct codes w, const int8_t *x)
{
	return dot_q4(p, w, x);
}

INLINE struct ints part_end(struct ints sums, struct part p)
{
	(void)sums;
	return (struct ints){ p.a, p.b };
}
#else
INLINE struct codes ready_q8(struct codes c)
{
	return c;
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
#endif

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

INLINE struct floats add_scaled(struct floats y, struct floats a, float x)
{
	__m256 s = _mm256_set1_ps(x);

	return (struct floats){ _mm256_fmadd_ps(a.a, s, y.a), _mm256_fmadd_ps(a.b, s, y.b) };
}

INLINE void store_codes(uint8_t *p, struct codes c)
{
	_mm256_storeu_si256((__m256i *)(void *)p, c.a);
	_mm256_storeu_si256((__m256i *)(void *)(p + 32), c.b);
}

/* Rows r and r + 4. */
INLINE __m256i pair(const uint8_t *p, size_t ld)
{
	__m128i a = _mm_loadu_si128((const __m128i *)(const void *)p);
	__m128i b = _mm_loadu_si128((const __m128i *)(const void *)(p + 4 * ld));

	return _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
}

/* Four columns each of eight rows. */
INLINE void load_half(const uint8_t *p, size_t ld, __m256i *c)
{
	__m256i r0 = pair(p, ld), r1 = pair(p + ld, ld);
	__m256i r2 = pair(p + 2 * ld, ld), r3 = pair(p + 3 * ld, ld);
	__m256i a = _mm256_unpacklo_epi32(r0, r1), b = _mm256_unpackhi_epi32(r0, r1);
	__m256i d = _mm256_unpacklo_epi32(r2, r3), e = _mm256_unpackhi_epi32(r2, r3);

	c[0] = _mm256_unpacklo_epi64(a, d);
	c[1] = _mm256_unpackhi_epi64(a, d);
	c[2] = _mm256_unpacklo_epi64(b, e);
	c[3] = _mm256_unpackhi_epi64(b, e);
}

INLINE void load_rows(const uint8_t *p, size_t ld, struct codes *c)
{
	__m256i a[4], b[4];

	load_half(p, ld, a);
	load_half(p + 8 * ld, ld, b);
	for (int k = 0; k < 4; k++)
		c[k] = (struct codes){ a[k], b[k] };
}

#define HAS_HALF_FLOATS 1

INLINE struct floats half_floats(struct codes c, int high)
{
	__m256i m = _mm256_set1_epi32(0xffff);
	__m256i a = high ? _mm256_srli_epi32(c.a, 16) : _mm256_and_si256(c.a, m);
	__m256i b = high ? _mm256_srli_epi32(c.b, 16) : _mm256_and_si256(c.b, m);
	__m256i v = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);

	return (struct floats){ _mm256_cvtph_ps(_mm256_castsi256_si128(v)),
				_mm256_cvtph_ps(_mm256_extracti128_si256(v, 1)) };
}

INLINE struct codes look_up(const int8_t *table, struct codes c)
{
	__m256i t =
		_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)table));

	return (struct codes){ _mm256_shuffle_epi8(t, c.a), _mm256_shuffle_epi8(t, c.b) };
}

INLINE struct codes bits(struct codes c, int shift, int mask)
{
	__m256i m = _mm256_set1_epi8((char)mask);

	return (struct codes){ _mm256_and_si256(_mm256_srli_epi16(c.a, shift), m),
			       _mm256_and_si256(_mm256_srli_epi16(c.b, shift), m) };
}

INLINE struct codes join(struct codes c, struct codes d, int shift)
{
	return (struct codes){ _mm256_or_si256(c.a, _mm256_slli_epi16(d.a, shift)),
			       _mm256_or_si256(c.b, _mm256_slli_epi16(d.b, shift)) };
}

#endif
