/* SPDX-License-Identifier: Apache-2.0
 *
 * Splitting by regular expressions with PCRE2: see pretokenize.h.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <errno.h>
#include <pcre2.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/fail.h"
#include "engine/pretokenize.h"
#include "engine/regex_dialect.h"

const char PRETOKENIZE_BYTE_LEVEL[] =
	"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* Compiled code takes this much of a stack of its own; where it does not suffice the interpreter,
 * which takes memory from the heap, does the same match. */
#define JIT_STACK_START (32 * 1024)
#define JIT_STACK_MAX   (1024 * 1024)
#define HEAP_MAX_KIB    (256 * 1024)
/* Steps of one match. The patterns of the known models take a few for each byte: a run of white
 * space is scanned forwards and backwards once. An expression that takes more is of the exponential
 * kind. */
#define STEPS_BASE     1000000u
#define STEPS_PER_BYTE 32u

struct pretokenizer {
	int n;
	pcre2_code *code[PRETOKENIZE_MAX];
};

struct pretokenizer_state {
	const struct pretokenizer *p;
	pcre2_match_data *match;
	pcre2_match_context *context;
	pcre2_jit_stack *stack;
	int (*emit)(void *ctx, const char *piece, size_t bytes);
	void *ctx;
	char *why;
};

struct pretokenizer *pretokenizer_new(void)
{
	return calloc(1, sizeof(struct pretokenizer));
}

void pretokenizer_free(struct pretokenizer *p)
{
	if (!p)
		return;
	for (int i = 0; i < p->n; i++)
		pcre2_code_free(p->code[i]);
	free(p);
}

static int compile(const char *regex, uint32_t options, pcre2_code **out, char *why)
{
	pcre2_compile_context *context = pcre2_compile_context_create(NULL);
	PCRE2_SIZE where;
	int error;

	if (!context)
		return fail(why, ENOMEM, "out of memory for a regular expression");
	pcre2_set_newline(context, PCRE2_NEWLINE_LF);
	*out = pcre2_compile((PCRE2_SPTR)regex, PCRE2_ZERO_TERMINATED, options, &error, &where,
			     context);
	pcre2_compile_context_free(context);
	if (!*out) {
		PCRE2_UCHAR message[256] = "";
		pcre2_get_error_message(error, message, sizeof(message));
		return fail(why, EINVAL, "the regular expression %.200s is wrong at byte %zu: %s",
			    regex, (size_t)where, (const char *)message);
	}
	/* Where the processor or the system allows no compiled code, the interpreter gives the
	 * same. */
	(void)pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE);
	return 0;
}

int pretokenizer_add(struct pretokenizer *p, const char *regex, bool literal, char *why)
{
	char *ours = NULL;
	int rc = 0;

	if (p->n == PRETOKENIZE_MAX)
		return fail(why, EINVAL, "there are more than %d regular expressions",
			    PRETOKENIZE_MAX);
	if (!literal)
		rc = regex_translate(regex, &ours, why);
	if (rc == 0)
		rc = compile(literal ? regex : ours,
			     literal ? PCRE2_UTF | PCRE2_LITERAL : PCRE2_UTF | PCRE2_UCP,
			     &p->code[p->n], why);
	if (rc == 0)
		p->n++;
	free(ours);
	return rc;
}

struct pretokenizer_state *pretokenizer_start(const struct pretokenizer *p)
{
	struct pretokenizer_state *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->p = p;
	s->match = pcre2_match_data_create(1, NULL);
	s->context = pcre2_match_context_create(NULL);
	s->stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MAX, NULL);
	if (!s->match || !s->context) {
		pretokenizer_end(s);
		return NULL;
	}
	pcre2_set_heap_limit(s->context, HEAP_MAX_KIB);
	if (s->stack)
		pcre2_jit_stack_assign(s->context, NULL, s->stack);
	return s;
}

void pretokenizer_end(struct pretokenizer_state *s)
{
	if (!s)
		return;
	pcre2_match_data_free(s->match);
	pcre2_match_context_free(s->context);
	pcre2_jit_stack_free(s->stack);
	free(s);
}

/* The next match at or behind `from`. 1, 0 if there is none, or negative errno. */
static int next_match(struct pretokenizer_state *s, const pcre2_code *code, const char *text,
		      size_t bytes, size_t from, size_t *start, size_t *end)
{
	size_t steps = STEPS_BASE + STEPS_PER_BYTE * bytes;
	PCRE2_SPTR subject = (PCRE2_SPTR)text;

	pcre2_set_match_limit(s->context, steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
	/* The text is known to be UTF-8; checking all of it at each match would take quadratic
	 * time. */
	int rc = pcre2_match(code, subject, bytes, from, PCRE2_NO_UTF_CHECK, s->match, s->context);
	if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
		rc = pcre2_match(code, subject, bytes, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
				 s->match, s->context);
	if (rc == PCRE2_ERROR_NOMATCH)
		return 0;
	if (rc == PCRE2_ERROR_NOMEMORY)
		return fail(s->why, ENOMEM, "out of memory while splitting %zu bytes of text",
			    bytes);
	if (rc < 0) {
		PCRE2_UCHAR message[256] = "";
		pcre2_get_error_message(rc, message, sizeof(message));
		return fail(
			s->why, ELOOP,
			"a regular expression of the tokenizer fails on a text of %zu bytes: %s",
			bytes, (const char *)message);
	}
	*start = pcre2_get_ovector_pointer(s->match)[0];
	*end = pcre2_get_ovector_pointer(s->match)[1];
	return 1;
}

static int split(struct pretokenizer_state *s, int level, const char *text, size_t bytes);

/* Hands on text[from..to) unless that is empty. */
static int piece(struct pretokenizer_state *s, int level, const char *text, size_t from, size_t to)
{
	return from < to ? split(s, level + 1, text + from, to - from) : 0;
}

static size_t char_bytes(const char *text)
{
	unsigned char lead = (unsigned char)*text;

	return lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

static int split(struct pretokenizer_state *s, int level, const char *text, size_t bytes)
{
	size_t done = 0, from = 0, start = 0, end = 0, last_end = SIZE_MAX;
	int rc;

	if (level == s->p->n)
		return s->emit(s->ctx, text, bytes);
	while (from <= bytes &&
	       (rc = next_match(s, s->p->code[level], text, bytes, from, &start, &end)) != 0) {
		if (rc < 0)
			return rc;
		/* An empty match cuts the text; right behind the match before it does not count. */
		if (start == end && end == last_end) {
			from = end + (end < bytes ? char_bytes(text + end) : 1);
			continue;
		}
		/* start >= done: only \K could make it otherwise, and regex_translate() refuses
		 * that. */
		rc = piece(s, level, text, done, start);
		if (rc == 0)
			rc = piece(s, level, text, start, end);
		if (rc != 0)
			return rc;
		done = from = last_end = end;
	}
	return piece(s, level, text, done, bytes);
}

int pretokenize(struct pretokenizer_state *s, const char *text, size_t bytes,
		int (*emit)(void *ctx, const char *piece, size_t bytes), void *ctx, char *why)
{
	s->emit = emit;
	s->ctx = ctx;
	s->why = why;
	return bytes ? split(s, 0, text, bytes) : 0;
}
