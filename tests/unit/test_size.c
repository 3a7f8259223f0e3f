/* SPDX-License-Identifier: Apache-2.0
 *
 * Sizes: what is accepted, what is refused, and that what is written can be read back.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "expertfs/size.h"

#define KIB 1024ull

static void accepts(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} cases[] = {
		{ "0", 0 },
		{ "4096", 4096 },
		{ "4096B", 4096 },
		{ "64k", 64 * KIB },
		{ "64K", 64 * KIB },
		{ "64KB", 64 * KIB },
		{ "64kib", 64 * KIB },
		{ "512M", 512 * KIB * KIB },
		{ "12G", 12 * KIB * KIB * KIB },
		{ "12GiB", 12 * KIB * KIB * KIB },
		{ "1.5G", 3 * KIB * KIB * KIB / 2 },
		{ "1.5T", 3 * KIB * KIB * KIB * KIB / 2 },
		{ "0.25k", 256 },
		{ "0.1k", 102 },
		{ "1.00000000000000000000000000001M", KIB * KIB },
		{ "0.00000000000000000000000000001T", 0 },
		{ "18446744073709551615", UINT64_MAX },
		{ "16777215T", 16777215 * KIB * KIB * KIB * KIB },
		{ "007M", 7 * KIB * KIB },
		{ "16777215.9999999T", 18446744073709441664ull },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t bytes = 1;
		if (size_parse(cases[i].text, &bytes) != 0 || bytes != cases[i].bytes)
			fail_msg("%s gave %ju, not %ju", cases[i].text, (uintmax_t)bytes,
				 (uintmax_t)cases[i].bytes);
	}
}

static void refuses(void **state)
{
	static const struct {
		const char *text;
		int err;
	} cases[] = {
		{ "", -EINVAL },
		{ "G", -EINVAL },
		{ "-1", -EINVAL },
		{ "+1", -EINVAL },
		{ " 1", -EINVAL },
		{ "1 ", -EINVAL },
		{ "1 G", -EINVAL },
		{ ".5G", -EINVAL },
		{ "1.G", -EINVAL },
		{ "1.5", -EINVAL },
		{ "1.5B", -EINVAL },
		{ "1,5G", -EINVAL },
		{ "1..5G", -EINVAL },
		{ "0x10", -EINVAL },
		{ "inf", -EINVAL },
		{ "1e3", -EINVAL },
		{ "12GG", -EINVAL },
		{ "12Gi", -EINVAL },
		{ "12GiBs", -EINVAL },
		{ "12iB", -EINVAL },
		{ "12X", -EINVAL },
		{ "12\n", -EINVAL },
		{ "12K\x80", -EINVAL },
		{ "\xef\xbc\x91", -EINVAL },
		{ "18446744073709551616", -ERANGE },
		{ "99999999999999999999999999999999", -ERANGE },
		{ "16777216T", -ERANGE },
		{ "99999999999999999999999999999999x", -EINVAL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t bytes = 42;
		int err = size_parse(cases[i].text, &bytes);
		if (err != cases[i].err)
			fail_msg("%s gave %d, not %d", cases[i].text, err, cases[i].err);
		if (err)
			assert_int_equal(bytes, 42);
	}
}

static void writes(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} cases[] = {
		{ 0, "0 B" },
		{ 1, "1 B" },
		{ 999, "999 B" },
		{ 1000, "0.977 KiB" },
		{ 1023, "0.999 KiB" },
		{ 1024, "1.00 KiB" },
		{ 1536, "1.50 KiB" },
		{ 10 * KIB - 1, "10.0 KiB" },
		{ 100 * KIB - 1, "100 KiB" },
		{ 999 * KIB, "999 KiB" },
		{ 999 * KIB + 511, "999 KiB" },
		{ 999 * KIB + 512, "0.976 MiB" },
		{ 12777531474, "11.9 GiB" },
		{ UINT64_MAX, "16.0 EiB" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char buf[16];
		assert_string_equal(size_text(cases[i].bytes, buf), cases[i].text);
	}
}

/* A printed size without its space is a size again, within the rounding of three digits. */
static void round_trip(void **state)
{
	uint64_t bytes = 1, back;

	(void)state;
	for (int i = 0; i < 400 && bytes < 1ull << 49; i++, bytes += bytes / 11 + 1) {
		char buf[16], text[32], unit[8];
		double number;
		assert_int_equal(sscanf(size_text(bytes, buf), "%lf %7s", &number, unit), 2);
		snprintf(text, sizeof(text), unit[0] == 'B' ? "%.0f%s" : "%.3f%s", number, unit);
		assert_int_equal(size_parse(text, &back), 0);
		assert_true(back > bytes ? back - bytes <= bytes / 190
					 : bytes - back <= bytes / 190);
	}
	assert_true(bytes >= 1ull << 49);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(accepts),
		cmocka_unit_test(refuses),
		cmocka_unit_test(writes),
		cmocka_unit_test(round_trip),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
