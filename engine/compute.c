/* SPDX-License-Identifier: Apache-2.0
 *
 * The matrix product. Of q8, q4 and most of GGUF's formats: quantise the activations, then all of them times a block
 * of rows at a time. Of others: unpack a few rows, multiply each with every activation row.
 */
#include "engine/compute.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/fail.h"

/* Activation rows multiplied with the unpacked rows before the next ones: 32 rows of 6,144 floats
 * are 768 KiB, which stay in a core's second-level cache. */
#define X_BLOCK 32

/* Tiles of ACTS_ROWS quantised activation rows for which the weights are read once. 128 rows of
 * 6,144 columns take a megabyte, half of a second-level cache. */
#define TILES 8

/* Below this a parallel region costs more (some microseconds) than it saves. */
#define WORTH 65536.0

static size_t row_floats(int max_cols)
{
	return ((size_t)max_cols + 15) / 16 * 16;
}

static size_t thread_bytes(int max_cols)
{
	size_t rows = COMPUTE_ROWS * row_floats(max_cols) * sizeof(float);
	size_t acts = acts_bytes(ACTS_ROWS, max_cols);

	return rows > acts ? rows : acts;
}

size_t compute_bytes(int threads, int max_cols)
{
	return (size_t)threads * thread_bytes(max_cols) + TILES * acts_bytes(ACTS_ROWS, max_cols);
}

int compute_init(struct compute *c, int threads, int max_cols, char *why)
{
	size_t bytes = compute_bytes(threads, max_cols);

	*c = (struct compute){ .threads = threads,
			       .row_floats = row_floats(max_cols),
			       .acts_bytes = acts_bytes(ACTS_ROWS, max_cols),
			       .thread_bytes = thread_bytes(max_cols) };
	c->buffers = aligned_alloc(64, bytes);
	if (!c->buffers)
		return fail(why, ENOMEM, "no memory for %zu bytes of row buffers", bytes);
	c->acts = c->buffers + (size_t)threads * c->thread_bytes;
	return pool_start(threads, &c->pool, why);
}

void compute_free(struct compute *c)
{
	pool_stop(c->pool);
	c->pool = NULL;
	free(c->buffers);
	c->buffers = NULL;
}

static void *thread_buffer(const struct compute *c, int thread)
{
	return c->buffers + (size_t)thread * c->thread_bytes;
}

float *compute_rows(const struct compute *c, int thread)
{
	return thread_buffer(c, thread);
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

/* Bytes of weights that a thread takes at once, if each thread finds eight times as many. */
#define STRETCH ((size_t)128 << 10)

struct product {
	const struct compute *compute;
	const struct wmat *w;
	const float *x;
	size_t ldx;
	int n;
	float *y;
	size_t ldy;
	int per_item; /* rows of w that one item of the loop takes, a multiple of WBLOCK */
	struct acts acts[TILES];
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

/* The same for any number of rows. */
static void row_range(const struct product *p, int thread, int first, int rows, float *y)
{
	for (int r = 0; r < rows; r += COMPUTE_ROWS) {
		int m = rows - r < COMPUTE_ROWS ? rows - r : COMPUTE_ROWS;
		row_block(p, thread, first + r, m, y + r);
	}
}

static void float_item(void *arg, int item, int thread)
{
	const struct product *p = arg;
	int first = item * p->per_item, left = p->w->rows - first;

	row_range(p, thread, first, left < p->per_item ? left : p->per_item, p->y + first);
}

static int tiles_of(int n)
{
	return (n + ACTS_ROWS - 1) / ACTS_ROWS;
}

/* Activation rows ACTS_ROWS * tile and on, at most ACTS_ROWS, into buf. */
static void quantise(const struct product *p, int tile, void *buf, struct acts *a)
{
	int first = tile * ACTS_ROWS, n = p->n - first < ACTS_ROWS ? p->n - first : ACTS_ROWS;

	acts_place(a, n, p->w->cols, wfmt_acts_group(p->w->fmt), buf);
	kernel()->quantise(p->x + (size_t)first * p->ldx, p->ldx, a);
}

static void quantise_item(void *arg, int tile, int thread)
{
	struct product *p = arg;

	(void)thread;
	quantise(p, tile, p->compute->acts + (size_t)tile * p->compute->acts_bytes, &p->acts[tile]);
}

/* Rows first .. first + rows - 1 of one block, times a tile; y belongs to the first one. */
static void part_of_block(const struct product *p, const struct acts *a, int first, int rows,
			  float *y)
{
	float all[ACTS_ROWS * WBLOCK];

	if (rows == WBLOCK) {
		kernel()->multiply(p->w, first / WBLOCK, a, y, p->ldy);
		return;
	}
	kernel()->multiply(p->w, first / WBLOCK, a, all, WBLOCK);
	for (int t = 0; t < a->rows; t++)
		memcpy(y + (size_t)t * p->ldy, all + t * WBLOCK + first % WBLOCK,
		       (size_t)rows * sizeof(float));
}

/* All tiles times a block, then the next block: its weights stay in the nearest cache. */
static void int8_item(void *arg, int item, int thread)
{
	const struct product *p = arg;
	int end = (item + 1) * p->per_item < p->w->rows ? (item + 1) * p->per_item : p->w->rows;

	(void)thread;
	for (int r = item * p->per_item; r < end; r += WBLOCK)
		for (int t = 0; t < tiles_of(p->n); t++)
			part_of_block(p, &p->acts[t], r, end - r < WBLOCK ? end - r : WBLOCK,
				      p->y + (size_t)t * ACTS_ROWS * p->ldy + r);
}

/* Up to TILES * ACTS_ROWS activation rows. */
static void int8_product(struct product *p)
{
	const struct compute *c = p->compute;
	double all = (double)p->w->rows * p->w->cols * p->n;

	/* A number is quantised in the time of some 16 multiply-adds. */
	compute_run(c, (double)p->w->cols * p->n * 16, tiles_of(p->n), quantise_item, p);
	compute_run(c, all, (p->w->rows + p->per_item - 1) / p->per_item, int8_item, p);
}

static bool in_int8(const struct compute *c, const struct wmat *w)
{
	return wfmt_acts_group(w->fmt) && !c->float_activations;
}

void matmul_rows(const struct compute *c, int thread, const struct wmat *w, int first, int rows,
		 const float *x, size_t ldx, int n, float *y, size_t ldy)
{
	const struct product p = {
		.compute = c, .w = w, .x = x, .ldx = ldx, .n = n, .y = y, .ldy = ldy
	};
	struct acts a;

	if (!in_int8(c, w)) {
		row_range(&p, thread, first, rows, y);
		return;
	}
	for (int t = 0; t < tiles_of(n); t++, y += ACTS_ROWS * ldy) {
		quantise(&p, t, thread_buffer(c, thread), &a);
		for (int r = first, m; r < first + rows; r += m) {
			m = WBLOCK - r % WBLOCK;
			m = m < first + rows - r ? m : first + rows - r;
			part_of_block(&p, &a, r, m, y + (r - first));
		}
	}
}

void matmul(const struct compute *c, const struct wmat *w, const float *x, size_t ldx, int n,
	    float *y, size_t ldy)
{
	struct product p = { .compute = c,
			     .w = w,
			     .x = x,
			     .ldx = ldx,
			     .n = n,
			     .y = y,
			     .ldy = ldy,
			     .per_item = COMPUTE_ROWS };
	double one = (double)w->cols * n * COMPUTE_ROWS;

	/* Taking an item costs an atomic add, so the items should not be too small; nor should a
	 * thread leave its stretch of memory too often, which it reads ahead of. */
	while (p.per_item < w->rows / 8 / c->threads &&
	       (one < WORTH / 4 ||
		wfmt_row_bytes(w->fmt, w->cols) * (size_t)p.per_item < STRETCH)) {
		p.per_item *= 2;
		one *= 2;
	}
	if (!in_int8(c, w)) {
		compute_run(c, (double)w->rows * w->cols * n,
			    (w->rows + p.per_item - 1) / p.per_item, float_item, &p);
		return;
	}
	for (int t = 0; t < n; t += TILES * ACTS_ROWS) {
		p.n = n - t < TILES * ACTS_ROWS ? n - t : TILES * ACTS_ROWS;
		p.x = x + (size_t)t * ldx;
		p.y = y + (size_t)t * ldy;
		int8_product(&p);
	}
}
