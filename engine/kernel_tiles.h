/* SPDX-License-Identifier: Apache-2.0
 *
 * The products of kernel_blocks.c, which alone includes this, by AMX (kernel_amx.c says how it
 * works): what is unpacked lies as its tiles want it. The same bits as without.
 *
 * A unit is what has one scale: a group of 32 columns, or half of one. SLOTS of them are under way at
 * once.
 */
#ifndef ENGINE_KERNEL_TILES_H
#define ENGINE_KERNEL_TILES_H

#include "engine/kernel_amx.h"

#define SLOTS KERNEL_AMX_SLOTS

/* Numbers of tiles must be literals, hence no function. Signed codes, or not. */
#define UNIT_SUM(slot, acts, weights, is_signed, w, x)                                             \
	do {                                                                                       \
		_tile_zero(slot);                                                                  \
		_tile_loadd(weights, w, 4 * WBLOCK);                                               \
		_tile_loadd(acts, x, GROUP);                                                       \
		if (is_signed)                                                                     \
			_tile_dpbssd(slot, acts, weights);                                         \
		else                                                                               \
			_tile_dpbsud(slot, acts, weights);                                         \
	} while (0)

/* Adds n units, 1 or SLOTS, to all rows of y; arguments are add_tile()'s. */
INLINE void add_units(struct shape s, const struct unpacked *u, const struct begin *b,
		      const struct acts *a, int first, int unit, int n, float (*y)[WBLOCK])
{
	_Alignas(64) int32_t sums[SLOTS][ACTS_ROWS * WBLOCK];
	const size_t rows = (size_t)a->rows, from = (size_t)first * rows;
	const uint8_t *w[SLOTS];
	const int8_t *x[SLOTS];

	for (int i = 0; i < n; i++) {
		int g = s.fine ? (unit + i) / 2 : unit + i, h = s.fine ? (unit + i) % 2 : 0;
		w[i] = u->codes + (g * GROUP + h * GROUP / 2) * WBLOCK;
		x[i] = a->codes + (from + (size_t)g * rows) * GROUP + h * GROUP / 2;
	}
	kernel_amx_settle();
	UNIT_SUM(0, ACTS_A, WEIGHTS_A, !s.steps, w[0], x[0]);
	if (n == SLOTS) {
		UNIT_SUM(1, ACTS_B, WEIGHTS_B, !s.steps, w[1], x[1]);
		UNIT_SUM(2, ACTS_A, WEIGHTS_A, !s.steps, w[2], x[2]);
		UNIT_SUM(3, ACTS_B, WEIGHTS_B, !s.steps, w[3], x[3]);
	}
	_tile_stored(0, sums[0], 4 * WBLOCK);
	if (n == SLOTS) {
		_tile_stored(1, sums[1], 4 * WBLOCK);
		_tile_stored(2, sums[2], 4 * WBLOCK);
		_tile_stored(3, sums[3], 4 * WBLOCK);
	}
	kernel_amx_settle();
	for (int t = 0; t < a->rows; t++) {
		struct floats out = load_floats(y[t]);
		for (int i = 0; i < n; i++) {
			int g = s.fine ? (unit + i) / 2 : unit + i, h = s.fine ? (unit + i) % 2 : 0;
			size_t at = (size_t)g * rows + (size_t)t;
			__m512i sum = _mm512_load_si512(sums[i] + t * WBLOCK);
			if (s.steps && !s.has_min) /* others have no offset here */
				sum = _mm512_add_epi32(sum, all_ints(b->sum[h][at]).v);
			out = add_group(out, (struct ints){ sum }, load_floats(u->scale[unit + i]),
					a->scale[from + at]);
			if (s.has_min)
				out = add_scaled(out, load_floats(u->min[g]), b->low[at]);
		}
		store_floats(y[t], out);
	}
}

INLINE void add_tiles(struct shape s, const struct unpacked *u, const struct begin *b,
		      const struct acts *a, int first, int groups, float (*y)[WBLOCK])
{
	const int units = s.fine ? 2 * groups : groups;
	int i = 0;

	for (; i + SLOTS <= units; i += SLOTS)
		add_units(s, u, b, a, first, i, SLOTS, y);
	for (; i < units; i++)
		add_units(s, u, b, a, first, i, 1, y);
}

#endif
