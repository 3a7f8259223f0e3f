/* SPDX-License-Identifier: Apache-2.0
 *
 * Quantising and its inverse, row by row, in plain C. The layout is drawn in quant.h; what places a
 * row in its block of interleaved ones is here and, for speed, in kernel_isa.c and kernel_int8.c.
 *
 * No fused multiply-add may creep in here (the Makefile forbids them; arm64 has them in its baseline
 * processor), so that a checkpoint packed on two machines gives the same bytes.
 */
#include "engine/quant.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "engine/ggml.h"

#define ALIGN_UP(n, a) (((n) + (a)-1) / (a) * (a))
#define HALF_MAX       65504.0f
#define GROUP_MAX      128

/* Blocks of elements in bytes; q8 and q4, which lie otherwise, have none. */
static const struct type {
	const char *name;
	uint16_t elements, bytes;
} types[WTYPES] = {
	[W_F32] = { "f32", 1, 4 },
	[W_BF16] = { "bf16", 1, 2 },
	[W_Q8] = { "q8", 1, 0 },
	[W_Q4] = { "q4", 1, 0 },
	[W_F16] = { "f16", 1, 2 },
	[W_Q8_0] = { "q8_0", 32, 34 },
	[W_Q4_0] = { "q4_0", 32, 18 },
	[W_Q4_1] = { "q4_1", 32, 20 },
	[W_Q5_0] = { "q5_0", 32, 22 },
	[W_Q5_1] = { "q5_1", 32, 24 },
	[W_Q2_K] = { "q2_k", 256, 84 },
	[W_Q3_K] = { "q3_k", 256, 110 },
	[W_Q4_K] = { "q4_k", 256, 144 },
	[W_Q5_K] = { "q5_k", 256, 176 },
	[W_Q6_K] = { "q6_k", 256, 210 },
	[W_IQ4_NL] = { "iq4_nl", 32, 18 },
	[W_IQ4_XS] = { "iq4_xs", 256, 136 },
	[W_MXFP4] = { "mxfp4", 32, 17 },
	[W_IQ1_S] = { "iq1_s", 256, 50 },
	[W_IQ1_M] = { "iq1_m", 256, 56 },
	[W_IQ2_XXS] = { "iq2_xxs", 256, 66 },
	[W_IQ2_XS] = { "iq2_xs", 256, 74 },
	[W_IQ2_S] = { "iq2_s", 256, 82 },
	[W_IQ3_XXS] = { "iq3_xxs", 256, 98 },
	[W_IQ3_S] = { "iq3_s", 256, 110 },
	[W_TQ1_0] = { "tq1_0", 256, 54 },
	[W_TQ2_0] = { "tq2_0", 256, 66 },
};

const char *wtype_name(enum wtype t)
{
	return types[t].name;
}

int wtype_parse(const char *name, enum wtype *t)
{
	for (int i = 0; i < WTYPES; i++) {
		if (strcmp(name, types[i].name) == 0) {
			*t = (enum wtype)i;
			return 0;
		}
	}
	return -EINVAL;
}

int wtype_block(enum wtype t)
{
	return types[t].elements;
}

int wfmt_groups(struct wfmt f, int cols)
{
	return f.group ? (cols + f.group - 1) / f.group : 0;
}

size_t wfmt_row_bytes(struct wfmt f, int cols)
{
	size_t padded = (size_t)wfmt_groups(f, cols) * (size_t)f.group;

	if (f.group)
		return f.type == W_Q8 ? padded : padded / 2;
	return (size_t)cols / types[f.type].elements * types[f.type].bytes;
}

int64_t wfmt_stored_rows(struct wfmt f, int64_t rows)
{
	return f.group ? ALIGN_UP(rows, WBLOCK) : rows;
}

size_t wfmt_scales_offset(struct wfmt f, int64_t rows, int cols)
{
	return ALIGN_UP((size_t)wfmt_stored_rows(f, rows) * wfmt_row_bytes(f, cols), 64);
}

size_t wfmt_bytes(struct wfmt f, int64_t rows, int cols)
{
	size_t scales =
		(size_t)wfmt_stored_rows(f, rows) * (size_t)wfmt_groups(f, cols) * sizeof(uint16_t);

	if (f.type >= W_F16)
		return (size_t)rows * wfmt_row_bytes(f, cols);
	return wfmt_scales_offset(f, rows, cols) + ALIGN_UP(scales, 64);
}

bool wfmt_bytes_fit(struct wfmt f, int64_t rows, int cols, uint64_t bytes)
{
	if (cols % wtype_block(f.type))
		return false;
	return bytes == wfmt_bytes(f, rows, cols) ||
	       (!f.group && bytes == (uint64_t)rows * wfmt_row_bytes(f, cols));
}

size_t wfmt_align(struct wfmt f)
{
	if (f.group)
		return 64;
	return types[f.type].elements == 1 ? types[f.type].bytes : 1;
}

int wmat_bind(struct wmat *m, struct wfmt f, int64_t rows, int cols, const void *base, size_t bytes)
{
	if (rows < 1 || rows > INT32_MAX || cols < 1 || (uintptr_t)base % wfmt_align(f) ||
	    !wfmt_bytes_fit(f, rows, cols, bytes))
		return -EINVAL;
	*m = (struct wmat){ .fmt = f, .rows = (int)rows, .cols = cols, .codes = base };
	if (f.group)
		m->scales = (const void *)((const char *)base + wfmt_scales_offset(f, rows, cols));
	return 0;
}

float half_to_float(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = h >> 10 & 31, man = h & 1023;
	union {
		uint32_t u;
		float f;
	} x;

	if (exp == 0) { /* zero and subnormal: man * 2^-24, exact in float */
		x.f = (float)man * 0x1p-24f;
		x.u |= sign;
	} else {
		x.u = sign | (exp == 31 ? 255u : exp + 112) << 23 | man << 13;
	}
	return x.f;
}

uint16_t float_to_half(float f)
{
	union {
		float f;
		uint32_t u;
	} x = { .f = f };
	uint16_t sign = (uint16_t)(x.u >> 16 & 0x8000);
	uint32_t a = x.u & 0x7fffffff;

	if (a > 0x7f800000)
		return sign | 0x7e00; /* NaN */
	if (a >= 0x477ff000)
		return sign | 0x7c00; /* rounds to 65536 or more: infinity */
	if (a < 0x38800000) {         /* below 2^-14: the sum rounds to multiples of 2^-24 */
		x.u = a;
		x.f += 0.5f;
		return sign | (uint16_t)(x.u - 0x3f000000);
	}
	a += 0xfff + (a >> 13 & 1); /* nearest, ties to even */
	return sign | (uint16_t)((a - (112u << 23)) >> 13);
}

uint16_t float_to_bf16(float f)
{
	union {
		float f;
		uint32_t u;
	} x = { .f = f };

	if ((x.u & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(x.u >> 16 | 0x40); /* keep a NaN a NaN */
	return (uint16_t)((x.u + 0x7fff + (x.u >> 16 & 1)) >> 16);
}

/* Nearest integer, ties to even, for |x| < 2^22; unlike rintf() it vectorises on any processor. */
static inline float nearest(float x)
{
	return x + 0x1.8p23f - 0x1.8p23f;
}

static inline float clampf(float x, float lo, float hi)
{
	return x < lo ? lo : x > hi ? hi : x;
}

/* The weight of largest magnitude with its sign; NaN if any is not finite. */
static float signed_max(const float *x, int n)
{
	float best = 0;

	for (int i = 0; i < n; i++) {
		if (!isfinite(x[i]))
			return NAN;
		if (fabsf(x[i]) > fabsf(best))
			best = x[i];
	}
	return best;
}

typedef float v8 __attribute__((vector_size(32)));
typedef int32_t v8i __attribute__((vector_size(32)));

/* Where mask is all ones a, elsewhere b. */
#define SELECT(mask, a, b) ((v8)(((mask) & (v8i)(a)) | (~(mask) & (v8i)(b))))

/* With codes l = nearest(x * inv) the best scale is sum(x l)/sum(l l), and the part of sum(x x)
 * that it explains is sum(x l)^2/sum(l l). Tries the candidates for 1/scale and returns the scale
 * that explains most. 8 codes lie below zero and 7 above, so the largest weight takes the side of
 * the 8; whether to reach it exactly, clip it or leave room is what the candidates vary. Eight
 * independent sums, so that every processor adds in the same order. n is a multiple of 8. */
static inline __attribute__((always_inline)) float search_q4(const float *x, int n, float max)
{
	const v8 lo = { -8, -8, -8, -8, -8, -8, -8, -8 }, hi = { 7, 7, 7, 7, 7, 7, 7, 7 };
	const v8 magic = { 0x1.8p23f, 0x1.8p23f, 0x1.8p23f, 0x1.8p23f,
			   0x1.8p23f, 0x1.8p23f, 0x1.8p23f, 0x1.8p23f };
	float best = -1, scale = 0;

	for (int step = 27; step <= 37; step++) { /* 6.75 to 9.25 */
		float inv = -0.25f * (float)step / max, sxl = 0, sll = 0;
		v8 xl = { 0 }, ll = { 0 };
		for (int i = 0; i < n; i += 8) {
			v8 w, l;
			memcpy(&w, x + i, sizeof(w));
			l = w * inv + magic - magic; /* nearest integer, ties to even */
			l = SELECT(l > hi, hi, l);
			l = SELECT(l < lo, lo, l);
			xl += w * l;
			ll += l * l;
		}
		for (int j = 0; j < 8; j++) {
			sxl += xl[j];
			sll += ll[j];
		}
		if (sll > 0 && sxl * sxl > best * sll) {
			best = sxl * sxl / sll;
			scale = sxl / sll;
		}
	}
	return scale;
}

#ifdef __x86_64__
/* avx2 without fma: the same bits as the plain one, several times faster. */
__attribute__((target("avx2"))) static float search_q4_avx2(const float *x, int n, float max)
{
	return search_q4(x, n, max);
}
#endif

static float best_scale_q4(const float *x, int n, float max)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx2"))
		return search_q4_avx2(x, n, max);
#endif
	return search_q4(x, n, max);
}

/* Four bytes of each row, then those of the next row of the block. */
#define STEP ((size_t)WBLOCK * 4)

static void put_q8(const float *x, int n, float scale, uint8_t *codes)
{
	float inv = scale != 0 ? 1 / scale : 0;

	for (int i = 0; i < n; i += 4, codes += STEP)
		for (int j = 0; j < 4; j++)
			codes[j] = (uint8_t)(int8_t)nearest(clampf(x[i + j] * inv, -127, 127));
}

static void put_q4(const float *x, int n, float scale, uint8_t *codes)
{
	float inv = scale != 0 ? 1 / scale : 0;

	for (int i = 0; i < n; i += 8, codes += STEP)
		for (int j = 0; j < 4; j++) {
			int lo = (int)nearest(clampf(x[i + j] * inv, -8, 7)) + 8;
			int hi = (int)nearest(clampf(x[i + 4 + j] * inv, -8, 7)) + 8;
			codes[j] = (uint8_t)(lo | hi << 4);
		}
}

/* codes and scales: of this row in its block. */
static int quant_groups(struct wfmt f, const float *src, int cols, uint8_t *codes, uint16_t *scales)
{
	size_t group_bytes = (size_t)WBLOCK * (size_t)f.group / (f.type == W_Q8 ? 1 : 2);
	int groups = wfmt_groups(f, cols);

	for (int g = 0; g < groups; g++, codes += group_bytes, scales += WBLOCK) {
		float x[GROUP_MAX] = { 0 };
		int n = cols - g * f.group < f.group ? cols - g * f.group : f.group;
		memcpy(x, src + (size_t)g * (size_t)f.group, (size_t)n * sizeof(float));
		float max = signed_max(x, n), scale = 0;
		if (isnan(max))
			return -EDOM;
		/* So small that 1/max might overflow: no fp16 scale could hold it either. */
		if (fabsf(max) >= 0x1p-100f)
			scale = f.type == W_Q8 ? fabsf(max) / 127 : best_scale_q4(x, f.group, max);
		if (fabsf(scale) > HALF_MAX)
			return -EDOM;
		*scales = float_to_half(scale);
		scale = half_to_float(*scales);
		if (f.type == W_Q8)
			put_q8(x, f.group, scale, codes);
		else
			put_q4(x, f.group, scale, codes);
	}
	return 0;
}

/* Where row `row` begins, relative to the first row of a block. */
static size_t codes_at(struct wfmt f, int cols, int64_t row)
{
	size_t row_bytes = wfmt_row_bytes(f, cols);

	if (!f.group)
		return (size_t)row * row_bytes;
	return (size_t)(row / WBLOCK) * WBLOCK * row_bytes + (size_t)(row % WBLOCK) * 4;
}

static size_t scales_at(struct wfmt f, int cols, int64_t row)
{
	return (size_t)(row / WBLOCK) * WBLOCK * (size_t)wfmt_groups(f, cols) +
	       (size_t)(row % WBLOCK);
}

int quant_row(struct wfmt f, const float *src, int cols, int64_t row, void *codes, uint16_t *scales)
{
	uint8_t *to = (uint8_t *)codes + codes_at(f, cols, row);

	if (f.type >= W_F16)
		return -EINVAL;
	if (f.group)
		return quant_groups(f, src, cols, to, scales + scales_at(f, cols, row));
	for (int i = 0; i < cols; i++)
		if (!isfinite(src[i]))
			return -EDOM;
	if (f.type == W_F32) {
		memcpy(to, src, (size_t)cols * sizeof(float));
	} else {
		uint16_t *out = (uint16_t *)(void *)to;
		for (int i = 0; i < cols; i++)
			out[i] = float_to_bf16(src[i]);
	}
	return 0;
}

static void put_integers(struct wfmt f, const int8_t *x, uint8_t *codes)
{
	if (f.type == W_Q8) {
		for (int i = 0; i < f.group; i += 4, codes += STEP)
			memcpy(codes, x + i, 4);
		return;
	}
	for (int i = 0; i < f.group; i += 8, codes += STEP)
		for (int j = 0; j < 4; j++)
			codes[j] = (uint8_t)((x[i + j] + 8) | (x[i + 4 + j] + 8) << 4);
}

int quant_row_coded(struct wfmt f, const int8_t *src, const float *scale, int every, int cols,
		    int64_t row, void *codes, uint16_t *scales)
{
	const int lo = f.type == W_Q8 ? -127 : -8, hi = f.type == W_Q8 ? 127 : 7;
	uint8_t *to = (uint8_t *)codes + codes_at(f, cols, row);
	size_t group_bytes = (size_t)WBLOCK * (size_t)f.group / (f.type == W_Q8 ? 1 : 2);

	scales += scales_at(f, cols, row);
	for (int from = 0; from < cols; from += f.group, to += group_bytes, scales += WBLOCK) {
		int8_t x[GROUP_MAX] = { 0 };
		int n = cols - from < f.group ? cols - from : f.group;
		float s = scale[from / every];
		memcpy(x, src + from, (size_t)n);
		for (int i = 0; i < n; i++)
			if (x[i] < lo || x[i] > hi)
				return -EDOM;
		if (!(fabsf(s) <= HALF_MAX)) /* NaN as well */
			return -EDOM;
		*scales = float_to_half(s);
		put_integers(f, x, to);
	}
	return 0;
}

static int code_q4(const uint8_t *codes, int i)
{
	int b = codes[(size_t)(i / 8) * STEP + (size_t)(i % 4)];

	return (i % 8 < 4 ? b & 15 : b >> 4) - 8;
}

static int code_q8(const uint8_t *codes, int i)
{
	return (int8_t)codes[(size_t)(i / 4) * STEP + (size_t)(i % 4)];
}

void dequant_row(const struct wmat *m, int row, float *dst)
{
	const uint8_t *codes = (const uint8_t *)m->codes + codes_at(m->fmt, m->cols, row);
	const uint16_t *scales = m->scales;

	if (m->fmt.type >= W_F16) {
		ggml_row_plain(m->fmt.type, codes, dst, (size_t)m->cols);
		return;
	}
	if (m->fmt.group)
		scales += scales_at(m->fmt, m->cols, row);
	for (int i = 0; i < m->cols; i++) {
		switch (m->fmt.type) {
		case W_F32:
			dst[i] = ((const float *)(const void *)codes)[i];
			break;
		case W_BF16:
			dst[i] = bf16_to_float(((const uint16_t *)(const void *)codes)[i]);
			break;
		case W_Q8:
			dst[i] = half_to_float(scales[(size_t)(i / m->fmt.group) * WBLOCK]) *
				 (float)code_q8(codes, i);
			break;
		case W_Q4:
			dst[i] = half_to_float(scales[(size_t)(i / m->fmt.group) * WBLOCK]) *
				 (float)code_q4(codes, i);
			break;
		default:
			break;
		}
	}
}
