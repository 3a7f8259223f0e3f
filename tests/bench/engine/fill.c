/* SPDX-License-Identifier: Apache-2.0
 *
 * Random weights. See fill.h.
 *
 * A generator by position (splitmix64), so that loops over it are independent and vectorise. Codes
 * are uniform but for the one without a counterpart of the other sign (-8, -128), which becomes 0:
 * so their mean is exactly 0. A mean would be one direction that all activations share.
 */
#include "tests/bench/engine/fill.h"

#include <math.h>
#include <string.h>

/* Mean squares of such codes: 2 (1 + 4 + .. + 49) / 16, 2 (1 + 4 + .. + 127 * 127) / 256. */
#define Q4_VARIANCE 17.5
#define Q8_VARIANCE 5418.5

static inline uint64_t random_word(uint64_t seed, uint64_t i)
{
	uint64_t z = (seed << 32) + (i + 1) * 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* Stored codes are code + 8: stored 0 becomes 8. */
static inline uint64_t balance_q4(uint64_t x)
{
	uint64_t some = x | x >> 1 | x >> 2 | x >> 3;

	return x | (~some & 0x1111111111111111u) << 3;
}

/* Bytes of 0x80 become 0. */
static inline uint64_t balance_q8(uint64_t x)
{
	uint64_t high = 0x8080808080808080u, rest = (x & ~high) + ~high; /* high bit: not 0 below */

	return x ^ (x & ~rest & high);
}

static void fill_codes(enum wtype type, uint64_t seed, uint64_t *to, uint64_t words)
{
	for (uint64_t i = 0; i < words; i++) {
		uint64_t x = random_word(seed, i);
		to[i] = type == W_Q4 ? balance_q4(x) : balance_q8(x);
	}
}

/* Uniform in [-range, range). */
static void fill_floats(float range, uint64_t seed, float *to, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		to[i] = (float)(int32_t)random_word(seed, i) * 0x1p-31f * range;
}

void fill_tensor(const struct tensor *t, uint64_t seed, void *to)
{
	uint64_t n = (uint64_t)t->rows * (uint64_t)t->cols;
	const char *name = t->name ? t->name : ""; /* an expert's */
	bool embedding = strcmp(name, "model.embed_tokens.weight") == 0;
	double variance = embedding ? 1 : 1.0 / t->cols;

	if (!t->fmt.group) {
		memset(to, 0, t->bytes);
		if (t->dims == 2)
			fill_floats((float)sqrt(3 * variance), seed, to, n);
		else if (!strstr(name, "bias"))
			for (uint64_t i = 0; i < n; i++)
				((float *)to)[i] = 1;
		return;
	}
	size_t at = wfmt_scales_offset(t->fmt, t->rows, t->cols);
	size_t scales = (size_t)t->rows * (size_t)wfmt_groups(t->fmt, t->cols);
	double codes = t->fmt.type == W_Q4 ? Q4_VARIANCE : Q8_VARIANCE;
	uint16_t scale = float_to_half((float)sqrt(variance / codes)), *end;

	fill_codes(t->fmt.type, seed, to, at / sizeof(uint64_t));
	end = (uint16_t *)(void *)((char *)to + at);
	memset(end, 0, t->bytes - at);
	for (size_t i = 0; i < scales; i++)
		end[i] = scale;
}
