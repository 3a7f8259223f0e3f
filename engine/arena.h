/* SPDX-License-Identifier: Apache-2.0
 *
 * Many arrays in one allocation. The same function lays them out twice: first with base NULL, which
 * only counts, then for good; so what is promised before loading is what is taken.
 */
#ifndef ENGINE_ARENA_H
#define ENGINE_ARENA_H

#include <stddef.h>
#include <stdint.h>

struct arena {
	char *base;  /* 64-byte aligned, or NULL to count only */
	size_t used; /* SIZE_MAX once the sum has overflowed */
};

/* count * each bytes, 64-byte aligned. NULL while counting. */
static inline void *arena_take(struct arena *a, size_t count, size_t each)
{
	size_t at = a->used, bytes;

	if (__builtin_mul_overflow(count, each, &bytes) || bytes > SIZE_MAX - 128 ||
	    __builtin_add_overflow(a->used, (bytes + 63) / 64 * 64, &a->used)) {
		a->used = SIZE_MAX;
		return NULL;
	}
	return a->base ? a->base + at : NULL;
}

#endif
