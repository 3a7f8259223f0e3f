/* SPDX-License-Identifier: Apache-2.0
 *
 * The inner loops (kernel.h), compiled once per instruction set with
 * -DKERNEL_ISA=NAME (the names are in kernel.c).
 *
 * Plain C with vector types as wide as the instruction set's registers; nothing here names an
 * instruction. LANES sums are kept in SUMS vectors: enough of them in flight to hide the latency of
 * an add, and the same pattern of additions whatever the width.
 */
#include <string.h>

#include "engine/ggml.h"
#include "engine/kernel.h"

#if defined(__AVX512F__)
#define VEC  16
#define TILE 4 /* vectors of x against one w: TILE * SUMS sums must fit the registers */
#elif defined(__AVX2__)
#define VEC  8
#define TILE 2
#else
#define VEC  4
#define TILE 1
#endif
#define LANES KERNEL_LANES
#define SUMS  (LANES / VEC)

#define PASTE_(a, b) a##b
#define PASTE(a, b)  PASTE_(a, b)
#define TEXT_(a)     #a
#define TEXT(a)      TEXT_(a)
#define TABLE        PASTE(kernel_, KERNEL_ISA)
#define GGML_ROW     PASTE(ggml_row_, KERNEL_ISA)

typedef float vec __attribute__((vector_size(VEC * sizeof(float))));

static inline vec load(const float *p)
{
	vec v;

	memcpy(&v, p, sizeof(v));
	return v;
}

typedef float vec4 __attribute__((vector_size(4 * sizeof(float))));

/* Halves added to halves until one is left: the fixed order that kernel.h promises. */
static inline __attribute__((always_inline)) float add_lanes(const vec *sum)
{
	vec v[SUMS];
	vec4 q[VEC / 4];

	for (int i = 0; i < SUMS; i++)
		v[i] = sum[i];
	for (int half = SUMS / 2; half; half /= 2)
		for (int i = 0; i < half; i++)
			v[i] += v[i + half];
	memcpy(q, v, sizeof(q));
	for (int half = VEC / 8; half; half /= 2)
		for (int i = 0; i < half; i++)
			q[i] += q[i + half];
	return (q[0][0] + q[0][2]) + (q[0][1] + q[0][3]);
}

/* tile dots of w with x, x + stride, ...: the one loop that all sums of products go through. */
static inline __attribute__((always_inline)) void dot_tile(const float *w, const float *x,
							   size_t stride, int tile, int n,
							   float *out, size_t out_stride)
{
	vec sum[TILE][SUMS];
	int i = 0;

	for (int t = 0; t < tile; t++)
		for (int k = 0; k < SUMS; k++)
			sum[t][k] = (vec){ 0 };
	for (; i + LANES <= n; i += LANES)
		for (int k = 0; k < SUMS; k++) {
			vec wk = load(w + i + k * VEC);
			for (int t = 0; t < tile; t++)
				sum[t][k] += wk * load(x + (size_t)t * stride + i + k * VEC);
		}
	if (i < n) { /* the rest, filled up with zeros, which add nothing */
		float rest_w[LANES] = { 0 }, rest_x[LANES] = { 0 };
		memcpy(rest_w, w + i, (size_t)(n - i) * sizeof(float));
		for (int t = 0; t < tile; t++) {
			memcpy(rest_x, x + (size_t)t * stride + i, (size_t)(n - i) * sizeof(float));
			for (int k = 0; k < SUMS; k++)
				sum[t][k] += load(rest_w + k * VEC) * load(rest_x + k * VEC);
		}
	}
	for (int t = 0; t < tile; t++)
		out[(size_t)t * out_stride] = add_lanes(sum[t]);
}

static float dot(const float *a, const float *b, int n)
{
	float out;

	dot_tile(a, b, 0, 1, n, &out, 0);
	return out;
}

static void dots(const float *w, const float *x, size_t x_stride, int count, int n, float *out,
		 size_t out_stride)
{
	int t = 0;

	for (; t + TILE <= count; t += TILE)
		dot_tile(w, x + (size_t)t * x_stride, x_stride, TILE, n,
			 out + (size_t)t * out_stride, out_stride);
	for (; t < count; t++)
		dot_tile(w, x + (size_t)t * x_stride, x_stride, 1, n, out + (size_t)t * out_stride,
			 out_stride);
}

static void axpy(float *restrict y, float a, const float *restrict x, int n)
{
	for (int i = 0; i < n; i++)
		y[i] += a * x[i];
}

static float dot_bf16(const float *a, const uint16_t *b, int n)
{
	vec sum[SUMS] = { 0 };

	for (int i = 0; i < n; i += LANES) {
		int m = n - i < LANES ? n - i : LANES;
		float fa[LANES] = { 0 }, fb[LANES] = { 0 };
		if (m == LANES) {
			memcpy(fa, a + i, sizeof(fa));
			for (int j = 0; j < LANES; j++)
				fb[j] = bf16_to_float(b[i + j]);
		} else {
			memcpy(fa, a + i, (size_t)m * sizeof(float));
			for (int j = 0; j < m; j++)
				fb[j] = bf16_to_float(b[i + j]);
		}
		for (int k = 0; k < SUMS; k++)
			sum[k] += load(fa + k * VEC) * load(fb + k * VEC);
	}
	return add_lanes(sum);
}

static void axpy_bf16(float *restrict y, float a, const uint16_t *restrict x, int n)
{
	for (int i = 0; i < n; i++)
		y[i] += a * bf16_to_float(x[i]);
}

/* half_to_float() without branches, so that a row of scales costs little. */
static inline float scale_of(uint16_t h)
{
	union {
		uint32_t u;
		float f;
	} x = { .u = (uint32_t)(h & 0x7fff) << 13 };

	x.f *= 0x1p112f; /* moves the exponent's bias; exact, subnormals too */
	if ((h & 0x7c00) == 0x7c00)
		x.u |= 0x7f800000;
	x.u |= (uint32_t)(h & 0x8000) << 16;
	return x.f;
}

/* One group of `rows` rows of a block, codes and scales being those of the first of them. Four
 * bytes of a row lie together, the next four WBLOCK * 4 further on. */
static inline __attribute__((always_inline)) void group_q8(const uint8_t *codes, float scale, int g,
							   float *restrict dst)
{
	for (int i = 0; i < g; i += 4, codes += (size_t)WBLOCK * 4)
		for (int j = 0; j < 4; j++)
			dst[i + j] = scale * (float)(int8_t)codes[j];
}

static inline __attribute__((always_inline)) void group_q4(const uint8_t *codes, float scale, int g,
							   float *restrict dst)
{
	for (int i = 0; i < g; i += 8, codes += (size_t)WBLOCK * 4)
		for (int j = 0; j < 4; j++) {
			dst[i + j] = scale * (float)((codes[j] & 15) - 8);
			dst[i + 4 + j] = scale * (float)((codes[j] >> 4) - 8);
		}
}

static inline __attribute__((always_inline)) void
groups(enum wtype type, int g, const struct wmat *m, int row, int rows, float *dst, size_t ld)
{
	size_t step = (size_t)WBLOCK * (size_t)g / (type == W_Q8 ? 1 : 2);
	size_t n = (size_t)wfmt_groups(m->fmt, m->cols), block = (size_t)(row / WBLOCK);
	const uint8_t *codes = (const uint8_t *)m->codes + block * n * step + row % WBLOCK * 4;
	const uint16_t *scales = m->scales + block * n * WBLOCK + row % WBLOCK;

	for (int at = 0; at < m->cols; at += g, codes += step, scales += WBLOCK)
		for (int r = 0; r < rows; r++) {
			float last[128], *place = dst + (size_t)r * ld + at;
			float *to = m->cols - at < g ? last : place;
			if (type == W_Q8)
				group_q8(codes + (size_t)r * 4, scale_of(scales[r]), g, to);
			else
				group_q4(codes + (size_t)r * 4, scale_of(scales[r]), g, to);
			if (to == last)
				memcpy(place, last, (size_t)(m->cols - at) * sizeof(float));
		}
}

/* Rows of one block. One loop per format and group size, so that its bounds are constants. */
static void dequant_groups(const struct wmat *m, int row, int rows, float *dst, size_t ld)
{
	switch ((int)m->fmt.type * 1000 + m->fmt.group) {
#define CASE(type, g)                                                                              \
	case type * 1000 + (g):                                                                    \
		groups(type, g, m, row, rows, dst, ld);                                            \
		break
		CASE(W_Q8, 32);
		CASE(W_Q8, 64);
		CASE(W_Q8, 128);
		CASE(W_Q4, 32);
		CASE(W_Q4, 64);
		CASE(W_Q4, 128);
	}
}

ggml_row GGML_ROW;

static void dequant(const struct wmat *m, int row, int rows, float *dst, size_t ld)
{
	const uint16_t *wide = m->codes;

	for (int n; m->fmt.group && rows; row += n, rows -= n, dst += (size_t)n * ld) {
		n = WBLOCK - row % WBLOCK < rows ? WBLOCK - row % WBLOCK : rows;
		dequant_groups(m, row, n, dst, ld);
	}
	for (; rows; row++, rows--, dst += ld) {
		size_t at = (size_t)row * (size_t)m->cols;
		if (m->fmt.type >= W_F16)
			GGML_ROW(m->fmt.type,
				 (const uint8_t *)m->codes +
					 (size_t)row * wfmt_row_bytes(m->fmt, m->cols),
				 dst, (size_t)m->cols);
		else if (m->fmt.type == W_F32)
			memcpy(dst, (const float *)m->codes + at, (size_t)m->cols * sizeof(float));
		else
			for (int i = 0; i < m->cols; i++)
				dst[i] = bf16_to_float(wide[at + (size_t)i]);
	}
}

void PASTE(kernel_quantise_, KERNEL_ISA)(const float *x, size_t ldx, struct acts *a);
void PASTE(kernel_multiply_, KERNEL_ISA)(const struct wmat *m, int block, const struct acts *a,
					 float *y, size_t ldy);
void PASTE(kernel_absorb_, KERNEL_ISA)(const struct wmat *m, int first, int rows, const float *q,
				       size_t ldq, int n, float *out, size_t ldo);

extern const struct kernel_table TABLE;
const struct kernel_table TABLE = {
	.isa = TEXT(KERNEL_ISA),
	.dequant = dequant,
	.dot = dot,
	.dots = dots,
	.axpy = axpy,
	.dot_bf16 = dot_bf16,
	.axpy_bf16 = axpy_bf16,
	.quantise = PASTE(kernel_quantise_, KERNEL_ISA),
	.absorb = PASTE(kernel_absorb_, KERNEL_ISA),
	.multiply = PASTE(kernel_multiply_, KERNEL_ISA),
};
