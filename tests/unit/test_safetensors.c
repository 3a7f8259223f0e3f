/* SPDX-License-Identifier: Apache-2.0
 *
 * coli-pack's safetensors reader and what makes floats of its tensors: good files, files cut at
 * every length, files with bytes changed at random (under ASan this is where a bad bound shows),
 * and every F8_E4M3 number. What each kind of lie is answered with is in tests/e2e/test_pack.sh.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expertfs/fail.h" /* before cmocka.h, which has a macro of that name */
#include <cmocka.h>

#include "tools/coli-pack/source.h"

static char path[512];
static char why[WHY_MAX];

static const char good[] = "{\"__metadata__\":{\"format\":\"pt\"},"
			   "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
			   "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
			   "\"none\":{\"dtype\":\"F4\",\"shape\":[0],\"data_offsets\":[16,16]},"
			   "\"c\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[16,24]}}  ";

static int set_up(void **state)
{
	(void)state;
	const char *tmp = getenv("TMPDIR");
	snprintf(path, sizeof(path), "%s/test_safetensors.%ld", tmp ? tmp : "/tmp", (long)getpid());
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	unlink(path);
	return 0;
}

/* Rewritten in place: thousands of files are made here. */
static void put(const void *bytes, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)n), 0);
	assert_int_equal(pwrite(fd, bytes, n, 0), n);
	close(fd);
}

/* A whole file of the header and `data` bytes behind it. Returns its size. */
static size_t compose(char *to, const char *header, size_t data)
{
	uint64_t n = strlen(header);

	memcpy(to, &n, 8);
	memcpy(to + 8, header, n + 1);
	for (size_t i = 0; i < data; i++)
		to[8 + n + i] = (char)i;
	return 8 + n + data;
}

static void test_good(void **state)
{
	(void)state;
	char file[1024];
	struct st_file f;

	put(file, compose(file, good, 24));
	assert_int_equal(st_open(path, &f, why), 0);
	assert_int_equal(f.tensors, 4);
	assert_int_equal(f.header_bytes, strlen(good));
	const char *names[] = { "a", "b", "none", "c" };
	const enum st_dtype types[] = { ST_F32, ST_BF16, ST_OTHER, ST_OTHER };
	const uint64_t offsets[] = { 0, 4, 16, 16 }, bytes[] = { 4, 12, 0, 8 };
	for (int i = 0; i < 4; i++) {
		assert_string_equal(f.tensor[i].name, names[i]);
		assert_int_equal(f.tensor[i].dtype, types[i]);
		assert_int_equal(f.tensor[i].offset, 8 + strlen(good) + offsets[i]);
		assert_int_equal(f.tensor[i].bytes, bytes[i]);
		assert_ptr_equal(f.tensor[i].file, &f);
	}
	assert_int_equal(f.tensor[1].dims, 2);
	assert_int_equal(f.tensor[1].shape[1], 3);
	assert_string_equal(f.tensor[3].dtype_name, "I64");
	st_close(&f);
}

static void test_empty_header(void **state)
{
	(void)state;
	char file[64];
	struct st_file f;

	put(file, compose(file, "{}", 0));
	assert_int_equal(st_open(path, &f, why), 0);
	assert_int_equal(f.tensors, 0);
	st_close(&f);
}

static void test_cut_everywhere(void **state)
{
	(void)state;
	char file[1024];
	size_t whole = compose(file, good, 24);
	struct st_file f;

	for (size_t n = 0; n < whole; n++) {
		put(file, n);
		why[0] = '\0';
		assert_int_equal(st_open(path, &f, why), -EINVAL);
		assert_non_null(strstr(why, path));
		assert_non_null(strstr(why, "truncated"));
	}
	file[whole] = 0;
	put(file, whole + 1);
	assert_int_equal(st_open(path, &f, why), -EINVAL);
}

static uint32_t next_random(uint32_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 17;
	*x ^= *x << 5;
	return *x;
}

/* Whatever is accepted must lie within the file. */
static void test_changed_at_random(void **state)
{
	(void)state;
	static const char digits[] = "0123456789-{}[]\",:.eE \\u";
	char file[1024], changed[1024];
	size_t whole = compose(file, good, 24);
	uint32_t x = 20260101;
	int accepted = 0;

	for (int round = 0; round < 4000; round++) {
		struct st_file f;
		memcpy(changed, file, whole);
		for (uint32_t n = next_random(&x) % 4 + 1; n > 0; n--) {
			size_t at = next_random(&x) % whole;
			changed[at] = round % 2 ? (char)next_random(&x)
						: digits[next_random(&x) % (sizeof(digits) - 1)];
		}
		put(changed, whole);
		int err = st_open(path, &f, why);
		if (err) {
			assert_int_equal(err, -EINVAL);
			continue;
		}
		accepted++;
		for (size_t i = 0; i < f.tensors; i++)
			assert_true(f.tensor[i].offset + f.tensor[i].bytes <= whole);
		st_close(&f);
	}
	/* Changes of names and data are no faults; but most changes are. */
	assert_in_range(accepted, 10, 2000);
}

static void test_not_a_file(void **state)
{
	(void)state;
	struct st_file f;

	assert_int_equal(st_open("/", &f, why), -EINVAL);
	assert_int_equal(st_open("/nowhere/at all", &f, why), -ENOENT);
	assert_non_null(strstr(why, "/nowhere/at all"));
}

/* 2 rows of one block each in height, with a skipped part above, 20 columns in blocks of 16. */
static void test_scaled_rows(void **state)
{
	(void)state;
	struct st_tensor weight = { .dtype = ST_F8_E4M3 }, scale = { .dtype = ST_F32 };
	struct source s = { .tensor = &weight,
			    .form = SOURCE_E4M3,
			    .scale = &scale,
			    .rows = 40,
			    .cols = 20,
			    .skipped = 30,
			    .block_rows = 32,
			    .block_cols = 16 };
	uint8_t raw[4 * 20];
	float out[20];
	/* Rows 0..3 of ours are 30..33 of the matrix: the last two of one block, the first of the
	 * next. */
	const float scales[] = { 1, 2, 4, 8 };

	assert_int_equal(source_scales(&s, 0, 4), 4);
	assert_int_equal(source_scales(&s, 0, 2), 2);
	assert_int_equal(source_scales(&s, 2, 32), 2);
	assert_int_equal(source_scales(&s, 2, 33), 4);
	memset(raw, 0x38, sizeof(raw)); /* 1.0 */
	for (int r = 0; r < 4; r++) {
		source_row(&s, 0, r, raw, scales, out);
		for (int c = 0; c < 20; c++)
			assert_true(out[c] == scales[2 * (r / 2) + c / 16]);
	}
}

/* Against the definition: sign, 4 bits of exponent with bias 7, 3 bits of mantissa. */
static void test_every_e4m3(void **state)
{
	(void)state;
	struct st_tensor weight = { .dtype = ST_F8_E4M3 }, scale = { .dtype = ST_F32 };
	struct source s = { .tensor = &weight,
			    .form = SOURCE_E4M3,
			    .scale = &scale,
			    .rows = 1,
			    .cols = 256,
			    .block_rows = 128,
			    .block_cols = 256 };
	uint8_t raw[256];
	float out[256], one = 1;

	for (int i = 0; i < 256; i++)
		raw[i] = (uint8_t)i;
	source_row(&s, 0, 0, raw, &one, out);
	for (int i = 0; i < 256; i++) {
		int e = i >> 3 & 15;
		double m = (i & 7) / 8.0;
		double v = e == 0 ? m * pow(2, -6) : (1 + m) * pow(2, e - 7);
		if ((i & 127) == 127)
			assert_true(isnan(out[i]));
		else
			assert_true((double)out[i] == (i & 128 ? -v : v));
	}
	assert_true(out[0x7e] == 448.0f);
}

static void test_other_rows(void **state)
{
	(void)state;
	struct st_tensor t = { .dtype = ST_F32 };
	struct source s = { .tensor = &t, .rows = 2, .cols = 3 };
	const float floats[] = { 1, -2, 3, 4, 5.5f, -6 };
	const uint16_t halves[] = { 0x3c00, 0xc000, 0x4200, 0x4400, 0x4580, 0xc600 };
	const uint16_t brains[] = { 0x3f80, 0xc000, 0x4040, 0x4080, 0x40b0, 0xc0c0 };
	const void *raw[] = { floats, halves, brains };
	const enum st_dtype types[] = { ST_F32, ST_F16, ST_BF16 };
	float out[3];

	for (int k = 0; k < 3; k++) {
		t.dtype = types[k];
		for (int r = 0; r < 2; r++) {
			source_row(&s, 0, r, raw[k], NULL, out);
			assert_memory_equal(out, floats + 3 * r, sizeof(out));
		}
		/* What was read began with row 1. */
		source_row(&s, 1, 1, (const char *)raw[k] + source_row_bytes(&s), NULL, out);
		assert_memory_equal(out, floats + 3, sizeof(out));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),           cmocka_unit_test(test_empty_header),
		cmocka_unit_test(test_cut_everywhere), cmocka_unit_test(test_changed_at_random),
		cmocka_unit_test(test_not_a_file),     cmocka_unit_test(test_scaled_rows),
		cmocka_unit_test(test_every_e4m3),     cmocka_unit_test(test_other_rows),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
