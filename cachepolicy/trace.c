/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of traces: trace.h.
 */
#include "cachepolicy/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char magic[] = "expertfs-trace";

static const char *skip_blanks(const char *s)
{
	return s + strspn(s, " \t\r");
}

/* A decimal number up to `most`, and what follows it. */
static bool number(const char **s, uint64_t most, uint64_t *value)
{
	const char *p = skip_blanks(*s);

	*value = 0;
	if (*p < '0' || *p > '9')
		return false;
	for (; *p >= '0' && *p <= '9'; p++) {
		unsigned digit = (unsigned)(*p - '0');

		if (*value > (most - digit) / 10)
			return false;
		*value = *value * 10 + digit;
	}
	*s = p;
	return true;
}

/* Numbers must be followed by a blank or the end. */
static bool word(const char **s, uint64_t most, uint64_t *value)
{
	return number(s, most, value) && (!**s || *s != skip_blanks(*s));
}

static bool at_end(const char *s)
{
	return !*skip_blanks(s);
}

/* The word that a line begins with. */
static bool keyword(const char **s, const char *name)
{
	size_t length = strlen(name);

	if (strncmp(*s, name, length) != 0 ||
	    ((*s)[length] && *s + length == skip_blanks(*s + length)))
		return false;
	*s += length;
	return true;
}

static int parse_head(const char *s, struct cp_trace_line *out)
{
	uint64_t version, layers, experts;

	if (!word(&s, 1, &version) || version != 1 || !word(&s, 0x10000, &layers) ||
	    !word(&s, 0x10000, &experts) || !layers || !experts || !at_end(s))
		return -EINVAL;
	out->kind = CP_TRACE_HEAD;
	out->layers = (uint32_t)layers;
	out->experts = (uint32_t)experts;
	return 0;
}

static int parse_size(const char *s, struct cp_trace_line *out)
{
	uint64_t layer;

	if (!word(&s, 0xffff, &layer) || !word(&s, UINT64_MAX, &out->bytes) || !out->bytes ||
	    !at_end(s))
		return -EINVAL;
	out->kind = CP_TRACE_SIZE;
	out->layer = (uint32_t)layer;
	return 0;
}

static int parse_event(const char *s, struct cp_use *uses, size_t room, struct cp_trace_line *out)
{
	uint64_t layer, expert, weight;

	if (!word(&s, UINT64_MAX, &out->time) || !word(&s, 0xffff, &layer))
		return -EINVAL;
	while (!at_end(s)) {
		weight = 1;
		if (!number(&s, 0xffff, &expert))
			return -EINVAL;
		if (*s == '*') {
			s++;
			if (!number(&s, UINT32_MAX, &weight) || !weight)
				return -EINVAL;
		}
		if (*s && s == skip_blanks(s))
			return -EINVAL;
		if (out->n == room)
			return -ENOSPC;
		uses[out->n++] = (struct cp_use){ cp_key_of((unsigned)layer, (unsigned)expert),
						  (uint32_t)weight };
	}
	out->kind = CP_TRACE_EVENT;
	return out->n ? 0 : -EINVAL;
}

int cp_trace_parse(const char *line, struct cp_use *uses, size_t room, struct cp_trace_line *out)
{
	const char *s = skip_blanks(line);

	memset(out, 0, sizeof(*out));
	if (!*s || *s == '#') {
		out->kind = CP_TRACE_COMMENT;
		return 0;
	}
	if (keyword(&s, magic))
		return parse_head(s, out);
	if (keyword(&s, "size"))
		return parse_size(s, out);
	return parse_event(s, uses, room, out);
}

static int fits(int length, size_t size)
{
	return length < 0 || (size_t)length >= size ? -ENOSPC : length;
}

int cp_trace_head(char *buf, size_t size, uint32_t layers, uint32_t experts)
{
	return fits(snprintf(buf, size, "%s 1 %u %u\n", magic, layers, experts), size);
}

int cp_trace_size(char *buf, size_t size, uint32_t layer, uint64_t bytes)
{
	return fits(snprintf(buf, size, "size %u %" PRIu64 "\n", layer, bytes), size);
}

int cp_trace_event(char *buf, size_t size, uint64_t time, const struct cp_use *uses, size_t n)
{
	int at, more;

	if (n == 0)
		return -EINVAL;
	at = fits(snprintf(buf, size, "%" PRIu64 " %u", time, uses[0].key >> 16), size);
	for (size_t k = 0; at >= 0 && k < n; k++) {
		char *to = buf + at;
		size_t left = size - (size_t)at;

		if (uses[k].key >> 16 != uses[0].key >> 16)
			return -EINVAL;
		if (uses[k].weight > 1)
			more = snprintf(to, left, " %u*%u", uses[k].key & 0xffff, uses[k].weight);
		else
			more = snprintf(to, left, " %u", uses[k].key & 0xffff);
		more = fits(more, left);
		at = more < 0 ? more : at + more;
	}
	if (at < 0 || (size_t)at + 1 >= size)
		return -ENOSPC;
	buf[at] = '\n';
	buf[at + 1] = '\0';
	return at + 1;
}
