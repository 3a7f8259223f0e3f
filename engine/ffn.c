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

void ffn_lay_out_rows(struct ffn_rows *r, int n, int hidden, struct arena *a)
{
	r->codes = arena_take(a, (size_t)n, acts_bytes(1, hidden));
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

/* Where the codes of tile number i go, for the matrix that is wanted. */
static struct acts *place_tile(const struct batch *b, int i)
{
	struct ffn_work *w = b->work;

	acts_place(&w->acts[i], w->tile[i].n, b->wanted->cols, wfmt_acts_group(b->wanted->fmt),
		   w->input + (size_t)i * w->acts_bytes);
	return &w->acts[i];
}

static const float *input_row(const struct ffn_task *t, int i, size_t hidden)
{
	return t->from ? t->from->x + (size_t)t->row[i] * hidden : t->x + (size_t)i * hidden;
}

/* The only row of a tile of its own. */
static struct acts coded_row(const struct ffn_rows *r, int i, const struct wmat *m)
{
	struct acts a;

	acts_place(&a, 1, m->cols, wfmt_acts_group(m->fmt),
		   r->codes + (size_t)i * acts_bytes(1, m->cols));
	return a;
}

static void code_row(void *arg, int i, int thread)
{
	const struct batch *b = arg;
	const struct ffn_rows *r = b->task->from;
	struct acts a = coded_row(r, i, b->wanted);

	(void)thread;
	kernel()->quantise(r->x + (size_t)i * b->hidden, b->hidden, &a);
}

static void input_item(void *arg, int i, int thread)
{
	const struct batch *b = arg;
	const struct ffn_tile *t = &b->work->tile[i];
	const struct ffn_task *task = t->task;
	float *floats = (float *)(void *)b->work->input + (size_t)t->at * b->hidden;

	(void)thread;
	if (!compute_in_int8(b->compute, b->wanted)) {
		for (int r = 0; r < t->n; r++)
			memcpy(floats + (size_t)r * b->hidden,
			       input_row(task, t->first + r, b->hidden), b->hidden * sizeof(float));
		return;
	}
	if (!task->from) {
		kernel()->quantise(input_row(task, t->first, b->hidden), b->hidden,
				   place_tile(b, i));
		return;
	}
	struct acts *a = place_tile(b, i);
	for (int r = 0; r < t->n; r++) {
		struct acts one = coded_row(task->from, task->row[t->first + r], b->wanted);
		acts_set_row(a, r, &one);
	}
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
	struct ffn_rows *from = b->task->from;
	double hidden = (double)b->hidden;

	b->wanted = b->task->matrix[which];
	/* A number is quantised in the time of some 16 multiply-adds. */
	if (from && compute_in_int8(b->compute, b->wanted) &&
	    from->group != wfmt_acts_group(b->wanted->fmt)) {
		from->group = wfmt_acts_group(b->wanted->fmt);
		compute_run(b->compute, from->n * hidden * 16, from->n, code_row, b);
	}
	compute_run(b->compute, b->rows * hidden * (from ? 2 : 16), b->tiles, input_item, b);
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
		kernel()->quantise(gate, b->width, place_tile(b, i));
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
