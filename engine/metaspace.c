/* SPDX-License-Identifier: Apache-2.0
 *
 * The alphabet of SentencePiece-style vocabularies: see metaspace.h.
 */
#include <string.h>

#include "engine/metaspace.h"

size_t metaspace_unmap(const char *s, size_t n, char *out)
{
	size_t used = 0;

	for (size_t i = 0; i < n;) {
		if (n - i >= METASPACE_BYTES && memcmp(s + i, METASPACE, METASPACE_BYTES) == 0) {
			out[used++] = ' ';
			i += METASPACE_BYTES;
		} else {
			out[used++] = s[i++];
		}
	}
	return used;
}

static int hex_digit(char c)
{
	static const char digits[] = "0123456789ABCDEF";
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) : -1;
}

int metaspace_byte(const char *s, size_t n)
{
	if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>')
		return -1;
	int high = hex_digit(s[3]), low = hex_digit(s[4]);
	return high < 0 || low < 0 ? -1 : high * 16 + low;
}
