/* SPDX-License-Identifier: Apache-2.0
 *
 * One GGUF file's header: bytes that come from anywhere, turned into tables that can be trusted.
 *
 * The header does not say how long it is, so it is read as far as parsing gets. A cursor never
 * passes what is there: take() answers NULL at the end of the file, and everything that follows
 * from a count is first compared with the bytes that are left.
 */
#include "expertfs/gguf_parts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expertfs/fail.h"
#include "expertfs/xxh3.h"

#define READ_STEP     ((size_t)64 << 10) /* at first; as much as there is, then */
#define KEY_LEAST     13u                /* bytes of the smallest key: empty name, type, a byte */
#define TENSOR_LEAST  33u /* and of the smallest entry of a tensor, with a name of one byte */
#define KEYS_MAX      65536u
#define TENSORS_MAX   1048576u
#define ALIGN_DEFAULT 32u
#define ALIGN_MAX     65536u

struct cursor {
	int fd;
	const char *path;
	uint64_t file_bytes;
	uint8_t *bytes;
	size_t have, room, at;
	bool long_header; /* it goes on beyond GGUF_HEADER_MAX */
	int err;          /* of the read that failed */
	char *why;
};

static int damaged(const struct cursor *c, const char *what)
{
	return fail(c->why, EINVAL, "%s is damaged: %s", c->path, what);
}

/* At least n bytes behind the cursor, or false. */
static bool have(struct cursor *c, uint64_t n)
{
	uint64_t want = c->at + n, step;
	uint8_t *grown;

	if (n > c->file_bytes || want > c->file_bytes)
		return false;
	c->long_header = want > GGUF_HEADER_MAX;
	if (c->long_header)
		return false;
	while (c->have < want && !c->err) {
		if (c->have == c->room) {
			step = c->room ? c->room : READ_STEP;
			step = step < c->file_bytes - c->room ? step : c->file_bytes - c->room;
			grown = realloc(c->bytes, c->room + step);
			if (!grown) {
				c->err = fail(c->why, ENOMEM, "out of memory for the header of %s",
					      c->path);
				break;
			}
			c->bytes = grown;
			c->room += step;
		}
		ssize_t got = pread(c->fd, c->bytes + c->have, c->room - c->have, (off_t)c->have);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			c->err = fail(c->why, errno, "%s: %s", c->path, strerror(errno));
		else if (got == 0)
			c->err = damaged(c, "it became shorter while it was read");
		else
			c->have += (size_t)got;
	}
	return !c->err;
}

static const uint8_t *take(struct cursor *c, uint64_t n)
{
	size_t at = c->at;

	if (!have(c, n))
		return NULL;
	c->at += n;
	return c->bytes + at;
}

/* What to say when take() gave nothing. */
static int ended(const struct cursor *c)
{
	if (c->err)
		return c->err;
	if (c->long_header)
		return damaged(c, "its header does not end within 256 MiB");
	return damaged(c, "it ends within its header");
}

static bool take_u32(struct cursor *c, uint32_t *out)
{
	const uint8_t *p = take(c, sizeof(*out));

	if (p)
		memcpy(out, p, sizeof(*out));
	return p != NULL;
}

static bool take_u64(struct cursor *c, uint64_t *out)
{
	const uint8_t *p = take(c, sizeof(*out));

	if (p)
		memcpy(out, p, sizeof(*out));
	return p != NULL;
}

/* A name of a key or tensor. Only what can stand in a sentence and in JSON as it is. */
static int take_name(struct cursor *c, char **out)
{
	const uint8_t *p;
	uint64_t n;

	if (!take_u64(c, &n))
		return ended(c);
	if (n == 0 || n > GGUF_NAME_MAX)
		return damaged(c, "the length of a name in it is impossible");
	p = take(c, n);
	if (!p)
		return ended(c);
	for (uint64_t i = 0; i < n; i++)
		if (p[i] <= ' ' || p[i] > '~' || p[i] == '"' || p[i] == '\\')
			return damaged(c, "a name in it has other characters than names have");
	*out = gguf_text_copy((struct gguf_text){ (const char *)p, n });
	return *out ? 0 : fail(c->why, ENOMEM, "out of memory");
}

unsigned gguf_kind_bytes(enum gguf_kind kind)
{
	static const unsigned char bytes[GGUF_KINDS] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };

	return bytes[kind];
}

static int skip_strings(struct cursor *c, uint64_t count)
{
	uint64_t n;

	for (uint64_t i = 0; i < count; i++)
		if (!take_u64(c, &n) || !take(c, n))
			return ended(c);
	return 0;
}

static int take_value(struct cursor *c, struct gguf_key *k)
{
	uint32_t kind;
	uint64_t size;

	if (!take_u32(c, &kind))
		return ended(c);
	k->count = 1;
	k->array = kind == GGUF_ARRAY;
	if (k->array && (!take_u32(c, &kind) || !take_u64(c, &k->count)))
		return ended(c);
	if (kind >= GGUF_KINDS || kind == GGUF_ARRAY)
		return fail(c->why, EINVAL, "%s: the value of %s is of an unknown type", c->path,
			    k->name);
	k->kind = (enum gguf_kind)kind;
	k->at = c->at;
	size = gguf_kind_bytes(k->kind);
	if (k->count > (c->file_bytes - c->at) / (size ? size : 8))
		return ended(c);
	if (k->kind == GGUF_STRING)
		return skip_strings(c, k->count);
	const uint8_t *p = take(c, k->count * size);
	if (!p)
		return ended(c);
	for (uint64_t i = 0; k->kind == GGUF_BOOL && i < k->count; i++)
		if (p[i] > 1)
			return fail(c->why, EINVAL, "%s: %s is neither true nor false", c->path,
				    k->name);
	return 0;
}

static int by_key(const void *a, const void *b)
{
	return strcmp(((const struct gguf_key *)a)->name, ((const struct gguf_key *)b)->name);
}

static int take_keys(struct cursor *c, struct gguf_header *h, uint64_t n)
{
	int err = 0;

	if (n > KEYS_MAX || n > c->file_bytes / KEY_LEAST)
		return damaged(c, "its number of keys is impossible");
	h->key = calloc(n + 1, sizeof(*h->key));
	if (!h->key)
		return fail(c->why, ENOMEM, "out of memory");
	for (uint64_t i = 0; i < n && !err; i++) {
		err = take_name(c, &h->key[i].name);
		h->keys += !err;
		err = err ? err : take_value(c, &h->key[i]);
	}
	if (err)
		return err;
	qsort(h->key, h->keys, sizeof(*h->key), by_key);
	for (size_t i = 1; i < h->keys; i++)
		if (strcmp(h->key[i - 1].name, h->key[i].name) == 0)
			return fail(c->why, EINVAL, "%s: the key %s is there twice", c->path,
				    h->key[i].name);
	return 0;
}

/* Bytes from type and dimensions, all of which come from the file. */
static int measure(const struct cursor *c, struct gguf_tensor *t)
{
	uint64_t bytes;

	if (t->dim[0] % t->type->elements)
		return fail(c->why, EINVAL,
			    "%s: rows of %s have %" PRIu64 " numbers, not whole blocks of %" PRIu32,
			    c->path, t->name, t->dim[0], t->type->elements);
	bytes = t->dim[0] / t->type->elements;
	for (int i = 0; i <= GGUF_DIMS_MAX - 1; i++) {
		uint64_t by = i == 0 ? t->type->bytes : t->dim[i];
		if (__builtin_mul_overflow(bytes, by, &bytes) || bytes > c->file_bytes)
			return fail(c->why, EINVAL,
				    "%s is damaged or cut off: %s would have more bytes than the "
				    "file",
				    c->path, t->name);
	}
	t->bytes = bytes;
	return 0;
}

static int take_tensor(struct cursor *c, struct gguf_tensor *t)
{
	uint32_t dims, type;

	if (!take_u32(c, &dims))
		return ended(c);
	if (dims < 1 || dims > GGUF_DIMS_MAX)
		return fail(c->why, EINVAL, "%s: %s has %" PRIu32 " dimensions", c->path, t->name,
			    dims);
	t->dims = (int)dims;
	for (int i = 0; i < GGUF_DIMS_MAX; i++)
		t->dim[i] = 1;
	for (int i = 0; i < t->dims; i++) {
		if (!take_u64(c, &t->dim[i]))
			return ended(c);
		if (t->dim[i] < 1 || t->dim[i] > INT64_MAX)
			return fail(c->why, EINVAL, "%s: the dimensions of %s are impossible",
				    c->path, t->name);
	}
	if (!take_u32(c, &type) || !take_u64(c, &t->offset))
		return ended(c);
	t->type = gguf_type_find(type);
	if (!t->type)
		return fail(c->why, EINVAL, "%s: %s is of type %" PRIu32 ", which is unknown%s",
			    c->path, t->name, type,
			    type >= 97 ? " (a repacked type of ik_llama.cpp?)" : "");
	return measure(c, t);
}

static int take_tensors(struct cursor *c, struct gguf_header *h, uint64_t n)
{
	int err = 0;

	if (n > TENSORS_MAX || n > c->file_bytes / TENSOR_LEAST)
		return damaged(c, "its number of tensors is impossible");
	h->tensor = calloc(n + 1, sizeof(*h->tensor));
	if (!h->tensor)
		return fail(c->why, ENOMEM, "out of memory");
	for (uint64_t i = 0; i < n && !err; i++) {
		err = take_name(c, &h->tensor[i].name);
		h->tensors += !err;
		err = err ? err : take_tensor(c, &h->tensor[i]);
	}
	return err;
}

/* A file that names none is read by the default, as by llama.cpp. python3-gguf names it in the first
 * file of a set only and keeps to it in all: which of them has written a set, the files do not say. */
static int read_alignment(const struct cursor *c, const struct gguf_header *h, uint64_t first,
			  uint64_t *align)
{
	const struct gguf_key *k = gguf_key_find(h->key, h->keys, "general.alignment");

	*align = ALIGN_DEFAULT;
	if (!k && first && first != ALIGN_DEFAULT)
		return fail(c->why, EINVAL,
			    "%s: general.alignment is missing, and %" PRIu64
			    " in the first file of the set",
			    c->path, first);
	if (!k)
		return 0;
	if (k->array || k->kind != GGUF_U32)
		return fail(c->why, EINVAL, "%s: general.alignment is not a u32", c->path);
	*align = (uint64_t)gguf_number(c->bytes + k->at, k->kind);
	if (*align < 8 || *align > ALIGN_MAX || (*align & (*align - 1)))
		return fail(c->why, EINVAL,
			    "%s: general.alignment is %" PRIu64 ", not a power of two from 8 to %u",
			    c->path, *align, ALIGN_MAX);
	return 0;
}

struct span {
	uint64_t offset, bytes;
	const char *name;
};

static int by_offset(const void *a, const void *b)
{
	const struct span *x = a, *y = b;

	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* No two tensors share a byte. */
static int check_overlap(const struct cursor *c, const struct gguf_header *h)
{
	struct span *s = calloc(h->tensors + 1, sizeof(*s));
	int err = 0;

	if (!s)
		return fail(c->why, ENOMEM, "out of memory");
	for (size_t i = 0; i < h->tensors; i++)
		s[i] = (struct span){ h->tensor[i].offset, h->tensor[i].bytes, h->tensor[i].name };
	qsort(s, h->tensors, sizeof(*s), by_offset);
	for (size_t i = 1; i < h->tensors && !err; i++)
		if (s[i].offset - s[i - 1].offset < s[i - 1].bytes)
			err = fail(c->why, EINVAL, "%s: %s and %s overlap", c->path, s[i - 1].name,
				   s[i].name);
	free(s);
	return err;
}

/* Offsets become those of the file, and must stay within it. */
static int place_tensors(const struct cursor *c, struct gguf_header *h, uint64_t first)
{
	uint64_t align, start, room;
	int err = read_alignment(c, h, first, &align);

	if (err)
		return err;
	h->align = align;
	start = (c->at + align - 1) & ~(align - 1);
	for (size_t i = 0; i < h->tensors; i++) {
		struct gguf_tensor *t = &h->tensor[i];
		if (t->offset % align)
			return fail(c->why, EINVAL, "%s: %s does not lie on %" PRIu64 " bytes",
				    c->path, t->name, align);
		room = start < c->file_bytes ? c->file_bytes - start : 0;
		if (t->offset > room || t->bytes > room - t->offset)
			return fail(c->why, EINVAL,
				    "%s is cut off: it has %" PRIu64
				    " bytes, and %s would end beyond them",
				    c->path, c->file_bytes, t->name);
		t->offset += start;
	}
	return check_overlap(c, h);
}

/* The first bytes of something else that people have under this name. */
static int not_gguf(const struct cursor *c)
{
	static const char lfs[] = "version https://git-lfs";

	if (c->bytes && c->have >= sizeof(lfs) - 1 && memcmp(c->bytes, lfs, sizeof(lfs) - 1) == 0)
		return fail(c->why, EINVAL,
			    "%s is only a Git LFS pointer: fetch the file itself (git lfs pull)",
			    c->path);
	return fail(c->why, EINVAL, "%s is not a GGUF file", c->path);
}

static int parse(struct cursor *c, uint64_t align, struct gguf_header *h)
{
	uint64_t tensors = 0, keys = 0;
	uint32_t version = 0;
	const uint8_t *magic = take(c, 4);
	int err;

	if (!magic || memcmp(magic, "GGUF", 4) != 0)
		return c->err ? c->err : not_gguf(c);
	if (!take_u32(c, &version) || !take_u64(c, &tensors) || !take_u64(c, &keys))
		return ended(c);
	if (version && !(version & 0xffff))
		return fail(c->why, EINVAL, "%s is a GGUF file for big-endian machines", c->path);
	if (version != 2 && version != 3)
		return fail(c->why, EINVAL,
			    "%s is a GGUF file of version %" PRIu32 ", only 2 and 3 can be read",
			    c->path, version);
	err = take_keys(c, h, keys);
	err = err ? err : take_tensors(c, h, tensors);
	return err ? err : place_tensors(c, h, align);
}

int gguf_header_read(int fd, uint64_t file_bytes, const char *path, uint64_t align,
		     struct gguf_header *h, char *why)
{
	struct cursor c = { .fd = fd, .path = path, .file_bytes = file_bytes, .why = why };
	int err;

	*h = (struct gguf_header){ 0 };
	err = parse(&c, align, h);
	h->bytes = c.bytes;
	h->used = c.at;
	if (err)
		gguf_header_free(h);
	else
		h->check = XXH3_64bits(h->bytes, h->used);
	return err;
}

void gguf_header_free(struct gguf_header *h)
{
	for (size_t i = 0; i < h->keys; i++)
		free(h->key[i].name);
	for (size_t i = 0; i < h->tensors; i++)
		free(h->tensor[i].name);
	free(h->key);
	free(h->tensor);
	free(h->bytes);
	*h = (struct gguf_header){ 0 };
}
