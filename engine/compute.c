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
#include "engine/min.h"

/* Activation rows multiplied with the unpacked rows before the next ones: 32 rows of 6,144 floats
 * are 768 KiB, which stay in a core's second-level cache. */
#define X_BLOCK 32

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
	return (size_t)threads * thread_bytes(max_cols) +
	       COMPUTE_TILES * acts_bytes(ACTS_ROWS, max_cols);
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

int compute_tiles(int n)
{
	return (n + ACTS_ROWS - 1) / ACTS_ROWS;
}

bool compute_in_int8(const struct compute *c, const struct wmat *w)
{
	return wfmt_acts_group(w->fmt) && !c->float_activations;
}

/* Rows first .. first + rows - 1, at most COMPUTE_ROWS of them; y points at the first one. */
static void row_block(const struct compute *c, int thread, const struct product *p, int first,
		      int rows, float *y)
{
	const struct kernel_table *k = kernel();
	const struct wmat *w = p->w;
	float *buf = compute_rows(c, thread);
	const float *row = buf;
	size_t ld = c->row_floats;

	if (w->fmt.type == W_F32) { /* lies there as it is needed */
		row = (const float *)w->codes + (size_t)first * (size_t)w->cols;
		ld = (size_t)w->cols;
	} else {
		k->dequant(w, first, rows, buf, ld);
	}
	for (int t = 0; t < p->n; t += X_BLOCK)
		k->dot_block(p->x + (size_t)t * p->ldx, p->ldx,
			     p->n - t < X_BLOCK ? p->n - t : X_BLOCK, row, ld, rows, w->cols,
			     y + (size_t)t * p->ldy, p->ldy);
}

/* The same for any number of rows. */
static void row_range(const struct compute *c, int thread, const struct product *p, int first,
		      int rows, float *y)
{
	for (int r = 0; r < rows; r += COMPUTE_ROWS)
		row_block(c, thread, p, first + r,
			  rows - r < COMPUTE_ROWS ? rows - r : COMPUTE_ROWS, y + r);
}

/* Rows first .. first + rows - 1 of one block, times at most COMPUTE_TILES tiles; y belongs to the first one. */
static void part_of_block(const struct product *p, const struct acts *a, int tiles, int first,
			  int rows, float *y)
{
	float all[COMPUTE_TILES * ACTS_ROWS * WBLOCK];

	if (rows == WBLOCK) {
		kernel()->multiply(p->w, first / WBLOCK, a, tiles, y, p->ldy);
		return;
	}
	kernel()->multiply(p->w, first / WBLOCK, a, tiles, all, WBLOCK);
	for (int t = 0; t < (tiles - 1) * ACTS_ROWS + a[tiles - 1].rows; t++)
		memcpy(y + (size_t)t * p->ldy, all + t * WBLOCK + first % WBLOCK,
		       (size_t)rows * sizeof(float));
}

/* Rows first .. end - 1, block after block; y belongs to the first one. COMPUTE_TILES tiles, which stay in the
 * second-level cache, times all of them, then the next tiles. */
static void blocks(const struct product *p, int first, int end, float *y)
{
	for (int t = 0, n, tiles = compute_tiles(p->n); t < tiles; t += n) {
		float *to = y + (size_t)(t * ACTS_ROWS) * p->ldy;
		n = min_int(COMPUTE_TILES, tiles - t);
		for (int r = first, rows; r < end; r += rows, to += rows) {
			rows = min_int(WBLOCK - r % WBLOCK, end - r);
			part_of_block(p, &p->acts[t], n, r, rows, to);
		}
	}
}

struct loop {
	const struct compute *compute;
	const struct product *product;
};

static void product_item(void *arg, int item, int thread)
{
	const struct loop *l = arg;
	const struct product *p = l->product;

	while (item >= p->items) {
		item -= p->items;
		p++;
	}
	int first = item * p->per_item, end = first + p->per_item;
	if (end > p->w->rows)
		end = p->w->rows;
	if (compute_in_int8(l->compute, p->w))
		blocks(p, first, end, p->y + first);
	else
		row_range(l->compute, thread, p, first, end - first, p->y + first);
}

void compute_products(const struct compute *c, struct product *p, int count)
{
	struct loop l = { c, p };
	double all = 0;
	int rows = 0, items = 0;

	for (int i = 0; i < count; i++) {
		rows += p[i].w->rows;
		all += (double)p[i].w->rows * p[i].w->cols * p[i].n;
	}
	/* Taking an item costs an atomic add, so the items should not be too small; nor should a
	 * thread leave its stretch of memory too often, which it reads ahead of. */
	for (int i = 0; i < count; i++) {
		double one = (double)p[i].w->cols * p[i].n;
		size_t bytes = wfmt_row_bytes(p[i].w->fmt, p[i].w->cols);
		int n = COMPUTE_ROWS;
		while (n < rows / 8 / c->threads &&
		       (one * n < WORTH / 4 || bytes * (size_t)n < STRETCH))
			n *= 2;
		p[i].per_item = n;
		p[i].items = (p[i].w->rows + n - 1) / n;
		items += p[i].items;
	}
	compute_run(c, all, items, product_item, &l);
}

struct quantising {
	const struct compute *compute;
	const struct product *product;
	struct acts *acts;
};

/* Activation rows ACTS_ROWS * tile and on, at most ACTS_ROWS, into buf. */
static void quantise(const struct product *p, int tile, void *buf, struct acts *a)
{
	int first = tile * ACTS_ROWS, n = p->n - first < ACTS_ROWS ? p->n - first : ACTS_ROWS;

	acts_place(a, n, p->w->cols, wfmt_acts_group(p->w->fmt), buf);
	kernel()->quantise(p->x + (size_t)first * p->ldx, p->ldx, a);
}

static void quantise_item(void *arg, int tile, int thread)
{
	struct quantising *q = arg;

	(void)thread;
	quantise(q->product, tile, q->compute->acts + (size_t)tile * q->compute->acts_bytes,
		 &q->acts[tile]);
}

/* Up to COMPUTE_TILES * ACTS_ROWS activation rows. Matrices of the same groups that follow each other have
 * the rows quantised once. acts [COMPUTE_TILES] is room for them, which p is left pointing at. */
static void few_rows(const struct compute *c, struct product *p, int count, struct acts *acts)
{
	for (int i = 0, n; i < count; i += n) {
		bool int8 = compute_in_int8(c, p[i].w);
		for (n = 1;
		     i + n < count && compute_in_int8(c, p[i + n].w) == int8 &&
		     (!int8 || wfmt_acts_group(p[i + n].w->fmt) == wfmt_acts_group(p[i].w->fmt));
		     n++)
			;
		if (int8) {
			/* A number is quantised in the time of some 16 multiply-adds. */
			struct quantising q = { c, &p[i], acts };
			compute_run(c, (double)p[i].w->cols * p[i].n * 16, compute_tiles(p[i].n),
				    quantise_item, &q);
		}
		for (int k = i; k < i + n; k++)
			p[k].acts = acts;
		compute_products(c, p + i, n);
	}
}

void matmuls(const struct compute *c, const struct matmul *m, int count, const float *x, size_t ldx,
	     int n)
{
	struct acts acts[COMPUTE_TILES];
	struct product p[MATMULS];

	for (int t = 0; t < n; t += COMPUTE_TILES * ACTS_ROWS) {
		for (int i = 0; i < count; i++)
			p[i] = (struct product){
				.w = m[i].w,
				.x = x + (size_t)t * ldx,
				.ldx = ldx,
				.n = n - t < COMPUTE_TILES * ACTS_ROWS ? n - t
								       : COMPUTE_TILES * ACTS_ROWS,
				.y = m[i].y + (size_t)t * m[i].ldy,
				.ldy = m[i].ldy,
			};
		few_rows(c, p, count, acts);
	}
}

void matmul(const struct compute *c, const struct wmat *w, const float *x, size_t ldx, int n,
	    float *y, size_t ldy)
{
	const struct matmul m = { w, y, ldy };

	matmuls(c, &m, 1, x, ldx, n);
}

void compute_product_rows(const struct compute *c, int thread, const struct product *p, int first,
			  int rows)
{
	if (!compute_in_int8(c, p->w))
		row_range(c, thread, p, first, rows, p->y);
	else
		blocks(p, first, first + rows, p->y);
}

void matmul_rows(const struct compute *c, int thread, const struct wmat *w, int first, int rows,
		 const float *x, size_t ldx, int n, float *y, size_t ldy)
{
	struct product p = { .w = w, .x = x, .ldx = ldx, .n = n, .y = y, .ldy = ldy };
	struct acts a;

	if (!compute_in_int8(c, w)) {
		row_range(c, thread, &p, first, rows, y);
		return;
	}
	p.acts = &a; /* a thread has room for one tile */
	for (int t = 0; t < n; t += ACTS_ROWS, p.x += ACTS_ROWS * ldx, p.y += ACTS_ROWS * ldy) {
		p.n = min_int(ACTS_ROWS, n - t);
		quantise(&p, 0, thread_buffer(c, thread), &a);
		blocks(&p, first, first + rows, p.y);
	}
}
