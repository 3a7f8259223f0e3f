/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with 8-bit activations: in every instruction set that this processor has, the bits of
 * the definition in kernel_int8.c, written down here once more as plainly as can be.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/compute.h"

static const int widths[] = { 1,  2,  3,   4,   7,   8,   9,   31,  32,  33,
			      63, 64, 100, 127, 128, 129, 200, 257, 576, 1000 };
#define WIDTHS (sizeof(widths) / sizeof(widths[0]))
#define MOST   1000
#define ROWS   35 /* the last block has 3 */

static const struct wfmt formats[] = { { W_Q8, 32 }, { W_Q8, 64 }, { W_Q8, 128 },
				       { W_Q4, 32 }, { W_Q4, 64 }, { W_Q4, 128 } };
#define FORMATS (sizeof(formats) / sizeof(formats[0]))

static uint64_t seed = 1;

static float random_float(void)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (float)(int32_t)(seed >> 32) * 0x1p-31f;
}

/* What matrices and activations are made of. */
enum contents {
	ORDINARY,
	LARGEST, /* every code as far from 0 as it goes, all products of one sign */
	ODD      /* scales that are 0, tiny, huge, infinite, no number; activations likewise */
};

static const float odd_float[] = { 0, -0.0f, 1e-40f, -1e-31f, 1e-30f, 3e38f, -3e38f };

static void fill(float *x, int n, enum contents what)
{
	for (int i = 0; i < n; i++) {
		x[i] = what == LARGEST ? 5 : random_float();
		if (what == ODD && i / 64 % 2)
			x[i] = odd_float[i / 128 % 7] * (random_float() > 0 ? 1 : 0.3f);
	}
	if (what != ODD)
		return;
	for (int i = 300; i < n; i += 1700)
		x[i] = NAN;
	for (int i = 700; i < n; i += 1700)
		x[i] = -INFINITY;
}

static void *matrix(struct wmat *m, struct wfmt f, int rows, int cols, enum contents what)
{
	static const uint16_t odd[] = { 0x0000, 0x8000, 0x0001, 0x83ff, 0x7bff, 0x7c00, 0x7e01 };
	size_t bytes = wfmt_bytes(f, rows, cols), at = wfmt_scales_offset(f, rows, cols);
	uint8_t *base = aligned_alloc(64, bytes);

	assert_non_null(base);
	for (size_t i = 0; i < at; i++)
		base[i] = (uint8_t)(int)(random_float() * 127 + 128);
	if (what == LARGEST)
		memset(base, f.type == W_Q8 ? 0x80 : 0xff, at);
	for (size_t i = at; i < bytes; i += 2) {
		uint16_t s = float_to_half(random_float());
		if (what == ODD && i % 3 == 0)
			s = odd[i / 6 % 7];
		memcpy(base + i, &s, sizeof(s));
	}
	assert_int_equal(wmat_bind(m, f, rows, cols, base, bytes), 0);
	return base;
}

static int code_at(const struct wmat *m, int row, int col)
{
	size_t stored = (size_t)wfmt_groups(m->fmt, m->cols) * (size_t)m->fmt.group;
	int wide = m->fmt.type == W_Q8 ? 4 : 8;
	const uint8_t *block = (const uint8_t *)m->codes +
			       (size_t)(row / 16) * 16 * stored / (m->fmt.type == W_Q8 ? 1 : 2);
	uint8_t b = block[col / wide * 64 + row % 16 * 4 + col % 4];

	if (m->fmt.type == W_Q8)
		return (int8_t)b;
	return (col % 8 < 4 ? b & 15 : b >> 4) - 8;
}

static float scale_at(const struct wmat *m, int row, int g)
{
	return half_to_float(
		m->scales[(row / 16 * wfmt_groups(m->fmt, m->cols) + g) * 16 + row % 16]);
}

/* One group of activations: 127 times x over the largest, rounded to the nearest integer. */
static float quantise(const float *x, int n, int *codes)
{
	float max = 0;

	for (int i = 0; i < n; i++) {
		if (!isfinite(x[i]))
			max = NAN;
		if (fabsf(x[i]) > max)
			max = fabsf(x[i]);
	}
	if (isnan(max) || max < 0x1p-100f) {
		memset(codes, 0, (size_t)n * sizeof(*codes));
		return isnan(max) ? NAN : 0;
	}
	float inv = 127 / max;
	for (int i = 0; i < n; i++)
		codes[i] = (int)rintf(x[i] * inv);
	return max / 127;
}

static float product(const struct wmat *m, int row, const float *x)
{
	float y = 0;
	int code[128];

	for (int g = 0; g < wfmt_groups(m->fmt, m->cols); g++) {
		int first = g * m->fmt.group, sum = 0;
		int n = m->cols - first < m->fmt.group ? m->cols - first : m->fmt.group;
		float scale = quantise(x + first, n, code);
		for (int i = 0; i < n; i++)
			sum += code_at(m, row, first + i) * code[i];
		y = fmaf((float)sum * scale_at(m, row, g), scale, y);
	}
	return y;
}

/* Bits equal, but any NaN equals any other: hardware chooses among them. */
static void assert_same(float a, float b)
{
	if (!isnan(a) || !isnan(b))
		assert_memory_equal(&a, &b, sizeof(a));
}

#define TILES 3
#define ACTS  (TILES * ACTS_ROWS)
#define LDY   20

/* As many tiles as count rows of x are. */
static int quantise_tiles(const struct kernel_table *k, const struct wmat *m, const float *x,
			  int count, struct acts *a)
{
	static _Alignas(64) char room[TILES][1 << 16];
	int tiles = 0;

	for (int first = 0; first < count; first += ACTS_ROWS, tiles++) {
		int n = count - first < ACTS_ROWS ? count - first : ACTS_ROWS;
		assert_true(acts_bytes(n, m->cols) < sizeof(room[0]));
		memset(room[tiles], 0x55, sizeof(room[0]));
		acts_place(&a[tiles], n, m->cols, m->fmt.group, room[tiles]);
		k->quantise(x + (size_t)first * MOST, MOST, &a[tiles]);
		assert_int_equal(room[tiles][acts_bytes(n, m->cols)],
				 0x55); /* not a byte too far */
	}
	return tiles;
}

/* count rows of x times all blocks of m, against want[row of x][row of m]. */
static void check(const struct kernel_table *k, const struct wmat *m, const float *x, int count,
		  float (*want)[ROWS])
{
	static float y[ACTS * LDY];
	struct acts a[TILES];
	int tiles = quantise_tiles(k, m, x, count, a);

	for (int block = 0; block * 16 < ROWS; block++) {
		for (int i = 0; i < ACTS * LDY; i++)
			y[i] = 42;
		k->multiply(m, block, a, tiles, y, LDY);
		for (int t = 0; t < ACTS; t++)
			for (int r = 0; r < LDY; r++) {
				int row = block * 16 + r;
				if (t >= count || r >= 16) /* not a float too far */
					assert_true(y[t * LDY + r] == 42);
				else if (row < ROWS)
					assert_same(y[t * LDY + r], want[t][row]);
			}
	}
}

static void every_kernel_gives_the_bits_of_the_definition(void **state)
{
	static const int several[] = { ACTS_ROWS + 1, 2 * ACTS_ROWS, 2 * ACTS_ROWS + 11, ACTS };
	static float x[ACTS * MOST], want[ACTS][ROWS];

	(void)state;
	for (enum contents what = ORDINARY; what <= ODD; what++)
		for (size_t f = 0; f < FORMATS; f++)
			for (size_t w = 0; w < WIDTHS; w++) {
				struct wmat m;
				void *base = matrix(&m, formats[f], ROWS, widths[w], what);
				fill(x, ACTS * MOST, what);
				for (int t = 0; t < ACTS; t++)
					for (int r = 0; r < ROWS; r++)
						want[t][r] = product(&m, r, x + t * MOST);
				for (const struct kernel_table *const *k = kernel_tables(); *k;
				     k++) {
					for (int count = 1; count <= ACTS_ROWS; count++)
						check(*k, &m, x, count, want);
					for (size_t i = 0; i < sizeof(several) / sizeof(*several);
					     i++)
						check(*k, &m, x, several[i], want);
				}
				free(base);
			}
}

static void activations_are_quantised_as_defined(void **state)
{
	static float x[3 * MOST];
	static _Alignas(64) char room[1 << 14];
	int code[128];
	struct acts a;

	(void)state;
	for (const struct kernel_table *const *k = kernel_tables(); *k; k++)
		for (int group = 32; group <= 128; group *= 2)
			for (size_t w = 0; w < WIDTHS; w++) {
				fill(x, 3 * MOST, w % 2 ? ORDINARY : ODD);
				acts_place(&a, 3, widths[w], group, room);
				(*k)->quantise(x, MOST, &a);
				for (int i = 0; i < 3 * a.groups; i++) {
					int g = i / 3, t = i % 3, sum = 0;
					int n = widths[w] - g * group;
					n = n < group ? n : group;
					float s = quantise(x + t * MOST + g * group, n, code);
					for (int j = 0; j < group; j++) {
						int c = j < n ? code[j] : 0;
						assert_int_equal(a.codes[i * group + j], c);
						sum += c;
					}
					assert_same(a.scale[i], s);
					assert_int_equal(a.bias[i], -8 * sum);
				}
			}
}

#define X 37

/* Through matmul() and matmul_rows(), with any number of threads, however the work is split. */
static void products_of_any_split_are_the_same(void **state)
{
	static float x[X * MOST], y[X * ROWS], want[X][ROWS];
	const int threads[] = { 1, 2, 5 };

	(void)state;
	fill(x, X * MOST, ORDINARY);
	for (size_t f = 0; f < FORMATS; f++)
		for (size_t n = 0; n < sizeof(threads) / sizeof(threads[0]); n++) {
			const int cols = f % 2 ? 1000 : 257;
			struct compute c;
			struct wmat m;
			void *base = matrix(&m, formats[f], ROWS, cols, ORDINARY);
			assert_int_equal(compute_init(&c, threads[n], cols, NULL), 0);
			for (int t = 0; t < X; t++)
				for (int r = 0; r < ROWS; r++)
					want[t][r] = product(&m, r, x + t * MOST);
			for (int count = 1; count <= X; count += 9) {
				memset(y, 0, sizeof(y));
				matmul(&c, &m, x, MOST, count, y, ROWS);
				assert_memory_equal(y, want, (size_t)count * ROWS * sizeof(float));
			}
			for (int first = 0; first < ROWS; first += 5)
				for (int rows = 1; rows <= ROWS - first; rows += 6) {
					memset(y, 0, sizeof(y));
					matmul_rows(&c, 0, &m, first, rows, x, MOST, X, y, ROWS);
					for (int t = 0; t < X; t++) {
						assert_memory_equal(y + t * ROWS, want[t] + first,
								    (size_t)rows * sizeof(float));
						assert_true(y[t * ROWS + rows] == 0 ||
							    rows == ROWS);
					}
				}
			compute_free(&c);
			free(base);
		}
}

/* More activation rows than are quantised at once. */
static void a_long_prompt_is_the_same_as_row_by_row(void **state)
{
	enum { LONG = 300 };
	static float x[LONG * 64], y[LONG * ROWS];
	struct compute c;
	struct wmat m;
	void *base = matrix(&m, (struct wfmt){ W_Q4, 32 }, ROWS, 64, ORDINARY);

	(void)state;
	fill(x, LONG * 64, ORDINARY);
	assert_int_equal(compute_init(&c, 2, 64, NULL), 0);
	matmul(&c, &m, x, 64, LONG, y, ROWS);
	for (int t = 0; t < LONG; t++)
		for (int r = 0; r < ROWS; r++)
			assert_same(y[t * ROWS + r], product(&m, r, x + t * 64));
	compute_free(&c);
	free(base);
}

/* Half a step of the activations' grid is all that a product may be off by, plus rounding. */
static void products_are_near_those_of_float_activations(void **state)
{
	static float x[MOST], y[ROWS], exact[ROWS], row[MOST];

	(void)state;
	for (size_t f = 0; f < FORMATS; f++) {
		struct compute c;
		struct wmat m;
		void *base = matrix(&m, formats[f], ROWS, MOST, ORDINARY);
		fill(x, MOST, ORDINARY);
		assert_int_equal(compute_init(&c, 1, MOST, NULL), 0);
		matmul(&c, &m, x, MOST, 1, y, ROWS);
		c.float_activations = true;
		matmul(&c, &m, x, MOST, 1, exact, ROWS);
		for (int r = 0; r < ROWS; r++) {
			double may = 0, size = 0;
			dequant_row(&m, r, row);
			for (int i = 0; i < MOST; i++) {
				may += fabs((double)row[i]) * 0.5 / 127; /* |x| is at most 1 */
				size += fabs((double)row[i] * (double)x[i]);
			}
			assert_true(fabs((double)y[r] - (double)exact[r]) <= may + 1e-5 * size);
			assert_true(y[r] != exact[r]);
		}
		compute_free(&c);
		free(base);
	}
}

/* Column c: four sums of rows with equal place mod 4, of 256 rows at a time. */
static float absorbed(const struct wmat *m, int first, int rows, const float *q, int c)
{
	float out = 0;

	for (int b = first / 16 * 16; b < first + rows; b += 256) {
		float s[4] = { 0 };
		for (int r = b; r < b + 256 && r < (first + rows + 15) / 16 * 16; r++) {
			float f = 0;
			if (r >= first && r < first + rows)
				f = q[r - first] * scale_at(m, r, c / m->fmt.group);
			volatile float y = (float)code_at(m, r, c) * f; /* never fused */
			s[r % 4] += y;
		}
		out += (s[0] + s[2]) + (s[1] + s[3]);
	}
	return out;
}

static void transposed_products_too(void **state)
{
	enum { MANY = 19 };
	static float q[MANY * 600], out[MANY * (MOST + 1)];
	static const int columns[] = { 1, 15, 16, 17, 64, 100, 128, 257 };

	(void)state;
	for (size_t f = 0; f < FORMATS; f++)
		for (size_t w = 0; w < sizeof(columns) / sizeof(columns[0]); w++) {
			const int cols = columns[w], ld = cols + 1, all = w == 3 ? 600 : ROWS;
			struct wmat m;
			void *base = matrix(&m, formats[f], all, cols, ORDINARY);
			fill(q, MANY * 600, ORDINARY);
			for (const struct kernel_table *const *k = kernel_tables(); *k; k++)
				for (int first = 0; first < 20; first += 9)
					for (int n = 1; n < MANY; n += 4) {
						int rows = n % 8 == 1 ? all - first : 7;
						for (int i = 0; i < MANY * ld; i++)
							out[i] = 42;
						(*k)->absorb(&m, first, rows, q, 600, n, out,
							     (size_t)ld);
						for (int t = 0; t < n; t++)
							for (int c = 0; c < cols; c++)
								assert_same(
									out[t * ld + c],
									absorbed(&m, first, rows,
										 q + t * 600, c));
						for (int t = 0; t < MANY; t++) /* not too far */
							assert_true(
								out[t * ld + (t < n ? cols : 0)] ==
								42);
					}
			free(base);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(activations_are_quantised_as_defined),
		cmocka_unit_test(every_kernel_gives_the_bits_of_the_definition),
		cmocka_unit_test(products_of_any_split_are_the_same),
		cmocka_unit_test(a_long_prompt_is_the_same_as_row_by_row),
		cmocka_unit_test(transposed_products_too),
		cmocka_unit_test(products_are_near_those_of_float_activations),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
