/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of GGUF's block formats (ggml.h) with 8-bit activations, compiled once per instruction
 * set with -DKERNEL_ISA=NAME and without fused multiply-adds.
 *
 * Every format here is, within 32 columns, w = scale * code + min with codes of 8 bits, and a scale
 * for each 16 of them. So a row is unpacked 256 columns at a time into codes, scales and minima, by
 * plain loops that the compiler turns into vectors, and all activation rows are multiplied with
 * these while they lie in the nearest cache. Activations are quantised in groups of 32, as for q8
 * and q4 (kernel_int8.c), where more is said on what that costs.
 *
 *	sum[l] += (float)(sum of codes * codes of columns 4 l .. 4 l + 3) * (scale * x scale)
 *	least  += min * (x scale * sum of x codes)              groups in ascending order
 *	y       = the eight sums, halves added to halves, + least
 *
 * One order for all: the same bits in every instruction set, whatever else is computed beside.
 */
#include <string.h>

#include "engine/ggml.h"
#include "engine/kernel.h"

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

#define PASTE_(a, b) a##b
#define PASTE(a, b)  PASTE_(a, b)
#define MULTIPLY     PASTE(kernel_blocks_, KERNEL_ISA)

#define INLINE static inline __attribute__((always_inline))

#define CHUNK  256 /* columns */
#define GROUP  32
#define GROUPS (CHUNK / GROUP)
#define LANES  8

struct unpacked {
	_Alignas(32) int8_t codes[CHUNK];
	float scale[GROUPS][2]; /* of 16 columns each */
	float min[GROUPS];
};

INLINE void one_scale(struct unpacked *u, int g, float scale, float min)
{
	u->scale[g][0] = u->scale[g][1] = scale;
	u->min[g] = min;
}

/* -- blocks of 32: number g of a chunk ------------------------------------------------------------
 */

/* Bytes side by side; the compiler makes them as wide as the instruction set has registers. */
typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef uint8_t bytes32 __attribute__((vector_size(32)));

/* By address, since how 32 bytes are passed by value depends on the instruction set. */
INLINE void load32(bytes32 *v, const uint8_t *p)
{
	memcpy(v, p, sizeof(*v));
}

#define STORE32(to, value)                                                                         \
	do {                                                                                       \
		bytes32 v_ = (value);                                                              \
		memcpy(to, &v_, sizeof(v_));                                                       \
	} while (0)

INLINE void nibbles(const uint8_t *q, int8_t *to)
{
	bytes16 b, low, high;

	memcpy(&b, q, sizeof(b));
	low = b & 15;
	high = b >> 4;
	memcpy(to, &low, sizeof(low));
	memcpy(to + 16, &high, sizeof(high));
}

INLINE void q4_0(const uint8_t *p, struct unpacked *u, int g)
{
	float d = ggml_half(p);

	nibbles(p + 2, u->codes + g * GROUP);
	one_scale(u, g, d, d * -8);
}

INLINE void q4_1(const uint8_t *p, struct unpacked *u, int g)
{
	nibbles(p + 4, u->codes + g * GROUP);
	one_scale(u, g, ggml_half(p), ggml_half(p + 2));
}

INLINE void fifth_bits(const uint8_t *p, int8_t *codes)
{
	uint32_t h;

	memcpy(&h, p, sizeof(h));
	for (int j = 0; j < 32; j++)
		codes[j] = (int8_t)(codes[j] | (int)(h >> j & 1) << 4);
}

INLINE void q5_0(const uint8_t *p, struct unpacked *u, int g)
{
	float d = ggml_half(p);

	nibbles(p + 6, u->codes + g * GROUP);
	fifth_bits(p + 2, u->codes + g * GROUP);
	one_scale(u, g, d, d * -16);
}

INLINE void q5_1(const uint8_t *p, struct unpacked *u, int g)
{
	nibbles(p + 8, u->codes + g * GROUP);
	fifth_bits(p + 4, u->codes + g * GROUP);
	one_scale(u, g, ggml_half(p), ggml_half(p + 2));
}

INLINE void q8_0(const uint8_t *p, struct unpacked *u, int g)
{
	memcpy(u->codes + g * GROUP, p + 2, GROUP);
	one_scale(u, g, ggml_half(p), 0);
}

/* The table's 16 numbers for the nibbles of q. */
INLINE void look_up(const int8_t *table, const uint8_t *q, int8_t *to)
{
#if defined(__AVX2__)
	__m128i t = _mm_loadu_si128((const __m128i *)(const void *)table);
	__m128i b = _mm_loadu_si128((const __m128i *)(const void *)q), low = _mm_set1_epi8(15);
	_mm_storeu_si128((__m128i *)(void *)to, _mm_shuffle_epi8(t, _mm_and_si128(b, low)));
	_mm_storeu_si128((__m128i *)(void *)(to + 16),
			 _mm_shuffle_epi8(t, _mm_and_si128(_mm_srli_epi16(b, 4), low)));
#elif defined(__ARM_FEATURE_DOTPROD)
	int8x16_t t = vld1q_s8(table);
	uint8x16_t b = vld1q_u8(q);
	vst1q_s8(to, vqtbl1q_s8(t, vandq_u8(b, vdupq_n_u8(15))));
	vst1q_s8(to + 16, vqtbl1q_s8(t, vshrq_n_u8(b, 4)));
#else
	for (int j = 0; j < 16; j++) {
		to[j] = table[q[j] & 15];
		to[j + 16] = table[q[j] >> 4];
	}
#endif
}

static const int8_t iq4[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
				1,    13,   25,  38,  53,  69,  89,  113 };
static const int8_t fp4[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };

INLINE void iq4_nl(const uint8_t *p, struct unpacked *u, int g)
{
	look_up(iq4, p + 2, u->codes + g * GROUP);
	one_scale(u, g, ggml_half(p), 0);
}

INLINE void mxfp4(const uint8_t *p, struct unpacked *u, int g)
{
	union {
		uint32_t u;
		float f;
	} d = { .u = p[0] < 2 ? 0x00200000u << p[0] : (p[0] - 1u) << 23 };

	look_up(fp4, p + 1, u->codes + g * GROUP);
	one_scale(u, g, d.f, 0);
}

/* -- blocks of 256 --------------------------------------------------------------------------------
 */

INLINE void scales_and_mins(const uint8_t *p, struct unpacked *u)
{
	const uint8_t *s = p + 4;
	float d = ggml_half(p), dmin = ggml_half(p + 2);

	for (int k = 0; k < 8; k++) {
		int sc = k < 4 ? s[k] & 63 : (s[k + 4] & 15) | (s[k - 4] >> 6) << 4;
		int mn = k < 4 ? s[k + 4] & 63 : s[k + 4] >> 4 | (s[k] >> 6) << 4;
		one_scale(u, k, d * (float)sc, -(dmin * (float)mn));
	}
}

INLINE void q4_k(const uint8_t *p, struct unpacked *u)
{
	const uint8_t *q = p + 16;

	scales_and_mins(p, u);
	for (int c = 0; c < 4; c++) {
		bytes32 b;
		load32(&b, q + 32 * c);
		STORE32(u->codes + 64 * c, b & 15);
		STORE32(u->codes + 64 * c + 32, b >> 4);
	}
}

INLINE void q5_k(const uint8_t *p, struct unpacked *u)
{
	const uint8_t *q = p + 48;
	bytes32 h;

	load32(&h, p + 16);

	scales_and_mins(p, u);
	for (int c = 0; c < 4; c++, h >>= 2) {
		bytes32 b;
		load32(&b, q + 32 * c);
		STORE32(u->codes + 64 * c, (b & 15) | (h & 1) << 4);
		STORE32(u->codes + 64 * c + 32, b >> 4 | (h >> 1 & 1) << 4);
	}
}

INLINE void q6_k(const uint8_t *p, struct unpacked *u)
{
	float d = ggml_half(p + 208);

	for (int n = 0; n < 2; n++) {
		bytes32 a, b, h;
		int8_t *to = u->codes + 128 * n;
		load32(&a, p + 64 * n);
		load32(&b, p + 64 * n + 32);
		load32(&h, p + 128 + 32 * n);
		STORE32(to, ((a & 15) | (h & 3) << 4) - 32);
		STORE32(to + 32, ((b & 15) | (h >> 2 & 3) << 4) - 32);
		STORE32(to + 64, (a >> 4 | (h >> 4 & 3) << 4) - 32);
		STORE32(to + 96, (b >> 4 | (h >> 6) << 4) - 32);
	}
	for (int g = 0; g < 16; g++)
		u->scale[g / 2][g % 2] = d * (float)(int8_t)p[192 + g];
	memset(u->min, 0, sizeof(u->min));
}

INLINE void q3_k(const uint8_t *p, struct unpacked *u)
{
	const uint8_t *s = p + 96;
	float d = ggml_half(p + 108);

	bytes32 h, q;
	load32(&h, p);
	for (int n = 0; n < 2; n++) {
		load32(&q, p + 32 + 32 * n);
		for (int j = 0; j < 4; j++, q >>= 2, h >>= 1) /* without its third bit: less 4 */
			STORE32(u->codes + 128 * n + 32 * j, (q & 3) - (~h & 1) * 4);
	}
	for (int g = 0; g < 16; g++) {
		int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4, high = s[8 + g % 4] >> (g / 4 * 2) & 3;
		u->scale[g / 2][g % 2] = d * (float)((low | high << 4) - 32);
	}
	memset(u->min, 0, sizeof(u->min));
}

INLINE void iq4_xs(const uint8_t *p, struct unpacked *u)
{
	float d = ggml_half(p);
	uint16_t sh;

	memcpy(&sh, p + 2, sizeof(sh));
	for (int b = 0; b < 8; b++) {
		int s = (p[4 + b / 2] >> b % 2 * 4 & 15) | (sh >> 2 * b & 3) << 4;
		look_up(iq4, p + 8 + b * 16, u->codes + b * GROUP);
		one_scale(u, b, d * (float)(s - 32), 0);
	}
}

/* -- products -------------------------------------------------------------------------------------
 */

/* Eight floats. */
#if defined(__AVX2__)
struct sums {
	__m256 v;
};
#elif defined(__ARM_FEATURE_DOTPROD)
struct sums {
	float32x4_t v[2];
};
#else
struct sums {
	float v[LANES];
};
#endif

/* 32 codes of weights times 32 of activations, four and four added up, times the scales a and b of the
 * first and second half, to the sums of the row. positive: the weights' codes are 0 or more. fine: a
 * and b may differ. */
INLINE struct sums add_group(struct sums s, const int8_t *w, const int8_t *x, float a, float b,
			     bool positive, bool fine)
{
#if defined(__AVX2__)
	__m256i c = _mm256_load_si256((const __m256i *)(const void *)w);
	__m256i d = _mm256_loadu_si256((const __m256i *)(const void *)x), i;
	__m256 f = fine ? _mm256_set_m128(_mm_set1_ps(b), _mm_set1_ps(a)) : _mm256_set1_ps(a);

	if (!positive) { /* |c| times d with the sign of c */
		d = _mm256_sign_epi8(d, c);
		c = _mm256_abs_epi8(c);
	}
#if defined(__AVX512VNNI__)
	i = _mm256_dpbusd_epi32(_mm256_setzero_si256(), c, d);
#else
	/* At most 2 * 128 * 127: fits 16 bits. */
	i = _mm256_madd_epi16(_mm256_maddubs_epi16(c, d), _mm256_set1_epi16(1));
#endif
	s.v = _mm256_add_ps(s.v, _mm256_mul_ps(_mm256_cvtepi32_ps(i), f));
#elif defined(__ARM_FEATURE_DOTPROD)
	(void)positive;
	(void)fine;
	for (int h = 0; h < 2; h++) {
		int32x4_t i = vdotq_s32(vdupq_n_s32(0), vld1q_s8(w + 16 * h), vld1q_s8(x + 16 * h));
		s.v[h] = vaddq_f32(s.v[h], vmulq_n_f32(vcvtq_f32_s32(i), h ? b : a));
	}
#else
	(void)positive;
	(void)fine;
	for (int l = 0; l < LANES; l++) {
		int i = 0;
		for (int j = 0; j < 4; j++)
			i += w[4 * l + j] * x[4 * l + j];
		s.v[l] += (float)i * (l < 4 ? a : b);
	}
#endif
	return s;
}

/* The chunk's groups, of which the first is number `first` of the row, times all rows of a. */
INLINE void add_chunk(const struct unpacked *u, const struct acts *a, int first, int groups,
		      bool positive, bool fine, bool has_min, struct sums *sums, float *least)
{
	for (int t = 0; t < a->rows; t++) {
		struct sums s = sums[t];
		float low = least[t];
		for (int g = 0; g < groups; g++) {
			size_t at = (size_t)(first + g) * (size_t)a->rows + (size_t)t;
			float by = a->scale[at];
			s = add_group(s, u->codes + g * GROUP, a->codes + at * GROUP,
				      u->scale[g][0] * by, u->scale[g][1] * by, positive, fine);
			if (has_min) /* bias is -8 times the sum of the codes */
				low += u->min[g] * (by * ((float)a->bias[at] * -0.125f));
		}
		sums[t] = s;
		least[t] = low;
	}
}

INLINE float add_up(const struct sums *sums)
{
	float s[LANES];

	memcpy(s, sums, sizeof(s));
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

/* A row: unpack(p, u, groups) fills u from the blocks at p. */
#define ROW(type, elements, bytes, positive, fine, has_min, unpack)                                \
	case type:                                                                                 \
		for (int g = 0; g < a->groups; g += GROUPS) {                                      \
			int n = a->groups - g < GROUPS ? a->groups - g : GROUPS;                   \
			for (int i = 0; i < n * GROUP / (elements); i++, p += (bytes))             \
				(unpack);                                                          \
			add_chunk(&u, a, g, n, positive, fine, has_min, sums, least);              \
		}                                                                                  \
		break

static void row_times(const struct wmat *m, int row, const struct acts *a, struct sums *sums,
		      float *least)
{
	const uint8_t *p =
		(const uint8_t *)m->codes + (size_t)row * wfmt_row_bytes(m->fmt, m->cols);
	struct unpacked u = { 0 };

	switch (m->fmt.type) {
		ROW(W_Q4_0, 32, 18, true, false, true, q4_0(p, &u, i));
		ROW(W_Q4_1, 32, 20, true, false, true, q4_1(p, &u, i));
		ROW(W_Q5_0, 32, 22, true, false, true, q5_0(p, &u, i));
		ROW(W_Q5_1, 32, 24, true, false, true, q5_1(p, &u, i));
		ROW(W_Q8_0, 32, 34, false, false, false, q8_0(p, &u, i));
		ROW(W_IQ4_NL, 32, 18, false, false, false, iq4_nl(p, &u, i));
		ROW(W_MXFP4, 32, 17, false, false, false, mxfp4(p, &u, i));
		ROW(W_Q3_K, 256, 110, false, true, false, q3_k(p, &u));
		ROW(W_Q4_K, 256, 144, true, false, true, q4_k(p, &u));
		ROW(W_Q5_K, 256, 176, true, false, true, q5_k(p, &u));
		ROW(W_Q6_K, 256, 210, false, true, false, q6_k(p, &u));
		ROW(W_IQ4_XS, 256, 136, false, false, false, iq4_xs(p, &u));
	default:
		break; /* wtype_int8() says that it does not come here */
	}
}

kernel_multiply MULTIPLY;

void MULTIPLY(const struct wmat *m, int block, const struct acts *a, float *y, size_t ldy)
{
	for (int r = 0; r < WBLOCK && block * WBLOCK + r < m->rows; r++) {
		struct sums sums[ACTS_ROWS] = { 0 };
		float least[ACTS_ROWS] = { 0 };
		row_times(m, block * WBLOCK + r, a, sums, least);
		for (int t = 0; t < a->rows; t++)
			y[(size_t)t * ldy + (size_t)r] = add_up(&sums[t]) + least[t];
	}
}
