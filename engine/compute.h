/* SPDX-License-Identifier: Apache-2.0
 *
 * Compute: the threads and their private row buffers, and the one matrix product built on them.
 *
 * Parallelism is over rows of the matrix, each output number is computed by one thread in the
 * kernels' fixed order: any number of threads and any number of activation rows give the same bits.
 *
 * Activations are quantised to 8 bits for matrices of 8 bits and fewer (wfmt_acts_group()), unless
 * float_activations says that the weights are to be unpacked and multiplied as floats: slower, and
 * what tests compare with.
 *
 * One forward pass at a time may use a struct compute.
 */
#ifndef ENGINE_COMPUTE_H
#define ENGINE_COMPUTE_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/kernel.h"
#include "engine/pool.h"

#define COMPUTE_ROWS 16 /* matrix rows a thread holds unpacked at once */
/* Tiles of ACTS_ROWS quantised activation rows for which the weights are read once. 128 rows of
 * 6,144 columns take a megabyte, half of a second-level cache. */
#define COMPUTE_TILES 8

struct compute {
	int threads;
	bool float_activations;
	struct pool *pool;
	size_t row_floats;   /* room for one row, rounded up to a cache line */
	size_t acts_bytes;   /* room for ACTS_ROWS quantised activation rows */
	size_t thread_bytes; /* a thread's buffer holds either COMPUTE_ROWS rows or those */
	char *buffers;       /* [threads][thread_bytes] */
	char *acts;          /* those of matmul(), one part of acts_bytes a tile */
};

/* Bytes that compute_init() will take. */
size_t compute_bytes(int threads, int max_cols);
/* threads >= 1; max_cols: columns of the widest matrix. 0 or -ENOMEM. Free with compute_free().
 * float_activations is false then, and may be changed between two products. */
int compute_init(struct compute *c, int threads, int max_cols, char *why);
void compute_free(struct compute *c);

/* A thread's COMPUTE_ROWS buffers. */
float *compute_rows(const struct compute *c, int thread);

/* pool_run(), unless multiply_adds are too few to be worth waking the other threads. */
void compute_run(const struct compute *c, double multiply_adds, int items, pool_fn *fn, void *arg);

/* y[t * ldy + r] = sum_i w[r][i] x[t * ldx + i] for t < n and every row r of w. */
void matmul(const struct compute *c, const struct wmat *w, const float *x, size_t ldx, int n,
	    float *y, size_t ldy);

/* The same rows times several matrices of as many columns, at most MATMULS of them: quantised once
 * and computed in one loop, as far as the matrices' groups are the same. */
#define MATMULS 4
struct matmul {
	const struct wmat *w;
	float *y;
	size_t ldy;
};
void matmuls(const struct compute *c, const struct matmul *m, int count, const float *x, size_t ldx,
	     int n);

/* Any products in one loop, for callers that quantise on their own. Where compute_in_int8() says
 * so, acts are compute_tiles(n) tiles with the activations, all but the last of ACTS_ROWS rows;
 * elsewhere x is what is multiplied. */
struct product {
	const struct wmat *w;
	const float *x;
	size_t ldx;
	int n;
	const struct acts *acts;
	float *y;
	size_t ldy;
	int per_item, items; /* compute_products() sets these */
};
bool compute_in_int8(const struct compute *c, const struct wmat *w);
int compute_tiles(int n);
void compute_products(const struct compute *c, struct product *p, int count);

/* Rows first .. first + rows - 1 only, p->y being the first of them; by one thread alone: for use
 * inside of compute_run(). p->acts or p->x as for compute_products(). */
void compute_product_rows(const struct compute *c, int thread, const struct product *p, int first,
			  int rows);

/* matmul() for rows first .. first + rows - 1 only, y[t * ldy] being the first of them; by one thread
 * alone. */
void matmul_rows(const struct compute *c, int thread, const struct wmat *w, int first, int rows,
		 const float *x, size_t ldx, int n, float *y, size_t ldy);

#endif
