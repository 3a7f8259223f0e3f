/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8: see utf8.h.
 */
#include <string.h>
#include <utf8proc.h>

#include "engine/utf8.h"

/* Table 3-7 of the Unicode standard: only the second byte has narrower bounds after some leads. */
static void second_byte_bounds(unsigned lead, unsigned *low, unsigned *high)
{
	*low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
	*high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
}

enum utf8 utf8_next(const char *s, size_t n, uint32_t *cp, unsigned *bytes)
{
	const unsigned char *u = (const unsigned char *)s;
	unsigned lead = u[0], length, low, high;

	*bytes = 1;
	if (lead < 0x80) {
		*cp = lead;
		return UTF8_CHAR;
	}
	if (lead < 0xC2 || lead > 0xF4)
		return UTF8_BAD;
	length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
	second_byte_bounds(lead, &low, &high);
	uint32_t value = lead & (0x7Fu >> length);
	for (unsigned i = 1; i < length; i++) {
		if (i == n)
			return UTF8_CUT;
		if (u[i] < low || u[i] > high)
			return UTF8_BAD;
		value = value << 6 | (u[i] & 0x3F);
		*bytes = i + 1;
		low = 0x80;
		high = 0xBF;
	}
	*cp = value;
	return UTF8_CHAR;
}

unsigned utf8_put(uint32_t cp, char *s)
{
	if (cp < 0x80) {
		s[0] = (char)cp;
		return 1;
	}
	unsigned length = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
	for (unsigned i = length - 1; i > 0; i--) {
		s[i] = (char)(0x80 | (cp & 0x3F));
		cp >>= 6;
	}
	s[0] = (char)((0xF00u >> length & 0xFF) | cp);
	return length;
}

bool utf8_has_byte(int byte)
{
	return byte < 0xF5 && byte != 0xC0 && byte != 0xC1;
}

bool utf8_is_space(uint32_t cp)
{
	switch (cp) {
	case 0x09 ... 0x0D:
	case 0x20:
	case 0x85:
	case 0xA0:
	case 0x1680:
	case 0x2000 ... 0x200A:
	case 0x2028:
	case 0x2029:
	case 0x202F:
	case 0x205F:
	case 0x3000:
		return true;
	default:
		return false;
	}
}

bool utf8_is_word(uint32_t cp)
{
	switch (utf8proc_category((utf8proc_int32_t)cp)) {
	case UTF8PROC_CATEGORY_LU:
	case UTF8PROC_CATEGORY_LL:
	case UTF8PROC_CATEGORY_LT:
	case UTF8PROC_CATEGORY_LM:
	case UTF8PROC_CATEGORY_LO:
	case UTF8PROC_CATEGORY_MN:
	case UTF8PROC_CATEGORY_MC:
	case UTF8PROC_CATEGORY_ME:
	case UTF8PROC_CATEGORY_ND:
	case UTF8PROC_CATEGORY_NL:
	case UTF8PROC_CATEGORY_PC:
		return true;
	default:
		break;
	}
	/* Symbols that are Other_Alphabetic, and Join_Control. */
	return (cp >= 0x24B6 && cp <= 0x24E9) || (cp >= 0x1F130 && cp <= 0x1F149) ||
	       (cp >= 0x1F150 && cp <= 0x1F169) || (cp >= 0x1F170 && cp <= 0x1F189) ||
	       cp == 0x200C || cp == 0x200D;
}

static const char REPLACEMENT[3] = { '\xEF', '\xBF', '\xBD' }; /* U+FFFD */

size_t utf8_stream_push(struct utf8_stream *s, const char *bytes, size_t n, char *out)
{
	size_t written = 0;

	while (s->n + n > 0) {
		/* The next 4 bytes of the stream, across the seam. */
		char next[4];
		size_t held = s->n, fresh = n < 4 - held ? n : 4 - held;
		uint32_t cp;
		unsigned length;

		memcpy(next, s->held, held);
		if (fresh)
			memcpy(next + held, bytes, fresh);
		enum utf8 what = utf8_next(next, held + fresh, &cp, &length);
		if (what == UTF8_CUT) {
			memcpy(s->held, next, held + fresh);
			s->n = (unsigned)(held + fresh);
			break;
		}
		const char *show = what == UTF8_CHAR ? next : REPLACEMENT;
		unsigned shown = what == UTF8_CHAR ? length : sizeof(REPLACEMENT);
		memcpy(out + written, show, shown);
		written += shown;
		/* What is held is the beginning of a character, so at least all of it is used up.
		 */
		s->n = 0;
		bytes += length - held;
		n -= length - held;
	}
	return written;
}

size_t utf8_stream_flush(struct utf8_stream *s, char *out)
{
	size_t held = s->n;

	s->n = 0;
	if (held)
		memcpy(out, REPLACEMENT, sizeof(REPLACEMENT));
	return held ? sizeof(REPLACEMENT) : 0;
}
