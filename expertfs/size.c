/* SPDX-License-Identifier: Apache-2.0
 *
 * Sizes as people write and read them (size.h): options of the daemon and the tools come in here,
 * amounts in their sentences go out.
 */
#include "expertfs/size.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define FRACTION_DIGITS 7 /* 10^7 * 2^40 stays below 2^64; further digits are cut off */

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* The power of 1024 of a suffix, or -1 if it is none. */
static int suffix_power(const char *p)
{
	static const char letters[] = "kmgt";
	int power = 0;

	if (*p) {
		const char *at = strchr(letters, *p | 0x20);
		if (at) {
			power = (int)(at - letters) + 1;
			p++;
			if (*p == 'i') {
				p++;
				if (*p != 'B' && *p != 'b')
					return -1;
			}
		}
	}
	if (*p == 'B' || *p == 'b')
		p++;
	return *p ? -1 : power;
}

/* strtod would take hexadecimal, "inf" and the locale's comma; a size is plain digits. */
int size_parse(const char *text, uint64_t *bytes)
{
	uint64_t whole = 0, fraction = 0, scale = 1, unit, part;
	bool too_large = false, has_fraction = false;
	const char *p = text;
	int power;

	if (!is_digit(*p))
		return -EINVAL;
	for (; is_digit(*p); p++)
		too_large |= __builtin_mul_overflow(whole, 10, &whole) ||
			     __builtin_add_overflow(whole, (uint64_t)(*p - '0'), &whole);
	if (*p == '.') {
		has_fraction = true;
		if (!is_digit(*++p))
			return -EINVAL;
		for (int i = 0; is_digit(*p); p++, i++) {
			if (i < FRACTION_DIGITS) {
				fraction = fraction * 10 + (uint64_t)(*p - '0');
				scale *= 10;
			}
		}
	}
	power = suffix_power(p);
	if (power < 0 || (has_fraction && power == 0))
		return -EINVAL;
	unit = (uint64_t)1 << (10 * power);
	part = fraction * unit / scale;
	if (too_large || whole > (UINT64_MAX - part) / unit)
		return -ERANGE;
	*bytes = whole * unit + part;
	return 0;
}

const char *size_text(uint64_t bytes, char *buf)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double v = (double)bytes;
	unsigned u = 0;
	int decimals;

	/* 999.5 and more would round to a fourth digit. */
	while (v >= 999.5) {
		v /= 1024;
		u++;
	}
	if (u == 0 || v >= 99.95)
		decimals = 0;
	else if (v >= 9.995)
		decimals = 1;
	else if (v >= 0.9995)
		decimals = 2;
	else
		decimals = 3;
	snprintf(buf, 16, "%.*f %s", decimals, v, units[u]);
	return buf;
}
