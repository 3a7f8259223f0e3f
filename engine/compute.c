/* SPDX-License-Identifier: Apache-2.0
 *
 * The matrix product: unpack a few rows of weights, multiply each with every activation row.
 */
#include "engine/compute.h"

#include <errno.h>
#include <stdlib.h>

#include "engine/fail.h"

/* Activation rows multiplied with the unpacked rows before the next ones: 32 rows of 6,144 floats
 * are 768 KiB, which stay in a core's second-level cache. */
#define X_BLOCK 32

/* Below this a parallel region costs more (some microseconds) than it saves. */
#define WORTH 65536.0

static size_t row_floats(int max_cols)
{
	return ((size_t)max_cols + 15) / 16 * 16;
}

size_t compute_bytes(int threads, int max_cols)
{
	return (size_t)threads * COMPUTE_ROWS * row_floats(max_cols) * sizeof(float);
}

int compute_init(struct compute *c, int threads, int max_cols, char *why)
{
	size_t bytes = compute_bytes(threads, max_cols);

	c->threads = threads;
	c->row_floats = row_floats(max_cols);
	c->rows = aligned_alloc(64, bytes);
	if (!c->rows)
		return fail(why, ENOMEM, "no memory for %zu bytes of row buffers", bytes);
	return pool_start(threads, &c->pool, why);
}

void compute_free(struct compute *c)
{
	pool_stop(c->pool);
	c->pool = NULL;
	free(c->rows);
	c->rows = NULL;
}

float *compute_rows(const struct compute *c, int thread)
{
	return c->rows + (size_t)thread * COMPUTE_ROWS * c->row_floats;
}

void compute_run(const struct compute *c, double multiply_adds, int items, pool_fn *fn, void *arg)
{
	if (multiply_adds >= WORTH) {
		pool_run(c->pool, items, fn, arg);
		return;
	}
	for (int i = 0; i < items; i++)
		fn(arg, i, 0);
}

struct product {
	const struct compute *compute;
	const struct wmat *w;
	const float *x;
	size_t ldx;
	int n;
	float *y;
	size_t ldy;
	int per_item; /* rows of w that one item of the loop takes */
};

/* Rows first .. first + rows - 1, at most COMPUTE_ROWS of them; y points at the first one. */
static void row_block(const struct product *p, int thread, int first, int rows, float *y)
{
	const struct kernel_table *k = kernel();
	const struct wmat *w = p->w;
	const float *row[COMPUTE_ROWS];
	float *buf = compute_rows(p->compute, thread);

	for (int r = 0; r < rows; r++) {
		row[r] = buf + (size_t)r * p->compute->row_floats;
		if (w->fmt.type == W_F32) /* lies there as it is needed */
			row[r] = (const float *)w->codes + (size_t)(first + r) * (size_t)w->cols;
	}
	if (w->fmt.type != W_F32)
		k->dequant(w, first, rows, buf, p->compute->row_floats);
	for (int t = 0; t < p->n; t += X_BLOCK) {
		int m = p->n - t < X_BLOCK ? p->n - t : X_BLOCK;
		for (int r = 0; r < rows; r++)
			k->dots(row[r], p->x + (size_t)t * p->ldx, p->ldx, m, w->cols,
				y + (size_t)t * p->ldy + r, p->ldy);
	}
}

static void row_range(const struct product *p, int thread, int first, int rows, float *y)
{
	for (int r = 0; r < rows; r += COMPUTE_ROWS) {
		int m = rows - r < COMPUTE_ROWS ? rows - r : COMPUTE_ROWS;
		row_block(p, thread, first + r, m, y + r);
	}
}

static void product_item(void *arg, int item, int thread)
{
	const struct product *p = arg;
	int first = item * p->per_item, left = p->w->rows - first;

	row_range(p, thread, first, left < p->per_item ? left : p->per_item, p->y + first);
}

void matmul_rows(const struct compute *c, int thread, const struct wmat *w, int first, int rows,
		 const float *x, size_t ldx, int n, float *y, size_t ldy)
{
	const struct product p = { c, w, x, ldx, n, y, ldy, 0 };

	row_range(&p, thread, first, rows, y);
}

void matmul(const struct compute *c, const struct wmat *w, const float *x, size_t ldx, int n,
	    float *y, size_t ldy)
{
	struct product p = { c, w, x, ldx, n, y, ldy, COMPUTE_ROWS };
	double one = (double)w->cols * n * COMPUTE_ROWS;

	/* Taking an item costs an atomic add, so the items should not be too small. */
	while (one < WORTH / 4 && p.per_item < w->rows) {
		p.per_item *= 2;
		one *= 2;
	}
	compute_run(c, (double)w->rows * w->cols * n, (w->rows + p.per_item - 1) / p.per_item,
		    product_item, &p);
}
