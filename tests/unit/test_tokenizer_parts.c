/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of the tokenizer on their own: UTF-8, normalisation, merging against the plain
 * quadratic algorithm, the dialects of regular expressions, splitting.
 */
#include <utf8proc.h>

#include "engine/bpe.h"
#include "engine/nfc.h"
#include "engine/pretokenize.h"
#include "engine/regex_dialect.h"
#include "engine/utf8.h"
#include "tests/unit/tokenizer_files.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* ---- UTF-8 ---- */

static void every_code_point(void **state)
{
	(void)state;
	for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
		char s[4];
		uint32_t back = 0;
		unsigned length = 0;
		if (cp >= 0xD800 && cp < 0xE000)
			continue;
		unsigned n = utf8_put(cp, s);
		assert_int_equal(n, cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4);
		assert_int_equal(utf8_next(s, n, &back, &length), UTF8_CHAR);
		assert_int_equal(back, cp);
		assert_int_equal(length, n);
		for (unsigned part = 1; part < n; part++) {
			assert_int_equal(utf8_next(s, part, &back, &length), UTF8_CUT);
			assert_int_equal(length, part);
		}
	}
}

static void no_characters(void **state)
{
	static const struct {
		const char *bytes;
		unsigned length; /* of what is passed over at once */
	} cases[] = {
		{ "\x80", 1 },
		{ "\xBF\x80", 1 },
		{ "\xC0\x80", 1 },
		{ "\xC1\xBF", 1 },
		{ "\xC2 ", 1 },
		{ "\xE0\x9F\x80", 1 },
		{ "\xED\xA0\x80", 1 },
		{ "\xE2\x82 ", 2 },
		{ "\xF0\x8F\x80\x80", 1 },
		{ "\xF4\x90\x80\x80", 1 },
		{ "\xF5\x80\x80", 1 },
		{ "\xFF", 1 },
		{ "\xF0\x9F\xA6z", 3 },
		{ "\xF0\x9Fz", 2 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		uint32_t cp;
		unsigned length = 0;
		assert_int_equal(utf8_next(cases[i].bytes, strlen(cases[i].bytes), &cp, &length),
				 UTF8_BAD);
		assert_int_equal(length, cases[i].length);
	}
}

/* What a stream shows, however its bytes are cut into pieces. */
static void streams(void **state)
{
#define FFFD "\xEF\xBF\xBD"
	static const struct {
		const char *in, *out;
	} cases[] = {
		{ "plain text", "plain text" },
		{ "\xC3\xA9 \xE4\xBD\xA0 \xF0\x9F\xA6\x80!",
		  "\xC3\xA9 \xE4\xBD\xA0 \xF0\x9F\xA6\x80!" },
		{ "a\xFFz", "a" FFFD "z" },
		{ "\xF0\x9F\xA6", FFFD },
		{ "\xF0\x9F\xA6\xF0\x9F\xA6\x80", FFFD "\xF0\x9F\xA6\x80" },
		{ "\xE4\xBD\xC3\xA9\xC3", FFFD "\xC3\xA9" FFFD },
		{ "\xED\xA0\x80", FFFD FFFD FFFD },
		{ "\xC3\xC3\xC3 \x80", FFFD FFFD FFFD " " FFFD },
		{ "", "" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		size_t n = strlen(cases[i].in);
		for (size_t step = 1; step <= n + 1; step++) {
			struct utf8_stream s = { 0 };
			char out[UTF8_STREAM_ROOM(32)], shown[256];
			size_t total = 0;
			for (size_t at = 0; at < n; at += step) {
				size_t now = n - at < step ? n - at : step;
				size_t got = utf8_stream_push(&s, cases[i].in + at, now, out);
				assert_true(got <= UTF8_STREAM_ROOM(now));
				memcpy(shown + total, out, got);
				total += got;
			}
			total += utf8_stream_flush(&s, shown + total);
			assert_int_equal(utf8_stream_flush(&s, shown + total), 0);
			shown[total] = '\0';
			assert_string_equal(shown, cases[i].out);
		}
	}
}

/* Nothing is shown early, and nothing later than it could be. */
static void streams_hold_back_no_more_than_a_character(void **state)
{
	struct utf8_stream s = { 0 };
	char out[UTF8_STREAM_ROOM(4)];

	(void)state;
	assert_int_equal(utf8_stream_push(&s, "a\xF0\x9F", 3, out), 1);
	assert_int_equal(utf8_stream_push(&s, "\xA6", 1, out), 0);
	assert_int_equal(utf8_stream_push(&s, "\x80", 1, out), 4);
	assert_memory_equal(out, "\xF0\x9F\xA6\x80", 4);
	assert_int_equal(utf8_stream_push(&s, "b", 1, out), 1);
	assert_int_equal(utf8_stream_push(&s, NULL, 0, out), 0);
	assert_int_equal(utf8_stream_flush(&s, out), 0);
}

/* ---- NFC ---- */

static void known_normal_forms(void **state)
{
	static const struct {
		const char *text, *normal; /* NULL: the same */
	} cases[] = {
		{ "plain \u00e9\u00ff", NULL },
		{ "e\u0301", "\u00e9" },
		{ "\u212b \u2126 \u2000", "\u00c5 \u03a9 \u2002" },
		{ "o\u0302\u0323", "\u1ed9" },
		{ "a\u0315\u0300\u05ae\u0300b", "\u00e0\u05ae\u0300\u0315b" },
		{ "\u1100\u1161\u11a8 \uac00\u11a8", "\uac01 \uac01" },
		{ "\u0958", "\u0915\u093c" }, /* excluded from composition */
		{ "\u0344", "\u0308\u0301" },
		{ "\U0001d15e", "\U0001d157\U0001d165" },
		{ "\u0301e", "\u0301e" },
		{ "q\u0307\u0323", "q\u0323\u0307" },
		{ "\ufb01", "\ufb01" }, /* compatibility is another form */
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		char *out;
		size_t bytes;
		assert_int_equal(nfc(cases[i].text, strlen(cases[i].text), &out, &bytes), 0);
		if (!cases[i].normal) {
			assert_null(out);
			continue;
		}
		assert_non_null(out);
		assert_int_equal(bytes, strlen(cases[i].normal));
		assert_memory_equal(out, cases[i].normal, bytes);
		free(out);
	}
}

/* The same as utf8proc's own way through, which sorts otherwise. */
static void normal_forms_of_random_text(void **state)
{
	static const struct {
		uint32_t first, n;
	} ranges[] = { { 'a', 26 },       { 0x300, 0x70 },   { 0xC0, 0x140 },
		       { 0x1100, 0x100 }, { 0x900, 0x600 },  { 0xAC00, 11172 },
		       { 0x591, 0x30 },   { 0x1E00, 0x200 }, { 0x1D150, 0x40 } };
	uint64_t random = 31337;

	(void)state;
	for (int round = 0; round < 20000; round++) {
		char text[4 * 24], *ours;
		size_t n = 0, bytes;
		utf8proc_uint8_t *theirs;
		for (uint32_t k = random_below(&random, 24); k > 0; k--) {
			uint32_t r = random_below(&random, COUNT(ranges));
			n += utf8_put(ranges[r].first + random_below(&random, ranges[r].n),
				      text + n);
		}
		assert_int_equal(nfc(text, n, &ours, &bytes), 0);
		utf8proc_ssize_t length =
			utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &theirs,
				     UTF8PROC_STABLE | UTF8PROC_COMPOSE);
		assert_true(length >= 0);
		assert_int_equal(length, ours ? bytes : n);
		assert_memory_equal(ours ? ours : text, theirs, length);
		free(theirs);
		free(ours);
	}
}

/* ---- merging ---- */

static void alphabet(void **state)
{
	char out[64];
	size_t n;

	(void)state;
	assert_true(bpe_unmap("a\u0120\u010a\u0109\u0121\u0142\u0143\u00ff\u0100", 17, out, &n));
	assert_int_equal(n, 9);
	assert_memory_equal(out, "a \n\t\x7F\xA0\xAD\xFF\x00", 9);
	assert_false(bpe_unmap(" ", 1, out, &n));
	assert_false(bpe_unmap("\u0144", 2, out, &n));
	assert_false(bpe_unmap("a\u00a0", 3, out, &n));
	assert_false(bpe_unmap("\u00ad", 2, out, &n));
	assert_false(bpe_unmap("\xC4", 1, out, &n));
}

#define ALPHABET 3
#define TOKENS   40

struct naive {
	struct bpe bpe;
	struct {
		int left, right, into;
	} merge[3 * TOKENS]; /* in order of rank */
	int merges;
};

/* A random vocabulary over a few letters: each token is made of two earlier ones, some in two ways.
 */
static void make_vocabulary(struct naive *v, uint64_t *random)
{
	char bytes[256];

	assert_int_equal(bpe_init(&v->bpe, 256 + TOKENS, COUNT(v->merge)), 0);
	for (int id = 0; id < 256; id++) {
		bytes[0] = (char)id;
		assert_int_equal(bpe_define(&v->bpe, id, bytes, 1), 0);
		bpe_reachable(&v->bpe, id);
	}
	v->merges = 0;
	for (int next = 256; next < 256 + TOKENS;) {
		int part[2], into;
		size_t n = 0;
		for (int k = 0; k < 2; k++) {
			uint32_t r = random_below(random, (uint32_t)(ALPHABET + next - 256));
			part[k] = r < ALPHABET ? (int)('a' + r) : (int)(256 + r - ALPHABET);
			struct bpe_piece p = v->bpe.piece[part[k]];
			if (n + p.bytes > 24)
				break;
			memcpy(bytes + n, v->bpe.bytes + p.offset, p.bytes);
			n += p.bytes;
			if (k == 0)
				continue;
			into = bpe_find(&v->bpe, bytes, n);
			if (into < 0) {
				into = next++;
				assert_int_equal(bpe_define(&v->bpe, into, bytes, n), 0);
				bpe_reachable(&v->bpe, into);
			}
			bool known = false;
			for (int m = 0; m < v->merges; m++)
				known |=
					v->merge[m].left == part[0] && v->merge[m].right == part[1];
			if (known || v->merges == (int)COUNT(v->merge))
				continue;
			v->merge[v->merges].left = part[0];
			v->merge[v->merges].right = part[1];
			v->merge[v->merges].into = into;
			bpe_add_merge(&v->bpe, part[0], part[1], into, (uint32_t)v->merges++);
		}
	}
}

/* Section 1.2 of the specification, word for word. */
static size_t merge_naively(const struct naive *v, int32_t *id, size_t n)
{
	for (int m = 0; m < v->merges; m++)
		for (size_t i = 0; i + 1 < n; i++)
			if (id[i] == v->merge[m].left && id[i + 1] == v->merge[m].right) {
				id[i] = v->merge[m].into;
				memmove(id + i + 1, id + i + 2, (n - i - 2) * sizeof(id[0]));
				n--;
				m = -1; /* from the lowest rank again */
				break;
			}
	return n;
}

static void merging_as_specified(void **state)
{
	static struct naive v;
	struct bpe_scratch scratch = { 0 };
	struct bpe_ids ids = { 0 };
	uint64_t random = 99;
	long merged = 0;

	(void)state;
	for (int round = 0; round < 300; round++) {
		make_vocabulary(&v, &random);
		for (int t = 0; t < 30; t++) {
			char text[100];
			int32_t expected[100];
			size_t n = random_below(&random, 100);
			for (size_t i = 0; i < n; i++) {
				text[i] = (char)('a' + random_below(&random, ALPHABET));
				expected[i] = (unsigned char)text[i];
			}
			ids.n = 0;
			assert_int_equal(bpe_encode(&v.bpe, text, n, &scratch, &ids), 0);
			size_t count = merge_naively(&v, expected, n);
			assert_int_equal(ids.n, count);
			assert_memory_equal(ids.id, expected, count * sizeof(expected[0]));
			merged += (long)(n - count);
		}
		bpe_free(&v.bpe);
	}
	assert_true(merged > 100000);
	free(ids.id);
	bpe_scratch_free(&scratch);
}

/* ---- regular expressions ---- */

static void translated_expressions(void **state)
{
	static const struct {
		const char *ruby, *pcre; /* NULL: the same */
	} cases[] = {
		{ "(?i:'s|'t)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}", NULL },
		{ "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+", NULL },
		{ "[\\p{Lu}\\p{^Lt}]*\\P{M}a{2,}?b??c*+d++(?<=x)(?<!y)(?>z)", NULL },
		{ "(?i)a(b(?-i:c))", NULL },
		{ "[]a]x", NULL },
		{ "[^]a]x", NULL },
		{ "\\p{Han}\\P{^Hiragana}[\\p{Yi}]", "\\p{sc:Han}\\P{^sc:Hiragana}[\\p{sc:Yi}]" },
		{ "\\u4e00-[\\u0041]\\x{1F600}\\v", "\\x{4e00}-[\\x{0041}]\\x{1F600}\\x{b}" },
	};
	static const char *const refused[] = {
		"\\w",          "[\\w]",      "\\b",      "\\h",     "\\R",     "\\X",    "\\K",
		"\\G",          "\\A",        "\\Z",      "\\1",     "\\k<a>",  "\\Q",    "\\pL",
		"\\p{",         "\\p{L",      "\\p{a-b}", "\\p",     "\\P{",    "\\x41",  "\\x{}",
		"\\x{1234567}", "\\x{41",     "\\u41",    "\\N",     "^a",      "[a[b]]", "[a&&b]",
		"[[:alpha:]]",  "(?m:a)",     "(?x)a",    "a(?i)b",  "(?<n>a)", "(?#a)",  "(?",
		"(*UTF)a",      "a{,3}",      "a{2}+",    "a{1,2}+", "a{2}?",   "a{b",    "{",
		"a\\",          "\\\xC3\xA9",
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		char *out, why[WHY_MAX] = "";
		if (regex_translate(cases[i].ruby, &out, why) != 0)
			fail_msg("%s", why);
		assert_string_equal(out, cases[i].pcre ? cases[i].pcre : cases[i].ruby);
		free(out);
	}
	for (size_t i = 0; i < COUNT(refused); i++) {
		char *out, why[WHY_MAX] = "";
		if (regex_translate(refused[i], &out, why) != -EINVAL || !why[0])
			fail_msg("%s was not refused", refused[i]);
		assert_null(out);
	}
	char *out, why[WHY_MAX] = "", *longest = calloc(REGEX_MAX + 2, 1);
	memset(longest, 'a', REGEX_MAX + 1);
	assert_int_equal(regex_translate(longest, &out, why), -EINVAL);
	assert_non_null(strstr(why, "65537 bytes"));
	free(longest);
}

static int collect(void *ctx, const char *piece, size_t bytes)
{
	fprintf(ctx, "%.*s|", (int)bytes, piece);
	return bytes == 4 && memcmp(piece, "stop", 4) == 0 ? 42 : 0;
}

/* The pieces, each followed by a bar; the list ends with the piece "stop". */
static void pieces_are(const char *const *regexes, size_t n, bool literal, const char *text,
		       const char *expected)
{
	struct pretokenizer *p = pretokenizer_new();
	char why[WHY_MAX] = "", *pieces = NULL;
	size_t bytes;
	FILE *f = open_memstream(&pieces, &bytes);

	for (size_t i = 0; i < n; i++)
		if (pretokenizer_add(p, regexes[i], literal, why) != 0)
			fail_msg("%s", why);
	struct pretokenizer_state *s = pretokenizer_start(p);
	int rc = pretokenize(s, text, strlen(text), collect, f, why);
	fclose(f);
	assert_string_equal(pieces, expected);
	assert_int_equal(rc == 42, strstr(expected, "stop|") != NULL);
	free(pieces);
	pretokenizer_end(s);
	pretokenizer_free(p);
}

static void splitting(void **state)
{
	static const char *const digits[] = { "\\p{N}{1,3}", "[a-b]+", "c" };
	static const char *const byte_level[] = { PRETOKENIZE_BYTE_LEVEL };
	static const char *const empty[] = { "b*" };
	static const char *const look[] = { "(?=b)" };
	static const char *const literal[] = { "a.*", "(" };
	static const char *const spaces[] = { "\\s" };
	static const char *const no_spaces[] = { "[\\S]+" };

	(void)state;
	pieces_are(NULL, 0, false, "a b", "a b|");
	pieces_are(NULL, 0, false, "", "");
	pieces_are(NULL, 0, false, "stop", "stop|");
	pieces_are(digits, 3, false, "1234abcabx..c9", "123|4|ab|c|ab|x..|c|9|");
	pieces_are(byte_level, 1, false, "I'm  here,  12a\n\n b ",
		   "I|'m| | here|,| | 12|a|\n\n| b| |");
	pieces_are(byte_level, 1, false, "(stop 7", "(|stop|");
	/* As the tokenizers library does it. */
	pieces_are(empty, 1, false, "aabbaa", "a|a|bb|a|a|");
	pieces_are(look, 1, false, "aabbaa", "aa|b|baa|");
	pieces_are(empty, 1, false, "\u00e9b\u4f60", "\u00e9|b|\u4f60|");
	pieces_are(literal, 2, true, "xa.*(a(", "x|a.*|(|a|(|");
	pieces_are(spaces, 1, false,
		   "a\xC2\x85"
		   "b\u180ec\u3000d\u200be",
		   "a|\xC2\x85|b\u180ec|\u3000|d\u200be|");
	pieces_are(no_spaces, 1, false,
		   "a\xC2\x85"
		   "b\u180ec\u3000d",
		   "a|\xC2\x85|b\u180ec|\u3000|d|");
}

static void too_many_expressions(void **state)
{
	struct pretokenizer *p = pretokenizer_new();
	char why[WHY_MAX] = "";

	(void)state;
	for (int i = 0; i < PRETOKENIZE_MAX; i++)
		assert_int_equal(pretokenizer_add(p, "a", false, why), 0);
	assert_int_equal(pretokenizer_add(p, "a", false, why), -EINVAL);
	assert_string_equal(why, "there are more than 16 regular expressions");
	pretokenizer_free(p);
	pretokenizer_free(NULL);
	pretokenizer_end(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_code_point),
		cmocka_unit_test(no_characters),
		cmocka_unit_test(streams),
		cmocka_unit_test(streams_hold_back_no_more_than_a_character),
		cmocka_unit_test(known_normal_forms),
		cmocka_unit_test(normal_forms_of_random_text),
		cmocka_unit_test(alphabet),
		cmocka_unit_test(merging_as_specified),
		cmocka_unit_test(translated_expressions),
		cmocka_unit_test(splitting),
		cmocka_unit_test(too_many_expressions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
