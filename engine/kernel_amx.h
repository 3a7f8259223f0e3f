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

void kernel_multiply_amx(const struct wmat *m, int block, const struct acts *a, float *y,
			 size_t ldy);
/* Activation rows below which VNNI is as fast. */
#define KERNEL_AMX_FEW 9

/* Of kernel_blocks.c: GGUF's formats, any number of rows. */
kernel_multiply kernel_blocks_amx;

/* Groups under way at once: each step of one takes long, and has none to wait for. Tiles 0 .. 3 are the
 * sums of these. Numbers of tiles must be literals. */
#define KERNEL_AMX_SLOTS 4
#define ACTS_A           4
#define ACTS_B           5
#define WEIGHTS_A        6
#define WEIGHTS_B        7

/* Sums of 16 matrix rows by `rows` activation rows, of up to 64 columns at once. Until _tile_release(). */
void kernel_amx_configure(int rows, int columns);

/* The compiler does not know what memory the tile instructions read and write. */
static inline __attribute__((always_inline)) void kernel_amx_settle(void)
{
	__asm__ volatile("" ::: "memory");
}

/* Of kernel_int8.c, for few rows. */
void kernel_multiply_vnni(const struct wmat *m, int block, const struct acts *a, float *y,
			  size_t ldy);

#endif
