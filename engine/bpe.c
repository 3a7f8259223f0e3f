/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte-pair encoding: see bpe.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/bpe.h"
#include "engine/utf8.h"

/* A part of the text while it is merged: an element of a doubly linked list in an array. */
struct bpe_symbol {
	int32_t id;         /* -1 once it has become part of its left neighbour */
	int32_t prev, next; /* -1 at the ends */
};

/* A merge that could be done. It is outdated if the symbols are no longer these. */
struct bpe_candidate {
	uint32_t rank;
	int32_t at; /* the left symbol */
	int32_t left, right, into;
};

/* ---- the alphabet ---- */

/* Bytes that stand for themselves: the printable ones of Latin-1. */
static bool stands_for_itself(unsigned byte)
{
	return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

/* The others stand in ascending order from U+0100 on. -1 if cp is not in the alphabet. */
static int byte_of(uint32_t cp)
{
	if (cp < 256)
		return stands_for_itself(cp) ? (int)cp : -1;
	if (cp < 256 + 33)
		return (int)(cp - 256);
	if (cp < 256 + 33 + 34)
		return (int)(cp - 256 - 33 + 127);
	return cp == 256 + 33 + 34 ? 173 : -1;
}

bool bpe_unmap(const char *s, size_t n, char *out, size_t *out_bytes)
{
	uint32_t cp;
	unsigned length;

	*out_bytes = 0;
	for (size_t i = 0; i < n; i += length) {
		if (utf8_next(s + i, n - i, &cp, &length) != UTF8_CHAR)
			return false;
		int byte = byte_of(cp);
		if (byte < 0)
			return false;
		out[(*out_bytes)++] = (char)byte;
	}
	return true;
}

/* ---- the tables ---- */

/* The size of a hash table for n entries, at most two thirds full: a power of two. */
static size_t table_size(size_t n)
{
	size_t size = 16;

	while (size < n + n / 2)
		size *= 2;
	return size;
}

int bpe_init(struct bpe *b, int size, size_t merges)
{
	size_t find = table_size((size_t)size), merge = table_size(merges);

	*b = (struct bpe){ 0 };
	if (merge - 1 > UINT32_MAX)
		return -ENOMEM;
	b->piece = malloc((size_t)(size ? size : 1) * sizeof(b->piece[0]));
	b->find = malloc(find * sizeof(b->find[0]));
	b->merge = malloc(merge * sizeof(b->merge[0]));
	if (!b->piece || !b->find || !b->merge) {
		bpe_free(b);
		return -ENOMEM;
	}
	b->size = size;
	b->find_mask = (uint32_t)(find - 1);
	b->merge_mask = (uint32_t)(merge - 1);
	/* All bits set: BPE_NONE and -1. */
	memset(b->piece, 0xFF, (size_t)size * sizeof(b->piece[0]));
	memset(b->find, 0xFF, find * sizeof(b->find[0]));
	memset(b->merge, 0xFF, merge * sizeof(b->merge[0]));
	memset(b->byte_id, 0xFF, sizeof(b->byte_id));
	return 0;
}

void bpe_free(struct bpe *b)
{
	free(b->piece);
	free(b->bytes);
	free(b->find);
	free(b->merge);
	*b = (struct bpe){ 0 };
}

int bpe_define(struct bpe *b, int id, const char *bytes, size_t n)
{
	if (id < 0 || id >= b->size)
		return -ERANGE;
	if (n > INT32_MAX - b->bytes_used)
		return -EFBIG;
	if (n > b->bytes_room - b->bytes_used) {
		size_t room = (b->bytes_used + n) * 2;
		char *grown = realloc(b->bytes, room);
		if (!grown)
			return -ENOMEM;
		b->bytes = grown;
		b->bytes_room = room;
	}
	if (n)
		memcpy(b->bytes + b->bytes_used, bytes, n);
	b->piece[id] = (struct bpe_piece){ (uint32_t)b->bytes_used, (uint32_t)n };
	b->bytes_used += n;
	return 0;
}

/* FNV-1a with a final mix; the keys are short. */
static uint32_t hash_bytes(const char *bytes, size_t n)
{
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)bytes[i]) * 16777619u;
	return h ^ h >> 15;
}

static uint32_t hash_pair(int32_t left, int32_t right)
{
	uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15ull;

	return (uint32_t)(h >> 32);
}

/* The slot of these bytes, or the free one where they belong. */
static uint32_t find_slot(const struct bpe *b, const char *bytes, size_t n)
{
	uint32_t slot = hash_bytes(bytes, n) & b->find_mask;

	while (b->find[slot] >= 0) {
		struct bpe_piece p = b->piece[b->find[slot]];
		if (p.bytes == n && memcmp(b->bytes + p.offset, bytes, n) == 0)
			break;
		slot = (slot + 1) & b->find_mask;
	}
	return slot;
}

void bpe_reachable(struct bpe *b, int id)
{
	struct bpe_piece p = b->piece[id];

	if (p.bytes == 0)
		return;
	uint32_t slot = find_slot(b, b->bytes + p.offset, p.bytes);
	if (b->find[slot] >= 0)
		return;
	b->find[slot] = id;
	if (p.bytes == 1 && !b->by_char)
		b->byte_id[(unsigned char)b->bytes[p.offset]] = id;
}

int bpe_fall_back(struct bpe *b, int byte, int id)
{
	if (b->byte_id[byte] >= 0)
		return -EEXIST;
	b->byte_id[byte] = id;
	return 0;
}

int bpe_find(const struct bpe *b, const char *bytes, size_t n)
{
	return n ? b->find[find_slot(b, bytes, n)] : -1;
}

static struct bpe_merge *merge_slot(const struct bpe *b, int left, int right)
{
	uint32_t slot = hash_pair(left, right) & b->merge_mask;

	while (b->merge[slot].rank != BPE_NONE &&
	       (b->merge[slot].left != left || b->merge[slot].right != right))
		slot = (slot + 1) & b->merge_mask;
	return &b->merge[slot];
}

void bpe_add_merge(struct bpe *b, int left, int right, int into, uint32_t rank)
{
	*merge_slot(b, left, right) =
		(struct bpe_merge){ .left = left, .right = right, .into = into, .rank = rank };
}

/* ---- merging ---- */

int bpe_push(struct bpe_ids *ids, int32_t id)
{
	if (ids->n == ids->room) {
		size_t room = ids->room ? ids->room * 2 : 64;
		int32_t *grown = realloc(ids->id, room * sizeof(ids->id[0]));
		if (!grown)
			return -ENOMEM;
		ids->id = grown;
		ids->room = room;
	}
	ids->id[ids->n++] = id;
	return 0;
}

static bool before(const struct bpe_candidate *x, const struct bpe_candidate *y)
{
	return x->rank != y->rank ? x->rank < y->rank : x->at < y->at;
}

static int heap_push(struct bpe_scratch *s, struct bpe_candidate c)
{
	if (s->heap_n == s->heap_room) {
		size_t room = s->heap_room ? s->heap_room * 2 : 64;
		struct bpe_candidate *grown = realloc(s->heap, room * sizeof(s->heap[0]));
		if (!grown)
			return -ENOMEM;
		s->heap = grown;
		s->heap_room = room;
	}
	size_t at = s->heap_n++;
	while (at > 0 && before(&c, &s->heap[(at - 1) / 2])) {
		s->heap[at] = s->heap[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	s->heap[at] = c;
	return 0;
}

static struct bpe_candidate heap_pop(struct bpe_scratch *s)
{
	struct bpe_candidate top = s->heap[0], last = s->heap[--s->heap_n];
	size_t at = 0, child;

	while ((child = 2 * at + 1) < s->heap_n) {
		if (child + 1 < s->heap_n && before(&s->heap[child + 1], &s->heap[child]))
			child++;
		if (!before(&s->heap[child], &last))
			break;
		s->heap[at] = s->heap[child];
		at = child;
	}
	s->heap[at] = last;
	return top;
}

/* Puts the symbol and its right neighbour onto the heap if they can be merged. */
static int consider(const struct bpe *b, struct bpe_scratch *s, int32_t at)
{
	int32_t next = at >= 0 ? s->symbol[at].next : -1;

	if (next < 0)
		return 0;
	const struct bpe_merge *m = merge_slot(b, s->symbol[at].id, s->symbol[next].id);
	if (m->rank == BPE_NONE)
		return 0;
	return heap_push(s, (struct bpe_candidate){ m->rank, at, m->left, m->right, m->into });
}

static void append(struct bpe_scratch *s, int32_t *count, int32_t id)
{
	s->symbol[*count] = (struct bpe_symbol){ .id = id, .prev = *count - 1, .next = *count + 1 };
	(*count)++;
}

/* One symbol for each character that is a token, and for each byte of the others. */
static int32_t characters(const struct bpe *b, const char *text, size_t n, struct bpe_scratch *s)
{
	int32_t count = 0;
	unsigned length;
	uint32_t cp;

	for (size_t i = 0; i < n; i += length) {
		int id = utf8_next(text + i, n - i, &cp, &length) == UTF8_CHAR
				 ? bpe_find(b, text + i, length)
				 : -1;
		if (id >= 0)
			append(s, &count, id);
		for (unsigned k = 0; id < 0 && k < length; k++)
			append(s, &count, b->byte_id[(unsigned char)text[i + k]]);
	}
	return count;
}

static int32_t bytes(const struct bpe *b, const char *text, size_t n, struct bpe_scratch *s)
{
	int32_t count = 0;

	for (size_t i = 0; i < n; i++)
		append(s, &count, b->byte_id[(unsigned char)text[i]]);
	return count;
}

/* The symbols that merging starts with, and all merges of neighbours. */
static int start(const struct bpe *b, const char *text, size_t n, struct bpe_scratch *s)
{
	int32_t count;
	int rc = 0;

	if (n > s->symbol_room) {
		struct bpe_symbol *grown = realloc(s->symbol, n * sizeof(s->symbol[0]));
		if (!grown)
			return -ENOMEM;
		s->symbol = grown;
		s->symbol_room = n;
	}
	count = b->by_char ? characters(b, text, n, s) : bytes(b, text, n, s);
	s->symbol[count - 1].next = -1;
	s->heap_n = 0;
	for (int32_t i = 0; i + 1 < count && rc == 0; i++)
		rc = consider(b, s, i);
	return rc;
}

static int merge_all(const struct bpe *b, struct bpe_scratch *s)
{
	int rc = 0;

	while (s->heap_n > 0 && rc == 0) {
		struct bpe_candidate c = heap_pop(s);
		struct bpe_symbol *left = &s->symbol[c.at];
		if (left->id != c.left || left->next < 0 || s->symbol[left->next].id != c.right)
			continue;
		struct bpe_symbol *right = &s->symbol[left->next];
		left->id = c.into;
		left->next = right->next;
		right->id = -1;
		if (left->next >= 0)
			s->symbol[left->next].prev = c.at;
		rc = consider(b, s, left->prev);
		if (rc == 0)
			rc = consider(b, s, c.at);
	}
	return rc;
}

int bpe_encode(const struct bpe *b, const char *text, size_t n, struct bpe_scratch *scratch,
	       struct bpe_ids *ids)
{
	int rc;

	if (n == 0)
		return 0;
	if (n > INT32_MAX)
		return -ENOMEM;
	if (b->ignore_merges || n == 1) {
		int id = bpe_find(b, text, n);
		if (id >= 0)
			return bpe_push(ids, id);
	}
	rc = start(b, text, n, scratch);
	if (rc == 0)
		rc = merge_all(b, scratch);
	for (int32_t i = 0; rc == 0 && i >= 0; i = scratch->symbol[i].next)
		rc = bpe_push(ids, scratch->symbol[i].id);
	return rc;
}

void bpe_scratch_free(struct bpe_scratch *scratch)
{
	free(scratch->symbol);
	free(scratch->heap);
	*scratch = (struct bpe_scratch){ 0 };
}
