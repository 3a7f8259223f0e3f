/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading the export of usage. See usage.h.
 */
#include "tools/coli-pack/usage.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/fail.h"
#include "expertfs/xxh3.h"
#include "tools/coli-pack/textfile.h"

#define USAGE_MAX (256u << 20)

struct heat {
	double heat;
	uint32_t expert;
};

/* The plan's number of an expert; -1 if there is none. */
static int64_t number_of(const struct plan *p, uint64_t layer, uint64_t expert)
{
	uint64_t per_layer = (uint64_t)p->ck->config.model.experts;

	for (int i = 0; i < p->layers && expert < per_layer; i++)
		if (p->layer[i].layer == layer)
			return (int64_t)((uint64_t)i * per_layer + expert);
	return -1;
}

/* A number of digits and the comma behind it. */
static bool take_number(const char **at, uint64_t *out)
{
	char *end;

	if (**at < '0' || **at > '9')
		return false;
	*out = strtoull(*at, &end, 10);
	*at = end + 1;
	return *end == ',';
}

static int take_line(const struct plan *p, const char *line, struct heat *h, bool *seen, size_t n,
		     char *why)
{
	const char *path = p->spread.usage, *at = line;
	uint64_t layer, expert;
	char *end;

	if (!take_number(&at, &layer) || !take_number(&at, &expert))
		return fail(why, EINVAL, "%s, line %zu: not \"" USAGE_HEAD "\"", path, n);
	h->heat = strtod(at, &end);
	if (end == at || *end != ',' || !isfinite(h->heat) || h->heat < 0)
		return fail(why, EINVAL, "%s, line %zu: the heat is not a number", path, n);
	int64_t number = number_of(p, layer, expert);
	if (number < 0)
		return fail(why, EINVAL, "%s, line %zu: the model has no expert %llu/%llu", path, n,
			    (unsigned long long)layer, (unsigned long long)expert);
	if (seen[number])
		return fail(why, EINVAL, "%s, line %zu: expert %llu/%llu comes twice", path, n,
			    (unsigned long long)layer, (unsigned long long)expert);
	seen[number] = true;
	h->expert = (uint32_t)number;
	return 0;
}

/* text is cut into lines. Returns the number of experts in list, or negative errno. */
static int64_t take_lines(const struct plan *p, char *text, struct heat *list, bool *seen,
			  char *why)
{
	int64_t found = 0;
	size_t n = 0;

	for (char *line = text, *next; *line; line = next) {
		next = line + strcspn(line, "\n");
		if (*next)
			*next++ = '\0';
		line[strcspn(line, "\r")] = '\0';
		if (++n == 1) {
			size_t head = strlen(USAGE_HEAD); /* further columns may follow */
			if (strncmp(line, USAGE_HEAD, head) != 0 ||
			    (line[head] && line[head] != ','))
				return fail(why, EINVAL,
					    "%s is not an export of usage: its first line is not "
					    "\"" USAGE_HEAD "\"",
					    p->spread.usage);
		} else if (*line) {
			struct heat h;
			int err = take_line(p, line, &h, seen, n, why);
			if (err)
				return err;
			list[found++] = h; /* none comes twice, so there is room */
		}
	}
	return n ? found : fail(why, EINVAL, "%s is empty", p->spread.usage);
}

/* Hottest first; of equal ones the first in the model. */
static int compare_heat(const void *a, const void *b)
{
	const struct heat *x = a, *y = b;

	if (x->heat != y->heat)
		return x->heat < y->heat ? 1 : -1;
	return (x->expert > y->expert) - (x->expert < y->expert);
}

/* Takes the hottest of text into hot; list and seen are work space for all experts. */
static int take_hottest(const struct plan *p, char *text, struct heat *list, bool *seen,
			const uint64_t *bytes, bool *hot, char *why)
{
	int64_t n = take_lines(p, text, list, seen, why);
	uint64_t left = p->spread.hot_bytes;

	if (n < 0)
		return (int)n;
	qsort(list, (size_t)n, sizeof(*list), compare_heat);
	for (int64_t i = 0; i < n && list[i].heat > 0 && bytes[list[i].expert] <= left; i++) {
		hot[list[i].expert] = true;
		left -= bytes[list[i].expert];
	}
	return 0;
}

int usage_hottest(const struct plan *p, const uint64_t *bytes, bool *hot, uint64_t *check,
		  char *why)
{
	char *text = NULL;
	size_t size = 0;
	int err = text_load(p->spread.usage, USAGE_MAX, &text, &size, why);

	if (err || !text)
		return err;
	struct heat *list = calloc(p->experts, sizeof(*list));
	bool *seen = calloc(p->experts, sizeof(*seen));
	*check = XXH3_64bits(text, size);
	if (!list || !seen)
		err = fail(why, ENOMEM, "out of memory for %s", p->spread.usage);
	else if (strlen(text) != size)
		err = fail(why, EINVAL, "%s is not an export of usage: it holds a zero byte",
			   p->spread.usage);
	else
		err = take_hottest(p, text, list, seen, bytes, hot, why);
	free(list);
	free(seen);
	free(text);
	return err;
}
