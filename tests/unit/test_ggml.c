/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/ggml.h: every block format against the digests of what gguf-py makes of the same blocks
 * (tests/reference/make_ggml_golden.py), in plain C and by every instruction set that this
 * processor has; the product of such matrices; what can be no matrix.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/compute.h"
#include "engine/ggml.h"
#include "expertfs/gguf_type.h"
#include "tests/unit/sha256.h"

/* The number of each type in GGUF files, and where in a block its halves lie: -1 is none. */
static const struct {
	enum wtype type;
	uint32_t id;
	int half[2];
} formats[] = {
	{ W_F16, 1, { 0, -1 } },     { W_Q8_0, 8, { 0, -1 } },     { W_Q4_0, 2, { 0, -1 } },
	{ W_Q4_1, 3, { 0, 2 } },     { W_Q5_0, 6, { 0, -1 } },     { W_Q5_1, 7, { 0, 2 } },
	{ W_Q2_K, 10, { 80, 82 } },  { W_Q3_K, 11, { 108, -1 } },  { W_Q4_K, 12, { 0, 2 } },
	{ W_Q5_K, 13, { 0, 2 } },    { W_Q6_K, 14, { 208, -1 } },  { W_IQ4_NL, 20, { 0, -1 } },
	{ W_IQ4_XS, 23, { 0, -1 } }, { W_MXFP4, 39, { -1, -1 } },  { W_IQ1_S, 19, { 0, -1 } },
	{ W_IQ1_M, 29, { -1, -1 } }, { W_IQ2_XXS, 16, { 0, -1 } }, { W_IQ2_XS, 17, { 0, -1 } },
	{ W_IQ2_S, 22, { 0, -1 } },  { W_IQ3_XXS, 18, { 0, -1 } }, { W_IQ3_S, 21, { 0, -1 } },
	{ W_TQ1_0, 34, { 52, -1 } }, { W_TQ2_0, 35, { 64, -1 } },
};
#define FORMATS (sizeof(formats) / sizeof(formats[0]))

static size_t block_bytes(size_t f)
{
	return wfmt_row_bytes((struct wfmt){ formats[f].type, 0 }, wtype_block(formats[f].type));
}

/* The half of IQ1_M is the upper nibbles of four words. */
static void finite_iq1_m(uint8_t *block, int most)
{
	if ((block[55] & 0x70) == 0x70 && block[53] >> 6 == 3)
		block[55] ^= 0x40;
	if ((block[55] & 0x70) > most)
		block[55] = (uint8_t)((block[55] & 0x8f) | (most & 0x70));
}

/* The generator of make_ggml_golden.py. All exponents of halves above `most` become smaller. */
static void generate(size_t f, size_t blocks, uint8_t *to, int most)
{
	uint32_t x = formats[f].id + 1;
	size_t size = block_bytes(f);

	for (size_t i = 0; i < blocks * size; i++) {
		x = x * 1664525 + 1013904223;
		to[i] = (uint8_t)(x >> 24);
	}
	for (size_t b = 0; b < blocks; b++) {
		if (formats[f].type == W_IQ1_M)
			finite_iq1_m(to + b * size, most);
		for (int h = 0; h < 2; h++) {
			uint8_t *high = to + b * size + formats[f].half[h] + 1;
			if (formats[f].half[h] < 0)
				continue;
			if ((*high & 0x7c) == 0x7c)
				*high ^= 0x40;
			if ((*high & 0x7c) > most)
				*high = (uint8_t)((*high & 0x83) | most);
		}
	}
}

static void same_as_gguf_py(void **state)
{
	const char *data = getenv("TEST_DATA");
	char path[4096], name[16], want[65], got[65];
	unsigned blocks;
	size_t seen = 0;

	(void)state;
	snprintf(path, sizeof(path), "%s/ggml/golden.txt", data ? data : "tests/data");
	FILE *golden = fopen(path, "r");
	assert_non_null(golden);
	for (; fscanf(golden, "%15s %u %64s", name, &blocks, want) == 3; seen++) {
		size_t f = 0;
		while (f < FORMATS && strcmp(wtype_name(formats[f].type), name) != 0)
			f++;
		assert_true(f < FORMATS && blocks <= 65536);
		size_t size = block_bytes(f), n = (size_t)wtype_block(formats[f].type);
		uint8_t *src = malloc(blocks * size + 1);
		float *y = malloc(blocks * n * sizeof(*y));
		assert_non_null(src);
		assert_non_null(y);
		generate(f, blocks, src + 1, 0x7c); /* at an odd address */
		ggml_row_plain(formats[f].type, src + 1, y, blocks * n);
		sha256_hex(y, blocks * n * sizeof(*y), got);
		if (strcmp(got, want) != 0)
			fail_msg("%s: the plain numbers differ from gguf-py's", name);
		for (const struct kernel_table *const *k = kernel_tables(); *k; k++) {
			const struct wmat m = {
				{ formats[f].type, 0 }, (int)blocks, (int)n, src + 1, NULL
			};
			memset(y, 0, blocks * n * sizeof(*y));
			(*k)->dequant(&m, 0, (int)blocks, y, n);
			sha256_hex(y, blocks * n * sizeof(*y), got);
			if (strcmp(got, want) != 0)
				fail_msg("%s: the numbers of %s differ", name, (*k)->isa);
		}
		free(src);
		free(y);
	}
	fclose(golden);
	assert_int_equal(seen, FORMATS);
}

/* Both sides of the project have a table of sizes; neither includes the other's. */
static void sizes_agree(void **state)
{
	(void)state;
	for (size_t f = 0; f < FORMATS; f++) {
		const struct gguf_type *t = gguf_type_find(formats[f].id);
		assert_non_null(t);
		assert_string_equal(t->name, wtype_name(formats[f].type));
		assert_int_equal(t->elements, wtype_block(formats[f].type));
		assert_int_equal(t->bytes, block_bytes(f));
	}
	assert_string_equal(gguf_type_find(0)->name, wtype_name(W_F32));
	assert_string_equal(gguf_type_find(30)->name, wtype_name(W_BF16));
}

#define ROWS 37
#define COLS 800 /* of blocks of 256: three of them, 768 */
#define ACTS 15  /* 8 + 4 + 2 + 1: as many as kernels take at once, and each remainder */

/* The product as kernel_blocks.c and the float path should have it: with x rounded to the codes that
 * the kernels take, if `rounded`. */
static void expect_product(const struct wmat *m, const float *x, bool rounded, const float *y)
{
	static float row[COLS];
	_Alignas(64) static char buf[1 << 16];
	struct acts a;

	acts_place(&a, ACTS, m->cols, 32, buf);
	kernel()->quantise(x, COLS, &a);
	for (int r = 0; r < ROWS; r++) {
		dequant_row(m, r, row);
		for (int t = 0; t < ACTS; t++) {
			double sum = 0, size = 0;
			for (int i = 0; i < m->cols; i++) {
				size_t g = (size_t)i / 32 * ACTS + (size_t)t;
				double xi = rounded ? (double)a.scale[g] *
							      a.codes[g * 32 + (size_t)i % 32]
						    : (double)x[t * COLS + i];
				sum += (double)row[i] * xi;
				size += fabs((double)row[i] * xi);
			}
			assert_true(fabs(sum - (double)y[t * ROWS + r]) <= 4e-6 * size);
		}
	}
}

static void random_blocks(struct wmat *m, size_t f, uint8_t **w)
{
	struct wfmt fmt = { formats[f].type, 0 };
	int cols = COLS / wtype_block(fmt.type) * wtype_block(fmt.type);
	size_t bytes = wfmt_bytes(fmt, ROWS, cols);

	*w = malloc(bytes);
	assert_non_null(*w);
	generate(f, bytes / block_bytes(f), *w, 0x30);
	for (size_t b = 0; formats[f].type == W_MXFP4 && b < bytes; b += 17)
		(*w)[b] = (uint8_t)(120 + (*w)[b] % 8);
	assert_int_equal(wmat_bind(m, fmt, ROWS, cols, *w, bytes), 0);
}

/* Rows of the product against sums of doubles; the same bits with one thread and three, with a row
 * alone and among others. */
static void products(void **state)
{
	static float x[ACTS * COLS], y[ACTS * ROWS], again[ACTS * ROWS];
	struct compute one, three;
	char why[1024];

	(void)state;
	for (int i = 0; i < ACTS * COLS; i++)
		x[i] = (float)(i * 37 % 101 - 50) / 50;
	assert_int_equal(compute_init(&one, 1, COLS, why), 0);
	assert_int_equal(compute_init(&three, 3, COLS, why), 0);
	for (size_t f = 0; f < 2 * FORMATS; f++) {
		struct wmat m;
		uint8_t *w;
		random_blocks(&m, f / 2, &w);
		one.float_activations = three.float_activations = f % 2;
		matmul(&one, &m, x, COLS, ACTS, y, ROWS);
		matmul(&three, &m, x, COLS, ACTS, again, ROWS);
		assert_memory_equal(y, again, sizeof(y));
		for (int t = 0; t < ACTS; t++)
			matmul(&three, &m, x + (size_t)t * COLS, COLS, 1, again + (size_t)t * ROWS,
			       ROWS);
		assert_memory_equal(y, again, sizeof(y));
		matmul_rows(&one, 0, &m, 3, 30, x, COLS, ACTS, again, 30);
		for (int t = 0; t < ACTS; t++)
			assert_memory_equal(y + (size_t)t * ROWS + 3, again + (size_t)t * 30,
					    30 * sizeof(float));
		expect_product(&m, x, wfmt_acts_group(m.fmt) && f % 2 == 0, y);
		free(w);
	}
	compute_free(&one);
	compute_free(&three);
}

#define TILES 3
#define FEW   4 /* rows of a tile: too few for AMX */

/* y[t][r] of a block and `rows` rows of x. */
static void block_times(const struct kernel_table *k, const struct wmat *m, int block,
			const float *x, int rows, float (*y)[WBLOCK])
{
	_Alignas(64) static char buf[TILES][1 << 16];
	struct acts a[TILES];
	int tiles = 0;

	for (int first = 0; first < rows; first += ACTS_ROWS, tiles++) {
		int n = rows - first < ACTS_ROWS ? rows - first : ACTS_ROWS;
		acts_place(&a[tiles], n, m->cols, 32, buf[tiles]);
		k->quantise(x + (size_t)first * COLS, COLS, &a[tiles]);
	}
	k->multiply(m, block, a, tiles, y[0], WBLOCK);
}

/* Every instruction set gives the bits of plain C. */
static void same_products(void **state)
{
	static const int rows[] = { 1, FEW, ACTS, ACTS_ROWS + FEW, 2 * ACTS_ROWS + ACTS };
	static float x[TILES * ACTS_ROWS * COLS], y[2][TILES * ACTS_ROWS][WBLOCK];

	(void)state;
	for (int i = 0; i < TILES * ACTS_ROWS * COLS; i++)
		x[i] = (float)(i * 53 % 127 - 60) / 7;
	for (size_t f = 0; f < FORMATS; f++) {
		struct wmat m;
		uint8_t *w;
		random_blocks(&m, f, &w);
		for (size_t n = 0; n < sizeof(rows) / sizeof(*rows) && wfmt_acts_group(m.fmt); n++)
			for (int block = 0; block * WBLOCK < ROWS; block++) {
				size_t in_use = (size_t)(ROWS - block * WBLOCK < WBLOCK
								 ? ROWS - block * WBLOCK
								 : WBLOCK);
				block_times(kernel_tables()[0], &m, block, x, rows[n], y[0]);
				for (const struct kernel_table *const *k = kernel_tables(); *k;
				     k++) {
					block_times(*k, &m, block, x, rows[n], y[1]);
					for (int t = 0; t < rows[n]; t++)
						assert_memory_equal(y[0][t], y[1][t],
								    in_use * sizeof(float));
				}
			}
		free(w);
	}
}

static void no_matrices(void **state)
{
	_Alignas(64) static uint8_t w[4096];
	const struct wfmt q4k = { W_Q4_K, 0 }, f32 = { W_F32, 0 };
	uint16_t scale = 0;
	float x = 1;
	struct wmat m;

	(void)state;
	assert_int_equal(wmat_bind(&m, q4k, 2, 512, w + 1, 4 * 144), 0);
	assert_int_equal(wmat_bind(&m, q4k, 2, 500, w, 4 * 144), -EINVAL);
	assert_int_equal(wmat_bind(&m, q4k, 2, 512, w, 5 * 144), -EINVAL);
	assert_int_equal(wmat_bind(&m, f32, 1, 5, w, 20), 0);
	assert_int_equal(wmat_bind(&m, f32, 1, 5, w, 64), 0);
	assert_int_equal(wmat_bind(&m, f32, 1, 5, w, 24), -EINVAL);
	assert_int_equal(wmat_bind(&m, f32, 1, 5, w + 2, 20), -EINVAL);
	assert_int_equal(quant_row(q4k, &x, 1, 0, w, &scale), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(same_as_gguf_py), cmocka_unit_test(sizes_agree),
		cmocka_unit_test(products),        cmocka_unit_test(same_products),
		cmocka_unit_test(no_matrices),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
