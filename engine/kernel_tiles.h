/* SPDX-License-Identifier: Apache-2.0
 *
 * The products of kernel_blocks.c, which alone includes this, by AMX (kernel_amx.c says how it
 * works): what is unpacked lies as its tiles want it. The same bits as without.
 *
 * Not for scales of 16 columns: a tile of them takes as long as one of 64, and VNNI is as fast.
 */
#ifndef ENGINE_KERNEL_TILES_H
#define ENGINE_KERNEL_TILES_H

#include "engine/kernel_amx.h"

#define SLOTS KERNEL_AMX_SLOTS

/* Numbers of tiles must be literals, hence no function. Signed codes, or not. */
#define GROUP_SUM(slot, acts, weights, is_signed, w, x)                                            \
	do {                                                                                       \
		_tile_zero(slot);                                                                  \
		_tile_loadd(weights, w, 4 * WBLOCK);                                               \
		_tile_loadd(acts, x, GROUP);                                                       \
		if (is_signed)                                                                     \
			_tile_dpbssd(slot, acts, weights);                                         \
		else                                                                               \
			_tile_dpbsud(slot, acts, weights);                                         \
	} while (0)

/* The sums of n groups from number g of the chunk on, n 1 or SLOTS; arguments are add_tile()'s. */
INLINE void sum_groups(struct shape s, const struct unpacked *u, const struct acts *a, int first,
		       int g, int n, int32_t (*sums)[ACTS_ROWS * WBLOCK])
{
	const size_t w_step = GROUP * WBLOCK, x_step = (size_t)a->rows * GROUP;
	const uint8_t *w = u->codes + (size_t)g * w_step;
	const int8_t *x = a->codes + (size_t)(first + g) * x_step;

	GROUP_SUM(0, ACTS_A, WEIGHTS_A, !s.steps, w, x);
	if (n == SLOTS) {
		GROUP_SUM(1, ACTS_B, WEIGHTS_B, !s.steps, w + w_step, x + x_step);
		GROUP_SUM(2, ACTS_A, WEIGHTS_A, !s.steps, w + 2 * w_step, x + 2 * x_step);
		GROUP_SUM(3, ACTS_B, WEIGHTS_B, !s.steps, w + 3 * w_step, x + 3 * x_step);
	}
	_tile_stored(0, sums[g], 4 * WBLOCK);
	if (n == SLOTS) {
		_tile_stored(1, sums[g + 1], 4 * WBLOCK);
		_tile_stored(2, sums[g + 2], 4 * WBLOCK);
		_tile_stored(3, sums[g + 3], 4 * WBLOCK);
	}
}

/* What the sums of all groups add to y, which is row t's. */
INLINE void add_sums(struct shape s, const struct unpacked *u, const struct begin *b,
		     const struct acts *a, int first, int groups, int t,
		     int32_t (*sums)[ACTS_ROWS * WBLOCK], float *y)
{
	const size_t rows = (size_t)a->rows;
	const float *x_scale = a->scale + (size_t)first * rows;
	struct floats out = load_floats(y);
	size_t at = (size_t)t;

	for (int g = 0; g < groups; g++, at += rows) {
		__m512i sum = _mm512_load_si512(sums[g] + t * WBLOCK);
		if (s.steps && !s.has_min) /* others have no offset here */
			sum = _mm512_add_epi32(sum, all_ints(b->sum[0][at]).v);
		out = add_group(out, (struct ints){ sum }, load_floats(u->scale[g]), x_scale[at]);
		if (s.has_min)
			out = add_scaled(out, load_floats(u->min[g]), b->low[at]);
	}
	store_floats(y, out);
}

/* All tiles of a chunk first: there is always one under way, while others wait for their results. */
INLINE void add_tiles(struct shape s, const struct unpacked *u, const struct begin *b,
		      const struct acts *a, int first, int groups, float (*y)[WBLOCK])
{
	_Alignas(64) int32_t sums[GROUPS][ACTS_ROWS * WBLOCK];
	int g = 0;

	kernel_amx_settle();
	for (; g + SLOTS <= groups; g += SLOTS)
		sum_groups(s, u, a, first, g, SLOTS, sums);
	for (; g < groups; g++)
		sum_groups(s, u, a, first, g, 1, sums);
	kernel_amx_settle();
	for (int t = 0; t < a->rows; t++)
		if (groups == GROUPS)
			add_sums(s, u, b, a, first, GROUPS, t, sums, y[t]);
		else
			add_sums(s, u, b, a, first, groups, t, sums, y[t]);
}

#endif
