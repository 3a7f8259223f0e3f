/* SPDX-License-Identifier: Apache-2.0
 *
 * The feed-forward.
 */
#include "engine/ffn.h"

#include <string.h>

#include "engine/norm.h"

/* Some rows of a task, which one thread takes: numbers first .. first + n - 1 of its rows, from
 * `at` on among those of all tasks. */
struct ffn_tile {
	const struct ffn_task *task;
	int first, n, at;
};

struct batch {
	const struct compute *compute;
	const struct ffn_task *task;
	struct ffn_work *work;
	int count, tiles, rows;
	size_t hidden, width;
	const struct wmat *wanted; /* the matrix that the inputs are made ready for */
};

static int most_tiles(int rows, int tasks)
{
	return rows / ACTS_ROWS + tasks;
}

void ffn_lay_out(struct ffn_work *w, int rows, int tasks, int hidden, int width, struct arena *a)
{
	size_t tiles = (size_t)most_tiles(rows, tasks), n = (size_t)rows;
	size_t floats = n * (size_t)hidden * sizeof(float);

	w->rows = rows;
	w->acts_bytes = acts_bytes(ACTS_ROWS, hidden > width ? hidden : width);
	w->gate = arena_take(a, n * (size_t)width, sizeof(float));
	w->up = arena_take(a, n * (size_t)width, sizeof(float));
	w->input =
		arena_take(a, tiles * w->acts_bytes > floats ? tiles * w->acts_bytes : floats, 1);
	w->tile = arena_take(a, tiles, sizeof(*w->tile));
	w->acts = arena_take(a, tiles, sizeof(*w->acts));
	w->product = arena_take(a, 2 * (size_t)tasks, sizeof(*w->product));
}

static void cut_into_tiles(struct batch *b)
{
	for (int i = 0; i < b->count; i++)
		for (int first = 0, n; first < b->task[i].n; first += n, b->rows += n) {
			n = b->task[i].n - first < ACTS_ROWS ? b->task[i].n - first : ACTS_ROWS;
			b->work->tile[b->tiles++] =
				(struct ffn_tile){ &b->task[i], first, n, b->rows };
		}
}

/* Rows of floats, ld apart, as tile number i for a matrix of 8-bit products. */
static void quantise(const struct batch *b, int i, const struct wmat *m, const float *x, size_t ld)
{
	struct ffn_work *w = b->work;

	acts_place(&w->acts[i], w->tile[i].n, m->cols, wfmt_acts_group(m->fmt),
		   w->input + (size_t)i * w->acts_bytes);
	kernel()->quantise(x, ld, &w->acts[i]);
}

static void gather(const struct ffn_tile *t, size_t hidden, float *to)
{
	const struct ffn_task *task = t->task;

	for (int r = 0; r < t->n; r++) {
		size_t row = (size_t)(task->row ? task->row[t->first + r] : t->first + r);
		memcpy(to + (size_t)r * hidden, task->x + row * hidden, hidden * sizeof(float));
	}
}

static void input_item(void *arg, int i, int thread)
{
	const struct batch *b = arg;
	const struct ffn_tile *t = &b->work->tile[i];
	float *rows = compute_rows(b->compute, thread);

	if (!compute_in_int8(b->compute, b->wanted)) {
		gather(t, b->hidden, (float *)(void *)b->work->input + (size_t)t->at * b->hidden);
		return;
	}
	gather(t, b->hidden, rows);
	quantise(b, i, b->wanted, rows, b->hidden);
}

/* Products of one matrix of each task with the input, which is `from` or the tiles of codes; into to,
 * or into y of each if to is NULL. */
static void describe(const struct batch *b, enum ffn_matrix which, const float *from, float *to,
		     struct product *p)
{
	const struct wmat *like = b->task->matrix[which];
	size_t cols = (size_t)like->cols, rows = (size_t)like->rows, at = 0;
	const struct acts *acts = b->work->acts;

	for (int i = 0; i < b->count; i++) {
		const struct ffn_task *t = &b->task[i];
		p[i] = (struct product){ .w = t->matrix[which],
					 .x = from + at * cols,
					 .ldx = cols,
					 .n = t->n,
					 .acts = acts,
					 .y = to ? to + at * rows : t->y,
					 .ldy = rows };
		at += (size_t)t->n;
		acts += compute_tiles(t->n);
	}
}

static void make_inputs(struct batch *b, enum ffn_matrix which)
{
	double numbers = (double)b->rows * (double)b->hidden;

	b->wanted = b->task->matrix[which];
	/* A number is quantised in the time of some 16 multiply-adds. */
	compute_run(b->compute, numbers * 16, b->tiles, input_item, b);
}

static bool same_input(const struct compute *cp, const struct wmat *a, const struct wmat *b)
{
	bool int8 = compute_in_int8(cp, a);

	return int8 == compute_in_int8(cp, b) &&
	       (!int8 || wfmt_acts_group(a->fmt) == wfmt_acts_group(b->fmt));
}

static void gate_and_up(struct batch *b)
{
	struct ffn_work *w = b->work;
	const float *input = (const float *)(const void *)w->input;
	struct product *up = w->product + b->count;
	bool once = same_input(b->compute, b->task->matrix[FFN_GATE], b->task->matrix[FFN_UP]);

	describe(b, FFN_GATE, input, w->gate, w->product);
	describe(b, FFN_UP, input, w->up, up);
	make_inputs(b, FFN_GATE);
	compute_products(b->compute, w->product, once ? 2 * b->count : b->count);
	if (once)
		return;
	make_inputs(b, FFN_UP);
	compute_products(b->compute, up, b->count);
}

static void activate(const struct ffn_biases *b, float *gate, float *up, int rows, int width)
{
	if (!b) {
		kernel()->swiglu(gate, up, rows * width);
		return;
	}
	add_bias(gate, b->gate, rows, width);
	add_bias(up, b->up, rows, width);
	kernel()->swiglu_clamped(gate, up, rows * width, b->limit);
}

static void activate_item(void *arg, int i, int thread)
{
	const struct batch *b = arg;
	const struct ffn_tile *t = &b->work->tile[i];
	float *gate = b->work->gate + (size_t)t->at * b->width;

	(void)thread;
	activate(t->task->biases, gate, b->work->up + (size_t)t->at * b->width, t->n,
		 (int)b->width);
	if (compute_in_int8(b->compute, b->wanted))
		quantise(b, i, b->wanted, gate, b->width);
}

void ffn_run(const struct compute *cp, const struct ffn_task *t, int count, struct ffn_work *w)
{
	struct batch b = { .compute = cp,
			   .task = t,
			   .work = w,
			   .count = count,
			   .hidden = (size_t)t->matrix[FFN_GATE]->cols,
			   .width = (size_t)t->matrix[FFN_GATE]->rows };

	cut_into_tiles(&b);
	gate_and_up(&b);
	b.wanted = t->matrix[FFN_DOWN];
	/* An exponential and quantising cost some 32 multiply-adds a number. */
	compute_run(cp, (double)b.rows * (double)b.width * 32, b.tiles, activate_item, &b);
	describe(&b, FFN_DOWN, w->gate, NULL, w->product);
	compute_products(cp, w->product, count);
	for (int i = 0; i < count; i++)
		if (t[i].biases)
			add_bias(t[i].y, t[i].biases->down, t[i].n, (int)b.hidden);
}
