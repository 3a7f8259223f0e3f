/* SPDX-License-Identifier: Apache-2.0
 *
 * Feed-forwards: what several give together is, to the bit, what each gives alone, in any format and
 * with any number of threads; and it is right. The same for several matrices times the same rows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/ffn.h"

#define HIDDEN 200 /* no multiple of a group */
#define WIDTH  72
#define TASKS  5
#define ROWS   61 /* of all tasks: more than a tile, less than two, one */
#define X      40

static const int rows_of[TASKS] = { 17, 1, 25, 2, 16 };

static const struct wfmt formats[][3] = {
	{ { W_Q4, 64 }, { W_Q4, 64 }, { W_Q4, 64 } },
	{ { W_Q8, 32 }, { W_Q4, 32 }, { W_Q8, 128 } },
	{ { W_Q4, 64 }, { W_Q8, 32 }, { W_BF16, 0 } },
	{ { W_BF16, 0 }, { W_Q4, 128 }, { W_Q4, 32 } },
	{ { W_F32, 0 }, { W_F32, 0 }, { W_F32, 0 } },
};
#define FORMATS (sizeof(formats) / sizeof(formats[0]))

static uint64_t seed = 1;

static float random_float(void)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (float)(int32_t)(seed >> 32) * 0x1p-31f;
}

static void *random_matrix(struct wmat *m, struct wfmt f, int rows, int cols)
{
	size_t bytes = wfmt_bytes(f, rows, cols), row_bytes = wfmt_row_bytes(f, cols);
	char *base = aligned_alloc(64, (bytes + 63) / 64 * 64);
	float *row = malloc((size_t)cols * sizeof(float));

	assert_true(base && row);
	memset(base, 0, bytes);
	for (int r = 0; r < rows; r++) {
		for (int i = 0; i < cols; i++)
			row[i] = random_float() * 0.3f;
		char *codes = f.group ? base : base + (size_t)r * row_bytes;
		void *scales = f.group ? base + wfmt_scales_offset(f, rows, cols) : NULL;
		assert_int_equal(quant_row(f, row, cols, f.group ? r : 0, codes, scales), 0);
	}
	free(row);
	assert_int_equal(wmat_bind(m, f, rows, cols, base, bytes), 0);
	return base;
}

struct network {
	struct wmat m[3];
	void *base[3];
	bool biased;
	struct ffn_biases biases;
	float bias[2 * WIDTH + HIDDEN];
};

static void make(struct network *n, const struct wfmt *f)
{
	n->base[FFN_GATE] = random_matrix(&n->m[FFN_GATE], f[FFN_GATE], WIDTH, HIDDEN);
	n->base[FFN_UP] = random_matrix(&n->m[FFN_UP], f[FFN_UP], WIDTH, HIDDEN);
	n->base[FFN_DOWN] = random_matrix(&n->m[FFN_DOWN], f[FFN_DOWN], HIDDEN, WIDTH);
	/* So low a limit that it matters. */
	n->biases = (struct ffn_biases){ n->bias, n->bias + WIDTH, n->bias + 2 * WIDTH, 1.0f };
	for (int i = 0; i < 2 * WIDTH + HIDDEN; i++)
		n->bias[i] = random_float();
}

static struct ffn_task task_of(const struct network *n, const float *x, int rows, float *y)
{
	return (struct ffn_task){
		.matrix = { &n->m[0], &n->m[1], &n->m[2] },
		.x = x,
		.n = rows,
		.y = y,
		.biases = n->biased ? &n->biases : NULL,
	};
}

static void plain(const struct network *n, const float *x, double *y)
{
	double act[WIDTH], gate, up;
	float row[HIDDEN];

	for (int r = 0; r < WIDTH; r++) {
		gate = up = 0;
		dequant_row(&n->m[FFN_GATE], r, row);
		for (int i = 0; i < HIDDEN; i++)
			gate += (double)row[i] * (double)x[i];
		dequant_row(&n->m[FFN_UP], r, row);
		for (int i = 0; i < HIDDEN; i++)
			up += (double)row[i] * (double)x[i];
		act[r] = gate / (1 + exp(-gate)) * up;
		if (!n->biased)
			continue;
		gate = fmin(gate + (double)n->bias[r], 1);
		up = fmax(fmin(up + (double)n->bias[WIDTH + r], 1), -1);
		act[r] = gate / (1 + exp(-1.702 * gate)) * (up + 1);
	}
	for (int r = 0; r < HIDDEN; r++) {
		y[r] = n->biased ? (double)n->bias[2 * WIDTH + r] : 0;
		dequant_row(&n->m[FFN_DOWN], r, row);
		for (int i = 0; i < WIDTH; i++)
			y[r] += (double)row[i] * act[i];
	}
}

/* Of one row alone, by one thread. */
static void alone(const struct network *n, const float *x, bool floats, float *y)
{
	struct arena a = { NULL, 0 };
	struct ffn_task t = task_of(n, x, 1, y);
	struct ffn_work w;
	struct compute c;

	ffn_lay_out(&w, 1, 1, HIDDEN, WIDTH, &a);
	a = (struct arena){ aligned_alloc(64, a.used), 0 };
	assert_non_null(a.base);
	ffn_lay_out(&w, 1, 1, HIDDEN, WIDTH, &a);
	assert_int_equal(compute_init(&c, 1, HIDDEN, NULL), 0);
	c.float_activations = floats;
	ffn_run(&c, &t, 1, &w);
	compute_free(&c);
	free(a.base);
}

static void check(const struct network *n, const float *x, const int32_t *row, const float *y,
		  bool floats)
{
	for (int t = 0, at = 0; t < TASKS; at += rows_of[t++])
		for (int r = at; r < at + rows_of[t]; r++) {
			const float *in = x + (size_t)row[r] * HIDDEN,
				    *out = y + (size_t)r * HIDDEN;
			double want[HIDDEN];
			float one[HIDDEN];
			alone(&n[t], in, floats, one);
			assert_memory_equal(out, one, sizeof(one));
			plain(&n[t], in, want);
			for (int i = 0; i < HIDDEN; i++) /* 8 bits: what rounding adds up to */
				if (fabs(out[i] - want[i]) > (floats ? 1e-5 : 0.2))
					fail_msg("%g, not %g", (double)out[i], want[i]);
		}
}

static void together_as_alone(void **state)
{
	static float x[X * HIDDEN], y[ROWS * HIDDEN];
	int32_t row[ROWS];

	(void)state;
	for (int i = 0; i < X * HIDDEN; i++)
		x[i] = random_float();
	for (int i = 0; i < ROWS; i++)
		row[i] = i * 7 % X;
	for (size_t k = 0; k < 2 * FORMATS; k++) {
		static struct network n[TASKS];
		for (int t = 0; t < TASKS; t++) {
			make(&n[t], formats[k / 2]);
			n[t].biased = k % 2;
		}
		for (int threads = 1; threads <= 7; threads += 3)
			for (int floats = 0; floats < 2; floats++) {
				struct arena a = { NULL, 0 };
				struct ffn_task task[TASKS];
				struct ffn_rows from = { .x = x, .n = X };
				struct ffn_work w;
				struct compute c;
				for (int t = 0, at = 0; t < TASKS; at += rows_of[t++]) {
					task[t] = task_of(&n[t], NULL, rows_of[t],
							  y + (size_t)at * HIDDEN);
					task[t].from = &from;
					task[t].row = row + at;
				}
				ffn_lay_out(&w, ROWS, TASKS, HIDDEN, WIDTH, &a);
				ffn_lay_out_rows(&from, X, HIDDEN, &a);
				a = (struct arena){ aligned_alloc(64, a.used), 0 };
				ffn_lay_out(&w, ROWS, TASKS, HIDDEN, WIDTH, &a);
				ffn_lay_out_rows(&from, X, HIDDEN, &a);
				assert_int_equal(compute_init(&c, threads, HIDDEN, NULL), 0);
				c.float_activations = floats;
				memset(y, 0, sizeof(y));
				ffn_run(&c, task, TASKS, &w);
				check(n, x, row, y, floats);
				compute_free(&c);
				free(a.base);
			}
		for (int t = 0; t < TASKS; t++)
			for (int i = 0; i < 3; i++)
				free(n[t].base[i]);
	}
}

/* Formats by turns, so that rows are quantised anew in between; more rows than are taken at once. */
static void several_matrices_as_one_by_one(void **state)
{
	enum { LONG = 150 };
	static float x[LONG * HIDDEN], want[MATMULS][LONG * WIDTH], y[MATMULS][LONG * WIDTH];
	const struct wfmt f[MATMULS] = { { W_Q4, 64 }, { W_Q8, 64 }, { W_BF16, 0 }, { W_Q8, 32 } };
	struct wmat m[MATMULS];
	void *base[MATMULS];
	struct matmul all[MATMULS];
	struct compute c;

	(void)state;
	assert_int_equal(compute_init(&c, 3, HIDDEN, NULL), 0);
	for (int i = 0; i < LONG * HIDDEN; i++)
		x[i] = random_float();
	for (int i = 0; i < MATMULS; i++) {
		base[i] = random_matrix(&m[i], f[i], WIDTH, HIDDEN);
		all[i] = (struct matmul){ &m[i], y[i], WIDTH };
	}
	for (int n = 1; n <= LONG; n += 149) {
		for (int i = 0; i < MATMULS; i++)
			matmul(&c, &m[i], x, HIDDEN, n, want[i], WIDTH);
		memset(y, 0, sizeof(y));
		matmuls(&c, all, MATMULS, x, HIDDEN, n);
		for (int i = 0; i < MATMULS; i++)
			assert_memory_equal(y[i], want[i], (size_t)n * WIDTH * sizeof(float));
	}
	for (int i = 0; i < MATMULS; i++)
		free(base[i]);
	compute_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(together_as_alone),
		cmocka_unit_test(several_matrices_as_one_by_one),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
