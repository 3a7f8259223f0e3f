/* SPDX-License-Identifier: Apache-2.0
 *
 * Understanding names of experts; see select.h.
 */
#include "expertfs/select.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/fail.h"
#include "expertfs/size.h"

#define WORD_MAX 64

struct selection {
	const struct store *store;
	struct hotstore *hot;
	void (*each)(void *arg, uint32_t index);
	void *arg;
};

/* "7", "3-9", "all" or "*", up to the character end. */
static bool parse_range(const char **text, char end, unsigned *first, unsigned *last)
{
	const char *t = *text;
	unsigned long from, to;
	char *after;

	size_t every = *t == '*' ? 1 : strncmp(t, "all", 3) == 0 ? 3 : 0;
	if (every) {
		*first = 0;
		*last = UINT16_MAX;
		*text = t + every + 1;
		return t[every] == end;
	}
	if (!isdigit((unsigned char)*t))
		return false;
	from = to = strtoul(t, &after, 10);
	if (*after == '-' && isdigit((unsigned char)after[1]))
		to = strtoul(after + 1, &after, 10);
	if (*after != end || from > to || to > UINT16_MAX)
		return false;
	*first = (unsigned)from;
	*last = (unsigned)to;
	*text = after + 1;
	return true;
}

static int name_range(const struct selection *s, const char *word, char *why)
{
	unsigned layer, layer_end, from, to;
	const char *t = word;
	uint32_t found = 0;

	if (!parse_range(&t, '/', &layer, &layer_end) || !parse_range(&t, 0, &from, &to))
		return fail(why, EINVAL,
			    "\"%s\" names no expert: it is like 3/117, 3/0-15, 3/all, all, top 4G",
			    word);
	if (layer == layer_end && from == to) { /* an engine's guess: many of them a second */
		uint32_t index = store_index(s->store, layer, from);
		if (index != STORE_NO_EXPERT)
			s->each(s->arg, index);
		return index != STORE_NO_EXPERT
			       ? 0
			       : fail(why, ENOENT, "the store has no expert %s", word);
	}
	for (uint32_t i = 0; i < s->store->experts; i++) {
		const struct store_expert *e = &s->store->expert[i];
		if (e->layer < layer || e->layer > layer_end || e->expert < from || e->expert > to)
			continue;
		s->each(s->arg, i);
		found++;
	}
	return found ? 0 : fail(why, ENOENT, "the store has no expert %s", word);
}

struct ranked {
	double heat;
	uint32_t index;
};

static int by_heat(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	if (x->heat != y->heat)
		return x->heat < y->heat ? 1 : -1;
	return x->index < y->index ? -1 : x->index > y->index;
}

static int name_hottest(const struct selection *s, const char *size, char *why)
{
	uint32_t n = s->store->experts;
	struct hot_info *info;
	struct ranked *r;
	uint64_t room;
	int err = 0;

	if (size_parse(size, &room) != 0)
		return fail(why, EINVAL, "top %s: not a size (4G, 512M)", size);
	info = malloc(n * sizeof(*info));
	r = malloc(n * sizeof(*r));
	if (info && r) {
		hotstore_snapshot(s->hot, info);
		for (uint32_t i = 0; i < n; i++)
			r[i] = (struct ranked){ info[i].heat, i };
		qsort(r, n, sizeof(*r), by_heat);
		for (uint32_t i = 0; i < n && r[i].heat > 0; i++) {
			uint64_t bytes = s->store->expert[r[i].index].bytes;
			if (bytes > room)
				break;
			room -= bytes;
			s->each(s->arg, r[i].index);
		}
	} else {
		err = fail(why, ENOMEM, "out of memory");
	}
	free(info);
	free(r);
	return err;
}

/* The next word of *text; its length, 0 at the end, WORD_MAX if it is too long to be one. */
static size_t next_word(const char **text, char word[WORD_MAX])
{
	size_t n;

	*text += strspn(*text, " \t\n");
	n = strcspn(*text, " \t\n");
	snprintf(word, WORD_MAX, "%.*s", (int)n, *text);
	*text += n;
	return n < WORD_MAX ? n : WORD_MAX;
}

int select_experts(const struct store *store, struct hotstore *hot, const char *text,
		   void (*each)(void *arg, uint32_t index), void *arg, char *why)
{
	const struct selection s = { store, hot, each, arg };
	char word[WORD_MAX];
	int err = 0;
	size_t n;

	while (!err && (n = next_word(&text, word)) > 0) {
		if (n == WORD_MAX)
			err = fail(why, EINVAL, "\"%s...\" names no expert", word);
		else if (strcmp(word, "all") == 0)
			err = name_range(&s, "all/all", why);
		else if (strcmp(word, "top") == 0 && next_word(&text, word) > 0)
			err = name_hottest(&s, word, why);
		else
			err = name_range(&s, word, why);
	}
	return err;
}
