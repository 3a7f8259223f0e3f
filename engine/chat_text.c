/* SPDX-License-Identifier: Apache-2.0
 *
 * Strings, and the text of a chat with the spans that came from outside: see chat_parts.h.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/chat_parts.h"
#include "engine/utf8.h"

struct str str_of(const char *s)
{
	return (struct str){ s, strlen(s) };
}

struct str str_of_json(const json_t *v)
{
	return json_is_string(v) ? (struct str){ json_string_value(v), json_string_length(v) }
				 : str_of("");
}

/* str.isspace(): White_Space, and four separators of ASCII. */
static bool is_space(uint32_t cp)
{
	return utf8_is_space(cp) || (cp >= 0x1C && cp <= 0x1F);
}

struct str str_strip(struct str s)
{
	uint32_t cp;
	unsigned length;

	while (s.n && utf8_next(s.at, s.n, &cp, &length) == UTF8_CHAR && is_space(cp)) {
		s.at += length;
		s.n -= length;
	}
	while (s.n) {
		size_t back = 1;
		while (back < 4 && back < s.n && ((unsigned char)s.at[s.n - back] & 0xC0) == 0x80)
			back++;
		if (utf8_next(s.at + s.n - back, back, &cp, &length) != UTF8_CHAR || !is_space(cp))
			break;
		s.n -= back;
	}
	return s;
}

struct str str_lstrip_newlines(struct str s)
{
	while (s.n && *s.at == '\n') {
		s.at++;
		s.n--;
	}
	return s;
}

struct str str_rstrip_newlines(struct str s)
{
	while (s.n && s.at[s.n - 1] == '\n')
		s.n--;
	return s;
}

bool str_has(struct str s, const char *part)
{
	return memmem(s.at, s.n, part, strlen(part)) != NULL;
}

bool str_starts(struct str s, const char *part)
{
	size_t n = strlen(part);

	return s.n >= n && memcmp(s.at, part, n) == 0;
}

bool str_ends(struct str s, const char *part)
{
	size_t n = strlen(part);

	return s.n >= n && memcmp(s.at + s.n - n, part, n) == 0;
}

struct str str_before(struct str s, const char *part)
{
	const char *found = memmem(s.at, s.n, part, strlen(part));

	if (found)
		s.n = (size_t)(found - s.at);
	return s;
}

struct str str_behind_first(struct str s, const char *part)
{
	const char *found = memmem(s.at, s.n, part, strlen(part));

	if (found) {
		found += strlen(part);
		s.n -= (size_t)(found - s.at);
		s.at = found;
	}
	return s;
}

struct str str_behind_last(struct str s, const char *part)
{
	while (str_has(s, part))
		s = str_behind_first(s, part);
	return s;
}

/* ---- writing ---- */

static void append(struct chat_writer *w, const char *s, size_t n)
{
	if (w->failed || n == 0)
		return;
	if (n >= w->room - w->t.bytes) {
		size_t room = (w->t.bytes + n + 1) * 2;
		char *grown = realloc(w->t.text, room);
		if (!grown) {
			w->failed = true;
			return;
		}
		w->t.text = grown;
		w->room = room;
	}
	memcpy(w->t.text + w->t.bytes, s, n);
	w->t.bytes += n;
	w->t.text[w->t.bytes] = '\0';
}

void put(struct chat_writer *w, const char *s)
{
	append(w, s, strlen(s));
}

/* The last n bytes came from outside. */
static void mark(struct chat_writer *w, size_t n)
{
	size_t from = w->t.bytes - n;

	if (w->failed || n == 0)
		return;
	if (w->t.spans && w->t.span[w->t.spans - 1].to == from) {
		w->t.span[w->t.spans - 1].to = w->t.bytes;
		return;
	}
	if (w->t.spans == w->span_room) {
		size_t room = w->span_room ? w->span_room * 2 : 16;
		struct tokenizer_span *grown = realloc(w->t.span, room * sizeof(*grown));
		if (!grown) {
			w->failed = true;
			return;
		}
		w->t.span = grown;
		w->span_room = room;
	}
	w->t.span[w->t.spans++] = (struct tokenizer_span){ from, w->t.bytes };
}

void put_from_outside(struct chat_writer *w, struct str s)
{
	append(w, s.at, s.n);
	mark(w, s.n);
}

/* ---- JSON as Python writes it ---- */

static void quoted(struct chat_writer *w, const char *s, size_t n)
{
	static const char names[] = "\b\f\n\r\t\"\\", letters[] = "bfnrt\"\\";
	char escaped[8];

	append(w, "\"", 1);
	for (size_t i = 0; i < n; i++) {
		const char *name = s[i] ? strchr(names, s[i]) : NULL;
		if (name) {
			append(w, "\\", 1);
			append(w, &letters[name - names], 1);
		} else if ((unsigned char)s[i] < 0x20) {
			snprintf(escaped, sizeof(escaped), "\\u%04x", (unsigned)s[i]);
			append(w, escaped, strlen(escaped));
		} else {
			append(w, &s[i], 1);
		}
	}
	append(w, "\"", 1);
}

/* repr() of a float: the fewest digits that give it back; exponents below -4 and from 16 on. */
static void real(struct chat_writer *w, double v)
{
	char text[40], digits[24];
	int precision = 0;

	do
		snprintf(text, sizeof(text), "%.*e", precision, v);
	while (strtod(text, NULL) != v && ++precision < 17);
	int exponent = atoi(strchr(text, 'e') + 1);
	if (exponent >= -4 && exponent < 16) {
		/* Digits behind the point, at least one. */
		int behind = precision - exponent;
		snprintf(text, sizeof(text), "%.*f", behind > 1 ? behind : 1, v);
		append(w, text, strlen(text));
		return;
	}
	snprintf(digits, sizeof(digits), "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
	*strchr(text, 'e') = '\0';
	append(w, text, strlen(text));
	append(w, digits, strlen(digits));
}

static void value_of(struct chat_writer *w, const json_t *v);

static void members(struct chat_writer *w, const json_t *object)
{
	const char *key, *comma = "";
	json_t *value;

	append(w, "{", 1);
	json_object_foreach((json_t *)object, key, value)
	{
		put(w, comma);
		comma = ", ";
		quoted(w, key, strlen(key));
		put(w, ": ");
		value_of(w, value);
	}
	append(w, "}", 1);
}

static void value_of(struct chat_writer *w, const json_t *v)
{
	char number[32];

	switch (json_typeof(v)) {
	case JSON_OBJECT:
		members(w, v);
		break;
	case JSON_ARRAY:
		append(w, "[", 1);
		for (size_t i = 0; i < json_array_size(v); i++) {
			put(w, i ? ", " : "");
			value_of(w, json_array_get(v, i));
		}
		append(w, "]", 1);
		break;
	case JSON_STRING:
		quoted(w, json_string_value(v), json_string_length(v));
		break;
	case JSON_INTEGER:
		snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT, json_integer_value(v));
		put(w, number);
		break;
	case JSON_REAL:
		real(w, json_real_value(v));
		break;
	case JSON_TRUE:
		put(w, "true");
		break;
	case JSON_FALSE:
		put(w, "false");
		break;
	case JSON_NULL:
		put(w, "null");
		break;
	}
}

void put_json(struct chat_writer *w, const json_t *v)
{
	size_t from = w->t.bytes;

	value_of(w, v);
	mark(w, w->t.bytes - from);
}

void put_value(struct chat_writer *w, const json_t *v)
{
	if (json_is_string(v))
		put_from_outside(w, str_of_json(v));
	else
		put_json(w, v);
}
