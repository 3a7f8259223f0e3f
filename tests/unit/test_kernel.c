/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of every instruction set that this processor has, against plain C; and the matrix
 * product: whatever the number of threads and of rows, the same bits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/compute.h"

static const int sizes[] = { 1,   2,   3,   31,  32,  33,  63,  64,  65,
			     100, 127, 128, 129, 192, 200, 576, 1000 };
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))
#define MOST  1000

static const struct wfmt formats[] = { { W_F32, 0 },  { W_BF16, 0 }, { W_Q8, 32 }, { W_Q8, 64 },
				       { W_Q8, 128 }, { W_Q4, 32 },  { W_Q4, 64 }, { W_Q4, 128 } };
#define FORMATS (sizeof(formats) / sizeof(formats[0]))

static uint64_t seed = 1;

static float random_float(void)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (float)(int32_t)(seed >> 32) * 0x1p-31f;
}

static void fill(float *x, int n)
{
	for (int i = 0; i < n; i++)
		x[i] = random_float();
}

static int same_bits(const float *a, const float *b, size_t n)
{
	return memcmp(a, b, n * sizeof(*a)) == 0;
}

/* Random codes; scales that are ordinary, tiny, huge, negative, infinite or no number. */
static void *random_matrix(struct wmat *m, struct wfmt f, int rows, int cols)
{
	static const uint16_t odd[] = { 0x0000, 0x8000, 0x0001, 0x83ff, 0x03ff, 0x0400,
					0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e01 };
	size_t bytes = wfmt_bytes(f, rows, cols);
	char *base = aligned_alloc(64, (bytes + 63) / 64 * 64);

	assert_non_null(base);
	for (size_t i = 0; i < bytes; i++)
		base[i] = (char)(int)(random_float() * 128);
	for (size_t i = 0; i + 4 <= bytes && f.type == W_F32; i += 4) {
		float x = random_float();
		memcpy(base + i, &x, 4);
	}
	for (size_t i = 0; i + 2 <= bytes && f.type == W_BF16; i += 2) {
		uint16_t x = float_to_bf16(random_float());
		memcpy(base + i, &x, 2);
	}
	assert_int_equal(wmat_bind(m, f, rows, cols, base, bytes), 0);
	for (int i = 0; f.group && i < (int)wfmt_stored_rows(f, rows) * wfmt_groups(f, cols); i++) {
		uint16_t scale = i % 3 ? float_to_half(random_float()) : odd[i / 3 % 11];
		memcpy((char *)base + wfmt_scales_offset(f, rows, cols) + 2 * (size_t)i, &scale, 2);
	}
	return base;
}

/* Bits equal, but any NaN equals any other: hardware chooses among them. */
static void assert_same_values(const float *a, const float *b, int n)
{
	for (int i = 0; i < n; i++)
		if (!isnan(a[i]) || !isnan(b[i]))
			assert_memory_equal(&a[i], &b[i], sizeof(*a));
}

static void dequant_gives_the_bits_of_plain_c(void **state)
{
	(void)state;
	for (const struct kernel_table *const *k = kernel_tables(); *k; k++)
		for (size_t f = 0; f < FORMATS; f++)
			for (size_t s = 0; s < SIZES; s++) {
				struct wmat m;
				const int rows = 19, ld = sizes[s] + 1;
				static float want[MOST], got[19 * (MOST + 1)];
				void *base = random_matrix(&m, formats[f], rows, sizes[s]);
				for (int first = 0; first < rows; first += 3)
					for (int n = 1; n <= rows - first; n += 4) {
						for (int i = 0; i < rows * ld; i++)
							got[i] = 42;
						(*k)->dequant(&m, first, n, got, (size_t)ld);
						for (int r = 0; r < n; r++) {
							dequant_row(&m, first + r, want);
							assert_same_values(want, got + r * ld,
									   sizes[s]);
							/* not a float too far */
							assert_true(got[r * ld + sizes[s]] == 42);
						}
						assert_true(n == rows || got[n * ld] == 42);
					}
				free(base);
			}
}

static void dot_is_right(void **state)
{
	float a[MOST], b[MOST];

	(void)state;
	for (const struct kernel_table *const *k = kernel_tables(); *k; k++)
		for (size_t s = 0; s < SIZES; s++) {
			double want = 0, size = 0;
			fill(a, sizes[s]);
			fill(b, sizes[s]);
			for (int i = 0; i < sizes[s]; i++) {
				want += (double)a[i] * (double)b[i];
				size += fabs((double)a[i] * (double)b[i]);
			}
			assert_true(fabs((*k)->dot(a, b, sizes[s]) - want) <= 1e-6 * size);
		}
}

#define BLOCK 9 /* more rows than any table's tiles take, and no multiple of them */

static void blocks_give_the_bits_of_dot(void **state)
{
	static float x[BLOCK * (MOST + 3)], y[BLOCK * (MOST + 5)], out[BLOCK * (BLOCK + 1)];

	(void)state;
	for (const struct kernel_table *const *k = kernel_tables(); *k; k++)
		for (size_t s = 0; s < SIZES; s++)
			for (int nx = 0; nx <= BLOCK; nx++)
				for (int ny = 0; ny <= BLOCK; ny++) {
					size_t ldx = (size_t)sizes[s] + 3,
					       ldy = (size_t)sizes[s] + 5;
					fill(x, BLOCK * (int)ldx);
					fill(y, BLOCK * (int)ldy);
					for (int i = 0; i < BLOCK * (BLOCK + 1); i++)
						out[i] = 42;
					(*k)->dot_block(x, ldx, nx, y, ldy, ny, sizes[s], out,
							BLOCK + 1);
					for (int i = 0; i < BLOCK * (BLOCK + 1); i++) {
						int a = i / (BLOCK + 1), b = i % (BLOCK + 1);
						float want = 42; /* nothing beyond the block */
						if (a < nx && b < ny)
							want = (*k)->dot(x + (size_t)a * ldx,
									 y + (size_t)b * ldy,
									 sizes[s]);
						assert_true(same_bits(&want, &out[i], 1));
					}
				}
}

static void axpy_is_right(void **state)
{
	float x[MOST], y[MOST + 1], before[MOST];

	(void)state;
	for (const struct kernel_table *const *k = kernel_tables(); *k; k++)
		for (size_t s = 0; s < SIZES; s++) {
			float a = random_float();
			fill(x, sizes[s]);
			fill(y, sizes[s]);
			memcpy(before, y, sizeof(before));
			y[sizes[s]] = 42;
			(*k)->axpy(y, a, x, sizes[s]);
			for (int i = 0; i < sizes[s]; i++) {
				double want = (double)before[i] + (double)a * (double)x[i];
				assert_true(fabs(y[i] - want) <=
					    1.2e-7 * (fabs(want) + fabs((double)a * (double)x[i])));
			}
			assert_true(y[sizes[s]] == 42);
		}
}

static void blocks_give_the_bits_of_axpy(void **state)
{
	static float p[BLOCK * (BLOCK + 1)], y[BLOCK * (MOST + 5)], out[BLOCK * (MOST + 1)],
		want[BLOCK * (MOST + 1)];

	(void)state;
	for (const struct kernel_table *const *k = kernel_tables(); *k; k++)
		for (size_t s = 0; s < SIZES; s++)
			for (int np = 0; np <= BLOCK; np++)
				for (int ny = 0; ny <= BLOCK; ny += 2) {
					size_t ldy = (size_t)sizes[s] + 5,
					       ldo = (size_t)sizes[s] + 1;
					fill(p, BLOCK * (BLOCK + 1));
					fill(y, BLOCK * (int)ldy);
					fill(out, BLOCK * (int)ldo);
					memcpy(want, out, sizeof(want));
					for (int a = 0; a < np; a++)
						for (int b = 0; b < ny; b++)
							(*k)->axpy(want + (size_t)a * ldo,
								   p[a * (BLOCK + 1) + b],
								   y + (size_t)b * ldy, sizes[s]);
					(*k)->mix_block(p, BLOCK + 1, np, y, ldy, ny, sizes[s], out,
							ldo);
					assert_true(same_bits(want, out, BLOCK * ldo));
				}
}

/* One case of many_rows_mixed_are_right(); the sums begin at 1. */
static void mix_many_is_right(const struct kernel_table *k, int np, int ny, int n)
{
	static float p[40 * 303], y[300 * 208], out[40 * 204], one[204];
	const size_t ldp = (size_t)ny + 3, ldy = (size_t)n + 5, ldo = (size_t)n + 1;

	fill(p, np * (int)ldp);
	fill(y, ny * (int)ldy);
	for (size_t i = 0; i < (size_t)np * ldo; i++)
		out[i] = 1;
	k->mix_many(p, ldp, np, y, ldy, ny, n, out, ldo);
	for (int a = 0; a < np; a++) {
		for (int c = 0; c < n; c++) {
			double sum = 1, most = 1;
			for (int b = 0; b < ny; b++) {
				double d = (double)p[(size_t)a * ldp + (size_t)b] *
					   (double)y[(size_t)b * ldy + (size_t)c];
				sum += d;
				most += fabs(d);
			}
			if (fabs((double)out[(size_t)a * ldo + (size_t)c] - sum) > 0x1p-16 * most)
				fail_msg("%s %d %d %d: %.9g, not %.9g", k->isa, np, ny, n,
					 (double)out[(size_t)a * ldo + (size_t)c], sum);
		}
		assert_true(out[(size_t)a * ldo + (size_t)n] == 1);
		for (int c = 0; c < n; c++)
			one[c] = 1;
		k->mix_many(p + (size_t)a * ldp, ldp, 1, y, ldy, ny, n, one, ldo);
		assert_true(same_bits(out + (size_t)a * ldo, one, (size_t)n));
	}
}

static void many_rows_mixed_are_right(void **state)
{
	static const int rows[] = { 1, 15, 16, 17, 40 }, many[] = { 1, 2, 31, 32, 33, 64, 300 },
			 columns[] = { 1, 15, 16, 17, 32, 33, 48, 64, 203 };

	(void)state;
	for (const struct kernel_table *const *k = kernel_tables(); *k; k++)
		for (size_t a = 0; a < sizeof(rows) / sizeof(*rows); a++)
			for (size_t b = 0; b < sizeof(many) / sizeof(*many); b++)
				for (size_t c = 0; c < sizeof(columns) / sizeof(*columns); c++)
					mix_many_is_right(*k, rows[a], many[b], columns[c]);
}

/* What the C library says in double precision, within 4 units in the last place of a float, or of next
 * to nothing. */
static void assert_close(double want, float got)
{
	if (fabs(got - want) > 4 * 0x1p-24 * fabs(want) + 1e-36)
		fail_msg("%.9g, not %.9g", (double)got, want);
}

static void swiglu_is_right(void **state)
{
	static const float odd[] = { 0.0f,   -0.0f, 87.0f,  -87.0f,  88.5f,     -88.5f, 104.0f,
				     -1e30f, 1e30f, 1e-30f, -1e-30f, 0x1p-140f, 3e38f,  -3e38f };
	float gate[MOST], up[MOST], got[MOST + 1];

	(void)state;
	for (const struct kernel_table *const *k = kernel_tables(); *k; k++)
		for (size_t s = 0; s < SIZES; s++) {
			int n = sizes[s];
			fill(gate, n);
			fill(up, n);
			for (int i = 0; i < n; i++)
				gate[i] = i % 5 ? gate[i] * 30 : odd[i / 5 % 14];
			memcpy(got, gate, sizeof(gate));
			got[n] = 42;
			(*k)->swiglu(got, up, n);
			for (int i = 0; i < n; i++)
				assert_close((double)gate[i] / (1 + exp(-(double)gate[i])) *
						     (double)up[i],
					     got[i]);
			assert_true(got[n] == 42);
			for (int i = 0; i < n; i++) { /* the same wherever a number stands */
				float one = gate[i];
				(*k)->swiglu(&one, up + i, 1);
				assert_true(same_bits(&one, &got[i], 1));
			}
			got[n - 1] = NAN;
			(*k)->swiglu(got, up, n);
			assert_true(isnan(got[n - 1]));
		}
}

static void clamped_swiglu_is_right(void **state)
{
	float gate[MOST], up[MOST], got[MOST + 1];

	(void)state;
	for (const struct kernel_table *const *k = kernel_tables(); *k; k++)
		for (size_t s = 0; s < SIZES; s++) {
			int n = sizes[s];
			for (int i = 0; i < n; i++) {
				gate[i] = random_float() * 12;
				up[i] = random_float() * 12;
			}
			memcpy(got, gate, sizeof(gate));
			got[n] = 42;
			(*k)->swiglu_clamped(got, up, n, 7);
			for (int i = 0; i < n; i++) {
				double g = fmin((double)gate[i], 7), u = fmax(-7, fmin(up[i], 7));
				double want = g / (1 + exp(-1.702 * g)) * (u + 1);
				/* Near u = -1 and with the rounding of 1.702 in a float. */
				assert_true(fabs(got[i] - want) < 1e-6 * (1 + fabs(want)));
			}
			assert_true(got[n] == 42);
			got[n - 1] = NAN;
			(*k)->swiglu_clamped(got, up, n, 7);
			assert_true(isnan(got[n - 1]));
		}
}

static void softmax_is_right(void **state)
{
	float x[MOST], got[MOST + 1];

	(void)state;
	for (const struct kernel_table *const *k = kernel_tables(); *k; k++)
		for (size_t s = 0; s < SIZES; s++) {
			int n = sizes[s];
			double sum = 0, max = -HUGE_VAL;
			fill(x, n);
			for (int i = 0; i < n; i++) {
				x[i] = x[i] * 60 + 1000;
				max = fmax(max, (double)x[i]);
			}
			for (int i = 0; i < n; i++)
				sum += exp((double)x[i] - max);
			memcpy(got, x, sizeof(x));
			got[n] = 42;
			(*k)->softmax(got, n);
			for (int i = 0; i < n; i++)
				assert_close(exp((double)x[i] - max) / sum, got[i]);
			assert_true(got[n] == 42);
			got[n / 2] = NAN;
			(*k)->softmax(got, n);
			assert_true(isnan(got[0]) && isnan(got[n - 1]));
		}
}

/* In parts of seven numbers, the last one shorter: what earlier ones gave is brought to the measure of
 * the largest so far. */
static void softmax_in_parts(void **state)
{
	float x[MOST], got[MOST + 1];

	(void)state;
	for (const struct kernel_table *const *k = kernel_tables(); *k; k++)
		for (size_t s = 0; s < SIZES; s++) {
			int n = sizes[s];
			float max = -INFINITY, shrink;
			double sum = 0, all = 0;
			fill(x, n);
			for (int i = 0; i < n; i++)
				x[i] = x[i] * 60 - 1000 + (float)i;
			memcpy(got, x, sizeof(x));
			got[n] = 42;
			for (int at = 0; at < n; at += 7) {
				double part = (*k)->softmax_part(got + at, n - at < 7 ? n - at : 7,
								 &max, &shrink);
				assert_true(at || shrink == 0);
				for (int i = 0; i < at; i++)
					got[i] *= shrink;
				sum = sum * (double)shrink + part;
			}
			for (int i = 0; i < n; i++) {
				assert_true(x[i] <= max);
				all += exp((double)(x[i] - max));
			}
			assert_close(all, (float)sum);
			for (int i = 0; i < n; i++) { /* rounded once more in each part */
				double want = exp((double)(x[i] - max));
				assert_true(fabs((double)got[i] - want) <= 1e-5 * want + 1e-36);
			}
			assert_true(got[n] == 42);
			got[0] = NAN;
			assert_true(isnan((*k)->softmax_part(got, n, &max, &shrink)));
		}
}

static void best_kernel_is_the_last_of_the_list(void **state)
{
	const struct kernel_table *const *k = kernel_tables();

	(void)state;
	assert_non_null(*k);
	assert_string_equal((*k)->isa, "plain");
	while (k[1])
		k++;
	assert_ptr_equal(*k, kernel());
	print_message("kernel of this processor: %s\n", kernel()->isa);
}

#define ROWS 45
#define X    37

static void matmul_gives_the_same_bits_whatever_the_split(void **state)
{
	static float x[X * 300], one[X * ROWS], y[X * ROWS];
	const int threads[] = { 1, 2, 3, 8 };

	(void)state;
	for (size_t f = 0; f < FORMATS; f++) {
		const int cols = f % 2 ? 300 : 257;
		struct wmat m;
		void *base = random_matrix(&m, formats[f], ROWS, cols);
		uint16_t *scales = (uint16_t *)(uintptr_t)m.scales;
		for (int i = 0; formats[f].group && i < 48 * wfmt_groups(formats[f], cols); i++)
			scales[i] = float_to_half(0.01f + 0.01f * random_float());
		fill(x, X * 300);
		for (size_t n = 0; n < sizeof(threads) / sizeof(threads[0]); n++) {
			struct compute c;
			assert_int_equal(compute_init(&c, threads[n], 300, NULL), 0);
			c.float_activations = true; /* the others: test_kernel_int8.c */
			for (int t = 0; n == 0 && t < X; t++)
				matmul(&c, &m, x + (size_t)t * 300, 300, 1, one + (size_t)t * ROWS,
				       ROWS);
			memset(y, 0, sizeof(y));
			matmul(&c, &m, x, 300, X, y, ROWS);
			assert_true(same_bits(one, y, X * ROWS));
			memset(y, 0, sizeof(y));
			matmul_rows(&c, 0, &m, 0, 11, x, 300, X, y, ROWS);
			matmul_rows(&c, 0, &m, 11, ROWS - 11, x, 300, X, y + 11, ROWS);
			assert_true(same_bits(one, y, X * ROWS));
			compute_free(&c);
		}
		for (int t = 0; t < X; t++) /* and the right ones */
			for (int r = 0; r < ROWS; r++) {
				float row[300];
				double want = 0;
				dequant_row(&m, r, row);
				for (int i = 0; i < cols; i++)
					want += (double)row[i] *
						(double)x[(size_t)t * 300 + (size_t)i];
				assert_true(fabs(one[(size_t)t * ROWS + (size_t)r] - want) < 2e-4);
			}
		free(base);
	}
}

struct tally {
	atomic_int done[1000];
	atomic_int wrong_thread;
	int threads;
};

static void count(void *arg, int item, int thread)
{
	struct tally *t = arg;

	atomic_fetch_add(&t->done[item], 1);
	if (thread < 0 || thread >= t->threads)
		atomic_fetch_add(&t->wrong_thread, 1);
}

static void every_item_of_a_loop_is_done_once(void **state)
{
	static struct tally t;
	struct pool *p;

	(void)state;
	for (int threads = 1; threads <= 7; threads += 3) {
		assert_int_equal(pool_start(threads, &p, NULL), 0);
		for (int loop = 0; loop < 3000; loop++) {
			int items = loop % 1000;
			memset(&t, 0, sizeof(t));
			t.threads = threads;
			pool_run(p, items, count, &t);
			for (int i = 0; i < items; i++)
				assert_int_equal(atomic_load(&t.done[i]), 1);
			assert_int_equal(atomic_load(&t.wrong_thread), 0);
		}
		pool_stop(p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(dequant_gives_the_bits_of_plain_c),
		cmocka_unit_test(dot_is_right),
		cmocka_unit_test(blocks_give_the_bits_of_dot),
		cmocka_unit_test(axpy_is_right),
		cmocka_unit_test(blocks_give_the_bits_of_axpy),
		cmocka_unit_test(many_rows_mixed_are_right),
		cmocka_unit_test(swiglu_is_right),
		cmocka_unit_test(clamped_swiglu_is_right),
		cmocka_unit_test(softmax_is_right),
		cmocka_unit_test(softmax_in_parts),
		cmocka_unit_test(best_kernel_is_the_last_of_the_list),
		cmocka_unit_test(matmul_gives_the_same_bits_whatever_the_split),
		cmocka_unit_test(every_item_of_a_loop_is_done_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
