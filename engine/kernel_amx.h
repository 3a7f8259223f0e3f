/* SPDX-License-Identifier: Apache-2.0
 *
 * What AMX adds to the table of VNNI's kernels; for kernel.c, and what the sources of it share. x86-64
 * only.
 */
#ifndef ENGINE_KERNEL_AMX_H
#define ENGINE_KERNEL_AMX_H

#include <stdbool.h>

#include "engine/kernel.h"

/* Whether processor and system have it; asks the system for permission to use it, for the process. */
bool kernel_amx_usable(void);

kernel_multiply kernel_multiply_amx;
/* Of kernel_mix_amx.c: see mix_many in struct kernel_table. */
kernel_mix kernel_mix_amx;
/* Activation rows below which VNNI is as fast. */
#define KERNEL_AMX_FEW 9

/* Of kernel_blocks.c: GGUF's formats, any number of rows. */
kernel_multiply kernel_blocks_amx;

#define KERNEL_AMX_TILES 8

struct kernel_amx_tile {
	uint8_t lines, bytes_a_line;
};

/* Gives the tiles their shapes and clears them. Until _tile_release(). */
void kernel_amx_load(const struct kernel_amx_tile *tiles);

/* The eight tiles of products with 8-bit activations: two sums, a tile of activations as A and the last
 * one, which may have fewer rows, as B; weights of either. Numbers of tiles must be literals. */
#define SUMS_A0   0
#define SUMS_A1   1
#define SUMS_B0   2
#define SUMS_B1   3
#define ACTS_A    4
#define ACTS_B    5
#define WEIGHTS_0 6
#define WEIGHTS_1 7

/* Sums of 16 matrix rows by `rows` activation rows, and by `last`, of up to 64 columns at once. Until
 * _tile_release(). */
void kernel_amx_configure(int rows, int last, int columns);

/* The sums of n groups, of tile A or B (as a word), into those of memory: GROUP_SUMS(slot, acts, weights,
 * i), which whoever uses this has, makes those of group i. Two are under way at once, as each step of
 * one takes long. */
#define KERNEL_AMX_SUMS(tile, n, sums)                                                             \
	for (int i_ = 0; i_ < (n); i_ += 2) {                                                      \
		GROUP_SUMS(SUMS_##tile##0, ACTS_##tile, WEIGHTS_0, i_);                            \
		if (i_ + 1 < (n))                                                                  \
			GROUP_SUMS(SUMS_##tile##1, ACTS_##tile, WEIGHTS_1, i_ + 1);                \
		_tile_stored(SUMS_##tile##0, (sums)[i_], 4 * WBLOCK);                              \
		if (i_ + 1 < (n))                                                                  \
			_tile_stored(SUMS_##tile##1, (sums)[i_ + 1], 4 * WBLOCK);                  \
	}

/* The compiler does not know what memory the tile instructions read and write. */
static inline __attribute__((always_inline)) void kernel_amx_settle(void)
{
	__asm__ volatile("" ::: "memory");
}

/* Of kernel_int8.c, for few rows. */
kernel_multiply kernel_multiply_vnni;

#endif
