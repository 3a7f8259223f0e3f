/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/quant.h: half and bfloat16 exhaustively, group formats against their definition.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <xxhash.h>

#include "engine/quant.h"

static uint64_t rng = 1;

static float uniform(void) /* -1..1 */
{
	rng = rng * 6364136223846793005u + 1442695040888963407u;
	return (float)((double)(rng >> 11) * 0x1p-52 - 1);
}

static void half_round_trip(void **state)
{
	(void)state;
	for (uint32_t h = 0; h < 65536; h++) {
		float f = half_to_float((uint16_t)h);
		if (isnan(f))
			assert_true((h & 0x7c00) == 0x7c00 && (h & 1023));
		else
			assert_int_equal(float_to_half(f), h);
	}
	assert_true(half_to_float(0x3c00) == 1.0f);
	assert_true(half_to_float(0x0001) == 0x1p-24f);
	assert_true(half_to_float(0x7bff) == 65504.0f);
}

/* Between two neighbouring halves the nearer one wins, and in the middle the even one. */
static void half_rounds_to_even(void **state)
{
	(void)state;
	for (uint32_t h = 0; h < 0x7bff; h++) {
		double lo = half_to_float((uint16_t)h), hi = half_to_float((uint16_t)(h + 1));
		float mid = (float)((lo + hi) / 2);
		assert_int_equal(float_to_half(mid), h + (h & 1));
		assert_int_equal(float_to_half(nextafterf(mid, 0)), h);
		assert_int_equal(float_to_half(nextafterf(mid, 1e9f)), h + 1);
	}
	assert_int_equal(float_to_half(65519.99f), 0x7bff);
	assert_int_equal(float_to_half(65520.0f), 0x7c00);
	assert_int_equal(float_to_half(-1e-30f), 0x8000);
}

static void bf16_rounds_to_even(void **state)
{
	(void)state;
	assert_int_equal(float_to_bf16(1.0f), 0x3f80);
	assert_int_equal(float_to_bf16(0x1.01p0f), 0x3f80); /* half way, even stays */
	assert_int_equal(float_to_bf16(0x1.03p0f), 0x3f82); /* half way, odd goes up */
	assert_int_equal(float_to_bf16(0x1.010002p0f), 0x3f81);
	assert_true(isnan(bf16_to_float(float_to_bf16(NAN))));
	for (uint32_t b = 0; b < 0x7f80; b++)
		assert_int_equal(float_to_bf16(bf16_to_float((uint16_t)b)), b);
}

/* Packs rows x cols random weights and returns the matrix; *w gets the weights. */
static struct wmat packed(struct wfmt f, int rows, int cols, float **w, void **base)
{
	size_t bytes = wfmt_bytes(f, rows, cols);
	struct wmat m;

	*w = malloc((size_t)rows * (size_t)cols * sizeof(float));
	*base = aligned_alloc(64, bytes);
	memset(*base, 0, bytes);
	uint16_t *scales = (void *)((char *)*base + wfmt_scales_offset(f, rows, cols));
	for (int r = 0; r < rows; r++) {
		float *row = *w + (size_t)r * (size_t)cols;
		for (int i = 0; i < cols; i++)
			row[i] = uniform() * uniform() * 0.05f;
		assert_int_equal(quant_row(f, row, cols, r, *base, scales), 0);
	}
	assert_int_equal(wmat_bind(&m, f, rows, cols, *base, bytes), 0);
	return m;
}

/* Every code lies as the header draws it, and is the nearest to its weight that the scale allows.
 */
static void codes_are_nearest(void **state)
{
	static const int widths[] = { 1, 20, 31, 32, 40, 64, 65, 128, 200, 257 };
	(void)state;
	for (enum wtype t = W_Q8; t <= W_Q4; t++) {
		for (int group = 32; group <= 128; group *= 2) {
			for (size_t k = 0; k < sizeof(widths) / sizeof(*widths); k++) {
				struct wfmt f = { t, group };
				int cols = widths[k];
				float *w, *got = malloc((size_t)cols * sizeof(float));
				void *base;
				struct wmat m = packed(f, 3, cols, &w, &base);
				for (int r = 0; r < 3; r++) {
					dequant_row(&m, r, got);
					for (int i = 0; i < cols; i++) {
						float x = w[r * cols + i];
						float s = half_to_float(
							m.scales[i / group * WBLOCK + r]);
						double q = fmin(fmax((double)x / (double)s,
								     t == W_Q8 ? -127 : -8),
								t == W_Q8 ? 127 : 7);
						assert_true(fabs((double)got[i] - q * (double)s) <=
							    0.5001 * fabs((double)s));
					}
				}
				free(w);
				free(base);
				free(got);
			}
		}
	}
}

/* A checkpoint packed on any processor gives the same bytes; these digests are an x86-64's. */
static void same_bytes_everywhere(void **state)
{
	static const uint64_t digests[] = {
		[W_Q8] = 0x8fd0d99aad669f94, [W_Q4] = 0x2f98b2ce138521a1
	};

	(void)state;
	for (enum wtype t = W_Q8; t <= W_Q4; t++) {
		struct wfmt f = { t, 64 };
		float *w;
		void *base;

		rng = 1;
		packed(f, 256, 256, &w, &base);
		assert_int_equal(XXH3_64bits(base, wfmt_bytes(f, 256, 256)), digests[t]);
		free(w);
		free(base);
	}
}

/* The searched q4 scale beats the plain one (max/-8) on every random row, summed. */
static void q4_search_pays(void **state)
{
	double ours = 0, plain = 0;
	struct wfmt f = { W_Q4, 64 };
	float *w, got[64];
	void *base;
	struct wmat m = packed(f, 256, 64, &w, &base);

	(void)state;
	for (int r = 0; r < 256; r++) {
		float max = 0, *row = w + (size_t)r * 64;
		for (int i = 0; i < 64; i++)
			max = fabsf(row[i]) > fabsf(max) ? row[i] : max;
		float s = half_to_float(float_to_half(max / -8));
		dequant_row(&m, r, got);
		for (int i = 0; i < 64; i++) {
			float q = fminf(fmaxf(nearbyintf(row[i] / s), -8), 7);
			ours += pow((double)(got[i] - row[i]), 2);
			plain += pow((double)(q * s - row[i]), 2);
		}
	}
	print_message("squared error, searched / plain: %.3f\n", ours / plain);
	assert_true(ours < 0.93 * plain);
	free(w);
	free(base);
}

static void exact_formats(void **state)
{
	float w[5] = { 1, -2.5f, 0, 1e-20f, 65000 }, got[5];
	_Alignas(64) char base[64];
	struct wmat m;

	(void)state;
	for (enum wtype t = W_F32; t <= W_BF16; t++) {
		struct wfmt f = { t, 0 };
		assert_int_equal(wfmt_bytes(f, 1, 5), 64);
		assert_int_equal(quant_row(f, w, 5, 0, base, NULL), 0);
		assert_int_equal(wmat_bind(&m, f, 1, 5, base, 64), 0);
		dequant_row(&m, 0, got);
		for (int i = 0; i < 5; i++)
			assert_true(got[i] ==
				    (t == W_F32 ? w[i] : bf16_to_float(float_to_bf16(w[i]))));
	}
}

static void refuses_what_it_cannot_hold(void **state)
{
	float w[32] = { 0 };
	uint8_t codes[WBLOCK * 32];
	uint16_t scale;

	(void)state;
	for (enum wtype t = W_F32; t <= W_Q4; t++) {
		struct wfmt f = { t, t >= W_Q8 ? 32 : 0 };
		uint8_t out[WBLOCK * 128];
		w[7] = NAN;
		assert_int_equal(quant_row(f, w, 32, 0, out, &scale), -EDOM);
		w[7] = INFINITY;
		assert_int_equal(quant_row(f, w, 32, 0, out, &scale), -EDOM);
	}
	w[7] = 1e30f;
	assert_int_equal(quant_row((struct wfmt){ W_Q8, 32 }, w, 32, 0, codes, &scale), -EDOM);
	assert_int_equal(quant_row((struct wfmt){ W_Q4, 32 }, w, 32, 0, codes, &scale), -EDOM);
	w[7] = 0;
	assert_int_equal(quant_row((struct wfmt){ W_Q4, 32 }, w, 32, 0, codes, &scale), 0);
	assert_int_equal(scale, 0);
	assert_int_equal(codes[3], 0x88);
	w[7] = 1e-40f; /* far below what fp16 can scale: becomes 0, not a fault */
	assert_int_equal(quant_row((struct wfmt){ W_Q8, 32 }, w, 32, 0, codes, &scale), 0);
}

/* Integers come back as they were, times their scale in fp16, wherever the groups end. */
static void integers_stay(void **state)
{
	enum { ROWS = 19, COLS = 203 };
	static const struct wfmt formats[] = {
		{ W_Q8, 32 }, { W_Q8, 64 }, { W_Q8, 128 }, { W_Q4, 32 }, { W_Q4, 128 }
	};
	static _Alignas(64) char base[1 << 16];
	static int8_t x[ROWS][COLS];
	float scale[ROWS][2], got[COLS];

	(void)state;
	for (size_t k = 0; k < sizeof(formats) / sizeof(*formats); k++) {
		struct wfmt f = formats[k];
		size_t n = wfmt_bytes(f, ROWS, COLS);
		for (int every = 128; every <= 256; every *= 2) { /* 256: one for the row */
			struct wmat m;
			assert_true(n <= sizeof(base));
			memset(base, 0, sizeof(base));
			assert_int_equal(wmat_bind(&m, f, ROWS, COLS, base, n), 0);
			for (int r = 0; r < ROWS; r++) {
				for (int c = 0; c < COLS; c++)
					x[r][c] = (int8_t)(f.type == W_Q8 ? (r * 7 + c) % 255 - 127
									  : (r + c) % 16 - 8);
				scale[r][0] = uniform();
				scale[r][1] = uniform() * 1e-6f;
				assert_int_equal(quant_row_coded(f, x[r], scale[r], every, COLS, r,
								 base,
								 (uint16_t *)(uintptr_t)m.scales),
						 0);
			}
			for (int r = 0; r < ROWS; r++) {
				dequant_row(&m, r, got);
				for (int c = 0; c < COLS; c++)
					assert_true(got[c] == half_to_float(float_to_half(
								      scale[r][c / every])) *
								      x[r][c]);
			}
		}
	}
}

static void integers_that_do_not_fit(void **state)
{
	const struct wfmt q8 = { W_Q8, 32 }, q4 = { W_Q4, 32 };
	const float bad[] = { NAN, INFINITY, 65505, -1e9f };
	uint8_t codes[WBLOCK * 32];
	uint16_t scales[WBLOCK];
	int8_t x[32] = { 0 };
	float scale = -65504;

	(void)state;
	x[31] = -127;
	assert_int_equal(quant_row_coded(q8, x, &scale, 32, 32, 0, codes, scales), 0);
	assert_int_equal(scales[0], 0xfbff);
	x[31] = -128;
	assert_int_equal(quant_row_coded(q8, x, &scale, 32, 32, 0, codes, scales), -EDOM);
	for (int v = -128; v < 128; v++) {
		x[31] = (int8_t)v;
		assert_int_equal(quant_row_coded(q4, x, &scale, 32, 32, 0, codes, scales),
				 v >= -8 && v < 8 ? 0 : -EDOM);
	}
	x[31] = 0;
	for (int i = 0; i < 4; i++)
		assert_int_equal(quant_row_coded(q8, x, &bad[i], 32, 32, 0, codes, scales), -EDOM);
}

static void bind_checks(void **state)
{
	_Alignas(64) static char base[2048];
	struct wmat m;
	struct wfmt f = { W_Q4, 64 };
	size_t n = wfmt_bytes(f, 3, 65);

	(void)state;
	/* A block of 16 rows: 2 groups x 32 bytes and 2 scales each. */
	assert_int_equal(n, 1024 + 64);
	assert_int_equal(wmat_bind(&m, f, 3, 65, base, n), 0);
	assert_ptr_equal(m.scales, base + 1024);
	assert_int_equal(wmat_bind(&m, f, 3, 65, base, n - 1), -EINVAL);
	assert_int_equal(wmat_bind(&m, f, 0, 65, base, n), -EINVAL);
	assert_int_equal(wmat_bind(&m, f, 3, 65, base + 1, n), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(half_round_trip),
		cmocka_unit_test(half_rounds_to_even),
		cmocka_unit_test(bf16_rounds_to_even),
		cmocka_unit_test(codes_are_nearest),
		cmocka_unit_test(same_bytes_everywhere),
		cmocka_unit_test(q4_search_pays),
		cmocka_unit_test(exact_formats),
		cmocka_unit_test(refuses_what_it_cannot_hold),
		cmocka_unit_test(integers_stay),
		cmocka_unit_test(integers_that_do_not_fit),
		cmocka_unit_test(bind_checks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
