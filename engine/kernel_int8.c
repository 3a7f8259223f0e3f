/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of q8 and q4 weights with 8-bit activations, compiled once per instruction set with
 * -DKERNEL_ISA=NAME; lanes of that set: kernel_lanes.h.
 *
 * Activations are quantised in the weights' own groups: code = nearest(x * 127 / max |x|), symmetric,
 * one float scale a group. So a group's product is an integer times two scales. An activation is
 * off by at most max/254 of its group, a 4-bit weight by about max/16: the loss is that of the
 * weights (measured: tests/e2e/test_oracle.sh). A group that holds a value which is no number gets
 * the scale NaN, hence makes every product NaN, which the engine notices.
 *
 *	y = sum over groups, in ascending order, of (float)sum(codes * codes) * weight scale * x scale
 *
 * 4-bit codes stay 0 .. 15; the 8 that should be taken off each is taken off at once, as 8 times
 * the sum of the activations' codes, which is where each sum of integers begins (struct acts.bias).
 * One order for all, and integers in between: a row alone or among others, on any number of threads
 * and in any instruction set, gives the same bits. The file is compiled without contraction of
 * floating-point expressions; the one fused multiply-add is written out.
 */
#include <stdbool.h>

#include "engine/kernel_lanes.h"

#include "engine/kernel.h"

#define PASTE_(a, b) a##b
#define PASTE(a, b)  PASTE_(a, b)
#define QUANTISE     PASTE(kernel_quantise_, KERNEL_ISA)
#define MULTIPLY     PASTE(kernel_multiply_, KERNEL_ISA)

#define ABSORB PASTE(kernel_absorb_, KERNEL_ISA)
#define BLOCKS PASTE(kernel_blocks_, KERNEL_ISA)

void QUANTISE(const float *x, size_t ldx, struct acts *a);
kernel_multiply MULTIPLY, BLOCKS; /* the latter: kernel_blocks.c */
void ABSORB(const struct wmat *m, int first, int rows, const float *q, size_t ldq, int n,
	    float *out, size_t ldo);

#include "engine/kernel_absorb.h"

/* The bits of the largest magnitude; those of infinity and of what is no number are larger than
 * those of any number. g is a multiple of 32. */
INLINE int32_t largest(const float *x, int g)
{
	struct ints max = all_ints(0);

	for (int i = 0; i < g; i += 16)
		max = larger_bits(max, x + i);
	return max_of_ints(max);
}

/* Their sum; in *half that of the first 16, in groups of 32. */
INLINE int32_t codes_of(const float *x, int g, float inv, int8_t *codes, int32_t *half)
{
	struct ints sum = put_codes(all_ints(0), x, inv, codes);

	if (g == 32)
		*half = sum_of_ints(sum);
	for (int i = 16; i < g; i += 16)
		sum = put_codes(sum, x + i, inv, codes + i);
	return sum_of_ints(sum);
}

/* Group number `at` of a. */
static void quantise_group(const float *x, const struct acts *a, size_t at)
{
	const int g = a->group;
	int8_t *codes = a->codes + at * (size_t)g;
	float *scale = a->scale + at;
	int32_t *bias = a->bias + at, *half = a->half + at;
	union {
		int32_t i;
		float f;
	} max = { .i = largest(x, g) };

	*scale = 0;
	*bias = 0;
	*half = 0;
	if (max.i >= 0x7f800000) {
		*scale = NAN;
		memset(codes, 0, (size_t)g);
	} else if (max.f < 0x1p-100f) { /* so small that 127 / max might overflow */
		memset(codes, 0, (size_t)g);
	} else {
		*scale = max.f / 127;
		*bias = -8 * codes_of(x, g, 127 / max.f, codes, half);
		*half *= -8;
	}
}

void QUANTISE(const float *x, size_t ldx, struct acts *a)
{
	size_t at = 0;

	for (int g = 0; g < a->groups; g++)
		for (int t = 0; t < a->rows; t++, at++) {
			const float *from = x + (size_t)t * ldx + (size_t)g * (size_t)a->group;
			float last[128] = { 0 };
			int n = a->cols - g * a->group;
			if (n < a->group) {
				memcpy(last, from, (size_t)n * sizeof(float));
				from = last;
			}
			quantise_group(from, a, at);
		}
}

/* With one activation row the weights come from memory as fast as that gives them. A core has too few
 * instructions in flight to ask for them early enough, and its own prefetching stops at the end of
 * each page of 4 KiB: bytes from here on are asked for. Measured on Sapphire Rapids, share of a plain
 * sum over the same memory: 0.70 without, 0.79 with 1 KiB, 0.94 with 2, 1.03 with 4, 8 and 16. */
#define AHEAD 4096

/* 8 columns of codes at w times `tile` rows of x, which lie g bytes apart. ahead: see AHEAD. */
INLINE void eight_columns_q4(const uint8_t *w, const int8_t *x, size_t g, int tile, bool ahead,
			     struct part *p)
{
	struct codes c = load_codes(w), lo = low_nibbles(c), hi = high_nibbles(c);

	if (ahead)
		__builtin_prefetch(w + AHEAD);
	for (int t = 0; t < tile; t++) {
		p[t] = dot_q4(p[t], lo, x + (size_t)t * g);
		p[t] = dot_q4(p[t], hi, x + (size_t)t * g + 4);
	}
}

/* 32 columns: sums of `tile` rows of x. Not a loop, which a compiler keeps as one, and moves all parts to
 * where the next turn wants them. */
INLINE void columns_q4(const uint8_t *w, const int8_t *x, size_t g, int tile, bool ahead,
		       struct ints *sums)
{
	struct part p[TILE];

	for (int t = 0; t < tile; t++)
		p[t] = part_begin(sums[t]);
	eight_columns_q4(w, x, g, tile, ahead, p);
	eight_columns_q4(w + 64, x + 8, g, tile, ahead, p);
	eight_columns_q4(w + 128, x + 16, g, tile, ahead, p);
	eight_columns_q4(w + 192, x + 24, g, tile, ahead, p);
	for (int t = 0; t < tile; t++)
		sums[t] = part_end(sums[t], p[t]);
}

INLINE void columns_q8(const uint8_t *w, const int8_t *x, size_t g, int tile, bool ahead,
		       struct ints *sums)
{
	for (int k = 0; k < 8; k++) {
		struct codes c = ready_q8(load_codes(w + 64 * k));
		if (ahead)
			__builtin_prefetch(w + 64 * k + AHEAD);
		for (int t = 0; t < tile; t++)
			sums[t] = part_end(
				sums[t], dot_q8(part_begin(sums[t]), c, x + (size_t)t * g + 4 * k));
	}
}

/* Rows first .. first + tile - 1 of a, whose groups have g columns, times a block. */
INLINE void multiply_tile(enum wtype type, const uint8_t *w, const uint16_t *scales,
			  const struct acts *a, size_t g, int first, int tile, float *y, size_t ldy)
{
	const size_t n = (size_t)a->rows;
	const size_t step = type == W_Q4 ? 256 : 512;
	const int8_t *x = a->codes + (size_t)first * g;
	struct floats out[TILE];
	struct ints sums[TILE];

	for (int t = 0; t < tile; t++)
		out[t] = no_floats();
	for (size_t at = (size_t)first, end = n * (size_t)a->groups; at < end;
	     at += n, x += n * g, scales += WBLOCK) {
		for (int t = 0; t < tile; t++)
			sums[t] = type == W_Q4 ? all_ints(a->bias[at + (size_t)t])
				  : Q8_BIAS    ? all_ints(a->bias[at + (size_t)t] * (1 << Q8_BIAS))
					       : all_ints(0);
		for (size_t c = 0; c < g; c += 32, w += step) {
			if (type == W_Q4)
				columns_q4(w, x + c, g, tile, first == 0, sums);
			else
				columns_q8(w, x + c, g, tile, first == 0, sums);
		}
		struct floats s = load_scales(scales);
		for (int t = 0; t < tile; t++)
			out[t] = add_group(out[t], sums[t], s, a->scale[at + (size_t)t]);
	}
	for (int t = 0; t < tile; t++)
		store_floats(y + (size_t)t * ldy, out[t]);
}

/* The rows that are left, k of them, in one pass over the weights. */
#define LEFT(k)                                                                                    \
	if (TILE > (k) && a->rows - t == (k))                                                      \
	multiply_tile(type, w, scales, a, g, t, TILE > (k) ? (k) : 1, y + (size_t)t * ldy, ldy)

INLINE void multiply_rows(enum wtype type, const uint8_t *w, const uint16_t *scales,
			  const struct acts *a, size_t g, float *y, size_t ldy)
{
	int t = 0;

	for (; t + TILE <= a->rows; t += TILE)
		multiply_tile(type, w, scales, a, g, t, TILE, y + (size_t)t * ldy, ldy);
	LEFT(7);
	LEFT(6);
	LEFT(5);
	LEFT(4);
	LEFT(3);
	LEFT(2);
	LEFT(1);
}

/* Where rows of x lie is a number in the code for each size of groups, not one in a register for each row:
 * those are too few. */
INLINE void multiply(enum wtype type, const uint8_t *w, const uint16_t *scales,
		     const struct acts *a, float *y, size_t ldy)
{
	if (a->group == 32)
		multiply_rows(type, w, scales, a, 32, y, ldy);
	else if (a->group == 64)
		multiply_rows(type, w, scales, a, 64, y, ldy);
	else
		multiply_rows(type, w, scales, a, 128, y, ldy);
}

void MULTIPLY(const struct wmat *m, int block, const struct acts *a, int tiles, float *y,
	      size_t ldy)
{
	if (!m->fmt.group) {
		BLOCKS(m, block, a, tiles, y, ldy);
		return;
	}
	size_t row_bytes = wfmt_row_bytes(m->fmt, m->cols);
	const uint8_t *w = (const uint8_t *)m->codes + (size_t)block * WBLOCK * row_bytes;
	const uint16_t *scales = m->scales + (size_t)block * WBLOCK * (size_t)a->groups;

	for (int t = 0; t < tiles; t++, y += ACTS_ROWS * ldy)
		if (m->fmt.type == W_Q4)
			multiply(W_Q4, w, scales, &a[t], y, ldy);
		else
			multiply(W_Q8, w, scales, &a[t], y, ldy);
}
