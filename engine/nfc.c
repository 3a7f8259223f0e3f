/* SPDX-License-Identifier: Apache-2.0
 *
 * Normalisation form C: see nfc.h.
 *
 * utf8proc_map() would do, but it sorts combining marks by exchanging neighbours, which takes
 * quadratic time on a long run of them. So its parts are called, and the sorting is done here.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "engine/nfc.h"
#include "engine/utf8.h"

/* Longest canonical decomposition of one code point (4 in Unicode 15), with room for growth. */
#define DECOMPOSED_MAX 16

struct cps {
	utf8proc_int32_t *cp;
	size_t n, room;
};

/* Nothing below U+0300 is changed by NFC: these code points neither combine nor are they reordered,
 * and all that are composed are so already. */
static bool needs_no_change(const char *text, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if ((unsigned char)text[i] >= 0xCC) /* the lead byte of U+0300 */
			return false;
	return true;
}

static int make_room(struct cps *c, size_t more)
{
	if (c->room - c->n >= more)
		return 0;
	size_t room = c->room / 2 * 3 + more;
	void *grown = realloc(c->cp, room * sizeof(c->cp[0]));
	if (!grown)
		return -ENOMEM;
	c->cp = grown;
	c->room = room;
	return 0;
}

static int decompose(const char *text, size_t bytes, struct cps *c)
{
	uint32_t cp;
	unsigned length;
	int boundclass = 0;

	for (size_t i = 0; i < bytes; i += length) {
		if (utf8_next(text + i, bytes - i, &cp, &length) != UTF8_CHAR)
			continue;
		if (make_room(c, DECOMPOSED_MAX) != 0)
			return -ENOMEM;
		utf8proc_ssize_t n =
			utf8proc_decompose_char((utf8proc_int32_t)cp, c->cp + c->n, DECOMPOSED_MAX,
						UTF8PROC_DECOMPOSE, &boundclass);
		if (n < 0 || n > DECOMPOSED_MAX) {
			c->cp[c->n] = (utf8proc_int32_t)cp;
			n = 1;
		}
		c->n += (size_t)n;
	}
	return 0;
}

static unsigned combining_class(utf8proc_int32_t cp)
{
	return (unsigned)utf8proc_get_property(cp)->combining_class;
}

/* Sorts one run of marks by combining class, keeping the order within a class. */
static void sort_run(utf8proc_int32_t *run, size_t n, utf8proc_int32_t *scratch)
{
	size_t place[257] = { 0 };

	for (size_t i = 0; i < n; i++)
		place[(combining_class(run[i]) & 0xFF) + 1]++;
	for (int i = 0; i < 256; i++)
		place[i + 1] += place[i];
	memcpy(scratch, run, n * sizeof(run[0]));
	for (size_t i = 0; i < n; i++)
		run[place[combining_class(scratch[i]) & 0xFF]++] = scratch[i];
}

/* The canonical ordering algorithm. */
static int reorder(struct cps *c)
{
	utf8proc_int32_t *scratch = NULL;

	for (size_t i = 0, end; i < c->n; i = end) {
		bool sorted = true;
		unsigned last = combining_class(c->cp[i]);
		for (end = i + 1; last && end < c->n; end++) {
			unsigned next = combining_class(c->cp[end]);
			if (!next)
				break;
			sorted &= last <= next;
			last = next;
		}
		if (sorted)
			continue;
		if (!scratch && !(scratch = malloc(c->n * sizeof(scratch[0]))))
			return -ENOMEM;
		sort_run(c->cp + i, end - i, scratch);
	}
	free(scratch);
	return 0;
}

static int write_utf8(const struct cps *c, char **out, size_t *out_bytes)
{
	char *p = *out = malloc(c->n * 4 + 1);

	if (!p)
		return -ENOMEM;
	for (size_t i = 0; i < c->n; i++)
		p += utf8_put((uint32_t)c->cp[i], p);
	*out_bytes = (size_t)(p - *out);
	return 0;
}

int nfc(const char *text, size_t bytes, char **out, size_t *out_bytes)
{
	struct cps c = { 0 };
	int rc;

	*out = NULL;
	*out_bytes = 0;
	if (needs_no_change(text, bytes))
		return 0;
	if (make_room(&c, bytes) != 0)
		return -ENOMEM;
	rc = decompose(text, bytes, &c);
	if (rc == 0)
		rc = reorder(&c);
	if (rc == 0) {
		utf8proc_ssize_t n = utf8proc_normalize_utf32(c.cp, (utf8proc_ssize_t)c.n,
							      UTF8PROC_STABLE | UTF8PROC_COMPOSE);
		if (n >= 0)
			c.n = (size_t)n;
		rc = write_utf8(&c, out, out_bytes);
	}
	free(c.cp);
	return rc;
}
