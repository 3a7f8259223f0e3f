/* SPDX-License-Identifier: Apache-2.0
 *
 * Added tokens: see added_tokens.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/added_tokens.h"
#include "engine/utf8.h"

static int by_key(const void *a, const void *b)
{
	const struct added_token *x = a;
	const struct added_token *y = b;
	size_t common = x->key_bytes < y->key_bytes ? x->key_bytes : y->key_bytes;
	int order = memcmp(x->key, y->key, common);

	if (order)
		return order;
	if (x->key_bytes != y->key_bytes)
		return x->key_bytes < y->key_bytes ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

static bool same_key(const struct added_token *x, const struct added_token *y)
{
	return x->key_bytes == y->key_bytes && memcmp(x->key, y->key, x->key_bytes) == 0;
}

int added_set_make(struct added_set *set, const struct added_token *tokens, int n, bool normalized)
{
	int kept = 0;

	*set = (struct added_set){ 0 };
	set->token = calloc((size_t)n + 1, sizeof(set->token[0]));
	if (!set->token)
		return -ENOMEM;
	for (int i = 0; i < n; i++)
		if (tokens[i].normalized == normalized && tokens[i].key_bytes > 0)
			set->token[set->n++] = tokens[i];
	qsort(set->token, (size_t)set->n, sizeof(set->token[0]), by_key);
	/* Contents that differ may be the same once normalised: the lowest id stays. */
	for (int i = 0; i < set->n; i++)
		if (kept == 0 || !same_key(&set->token[kept - 1], &set->token[i]))
			set->token[kept++] = set->token[i];
	set->n = kept;
	for (int i = 0; i < set->n; i++)
		set->first[(unsigned char)set->token[i].key[0] + 1] = i + 1;
	for (int b = 0; b < 256; b++)
		if (set->first[b + 1] < set->first[b])
			set->first[b + 1] = set->first[b];
	return 0;
}

void added_set_free(struct added_set *set)
{
	free(set->token);
	set->token = NULL;
	set->n = 0;
}

/* The byte of a key at a place, -1 behind its end: so the order of the list is that of these. */
static int key_byte(const struct added_token *t, size_t at)
{
	return at < t->key_bytes ? (unsigned char)t->key[at] : -1;
}

/* The first token of [low, high) whose byte at this place is at least b. All bytes before are
 * equal. */
static int lower_bound(const struct added_set *set, int low, int high, size_t at, int b)
{
	while (low < high) {
		int middle = low + (high - low) / 2;
		if (key_byte(&set->token[middle], at) < b)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The longest token that text (n bytes) begins with. */
static const struct added_token *longest(const struct added_set *set, const char *text, size_t n)
{
	const struct added_token *found = NULL;
	int low = set->first[(unsigned char)text[0]];
	int high = set->first[(unsigned char)text[0] + 1];

	for (size_t at = 1; low < high; at++) {
		if (set->token[low].key_bytes == at)
			found = &set->token[low];
		if (at == n)
			break;
		int b = (unsigned char)text[at];
		low = lower_bound(set, low, high, at, b);
		high = lower_bound(set, low, high, at, b + 1);
	}
	return found;
}

/* The code point that ends at text[end], and its length. */
static unsigned last_char(const char *text, size_t end, uint32_t *cp)
{
	unsigned back = 1, length;

	while (back < 4 && back < end && ((unsigned char)text[end - back] & 0xC0) == 0x80)
		back++;
	if (utf8_next(text + end - back, back, cp, &length) != UTF8_CHAR)
		*cp = 0;
	return back;
}

static bool touches_word(const char *text, size_t bytes, size_t start, size_t end)
{
	uint32_t cp;
	unsigned length;

	if (start > 0) {
		last_char(text, start, &cp);
		if (utf8_is_word(cp))
			return true;
	}
	return end < bytes && utf8_next(text + end, bytes - end, &cp, &length) == UTF8_CHAR &&
	       utf8_is_word(cp);
}

static size_t strip_left(const char *text, size_t from, size_t start)
{
	uint32_t cp;

	while (start > from) {
		unsigned length = last_char(text, start, &cp);
		if (!utf8_is_space(cp))
			break;
		start -= length;
	}
	return start;
}

static size_t strip_right(const char *text, size_t bytes, size_t end)
{
	uint32_t cp;
	unsigned length;

	while (end < bytes && utf8_next(text + end, bytes - end, &cp, &length) == UTF8_CHAR &&
	       utf8_is_space(cp))
		end += length;
	return end;
}

const struct added_token *added_find(const struct added_set *set, const char *text, size_t bytes,
				     size_t from, bool plain, size_t *at, size_t *start,
				     size_t *end)
{
	for (*at = from; set->n && *at < bytes; ++*at) {
		const struct added_token *t = longest(set, text + *at, bytes - *at);
		if (!t)
			continue;
		*start = *at;
		*end = *at + t->key_bytes;
		if ((plain && t->special) ||
		    (t->single_word && touches_word(text, bytes, *start, *end))) {
			/* As in the library, nothing shorter or overlapping is tried instead. */
			*at = *end - 1;
			continue;
		}
		if (t->lstrip)
			*start = strip_left(text, from, *start);
		if (t->rstrip)
			*end = strip_right(text, bytes, *end);
		return t;
	}
	return NULL;
}
