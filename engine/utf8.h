/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8 (RFC 3629): one character at a time, and a filter that makes a stream of token pieces fit
 * to be shown.
 */
#ifndef ENGINE_UTF8_H
#define ENGINE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum utf8 {
	UTF8_CHAR, /* a character */
	UTF8_BAD,  /* no character starts here */
	UTF8_CUT,  /* the text ends inside of what could become a character */
};

/* Looks at the start of s (n bytes, at least 1). *bytes is the length of the character, or of the
 * longest beginning of one that is there, at least 1 (the "maximal subpart" of the Unicode
 * standard, section 3.9). *cp is the code point, set for UTF8_CHAR only. No surrogates, nothing
 * overlong, nothing above U+10FFFF. */
enum utf8 utf8_next(const char *s, size_t n, uint32_t *cp, unsigned *bytes);
/* Writes a code point (not a surrogate, at most U+10FFFF) into s, 1 to 4 bytes; returns how many.
 */
unsigned utf8_put(uint32_t cp, char *s);

/* Whether valid UTF-8 can contain the byte: not 0xC0, 0xC1, 0xF5 and above. */
bool utf8_has_byte(int byte);

/* The property White_Space of Unicode. */
bool utf8_is_space(uint32_t cp);
/* What \w means to the tokenizers library: letters, marks, numbers, connecting punctuation,
 * joiners. */
bool utf8_is_word(uint32_t cp);

/* For showing text that arrives in pieces: a character may be spread over several tokens, and
 * models may produce invalid bytes. Starts as { 0 }. */
struct utf8_stream {
	char held[4];
	unsigned n; /* bytes held, at most 3: the beginning of a character */
};

/* Room that a push of n bytes may need in out. */
#define UTF8_STREAM_ROOM(n) (3 * ((size_t)(n) + 1))
/* Takes n bytes, writes what can be shown now into out and returns its length. An incomplete
 * character at the end is held back; each invalid sequence becomes U+FFFD. */
size_t utf8_stream_push(struct utf8_stream *s, const char *bytes, size_t n, char *out);
/* At the end of the stream: U+FFFD into out (3 bytes of room) if a character remained incomplete.
 * Returns its length, 0 or 3; s is empty again. */
size_t utf8_stream_flush(struct utf8_stream *s, char *out);

#endif
