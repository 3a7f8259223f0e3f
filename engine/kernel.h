/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels: the inner loops, compiled once per instruction set (kernel_isa.c) and chosen at run
 * time.
 *
 * Every table computes the same things in the same order; only whether a multiply-add rounds once
 * or twice differs between them, so results are equal from run to run on one machine, and close
 * between machines.
 *
 * A sum of products has one fixed pattern of additions: KERNEL_LANES independent sums (element i
 * goes to lane i mod KERNEL_LANES), then halves added to halves. Hence a row alone and the same row
 * among others give the same bits.
 */
#ifndef ENGINE_KERNEL_H
#define ENGINE_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#include "engine/quant.h"

#define KERNEL_LANES 32

struct kernel_table {
	const char *isa;
	/* Rows row .. row + rows - 1 of m as m->cols floats each, ld floats apart: the bits of
	 * dequant_row(). */
	void (*dequant)(const struct wmat *m, int row, int rows, float *dst, size_t ld);
	/* sum a[i] * b[i] */
	float (*dot)(const float *a, const float *b, int n);
	/* out[t * out_stride] = dot(w, x + t * x_stride), t < count: the same bits, fewer loads. */
	void (*dots)(const float *w, const float *x, size_t x_stride, int count, int n, float *out,
		     size_t out_stride);
	/* y[i] += a * x[i] */
	void (*axpy)(float *y, float a, const float *x, int n);
	/* The same with a vector of bfloat16. */
	float (*dot_bf16)(const float *a, const uint16_t *b, int n);
	void (*axpy_bf16)(float *y, float a, const uint16_t *x, int n);
};

/* The best table for this processor; the same one on every call. */
const struct kernel_table *kernel(void);

/* All tables of this build in ascending order of preference, ending with NULL; those that this
 * processor cannot run are left out. */
const struct kernel_table *const *kernel_tables(void);

#endif
