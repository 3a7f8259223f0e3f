/* SPDX-License-Identifier: Apache-2.0
 *
 * A mutation for fuzzers whose input is JSON, or several texts of it with bytes of zero between: of a
 * text that parses, some values are changed, and what comes out parses again. Changed bytes alone
 * seldom get past the parser of a long text. For one source file of a program.
 */
#ifndef TESTS_FUZZ_JSON_H
#define TESTS_FUZZ_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

static inline unsigned fuzz_random(unsigned *seed, size_t below)
{
	*seed = *seed * 1664525u + 1013904223u;
	return (*seed >> 8) % (unsigned)below;
}

static inline json_t *fuzz_other_integer(json_int_t v, unsigned *seed)
{
	static const json_int_t some[] = { 0,     1,     2,       3,         7,         8,
					   16,    31,    32,      64,        128,       4096,
					   65535, 65536, 1 << 18, INT32_MAX, 1LL << 32, INT64_MAX };
	size_t n = sizeof(some) / sizeof(some[0]);

	switch (fuzz_random(seed, 6)) {
	case 0:
		return json_integer(v < INT64_MAX ? v + 1 : v);
	case 1:
		return json_integer(v > INT64_MIN ? v - 1 : v);
	case 2:
		return json_integer(v / 2);
	case 3:
		return json_integer(v > INT32_MAX || v < 0 ? -1 : 2 * v);
	default:
		return json_integer(some[fuzz_random(seed, n)]);
	}
}

/* Something in the place of v. */
static inline json_t *fuzz_other(const json_t *v, unsigned *seed)
{
	unsigned way = fuzz_random(seed, 16);

	if (way == 0)
		return json_null();
	if (way == 1)
		return json_array();
	if (way == 2)
		return json_integer(1);
	if (json_is_integer(v))
		return fuzz_other_integer(json_integer_value(v), seed);
	if (json_is_real(v))
		return json_real(json_real_value(v) * (way < 9 ? 0.5 : -1e9));
	if (json_is_boolean(v))
		return json_boolean(!json_boolean_value(v));
	if (json_is_string(v))
		return way < 9 ? json_string("") : json_string_nocheck("model.layers.0.x");
	return json_object();
}

/* The integer `from` becomes `to` wherever it stands: a width, in all shapes that have it. */
static inline void fuzz_replace(json_t *at, json_int_t from, json_int_t to)
{
	const char *key;
	json_t *v;
	size_t i;
	void *next;

	json_object_foreach_safe(at, next, key, v)
	{
		if (json_is_integer(v) && json_integer_value(v) == from)
			json_integer_set(v, to);
		else
			fuzz_replace(v, from, to);
	}
	json_array_foreach(at, i, v)
	{
		if (json_is_integer(v) && json_integer_value(v) == from)
			json_integer_set(v, to);
		else
			fuzz_replace(v, from, to);
	}
}

/* A member or item; *key is NULL for an item. */
static inline json_t *fuzz_child(json_t *at, size_t i, const char **key)
{
	*key = NULL;
	if (json_is_array(at))
		return json_array_get(at, i);
	void *it = json_object_iter(at);
	while (i--)
		it = json_object_iter_next(at, it);
	*key = json_object_iter_key(it);
	return json_object_iter_value(it);
}

/* Changes, drops or repeats item i, or the member of this name. */
static inline void fuzz_set(json_t *at, size_t i, const char *key, json_t *value, unsigned way)
{
	if (way == 0 && key)
		json_object_del(at, key);
	else if (way == 0)
		json_array_remove(at, i);
	else if (way == 1 && !key)
		json_array_append(at, json_array_get(at, i));
	else if (key)
		json_object_set(at, key, value);
	else
		json_array_set(at, i, value);
}

/* Walks down to a value. */
static inline void fuzz_change(json_t *root, json_t *at, unsigned *seed)
{
	size_t n = json_is_array(at) ? json_array_size(at) : json_object_size(at);
	const char *key;

	if (!n)
		return;
	size_t i = fuzz_random(seed, n);
	json_t *child = fuzz_child(at, i, &key), *other;
	bool inner = json_is_array(child) || json_is_object(child);
	unsigned way = fuzz_random(seed, inner ? 40 : 12);
	if (inner && way > 3) {
		fuzz_change(root, child, seed);
		return;
	}
	other = fuzz_other(child, seed);
	if (json_is_integer(child) && json_is_integer(other) && way > 8)
		fuzz_replace(root, json_integer_value(child), json_integer_value(other));
	else
		fuzz_set(at, i, key, other, way);
	json_decref(other);
}

/* Into data, which has room for max. The size of what it became; 0 if it is no JSON or does not fit. */
static inline size_t fuzz_mutate_json(uint8_t *data, size_t size, size_t max, unsigned *seed)
{
	json_t *root = json_loadb((const char *)data, size, 0, NULL);
	size_t n = 0;

	for (unsigned i = 1 + fuzz_random(seed, 3); root && i > 0; i--)
		fuzz_change(root, root, seed);
	char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
	if (text && strlen(text) <= max) {
		n = strlen(text);
		memcpy(data, text, n);
	}
	free(text);
	json_decref(root);
	return n;
}

/* One of the texts. The new size of all, or 0. */
static inline size_t fuzz_mutate_text(uint8_t *data, size_t size, size_t max, unsigned *seed)
{
	size_t from = fuzz_random(seed, size + 1), to = from;

	while (from > 0 && data[from - 1])
		from--;
	while (to < size && data[to])
		to++;
	size_t behind = size - to;
	uint8_t *end = malloc(behind + 1);
	if (!end)
		return 0;
	memcpy(end, data + to, behind);
	size_t n = fuzz_mutate_json(data + from, to - from, max - from - behind, seed);
	if (n)
		memcpy(data + from + n, end, behind);
	free(end);
	return n ? from + n + behind : 0;
}

/* Three times in four the JSON, else the bytes. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
	size_t n = seed % 4 ? fuzz_mutate_text(data, size, max, &seed) : 0;

	return n ? n : LLVMFuzzerMutate(data, size, max);
}

#endif
