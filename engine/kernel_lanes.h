/* SPDX-License-Identifier: Apache-2.0
 *
 * Sixteen lanes, one for each row of a block of weights, as each instruction set has them: what
 * kernel_int8.c and kernel_blocks.c are written in. Only they include this.
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
 * Unpacking of GGUF's blocks: load_rows() takes 16 bytes of each of 16 rows that lie ld bytes apart,
 * which are four times 4 codes of each row; row_words() takes 4 bytes of each, half_floats() their lower
 * or higher halves as floats. bits() is (byte >> shift) & mask, with no bit of mask that
 * the shift may bring from the byte above; look_up() takes bytes 0 .. 15; join() is c | d << shift,
 * where d is so small that it stays in its byte.
 *
 * add_ints() adds sums; add_group() and add_scaled() add with one rounding: y + (sums * weight_scale) * x_scale, y + a * x.
 *
 * A part begins as part_begin(sums), takes at most 8 calls of dot_q4() or one of dot_q8(),
 * and ends as part_end(sums, part). No sum overflows: 16 bits hold 8 * 2 * 15 * 127 and 2 * 128 *
 * 127. Sums of integers are exact in any order, a float operation rounds the same everywhere (the
 * multiply-add is a fused one in each instruction set), so each set gives the same bits.
 */
#ifndef ENGINE_KERNEL_LANES_H
#define ENGINE_KERNEL_LANES_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "engine/quant.h"

#define INLINE static inline __attribute__((always_inline))

INLINE int32_t four(const int8_t *x)
{
	int32_t v;

	memcpy(&v, x, sizeof(v));
	return v;
}

#if defined(__AVX512BW__)
#include "engine/kernel_lanes_avx512.h"
#elif defined(__AVX2__)
#include "engine/kernel_lanes_avx2.h"
#elif defined(__ARM_FEATURE_DOTPROD)
#include "engine/kernel_lanes_dotprod.h"
#else
#include "engine/kernel_lanes_plain.h"
#endif

#ifdef __AVX2__ /* of either width: sixteen codes are one vector of SSE */
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
#endif

#ifndef HAS_ROW_WORDS /* where there is no instruction for it */
#define HAS_ROW_WORDS 0

INLINE struct codes row_words(const uint8_t *p, size_t ld)
{
	uint32_t w[WBLOCK];

	for (size_t r = 0; r < WBLOCK; r++)
		memcpy(w + r, p + r * ld, sizeof(*w));
	return load_codes((const uint8_t *)w);
}
#endif

#ifndef HAS_HALF_FLOATS
INLINE struct floats half_floats(struct codes c, int high)
{
	uint32_t w[WBLOCK];
	uint16_t h[WBLOCK];

	store_codes((uint8_t *)w, c);
	for (int r = 0; r < WBLOCK; r++)
		h[r] = (uint16_t)(high ? w[r] >> 16 : w[r]);
	return load_scales(h);
}
#endif

#endif
