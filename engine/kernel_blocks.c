/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of GGUF's block formats (ggml.h) with 8-bit activations, compiled once per instruction
 * set with -DKERNEL_ISA=NAME; lanes of that set: kernel_lanes.h.
 *
 * The blocks of 16 rows are unpacked 256 columns at a time (kernel_unpack.h), and all activation rows are
 * multiplied with these while they lie in the nearest cache; a single one with codes that are still in
 * registers. Activations are quantised in groups of 32, as for q8 and q4 (kernel_int8.c), where more is
 * said on what that costs.
 *
 *	y = 0, then for each group of 32 columns in ascending order, each line rounded as it says:
 *	y = fma(round(sum(codes * x codes) * scale), x scale, y)     once, or of each 16 columns
 *	y = fma(min, round(x scale * sum(x codes)), y)               if the format has minima, behind each of these
 *
 * Codes are signed, or not: then the format's offset, which should be taken off each, is taken off at
 * once, as so many times the sum of the activations' codes. Either way the sums of integers are exact.
 * One order for all, and integers in between: a row alone or among others, and any instruction set,
 * gives the same bits. The file is compiled without contraction of floating-point expressions; fused
 * multiply-adds are written out.
 */
#include "engine/kernel_unpack_low.h"

#include "engine/kernel.h"

#define PASTE_(a, b) a##b
#define PASTE(a, b)  PASTE_(a, b)
#define MULTIPLY     PASTE(kernel_blocks_, KERNEL_ISA)

/* Where the sums of integers begin and what minima are multiplied with, for all groups of a chunk and
 * all activation rows, [group][row] as in struct acts. */
struct begin {
	int32_t sum[2][GROUPS * ACTS_ROWS]; /* of a group, or of its halves */
	float low[2][GROUPS * ACTS_ROWS];
};

INLINE void begin_chunk(struct shape s, int offset, const struct acts *a, int first, int groups,
			struct begin *b)
{
	const size_t at = (size_t)first * (size_t)a->rows;
	const int n = groups * a->rows;
	const int32_t *bias = a->bias + at, *half = a->half + at; /* both are -8 times the sum */

	for (int i = 0; i < n; i++) {
		int32_t all = bias[i] / 8 * offset, one = s.fine ? half[i] / 8 * offset : all;
		b->sum[0][i] = one;
		b->sum[1][i] = all - one;
	}
	for (int i = 0; i < n && s.has_min; i++) {
		float scale = a->scale[at + (size_t)i];
		b->low[0][i] = scale * ((float)(s.fine ? half[i] : bias[i]) * -0.125f);
		b->low[1][i] = s.fine ? scale * ((float)(bias[i] - half[i]) * -0.125f) : 0;
	}
}

/* 16 columns: sums of `tile` rows of x. */
INLINE void add_columns(struct shape s, const uint8_t *w, const int8_t *x, int tile,
			struct ints *sums)
{
	struct codes c[4];

	for (int k = 0; k < 4; k++)
		c[k] = load_codes(w + 64 * k);
	for (int t = 0; t < tile; t++)
		sums[t] = times_row(s, c, x + (size_t)t * GROUP, sums[t]);
}

/* The chunk's groups, the first of which is number `first` of the row, times rows row .. row + tile - 1
 * of a, added to rows of y, which is row 0's. */
INLINE void add_tile(struct shape s, const struct unpacked *u, const struct begin *b,
		     const struct acts *a, int first, int groups, int row, int tile, float *y,
		     size_t ldy)
{
	const size_t n = (size_t)a->rows, from = (size_t)first * n;
	struct floats out[TILE];
	struct ints sums[TILE];
	size_t at = (size_t)row;

	for (int t = 0; t < tile; t++)
		out[t] = load_floats(y + (size_t)(row + t) * ldy);
	for (int g = 0; g < groups; g++, at += n) {
		const uint8_t *w = u->codes + g * GROUP * WBLOCK;
		const int8_t *x = a->codes + (from + at) * GROUP;
		const float *x_scale = a->scale + from + at;

		for (int h = 0; h < 2; h++) {
			const int part = s.fine ? 2 * g + h : g;
			for (int t = 0; t < tile && (s.fine || h == 0); t++)
				/* Those of all groups and rows have been filled in.
				 * NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage) */
				sums[t] = all_ints(b->sum[h][at + (size_t)t]);
			add_columns(s, w + h * 16 * WBLOCK, x + 16 * h, tile, sums);
			struct floats scale = load_floats(u->scale[part]);
			for (int t = 0; t < tile && (s.fine || h == 1); t++)
				out[t] = add_group(out[t], sums[t], scale, x_scale[t]);
			for (int t = 0; t < tile && s.has_min && (s.fine || h == 1); t++)
				out[t] = add_scaled(out[t], load_floats(u->min[part]),
						    b->low[s.fine ? h : 0][at + (size_t)t]);
		}
	}
	for (int t = 0; t < tile; t++)
		store_floats(y + (size_t)(row + t) * ldy, out[t]);
}

#ifdef __AMX_INT8__
#include "engine/kernel_tiles.h"
#endif

/* last: it is the last of the tiles. */
INLINE void add_chunk(struct shape s, int offset, const struct unpacked *u, const struct acts *a,
		      bool last, int first, int groups, float *y, size_t ldy)
{
	struct begin b;
	int t = 0;

	begin_chunk(s, offset, a, first, groups, &b);
#ifdef __AMX_INT8__
	if (a->rows >= KERNEL_AMX_FEW && !s.fine) {
		add_by_tiles(s, u, &b, a, last, first, groups, y, ldy);
		return;
	}
#endif
	(void)last;
	for (; t + TILE <= a->rows; t += TILE)
		add_tile(s, u, &b, a, first, groups, t, TILE, y, ldy);
	for (; TILE > 4 && t + 4 <= a->rows; t += 4)
		add_tile(s, u, &b, a, first, groups, t, TILE > 4 ? 4 : 1, y, ldy);
	for (; TILE > 2 && t + 2 <= a->rows; t += 2)
		add_tile(s, u, &b, a, first, groups, t, TILE > 2 ? 2 : 1, y, ldy);
	for (; t < a->rows; t++)
		add_tile(s, u, &b, a, first, groups, t, 1, y, ldy);
}

/* What a chunk's sums with the only activation row add to y. */
INLINE void add_one_row(struct shape s, const struct unpacked *u, const struct begin *b,
			const struct acts *a, int first, int groups, float *y)
{
	struct floats out = load_floats(y);

	for (int g = 0; g < groups; g++) {
		const float x_scale = a->scale[first + g];
		for (int h = 0; h < (s.fine ? 2 : 1); h++) {
			const int part = s.fine ? 2 * g + h : g;
			struct ints sum = u->sums[2 * g + h];
			if (!s.fine)
				sum = add_ints(sum, u->sums[2 * g + 1]);
			out = add_group(out, sum, load_floats(u->scale[part]), x_scale);
			if (s.has_min)
				out = add_scaled(out, load_floats(u->min[part]), b->low[h][g]);
		}
	}
	store_floats(y, out);
}

/* What a shape does with its formats' codes: one function a shape, not one a format. */
struct steps {
	void (*begin)(int offset, const struct acts *a, int first, int groups, struct begin *b);
	void (*add_one_row)(const struct unpacked *u, const struct begin *b, const struct acts *a,
			    int first, int groups, float *y);
	void (*add)(int offset, const struct unpacked *u, const struct acts *a, bool last,
		    int first, int groups, float *y, size_t ldy);
};

#define PLAIN         ((struct shape){ .steps = 4 })
#define WITH_MIN      ((struct shape){ .steps = 4, .has_min = true })
#define FINE          ((struct shape){ .steps = 2, .fine = true })
#define FINE_WITH_MIN ((struct shape){ .steps = 4, .fine = true, .has_min = true })
#define SIGNED        ((struct shape){ .steps = 0 })
#define SIGNED_FINE   ((struct shape){ .steps = 0, .fine = true })

#define STEP static __attribute__((noinline)) void

#define SHAPE(shape)                                                                               \
	STEP begin_##shape(int offset, const struct acts *a, int first, int groups,                \
			   struct begin *b)                                                        \
	{                                                                                          \
		begin_chunk(shape, offset, a, first, groups, b);                                   \
	}                                                                                          \
	STEP one_row_##shape(const struct unpacked *u, const struct begin *b,                      \
			     const struct acts *a, int first, int groups, float *y)                \
	{                                                                                          \
		add_one_row(shape, u, b, a, first, groups, y);                                     \
	}                                                                                          \
	STEP add_##shape(int offset, const struct unpacked *u, const struct acts *a, bool last,    \
			 int first, int groups, float *y, size_t ldy)                              \
	{                                                                                          \
		add_chunk(shape, offset, u, a, last, first, groups, y, ldy);                       \
	}                                                                                          \
	static const struct steps steps_##shape = { begin_##shape, one_row_##shape, add_##shape };

/* 16 bits hold 4 * 2 * 31 * 127 and 2 * 2 * 63 * 127. */
SHAPE(PLAIN)
SHAPE(WITH_MIN)
SHAPE(FINE)
SHAPE(FINE_WITH_MIN)
SHAPE(SIGNED)
SHAPE(SIGNED_FINE)

/* A chunk times the only activation row. Codes do not wait in memory between the two halves of the work. */
INLINE void one_row(struct shape s, const struct steps *steps, int offset, unpack_fn *unpack,
		    const uint8_t *from, size_t ld, const struct acts *a, int first, int groups,
		    struct unpacked *u, float *y)
{
	struct begin b;

	steps->begin(offset, a, first, groups, &b);
	u->begin[0] = b.sum[0];
	u->begin[1] = b.sum[1];
	u->x = a->codes + (size_t)first * GROUP;
	s.one_row = true;
	unpack(s, from, ld, groups, u);
	steps->add_one_row(u, &b, a, first, groups, y);
}

/* What dot_q8() adds to the codes. */
#define SIGNED_OFFSET (Q8_BIAS ? 128 : 0)

/* What the last block of a matrix has fewer rows for: zeros. */
#define MOST_BYTES (GROUPS * 34)
struct filled {
	uint8_t rows[WBLOCK][MOST_BYTES];
};

static const uint8_t *fill_up(struct filled *f, const uint8_t *p, size_t ld, int rows, size_t bytes)
{
	for (int r = 0; r < rows; r++)
		memcpy(f->rows[r], p + (size_t)r * ld, bytes);
	return f->rows[0];
}

/* A format whose `elements` columns are a block of `size` bytes. */
INLINE void multiply(const struct wmat *m, int block, const struct acts *a, int tiles, int elements,
		     size_t size, struct shape s, const struct steps *steps, unpack_fn *unpack,
		     int offset, float *y, size_t ldy)
{
	const size_t ld = wfmt_row_bytes(m->fmt, m->cols);
	const uint8_t *p = (const uint8_t *)m->codes + (size_t)block * WBLOCK * ld;
	const int rows = m->rows - block * WBLOCK;
	struct filled filled;
	struct unpacked u;

	if (rows < WBLOCK)
		memset(&filled, 0, sizeof(filled));
	for (int g = 0; g < a->groups; g += GROUPS) {
		int n = a->groups - g < GROUPS ? a->groups - g : GROUPS;
		size_t bytes = (size_t)(n * GROUP / elements) * size;
		size_t at = (size_t)(g * GROUP / elements) * size;
		const uint8_t *from = p + at;
		size_t step = ld;
		if (rows < WBLOCK) {
			from = fill_up(&filled, from, ld, rows, bytes);
			step = MOST_BYTES;
		}
		u.ahead = p + WBLOCK * (ld + at);
		if (tiles == 1 && a->rows == 1) {
			one_row(s, steps, offset, unpack, from, step, a, g, n, &u, y);
			continue;
		}
		unpack(s, from, step, n, &u);
		for (int t = 0; t < tiles; t++)
			steps->add(offset, &u, &a[t], t == tiles - 1, g, n,
				   y + (size_t)(t * ACTS_ROWS) * ldy, ldy);
	}
}

kernel_multiply MULTIPLY;

void MULTIPLY(const struct wmat *m, int block, const struct acts *a, int tiles, float *y,
	      size_t ldy)
{
	const int rows = (tiles - 1) * ACTS_ROWS + a[tiles - 1].rows;

#define FORMAT(type, elements, size, shape, unpack, offset)                                        \
	case type:                                                                                 \
		multiply(m, block, a, tiles, elements, size, shape, &steps_##shape, unpack,        \
			 offset, y, ldy);                                                          \
		break

	for (int t = 0; t < rows; t++)
		memset(y + (size_t)t * ldy, 0, WBLOCK * sizeof(float));
#ifdef __AMX_INT8__
	const bool configured = rows >= KERNEL_AMX_FEW;
	if (configured)
		kernel_amx_configure(a->rows, a[tiles - 1].rows, GROUP);
#endif
	switch (m->fmt.type) {
		FORMAT(W_Q4_0, 32, 18, PLAIN, q4_0, 8);
		FORMAT(W_Q4_1, 32, 20, WITH_MIN, q4_1, 0);
		FORMAT(W_Q5_0, 32, 22, PLAIN, q5_0, 16);
		FORMAT(W_Q5_1, 32, 24, WITH_MIN, q5_1, 0);
		FORMAT(W_Q8_0, 32, 34, SIGNED, q8_0, SIGNED_OFFSET);
		FORMAT(W_IQ4_NL, 32, 18, SIGNED, iq4_nl, SIGNED_OFFSET);
		FORMAT(W_MXFP4, 32, 17, SIGNED, mxfp4, SIGNED_OFFSET);
		FORMAT(W_Q2_K, 256, 84, FINE_WITH_MIN, q2_k, 0);
		FORMAT(W_Q3_K, 256, 110, FINE, q3_k, 4);
		FORMAT(W_Q4_K, 256, 144, WITH_MIN, q4_k, 0);
		FORMAT(W_Q5_K, 256, 176, WITH_MIN, q5_k, 0);
		FORMAT(W_Q6_K, 256, 210, FINE, q6_k, 32);
		FORMAT(W_IQ4_XS, 256, 136, SIGNED, iq4_xs, SIGNED_OFFSET);
		FORMAT(W_IQ1_S, 256, 50, PLAIN, iq1_s, 9);
		FORMAT(W_IQ1_M, 256, 56, FINE, iq1_m, 9);
		FORMAT(W_IQ2_XXS, 256, 66, SIGNED, iq2_xxs, SIGNED_OFFSET);
		FORMAT(W_IQ2_XS, 256, 74, SIGNED_FINE, iq2_xs, SIGNED_OFFSET);
		FORMAT(W_IQ2_S, 256, 82, SIGNED_FINE, iq2_s, SIGNED_OFFSET);
		FORMAT(W_IQ3_XXS, 256, 98, SIGNED, iq3_xxs, SIGNED_OFFSET);
		FORMAT(W_IQ3_S, 256, 110, SIGNED, iq3_s, SIGNED_OFFSET);
		FORMAT(W_TQ1_0, 256, 54, PLAIN, tq1_0, 1);
		FORMAT(W_TQ2_0, 256, 66, PLAIN, tq2_0, 1);
	default:
		break; /* wfmt_acts_group() says that it does not come here */
	}
#ifdef __AMX_INT8__
	if (configured)
		_tile_release();
#endif
}
