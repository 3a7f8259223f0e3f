/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels: the inner loops, compiled once per instruction set (kernel_isa.c) and chosen at run
 * time.
 *
 * Every table computes the same things in the same order; only whether a multiply-add rounds once
 * or twice differs between them, so results are equal from run to run on one machine, and close
 * between machines.
 *
 * A sum of float products has one fixed pattern of additions: KERNEL_LANES independent sums
 * (element i goes to lane i mod KERNEL_LANES), then halves added to halves. Hence a row alone and
 * the same row among others give the same bits. Products with 8-bit activations, of q8 and q4
 * weights (kernel_int8.c) and of GGUF's blocks (kernel_blocks.c), give the same bits in every table.
 */
#ifndef ENGINE_KERNEL_H
#define ENGINE_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#include "engine/quant.h"

#define KERNEL_LANES 16

#define ACTS_ROWS 16 /* activation rows that are quantised together at most */

/* Some activation rows as 8-bit codes. Group g of row t is number g * rows + t of each array, so a
 * kernel reads them from front to back. Owns nothing; acts_place() sets it up. */
struct acts {
	int rows, cols, group, groups;
	int8_t *codes; /* [groups][rows][group], 0 beyond cols */
	float *scale;  /* [groups][rows]; NaN if a number of the group is none */
	int32_t *bias; /* [groups][rows]: -8 * sum of the group's codes */
	int32_t *half; /* the same of its first 16 codes; only in groups of 32 */
};

/* In groups of how many columns activations are quantised for weights of this format; 0: they stay
 * floats. */
int wfmt_acts_group(struct wfmt f);

/* Bytes for `rows` (at most ACTS_ROWS) rows of up to max_cols columns in groups of any size. */
size_t acts_bytes(int rows, int max_cols);
/* buf: acts_bytes(), 64-byte aligned. */
void acts_place(struct acts *a, int rows, int cols, int group, void *buf);

/* Row `row` of a becomes the only row of `one`, which is of the same columns and group. */
void acts_set_row(struct acts *a, int row, const struct acts *one);

/* See struct kernel_table. */
typedef void kernel_multiply(const struct wmat *m, int block, const struct acts *a, int tiles,
			     float *y, size_t ldy);

typedef void kernel_mix(const float *p, size_t ldp, int np, const float *y, size_t ldy, int ny,
			int n, float *out, size_t ldo);

struct kernel_table {
	const char *isa;
	/* Rows row .. row + rows - 1 of m as m->cols floats each, ld floats apart: the bits of
	 * dequant_row(). */
	void (*dequant)(const struct wmat *m, int row, int rows, float *dst, size_t ld);
	/* sum a[i] * b[i] */
	float (*dot)(const float *a, const float *b, int n);
	/* out[a * ldo + b] = dot(x + a * ldx, y + b * ldy) for a < nx and b < ny: the same bits,
	 * fewer loads. Of many rows those that are used again soonest should be x. */
	void (*dot_block)(const float *x, size_t ldx, int nx, const float *y, size_t ldy, int ny,
			  int n, float *out, size_t ldo);
	/* y[i] += a * x[i] */
	void (*axpy)(float *y, float a, const float *x, int n);
	/* out[a * ldo + c] += p[a * ldp + b] * y[b * ldy + c] for a < np and c < n, b = 0 .. ny - 1
	 * in this order: the bits of ny calls of axpy() for each a. */
	kernel_mix *mix_block;
	/* The same for many rows, by what is fastest: a row's bits are the same whatever np and the
	 * other rows are, but need not be those of mix_block(); each product is right to 2^-16. */
	kernel_mix *mix_many;
	/* gate = silu(gate) * up, silu(v) = v / (1 + exp(-v)). */
	void (*swiglu)(float *gate, const float *up, int n);
	/* gpt-oss's form: g = min(gate, limit), u = up within -limit .. limit,
	 * gate = g / (1 + exp(-1.702 g)) * (u + 1). */
	void (*swiglu_clamped)(float *gate, const float *up, int n, float limit);
	/* x = exp(x - max) / sum. n >= 1. */
	void (*softmax)(float *x, int n);
	/* One part of a softmax that is taken in parts: *max becomes the largest number so far, x =
	 * exp(x - *max); their sum. What earlier parts gave, sums and all, is to be multiplied with
	 * *shrink. n >= 1; *max is -INFINITY before the first part. */
	double (*softmax_part)(float *x, int n, float *max, float *shrink);
	/* Rows x, x + ldx, ... of a->cols floats into the arrays of a. */
	void (*quantise)(const float *x, size_t ldx, struct acts *a);
	/* y[t * ldy + r] = row r of a block (rows WBLOCK * block + r of m, of a format that
	 * wfmt_acts_group() has a group for) times row t of a, for all WBLOCK rows,
	 * those that only fill up the block too. m->cols and the group are a's. a: so many tiles,
	 * at least 1, all but the last of ACTS_ROWS rows, for which a block is unpacked once. */
	kernel_multiply *multiply;
	/* out[t * ldo + c] = sum of q[t * ldq + r] * w[first + r][c], r < rows, for t < n and all
	 * m->cols columns of m, which is of q8 or q4; floats throughout. */
	void (*absorb)(const struct wmat *m, int first, int rows, const float *q, size_t ldq, int n,
		       float *out, size_t ldo);
};

/* The best table for this processor, or the one that the environment variable COLI_ENGINE_KERNEL
 * names if this processor can run it; the same one on every call. */
const struct kernel_table *kernel(void);

/* All tables of this build in ascending order of preference, ending with NULL; those that this
 * processor cannot run are left out. */
const struct kernel_table *const *kernel_tables(void);

#endif
