/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of a GGUF file's metadata, by key; see gguf.h.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/fail.h"
#include "expertfs/gguf_parts.h"

static int compare(const void *name, const void *key)
{
	return strcmp(name, ((const struct gguf_key *)key)->name);
}

const struct gguf_key *gguf_key_find(const struct gguf_key *key, size_t keys, const char *name)
{
	return bsearch(name, key, keys, sizeof(*key), compare);
}

int64_t gguf_number(const uint8_t *at, enum gguf_kind kind)
{
	uint64_t u = 0;

	memcpy(&u, at, gguf_kind_bytes(kind));
	switch (kind) {
	case GGUF_I8:
		return (int8_t)u;
	case GGUF_I16:
		return (int16_t)u;
	case GGUF_I32:
		return (int32_t)u;
	default:
		return (int64_t)u; /* beyond INT64_MAX: negative, which no bound allows */
	}
}

static double real(const uint8_t *at, enum gguf_kind kind)
{
	double d;
	float f;

	if (kind == GGUF_F64) {
		memcpy(&d, at, sizeof(d));
		return d;
	}
	if (kind != GGUF_F32)
		return (double)gguf_number(at, kind);
	memcpy(&f, at, sizeof(f));
	return (double)f;
}

/* The key, with the architecture put in; NULL: there is none. */
static const struct gguf_key *find(const struct gguf *g, const char *key)
{
	char name[2 * GGUF_NAME_MAX];

	if (strncmp(key, "%s", 2) != 0)
		return gguf_key_find(g->key, g->keys, key);
	snprintf(name, sizeof(name), "%s%s", g->arch, key + 2);
	return gguf_key_find(g->key, g->keys, name);
}

static bool is_real(enum gguf_kind kind)
{
	return kind == GGUF_F32 || kind == GGUF_F64;
}

static bool is_int(enum gguf_kind kind)
{
	return kind != GGUF_STRING && kind != GGUF_BOOL && !is_real(kind);
}

static int of_other_kind(const struct gguf *g, const struct gguf_key *k, const char *what,
			 char *why)
{
	return fail(why, EINVAL, "%s: %s is not %s", g->part[0].path, k->name, what);
}

int gguf_int(const struct gguf *g, const char *key, int64_t lo, int64_t hi, int64_t *out, char *why)
{
	const struct gguf_key *k = find(g, key);

	if (!k)
		return -ENOENT;
	if (k->array || !is_int(k->kind))
		return of_other_kind(g, k, "an integer", why);
	*out = gguf_number(g->header + k->at, k->kind);
	if (*out >= lo && *out <= hi)
		return 0;
	return fail(why, EINVAL, "%s: %s is %" PRId64 ", not within %" PRId64 " and %" PRId64,
		    g->part[0].path, k->name, *out, lo, hi);
}

int gguf_float(const struct gguf *g, const char *key, double *out, char *why)
{
	const struct gguf_key *k = find(g, key);

	if (!k)
		return -ENOENT;
	if (k->array || k->kind == GGUF_STRING || k->kind == GGUF_BOOL)
		return of_other_kind(g, k, "a number", why);
	*out = real(g->header + k->at, k->kind);
	if (__builtin_isfinite(*out))
		return 0;
	return of_other_kind(g, k, "a finite number", why);
}

int gguf_bool(const struct gguf *g, const char *key, bool *out, char *why)
{
	const struct gguf_key *k = find(g, key);

	if (!k)
		return -ENOENT;
	if (k->array || k->kind != GGUF_BOOL)
		return of_other_kind(g, k, "true or false", why);
	*out = g->header[k->at] != 0;
	return 0;
}

static struct gguf_text text_at(const struct gguf *g, size_t at)
{
	uint64_t n;

	memcpy(&n, g->header + at, sizeof(n));
	return (struct gguf_text){ (const char *)g->header + at + sizeof(n), n };
}

int gguf_string(const struct gguf *g, const char *key, struct gguf_text *out, char *why)
{
	const struct gguf_key *k = find(g, key);

	if (!k)
		return -ENOENT;
	if (k->array || k->kind != GGUF_STRING)
		return of_other_kind(g, k, "a text", why);
	*out = text_at(g, k->at);
	return 0;
}

int gguf_array(const struct gguf *g, const char *key, enum gguf_kind kind,
	       const struct gguf_key **out, char *why)
{
	const struct gguf_key *k = find(g, key);

	if (!k)
		return -ENOENT;
	if (!k->array ||
	    (k->kind != kind && !(kind == GGUF_I64 && (is_int(k->kind) || k->kind == GGUF_BOOL))))
		return of_other_kind(g, k,
				     kind == GGUF_STRING ? "a list of texts"
				     : kind == GGUF_I64  ? "a list of integers"
							 : "a list of numbers",
				     why);
	*out = k;
	return 0;
}

int64_t gguf_array_int(const struct gguf *g, const struct gguf_key *k, uint64_t i)
{
	return gguf_number(g->header + k->at + i * gguf_kind_bytes(k->kind), k->kind);
}

double gguf_array_float(const struct gguf *g, const struct gguf_key *k, uint64_t i)
{
	return real(g->header + k->at + i * gguf_kind_bytes(k->kind), k->kind);
}

struct gguf_text gguf_array_next(const struct gguf *g, const struct gguf_key *k, size_t *at)
{
	struct gguf_text t = text_at(g, k->at + *at);

	*at += sizeof(uint64_t) + t.bytes;
	return t;
}
