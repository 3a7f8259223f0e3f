/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrices that a checkpoint has interleaved, transposed or in MXFP4: each number is where the
 * format says, in whatever pieces the rows are read, and what does not fit is refused. MXFP4 that is
 * kept has the same numbers.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expertfs/fail.h" /* before cmocka.h, which has a macro of that name */
#include <cmocka.h>
#include <math.h>

#include "engine/quant.h"
#include "tools/coli-pack/tensors.h"

static char why[WHY_MAX];

static struct checkpoint *open_family(const char *name)
{
	const char *data = getenv("TEST_DATA");
	struct checkpoint *ck = NULL;
	char path[512];
	int missing;

	snprintf(path, sizeof(path), "%s/families/%s", data ? data : "tests/data", name);
	if (ckpt_open(path, &ck, &missing, why) != 0)
		fail_msg("%s", why);
	return ck;
}

static void *read_tensor(const struct checkpoint *ck, const char *base, const char *end)
{
	char name[160];

	snprintf(name, sizeof(name), "%s%s", base, end);
	const struct st_tensor *t = ckpt_find(ck, name);
	char *raw = t ? malloc(t->bytes) : NULL;

	if (!t || !raw) {
		fail_msg("there is no %s", name);
		return NULL;
	}
	assert_int_equal(pread(t->file->fd, raw, t->bytes, (off_t)t->offset), (ssize_t)t->bytes);
	return raw;
}

/* All rows as floats, read `piece` rows at a time. */
static float *read_rows(const struct source *s, int piece)
{
	float *out = calloc((size_t)s->rows * (size_t)s->cols, sizeof(*out));

	assert_non_null(out);
	for (int64_t r = 0, n; r < s->rows; r += n) {
		n = s->rows - r < piece ? s->rows - r : piece;
		/* Exactly as large as promised, so that a sanitizer sees what is beyond. */
		void *buf = malloc((size_t)n * source_row_bytes(s));
		float *scales = malloc((source_scales(s, r, n) + 1) * sizeof(*scales));
		if (source_read(s, r, n, buf, scales, why))
			fail_msg("%s", why);
		for (int64_t i = r; i < r + n; i++)
			source_row(s, r, i, buf, scales, out + i * s->cols);
		free(scales);
		free(buf);
	}
	return out;
}

typedef float number_fn(const void *raw, const void *scales, int e, int64_t row, int col,
			const struct source *s, int matrix);

static void check_experts(const char *family, enum expert_form form, const char *end,
			  number_fn *number)
{
	struct checkpoint *ck = open_family(family);
	const int pieces[] = { 1, 3, 1000 };
	char name[160];
	struct source s;

	assert_int_equal(tensors_expert_form(ck, 1), form);
	for (int m = 0; m < MATRICES; m++) {
		snprintf(name, sizeof(name), "model.layers.1.mlp.experts.%s",
			 m == DOWN ? "down_proj" : "gate_up_proj");
		void *raw = read_tensor(ck, name, end), *scales = NULL;
		if (form == EXPERTS_MXFP4)
			scales = read_tensor(ck, name, "_scales");
		for (int e = 0; e < ck->config.model.experts; e++) {
			assert_int_equal(tensors_expert_source(ck, 1, form, e, m, &s, why), 0);
			for (int p = 0; p < 3; p++) {
				float *rows = read_rows(&s, pieces[p]);
				for (int64_t r = 0; r < s.rows; r++)
					for (int c = 0; c < s.cols; c++)
						assert_true(rows[r * s.cols + c] ==
							    number(raw, scales, e, r, c, &s, m));
				free(rows);
			}
		}
		free(scales);
		free(raw);
	}
	ckpt_close(ck);
}

/* [expert][in][out], gate and up in turn. */
static float transposed(const void *raw, const void *scales, int e, int64_t row, int col,
			const struct source *s, int matrix)
{
	int64_t width = matrix == DOWN ? s->rows : 2 * s->rows;
	int64_t at = matrix == DOWN ? row : 2 * row + (matrix == UP);

	(void)scales;
	return bf16_to_float(((const uint16_t *)raw)[(e * s->cols + col) * width + at]);
}

/* [expert][out][in / 32][16] */
static float mxfp4(const void *raw, const void *scales, int e, int64_t row, int col,
		   const struct source *s, int matrix)
{
	static const float values[8] = { 0, 0.5f, 1, 1.5f, 2, 3, 4, 6 };
	int64_t all = matrix == DOWN ? s->rows : 2 * s->rows;
	int64_t at = e * all + (matrix == DOWN ? row : 2 * row + (matrix == UP));
	int byte = ((const uint8_t *)raw)[(at * s->cols + col) / 2];
	int code = col % 2 ? byte >> 4 : byte & 15;
	int exponent = ((const uint8_t *)scales)[at * (s->cols / 32) + col / 32];

	return (code & 8 ? -1.0f : 1.0f) * values[code & 7] * ldexpf(1, exponent - 127);
}

static void each_number_of_an_expert(void **state)
{
	(void)state;
	check_experts("gpt_oss", EXPERTS_TRANSPOSED, "", transposed);
	check_experts("gpt_oss_mxfp4", EXPERTS_MXFP4, "_blocks", mxfp4);
}

#define KEPT_GROUPS 253 /* of the longest row: as many as there are scales */

/* Row `row` of what was read from row `first` on, kept as W_MXFP4, has the numbers of source_row(). */
static void check_kept(const struct source *s, int64_t first, int64_t row, const void *buf,
		       const float *scales)
{
	const struct wfmt fmt = { W_MXFP4, 0 };
	size_t bytes = wfmt_row_bytes(fmt, s->cols);
	static float want[KEPT_GROUPS * 32], got[KEPT_GROUPS * 32];
	static uint8_t kept[KEPT_GROUPS * 17];
	struct wmat m;

	source_row(s, first, row, buf, scales, want);
	assert_int_equal(source_blocks(s, first, row, buf, scales, kept), 0);
	assert_int_equal(wmat_bind(&m, fmt, 1, s->cols, kept, bytes), 0);
	dequant_row(&m, 0, got);
	for (int c = 0; c < s->cols; c++)
		assert_true(got[c] == want[c]);
}

static void kept_experts(void **state)
{
	struct checkpoint *ck = open_family("gpt_oss_mxfp4");
	struct source s;

	(void)state;
	for (int m = 0; m < MATRICES; m++) {
		assert_int_equal(tensors_expert_source(ck, 2, EXPERTS_MXFP4, 5, m, &s, why), 0);
		void *buf = malloc((size_t)s.rows * source_row_bytes(&s));
		float *scales = malloc(source_scales(&s, 3, s.rows - 3) * sizeof(*scales));
		assert_true(buf && scales);
		assert_int_equal(source_read(&s, 3, s.rows - 3, buf, scales, why), 0);
		for (int64_t r = 3; r < s.rows; r++)
			check_kept(&s, 3, r, buf, scales);
		free(scales);
		free(buf);
	}
	ckpt_close(ck);
}

/* Every code at every place, under every scale with which all are finite. */
static void kept_numbers(void **state)
{
	const struct source s = { .form = SOURCE_MXFP4,
				  .rows = 16,
				  .cols = KEPT_GROUPS * 32,
				  .block_rows = 1,
				  .block_cols = 32 };
	static uint8_t buf[16][KEPT_GROUPS * 16];
	static float scales[16 * KEPT_GROUPS];

	(void)state;
	for (int r = 0; r < 16; r++) {
		for (int i = 0; i < KEPT_GROUPS * 32; i++)
			buf[r][i / 2] |= (uint8_t)((r + i + i / 32) % 16 << i % 2 * 4);
		for (int g = 0; g < KEPT_GROUPS; g++)
			scales[r * KEPT_GROUPS + g] = ldexpf(1, (g + 17 * r) % KEPT_GROUPS - 127);
	}
	for (int r = 0; r < 16; r++)
		check_kept(&s, 0, r, buf, scales);
}

/* 6 * 2^126 is no float32; 255 stands for no number. */
static void kept_too_large(void **state)
{
	const struct source s = {
		.form = SOURCE_MXFP4, .rows = 1, .cols = 64, .block_rows = 1, .block_cols = 32
	};
	const float bad[] = { 0x1p126f, 0x1p127f, NAN };
	uint8_t buf[32] = { 0 }, kept[34];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		const float scales[2] = { 1, bad[i] };
		assert_int_equal(source_blocks(&s, 0, 0, buf, scales, kept), -EDOM);
	}
}

static void each_bias(void **state)
{
	struct checkpoint *ck = open_family("gpt_oss");
	const char *name = "model.layers.0.mlp.experts.gate_up_proj_bias";
	const uint16_t *raw = read_tensor(ck, name, "");
	const uint64_t shape[2] = { 5, 80 };

	(void)state;
	for (int first = 0; first < 2; first++) {
		const struct source_part part = { (uint64_t)first, 80, 2, 5, 40, false };
		struct source s;
		assert_int_equal(source_part(ck, name, shape, 2, &part, &s, why), 0);
		float *rows = read_rows(&s, 2);
		for (int i = 0; i < 5 * 40; i++)
			assert_true(rows[i] ==
				    bf16_to_float(raw[i / 40 * 80 + i % 40 * 2 + first]));
		free(rows);
	}
	free((void *)(uintptr_t)raw);
	ckpt_close(ck);
}

static void refused(int result, const char *words)
{
	assert_int_equal(result, -EINVAL);
	if (!strstr(why, words))
		fail_msg("\"%s\" does not say \"%s\"", why, words);
}

static void what_does_not_fit(void **state)
{
	struct checkpoint *ck = open_family("gpt_oss_mxfp4");
	const char *name = "model.layers.0.mlp.experts.gate_up_proj";
	const struct source_part part = { 0, 1, 1, 1, 1, false };
	const uint64_t shape[4] = { 6, 64, 2, 16 };
	struct source s;

	(void)state;
	assert_int_equal(source_mxfp4(ck, name, 6, 0, 64, 0, 2, 32, 64, &s, why), 0);
	refused(source_mxfp4(ck, name, 7, 0, 64, 0, 2, 32, 64, &s, why), "has the shape");
	refused(source_mxfp4(ck, name, 6, 0, 62, 0, 2, 31, 64, &s, why), "has the shape");
	refused(source_mxfp4(ck, name, 6, 0, 64, 0, 2, 32, 96, &s, why), "has the shape");
	refused(source_mxfp4(ck, name, 6, 0, 64, 0, 2, 32, 72, &s, why), "whole groups of 32");
	refused(source_mxfp4(ck, "none", 6, 0, 64, 0, 2, 32, 64, &s, why), "no tensor none_blocks");
	/* Bytes are no numbers by themselves. */
	refused(source_part(ck, "model.layers.0.mlp.experts.gate_up_proj_blocks", shape, 4, &part,
			    &s, why),
		"of type U8");
	ckpt_close(ck);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_number_of_an_expert),
		cmocka_unit_test(kept_experts),
		cmocka_unit_test(kept_numbers),
		cmocka_unit_test(kept_too_large),
		cmocka_unit_test(each_bias),
		cmocka_unit_test(what_does_not_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
