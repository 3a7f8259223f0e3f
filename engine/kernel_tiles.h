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

/* The sums of a group of add_by_tiles()'s, of signed codes or not. Numbers of tiles must be literals,
 * hence no function. */
#define GROUP_SUMS(slot, acts, weights, i)                                                         \
	do {                                                                                       \
		_tile_zero(slot);                                                                  \
		_tile_loadd(weights, u->codes + (i)*GROUP * WBLOCK, 4 * WBLOCK);                   \
		_tile_loadd(acts, x + (size_t)(i)*step, GROUP);                                    \
		if (!s.steps)                                                                      \
			_tile_dpbssd(slot, acts, weights);                                         \
		else                                                                               \
			_tile_dpbsud(slot, acts, weights);                                         \
	} while (0)

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
			out = add_scaled(out, load_floats(u->min[g]), b->low[0][at]);
	}
	store_floats(y, out);
}

/* All groups' sums first: there are always some under way, while others wait for their results. last:
 * see kernel_amx_configure(). */
INLINE void add_by_tiles(struct shape s, const struct unpacked *u, const struct begin *b,
			 const struct acts *a, bool last, int first, int groups, float *y,
			 size_t ldy)
{
	const size_t step = (size_t)a->rows * GROUP;
	const int8_t *x = a->codes + (size_t)first * step;
	_Alignas(64) int32_t sums[GROUPS][ACTS_ROWS * WBLOCK];

	kernel_amx_settle();
	if (last)
		KERNEL_AMX_SUMS(B, groups, sums)
	else
		KERNEL_AMX_SUMS(A, groups, sums)
	kernel_amx_settle();
	for (int t = 0; t < a->rows; t++, y += ldy)
		if (groups == GROUPS)
			add_sums(s, u, b, a, first, GROUPS, t, sums, y);
		else
			add_sums(s, u, b, a, first, groups, t, sums, y);
}

#endif
