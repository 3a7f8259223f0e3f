/* SPDX-License-Identifier: Apache-2.0
 *
 * Colibri's containers: which format two lengths mean, with GLM-5.2's shapes and where formats could
 * be confused; rows of each format in whatever pieces they are read, of odd width too. Whole
 * containers are in tests/e2e/test_colibri.sh.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/fail.h" /* before cmocka.h, which has a macro of that name */
#include <cmocka.h>

#include "tools/coli-pack/colibri.h"

static char why[WHY_MAX];

static void is(uint64_t rows, uint64_t cols, uint64_t weights, uint64_t scales, const char *stamp,
	       const char *name, int block_rows, int block_cols)
{
	struct colibri_format f;

	if (colibri_format_of("x", rows, cols, weights, scales, stamp, &f, why) != 0) {
		fail_msg("%s", why);
		return;
	}
	assert_string_equal(f.name, name);
	assert_int_equal(f.block_rows, block_rows);
	assert_int_equal(f.block_cols, block_cols);
}

static void refused(uint64_t rows, uint64_t cols, uint64_t weights, uint64_t scales,
		    const char *stamp, const char *words)
{
	struct colibri_format f;

	assert_int_equal(colibri_format_of("x", rows, cols, weights, scales, stamp, &f, why),
			 -EINVAL);
	if (!strstr(why, words))
		fail_msg("\"%s\" does not say \"%s\"", why, words);
}

static void formats_of_glm(void **state)
{
	const uint64_t shapes[][2] = { { 2048, 6144 },  { 6144, 2048 },  { 154880, 6144 },
				       { 576, 6144 },   { 6144, 16384 }, { 28672, 512 },
				       { 16384, 2048 }, { 6144, 12288 } };

	(void)state;
	for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
		uint64_t r = shapes[i][0], c = shapes[i][1];
		uint64_t fp8 = (r + 127) / 128 * (c / 128);
		is(r, c, r * c, 4 * r, NULL, "int8-row", 1, (int)c);
		is(r, c, r * c / 2, 4 * r, NULL, "int4-row", 1, (int)c);
		is(r, c, r * c / 2, 4 * r * (c / 64), NULL, "int4-grouped", 1, 64);
		is(r, c, r * c / 2, 4 * r * (c / 128), "int4-grouped", "int4-grouped", 1, 128);
		/* As many blocks as rows: without a stamp it is int8. */
		bool either = r == 6144 && c == 16384;
		is(r, c, r * c, 4 * fp8, either ? "fp8-e4m3-b128" : NULL, "fp8-e4m3-b128", 128,
		   128);
		refused(r, c, r * c, fp8, NULL, "fp8-e4m3-b128 with UE8M0 scales; coli-pack reads");
		refused(r, c, r * c, fp8, "fp8-e4m3-b128", "fp8-e4m3-b128 with UE8M0 scales");
		refused(r, c, r * c / 4, 4 * r, NULL, "format int2-row");
		refused(r, c, r * (c / 64) * 24, 4 * r * (c / 64), NULL, "format int3-g64");
		refused(r, c, r * (c / 256) * 98, 4, NULL, "format e8-iq3-lattice");
		refused(r, c, r * c - 1, 4 * r, NULL, "no format of Colibri's has");
		refused(r, c, r * c, 4 * r + 4, NULL, "no format of Colibri's has");
		refused(r, c, r * c, 4 * r, "int4-row", "stamped format int4-row would not have");
		refused(r, c, 0, 0, NULL, "no format of Colibri's has");
	}
}

static void what_could_be_confused(void **state)
{
	(void)state;
	/* 2 x 256: two rows, two blocks. */
	is(2, 256, 512, 8, NULL, "int8-row", 1, 256);
	is(2, 256, 512, 8, "fp8-e4m3-b128", "fp8-e4m3-b128", 128, 128);
	/* 1 x 400: a row's scale, or four of UE8M0 */
	refused(1, 400, 400, 4, NULL, "UE8M0");
	is(1, 400, 400, 4, "int8-row", "int8-row", 1, 400);
	/* 98 columns in one block, or super-blocks of the lattice */
	refused(100, 98, 9800, 4, NULL, "e8-iq3-lattice");
	is(100, 98, 9800, 4, "fp8-e4m3-b128", "fp8-e4m3-b128", 128, 128);
	/* As many bytes in 3 bits */
	is(7, 48, 7 * 24, 4 * 7, NULL, "int4-row", 1, 48);
	refused(7, 48, 7 * 24, 4 * 7, "int3-g64", "format int3-g64");
	refused(7, 96, 7 * 48, 8 * 7, NULL, "as many for groups of 48 as of 64");
	is(7, 64, 7 * 32, 8 * 7, NULL, "int4-grouped", 1, 32);
	is(7, 96, 7 * 48, 12 * 7, NULL, "int4-grouped", 1, 32);
	is(7, 5, 7 * 3, 4 * 7, NULL, "int4-row", 1, 5);
	refused(7, 5, 7 * 3 - 1, 4 * 7, NULL, "no format");
}

/* A file of the rows, and behind them their scales. */
static FILE *numbers(const struct source *s, const uint8_t *raw, const float *scales)
{
	FILE *file = tmpfile();
	size_t bytes = (size_t)s->rows * source_row_bytes(s);

	assert_non_null(file);
	assert_int_equal(fwrite(raw, 1, bytes, file), bytes);
	assert_int_equal(fwrite(scales, 4, source_scales(s, 0, s->rows), file),
			 source_scales(s, 0, s->rows));
	assert_int_equal(fflush(file), 0);
	return file;
}

static int number(const struct source *s, const uint8_t *raw, int r, int c)
{
	const uint8_t *row = raw + (size_t)r * source_row_bytes(s);

	if (s->form == SOURCE_INT8)
		return (int8_t)row[c];
	return (c % 2 ? row[c / 2] >> 4 : row[c / 2] & 15) - 8;
}

static void check_rows(struct source *s)
{
	struct st_tensor weight = { .name = (char *)"w" }, scale = { .dtype = ST_F32 };
	uint8_t raw[9 * 50];
	float scales[9 * 4], out[50];
	int8_t codes[50];
	int across = (s->cols + s->block_cols - 1) / s->block_cols;

	s->scale = &scale;
	for (size_t i = 0; i < sizeof(raw); i++)
		raw[i] = (uint8_t)(i * 37 + 11);
	for (int i = 0; i < 36; i++)
		scales[i] = 0.1f * (float)(i + 1);
	assert_int_equal(source_scales(s, 0, s->rows), s->rows * across);
	s->tensor = &weight;
	FILE *data = numbers(s, raw, scales);
	const struct st_file file = { .path = (char *)"numbers", .fd = fileno(data) };
	weight.file = scale.file = &file;
	s->scale_offset = (uint64_t)s->rows * source_row_bytes(s);
	for (int piece = 1; piece <= 9; piece += 4) {
		for (int first = 0; first < s->rows; first += piece) {
			int n = s->rows - first < piece ? (int)s->rows - first : piece;
			uint8_t *buf = malloc((size_t)n * source_row_bytes(s));
			float *some = malloc(source_scales(s, first, n) * sizeof(*some));
			assert_int_equal(source_read(s, first, n, buf, some, why), 0);
			for (int r = first; r < first + n; r++) {
				source_row(s, first, r, buf, some, out);
				source_codes(s, first, r, buf, codes);
				assert_memory_equal(source_row_scales(s, first, r, some),
						    scales + r * across, (size_t)across * 4);
				for (int c = 0; c < s->cols; c++) {
					int v = number(s, raw, r, c);
					assert_int_equal(codes[c], v);
					assert_true(out[c] ==
						    scales[r * across + c / s->block_cols] *
							    (float)v);
				}
			}
			free(some);
			free(buf);
		}
	}
	fclose(data);
}

static void each_number(void **state)
{
	(void)state;
	for (int cols = 47; cols <= 50; cols++) {
		struct source s = { .form = SOURCE_INT8, .rows = 9, .cols = cols, .block_rows = 1 };
		s.block_cols = cols;
		check_rows(&s);
		s.form = SOURCE_INT4;
		check_rows(&s);
		s.block_cols = 16;
		check_rows(&s);
	}
}

static void what_keeps_integers(void **state)
{
	const struct wfmt q8 = { W_Q8, 64 }, q4 = { W_Q4, 64 }, f32 = { W_F32, 0 };
	struct source s = { .form = SOURCE_INT4, .cols = 192, .block_cols = 128 };

	(void)state;
	assert_true(source_keeps_codes(&s, q4) && source_keeps_codes(&s, q8));
	assert_false(source_keeps_codes(&s, f32));
	s.block_cols = 96;
	assert_false(source_keeps_codes(&s, q4) || source_keeps_codes(&s, q8));
	s.block_cols = 200; /* one for the row */
	assert_true(source_keeps_codes(&s, q4));
	s.form = SOURCE_INT8;
	assert_true(source_keeps_codes(&s, q8));
	assert_false(source_keeps_codes(&s, q4));
	s.form = SOURCE_E4M3;
	assert_false(source_keeps_codes(&s, q8));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(formats_of_glm),
		cmocka_unit_test(what_could_be_confused),
		cmocka_unit_test(each_number),
		cmocka_unit_test(what_keeps_integers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
