/* SPDX-License-Identifier: Apache-2.0
 *
 * GGUF files for tests, put together by hand: a buffer that is appended to, good or bad.
 */
#ifndef TESTS_MADE_GGUF_H
#define TESTS_MADE_GGUF_H

#include <assert.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expertfs/gguf.h"

struct made_gguf {
	size_t n;
	uint64_t data; /* bytes of tensors so far: where the next one begins */
	uint8_t bytes[1 << 16];
};

static inline void gg_raw(struct made_gguf *m, const void *p, size_t n)
{
	assert(m->n + n <= sizeof(m->bytes));
	memcpy(m->bytes + m->n, p, n);
	m->n += n;
}

static inline void gg_u32(struct made_gguf *m, uint32_t v)
{
	gg_raw(m, &v, sizeof(v));
}

static inline void gg_u64(struct made_gguf *m, uint64_t v)
{
	gg_raw(m, &v, sizeof(v));
}

static inline void gg_text(struct made_gguf *m, const char *s)
{
	gg_u64(m, strlen(s));
	gg_raw(m, s, strlen(s));
}

static inline void gg_begin(struct made_gguf *m, uint64_t tensors, uint64_t keys)
{
	m->n = 0;
	m->data = 0;
	gg_raw(m, "GGUF", 4);
	gg_u32(m, 3);
	gg_u64(m, tensors);
	gg_u64(m, keys);
}

static inline void gg_key_text(struct made_gguf *m, const char *key, const char *value)
{
	gg_text(m, key);
	gg_u32(m, GGUF_STRING);
	gg_text(m, value);
}

static inline void gg_key_u32(struct made_gguf *m, const char *key, uint32_t value)
{
	gg_text(m, key);
	gg_u32(m, GGUF_U32);
	gg_u32(m, value);
}

static inline void gg_key_u16(struct made_gguf *m, const char *key, uint16_t value)
{
	gg_text(m, key);
	gg_u32(m, GGUF_U16);
	gg_raw(m, &value, sizeof(value));
}

static inline void gg_key_f32(struct made_gguf *m, const char *key, float value)
{
	gg_text(m, key);
	gg_u32(m, GGUF_F32);
	gg_raw(m, &value, sizeof(value));
}

static inline void gg_key_bool(struct made_gguf *m, const char *key, uint8_t value)
{
	gg_text(m, key);
	gg_u32(m, GGUF_BOOL);
	gg_raw(m, &value, 1);
}

/* An array's head; its elements are the caller's. */
static inline void gg_key_array(struct made_gguf *m, const char *key, enum gguf_kind kind,
				uint64_t count)
{
	gg_text(m, key);
	gg_u32(m, GGUF_ARRAY);
	gg_u32(m, kind);
	gg_u64(m, count);
}

/* Dimensions fastest first, 0 ends them. The data of all tensors lies in this order, each on 32
 * bytes; returns where this one's begins. */
static inline uint64_t gg_tensor(struct made_gguf *m, const char *name, uint32_t type, uint64_t a,
				 uint64_t b, uint64_t c)
{
	const struct gguf_type *t = gguf_type_find(type);
	uint64_t at = m->data, bytes = a / t->elements * t->bytes * (b ? b : 1) * (c ? c : 1);

	gg_text(m, name);
	gg_u32(m, c ? 3 : b ? 2 : 1);
	gg_u64(m, a);
	if (b)
		gg_u64(m, b);
	if (c)
		gg_u64(m, c);
	gg_u32(m, type);
	gg_u64(m, at);
	m->data = (at + bytes + 31) / 32 * 32;
	return at;
}

/* Where the data begins, if the header is complete. */
static inline uint64_t gg_data_start(const struct made_gguf *m)
{
	return (m->n + 31) / 32 * 32;
}

/* Byte `at` of the file's data: something that differs from its neighbours' and far ones. */
static inline uint8_t gg_byte(uint64_t at)
{
	return (uint8_t)(at * 7 + (at >> 8) * 13 + (at >> 16) * 29);
}

/* The header, and data whose byte at offset i of the file is gg_byte(i). 0 or -1. */
static inline int gg_write(const struct made_gguf *m, const char *path)
{
	uint64_t end = gg_data_start(m) + m->data;
	FILE *f = fopen(path, "we");

	if (!f)
		return -1;
	fwrite(m->bytes, 1, m->n, f);
	for (uint64_t i = m->n; i < end; i++)
		fputc(i < gg_data_start(m) ? 0 : gg_byte(i), f);
	return fclose(f);
}

/* An empty file of the test's own, whose name goes into path, of `size` bytes. 0 or -1. */
static inline int gg_new_file(const char *test, char *path, size_t size)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(path, size, "%s/%s.XXXXXX", tmp ? tmp : "/tmp", test);
	int fd = mkstemp(path);
	return fd < 0 ? -1 : close(fd);
}

#endif
