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

/* What a block of products keeps in registers: sums of TILE_X * TILE_Y pairs of vectors, as many as
 * leave room for the numbers that are multiplied. */
#if defined(__AVX512F__)
#define VEC    16
#define TILE_X 4
#define TILE_Y 4
#elif defined(__AVX2__)
#define VEC    8
#define TILE_X 3
#define TILE_Y 2
#else
#define VEC    4
#define TILE_X 1
#define TILE_Y 2
#endif
#define LANES KERNEL_LANES
#define SUMS  (LANES / VEC)

#define PASTE_(a, b) a##b
#define PASTE(a, b)  PASTE_(a, b)
#define TEXT_(a)     #a
#define TEXT(a)      TEXT_(a)
#define TABLE        PASTE(kernel_, KERNEL_ISA)
#define INLINE       static inline __attribute__((always_inline))
#define GGML_ROW     PASTE(ggml_row_, KERNEL_ISA)

typedef float vec __attribute__((vector_size(VEC * sizeof(float))));
typedef float vec4 __attribute__((vector_size(4 * sizeof(float))));

INLINE vec load(const float *p)
{
	vec v;

	memcpy(&v, p, sizeof(v));
	return v;
}

INLINE void store(float *p, vec v)
{
	memcpy(p, &v, sizeof(v));
}

/* Halves added to halves until one is left: the fixed order that kernel.h promises. */
INLINE float add_lanes(const vec *sum)
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

/* x and y begin at the lanes to be added; nx and ny rows of each. */
INLINE void add_products(const float *x, size_t ldx, int nx, const float *y, size_t ldy, int ny,
			 vec (*sum)[TILE_Y][SUMS])
{
	for (int k = 0; k < SUMS; k++) {
		vec v[TILE_Y];
		for (int b = 0; b < ny; b++)
			v[b] = load(y + (size_t)b * ldy + k * VEC);
		for (int a = 0; a < nx; a++) {
			vec u = load(x + (size_t)a * ldx + k * VEC);
			for (int b = 0; b < ny; b++)
				sum[a][b][k] += u * v[b];
		}
	}
}

/* nx <= TILE_X rows of x with ny <= TILE_Y rows of y: the one loop that all sums of products go
 * through. */
INLINE void dot_tile(const float *x, size_t ldx, int nx, const float *y, size_t ldy, int ny, int n,
		     float *out, size_t ldo)
{
	vec sum[TILE_X][TILE_Y][SUMS];
	int i = 0;

	for (int a = 0; a < nx; a++)
		for (int b = 0; b < ny; b++)
			for (int k = 0; k < SUMS; k++)
				sum[a][b][k] = (vec){ 0 };
	for (; i + LANES <= n; i += LANES)
		add_products(x + i, ldx, nx, y + i, ldy, ny, sum);
	if (i < n) { /* the rest, filled up with zeros, which add nothing */
		float rest_x[TILE_X][LANES] = { 0 }, rest_y[TILE_Y][LANES] = { 0 };
		for (int a = 0; a < nx; a++)
			memcpy(rest_x[a], x + (size_t)a * ldx + i, (size_t)(n - i) * sizeof(float));
		for (int b = 0; b < ny; b++)
			memcpy(rest_y[b], y + (size_t)b * ldy + i, (size_t)(n - i) * sizeof(float));
		add_products(rest_x[0], LANES, nx, rest_y[0], LANES, ny, sum);
	}
	for (int a = 0; a < nx; a++)
		for (int b = 0; b < ny; b++)
			out[(size_t)a * ldo + (size_t)b] = add_lanes(sum[a][b]);
}

/* All rows of x with ny <= TILE_Y rows of y, which stay in the nearest cache. */
INLINE void dot_column(const float *x, size_t ldx, int nx, const float *y, size_t ldy, int ny,
		       int n, float *out, size_t ldo)
{
	int a = 0;

	for (; a + TILE_X <= nx; a += TILE_X)
		dot_tile(x + (size_t)a * ldx, ldx, TILE_X, y, ldy, ny, n, out + (size_t)a * ldo,
			 ldo);
	for (; a < nx; a++)
		dot_tile(x + (size_t)a * ldx, ldx, 1, y, ldy, ny, n, out + (size_t)a * ldo, ldo);
}

static void dot_block(const float *x, size_t ldx, int nx, const float *y, size_t ldy, int ny, int n,
		      float *out, size_t ldo)
{
	int b = 0;

	for (; b + TILE_Y <= ny; b += TILE_Y)
		dot_column(x, ldx, nx, y + (size_t)b * ldy, ldy, TILE_Y, n, out + b, ldo);
	for (; b < ny; b++)
		dot_column(x, ldx, nx, y + (size_t)b * ldy, ldy, 1, n, out + b, ldo);
}

static float dot(const float *a, const float *b, int n)
{
	float out;

	dot_tile(a, 0, 1, b, 0, 1, n, &out, 0);
	return out;
}

static void axpy(float *restrict y, float a, const float *restrict x, int n)
{
	for (int i = 0; i < n; i++)
		y[i] += a * x[i];
}

#define MIX_X 4 /* rows of sums that a tile of mix_block() holds, MIX_V vectors of each */
#define MIX_V (VEC == 16 ? 4 : 2)

INLINE void mix_tile(const float *p, size_t ldp, int np, const float *y, size_t ldy, int ny,
		     int vectors, float *out, size_t ldo)
{
	vec sum[MIX_X][4];

	for (int a = 0; a < np; a++)
		for (int k = 0; k < vectors; k++)
			sum[a][k] = load(out + (size_t)a * ldo + k * VEC);
	for (int b = 0; b < ny; b++, y += ldy) {
		vec v[4];
		for (int k = 0; k < vectors; k++)
			v[k] = load(y + k * VEC);
		for (int a = 0; a < np; a++)
			for (int k = 0; k < vectors; k++)
				sum[a][k] += p[(size_t)a * ldp + (size_t)b] * v[k];
	}
	for (int a = 0; a < np; a++)
		for (int k = 0; k < vectors; k++)
			store(out + (size_t)a * ldo + k * VEC, sum[a][k]);
}

INLINE void mix_rows(const float *p, size_t ldp, int np, const float *y, size_t ldy, int ny,
		     int vectors, float *out, size_t ldo)
{
	int a = 0;

	for (; a + MIX_X <= np; a += MIX_X)
		mix_tile(p + (size_t)a * ldp, ldp, MIX_X, y, ldy, ny, vectors,
			 out + (size_t)a * ldo, ldo);
	for (; a < np; a++)
		mix_tile(p + (size_t)a * ldp, ldp, 1, y, ldy, ny, vectors, out + (size_t)a * ldo,
			 ldo);
}

static void mix_block(const float *p, size_t ldp, int np, const float *y, size_t ldy, int ny, int n,
		      float *out, size_t ldo)
{
	int c = 0;

	for (; c + MIX_V * VEC <= n; c += MIX_V * VEC)
		mix_rows(p, ldp, np, y + c, ldy, ny, MIX_V, out + c, ldo);
	for (; c + VEC <= n; c += VEC)
		mix_rows(p, ldp, np, y + c, ldy, ny, 1, out + c, ldo);
	for (int a = 0; c < n && a < np; a++)
		for (int b = 0; b < ny; b++)
			axpy(out + (size_t)a * ldo + c, p[(size_t)a * ldp + (size_t)b],
			     y + (size_t)b * ldy + c, n - c);
}

/* One group of `rows` rows of a block, codes and scales being those of the first of them. Four
 * bytes of a row lie together, the next four WBLOCK * 4 further on. */
INLINE void group_q8(const uint8_t *codes, float scale, int g, float *restrict dst)
{
	for (int i = 0; i < g; i += 4, codes += (size_t)WBLOCK * 4)
		for (int j = 0; j < 4; j++)
			dst[i + j] = scale * (float)(int8_t)codes[j];
}

INLINE void group_q4(const uint8_t *codes, float scale, int g, float *restrict dst)
{
	for (int i = 0; i < g; i += 8, codes += (size_t)WBLOCK * 4)
		for (int j = 0; j < 4; j++) {
			dst[i + j] = scale * (float)((codes[j] & 15) - 8);
			dst[i + 4 + j] = scale * (float)((codes[j] >> 4) - 8);
		}
}

INLINE void groups(enum wtype type, int g, const struct wmat *m, int row, int rows, float *dst,
		   size_t ld)
{
	size_t step = (size_t)WBLOCK * (size_t)g / (type == W_Q8 ? 1 : 2);
	size_t n = (size_t)wfmt_groups(m->fmt, m->cols), block = (size_t)(row / WBLOCK);
	const uint8_t *codes = (const uint8_t *)m->codes + block * n * step + row % WBLOCK * 4;
	const uint16_t *scales = m->scales + block * n * WBLOCK + row % WBLOCK;

	for (int at = 0; at < m->cols; at += g, codes += step, scales += WBLOCK)
		for (int r = 0; r < rows; r++) {
			float last[128], *place = dst + (size_t)r * ld + at;
			float *to = m->cols - at < g ? last : place;
			float scale = ggml_half((const uint8_t *)(scales + r));
			if (type == W_Q8)
				group_q8(codes + (size_t)r * 4, scale, g, to);
			else
				group_q4(codes + (size_t)r * 4, scale, g, to);
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

#include "engine/kernel_exp.h"

void PASTE(kernel_quantise_, KERNEL_ISA)(const float *x, size_t ldx, struct acts *a);
kernel_multiply PASTE(kernel_multiply_, KERNEL_ISA);
void PASTE(kernel_absorb_, KERNEL_ISA)(const struct wmat *m, int first, int rows, const float *q,
				       size_t ldq, int n, float *out, size_t ldo);

extern const struct kernel_table TABLE;
const struct kernel_table TABLE = {
	.isa = TEXT(KERNEL_ISA),
	.dequant = dequant,
	.dot = dot,
	.dot_block = dot_block,
	.axpy = axpy,
	.mix_block = mix_block,
	.mix_many = mix_block,
	.swiglu = swiglu,
	.swiglu_clamped = swiglu_clamped,
	.softmax = softmax,
	.softmax_part = softmax_part,
	.quantise = PASTE(kernel_quantise_, KERNEL_ISA),
	.absorb = PASTE(kernel_absorb_, KERNEL_ISA),
	.multiply = PASTE(kernel_multiply_, KERNEL_ISA),
};
