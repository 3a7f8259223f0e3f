/* SPDX-License-Identifier: Apache-2.0
 *
 * From Oniguruma's regular expressions to PCRE2's: see regex_dialect.h. The sources are doc/RE and
 * doc/SYNTAX.md of Oniguruma, pcre2pattern(3), and trials with the tokenizers library.
 *
 * What is not known to mean the same is refused: a wrong split would silently give wrong ids.
 */
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "engine/fail.h"
#include "engine/regex_dialect.h"

/* White_Space of Unicode, and all other code points, as the inside of a class. */
#define SPACES                                                                                     \
	"\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"         \
	"\\x{202f}\\x{205f}\\x{3000}"
#define NO_SPACES                                                                                  \
	"\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}"               \
	"\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}"             \
	"\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"

struct translation {
	const char *in, *at; /* the whole expression, and what is still to be read */
	char *out;
	size_t n, room;
	bool in_class;
	bool class_open; /* nothing of the class has been read but [ and ^ */
	char *why;
};

static int put(struct translation *t, const char *s, size_t n)
{
	if (n > t->room - t->n) {
		size_t room = (t->room + n) * 2;
		char *grown = realloc(t->out, room);
		if (!grown)
			return -ENOMEM;
		t->out = grown;
		t->room = room;
	}
	memcpy(t->out + t->n, s, n);
	t->n += n;
	return 0;
}

static int put_text(struct translation *t, const char *s)
{
	return put(t, s, strlen(s));
}

/* Copies the next n bytes as they are. */
static int copy(struct translation *t, size_t n)
{
	int rc = put(t, t->at, n);

	t->at += n;
	return rc;
}

static int refuse(const struct translation *t, size_t n)
{
	return fail(t->why, EINVAL,
		    "the regular expression has %.*s at byte %td, which is not supported", (int)n,
		    t->at, t->at - t->in);
}

static int put_spaces(struct translation *t, bool spaces)
{
	int rc = 0;

	t->at += 2;
	if (!t->in_class)
		rc = put_text(t, spaces ? "[" : "[^");
	if (rc == 0)
		rc = put_text(t, spaces || !t->in_class ? SPACES : NO_SPACES);
	if (rc == 0 && !t->in_class)
		rc = put_text(t, "]");
	return rc;
}

/* \p{Name}, \p{^Name}, \P{Name}. One or two characters are a general category, which both spell and
 * understand the same way (Yi is a script); any other name is taken for a script. */
static int put_property(struct translation *t)
{
	size_t n = strcspn(t->at, "}") + 1, start = strncmp(t->at + 2, "{^", 2) == 0 ? 4 : 3;

	if (t->at[2] != '{' || t->at[n - 1] != '}' || n > 64)
		return refuse(t, 2);
	for (size_t i = start; i < n - 1; i++)
		if (!isalpha((unsigned char)t->at[i]) && t->at[i] != '_')
			return refuse(t, n);
	if (n - 1 - start <= 2 && strchr("LMNPSZC", toupper((unsigned char)t->at[start])))
		return copy(t, n);
	int rc = copy(t, start);
	if (rc == 0)
		rc = put_text(t, "sc:");
	return rc == 0 ? copy(t, n - start) : rc;
}

/* \uHHHH, and \x{H...}. \xHH is a byte to the one and a code point to the other. */
static int put_code_point(struct translation *t)
{
	bool braced = t->at[1] == 'x';
	size_t start = braced ? 3 : 2, digits = 0;

	if (braced && t->at[2] != '{')
		return refuse(t, 2);
	while (digits < 8 && isxdigit((unsigned char)t->at[start + digits]))
		digits++;
	if (braced ? digits == 0 || digits > 6 || t->at[start + digits] != '}' : digits < 4)
		return refuse(t, 2);
	if (braced)
		return copy(t, start + digits + 1);
	t->at += 2;
	int rc = put_text(t, "\\x{");
	if (rc == 0)
		rc = copy(t, 4);
	return rc == 0 ? put_text(t, "}") : rc;
}

static int translate_escape(struct translation *t)
{
	unsigned char c = (unsigned char)t->at[1];

	switch (c) {
	case '\0':
		return fail(t->why, EINVAL, "the regular expression ends with a backslash");
	case 's':
	case 'S':
		return put_spaces(t, c == 's');
	case 'p':
	case 'P':
		return put_property(t);
	case 'u':
	case 'x':
		return put_code_point(t);
	case 'v':
		t->at += 2;
		return put_text(t, "\\x{b}");
	case 'a':
	case 'd':
	case 'D':
	case 'e':
	case 'f':
	case 'n':
	case 'r':
	case 't':
		return copy(t, 2);
	default:
		return isalnum(c) || c >= 0x80 ? refuse(t, 2) : copy(t, 2);
	}
}

static int translate_in_class(struct translation *t)
{
	bool first = t->class_open;

	t->class_open = false;
	if (t->at[0] == '\\')
		return translate_escape(t);
	if (t->at[0] == '[' || (t->at[0] == '&' && t->at[1] == '&'))
		return refuse(t, t->at[0] == '[' ? 1 : 2);
	if (t->at[0] == ']' && !first)
		t->in_class = false;
	return copy(t, 1);
}

/* What follows (? : groups, assertions, and of the options only (?i:...), and (?i) in front of
 * everything, because Ruby ends an option in the middle at the next | and PCRE2 does not. */
static int translate_group(struct translation *t)
{
	static const char *const same[] = { "(?:",  "(?=", "(?!",  "(?<=",
					    "(?<!", "(?>", "(?i:", "(?-i:" };

	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
		if (strncmp(t->at, same[i], strlen(same[i])) == 0)
			return copy(t, strlen(same[i]));
	if (t->at == t->in && strncmp(t->at, "(?i)", 4) == 0)
		return copy(t, 4);
	return refuse(t, t->at[2] ? 3 : 2);
}

/* Behind {n,m}, + repeats the repetition in Ruby and makes it possessive in PCRE2, and ? makes {n}
 * optional in Ruby only; {,m} and other odd forms depend on the version. */
static int translate_braces(struct translation *t)
{
	const char *p = t->at + 1;
	size_t least = strspn(p, "0123456789");

	p += least;
	bool fixed = *p != ',';
	if (!fixed)
		p += 1 + strspn(p + 1, "0123456789");
	if (least == 0 || *p != '}' || p[1] == '+' || (fixed && p[1] == '?'))
		return refuse(t, (size_t)(p - t->at) + (*p == '}'));
	return copy(t, (size_t)(p - t->at) + 1);
}

static int translate_outside(struct translation *t)
{
	switch (t->at[0]) {
	case '\\':
		return translate_escape(t);
	case '[':
		t->in_class = t->class_open = true;
		return copy(t, t->at[1] == '^' ? 2 : 1);
	case '(':
		if (t->at[1] == '*')
			return refuse(t, 2);
		return t->at[1] == '?' ? translate_group(t) : copy(t, 1);
	case '{':
		return translate_braces(t);
	case '^':
		return refuse(t, 1);
	case '$':
		/* In front of each newline, and at the end unless that is behind one. */
		t->at++;
		return put_text(t, "(?:(?=\\n)|(?<!\\n)\\z)");
	default:
		return copy(t, 1);
	}
}

int regex_translate(const char *regex, char **out, char *why)
{
	struct translation t = { .in = regex, .at = regex, .why = why };
	size_t bytes = strlen(regex);
	int rc = 0;

	*out = NULL;
	if (bytes > REGEX_MAX)
		return fail(why, EINVAL, "the regular expression has %zu bytes, more than %d",
			    bytes, REGEX_MAX);
	t.room = bytes + sizeof(NO_SPACES);
	t.out = malloc(t.room);
	if (!t.out)
		rc = -ENOMEM;
	while (*t.at && rc == 0)
		rc = t.in_class ? translate_in_class(&t) : translate_outside(&t);
	if (rc == 0)
		rc = put(&t, "", 1);
	if (rc == 0)
		*out = t.out;
	else
		free(t.out);
	if (rc == -ENOMEM)
		fail(why, ENOMEM, "out of memory for a regular expression");
	return rc;
}
