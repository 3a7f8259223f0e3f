/* SPDX-License-Identifier: Apache-2.0
 *
 * The feed-forward of models whose matrices have biases and whose activation is clamped (gpt-oss).
 */
#include "engine/ffn.h"

#include "engine/norm.h"

#define PIECE 1024 /* numbers of the activation that a thread takes at a time */

static void add_bias(float *y, const float *bias, int n, int width)
{
	for (int i = 0; i < n; i++)
		for (int k = 0; k < width; k++)
			y[(size_t)i * (size_t)width + (size_t)k] += bias[k];
}

struct activation {
	float *gate;
	const float *up;
	size_t n;
	float limit;
};

static void activate(void *arg, int item, int thread)
{
	const struct activation *a = arg;
	size_t at = (size_t)item * PIECE, n = a->n - at < PIECE ? a->n - at : PIECE;

	(void)thread;
	swiglu_clamped(a->gate + at, a->up + at, (int)n, a->limit);
}

void ffn_biased(const struct compute *cp, const struct wmat *gate, const struct wmat *up,
		const struct wmat *down, const struct ffn_biases *b, const float *x, int n,
		float *work, float *y)
{
	size_t width = (size_t)gate->rows, hidden = (size_t)gate->cols, all = (size_t)n * width;
	struct activation a = { work, work + all, all, b->limit };

	matmul(cp, gate, x, hidden, n, work, width);
	matmul(cp, up, x, hidden, n, work + all, width);
	add_bias(work, b->gate, n, gate->rows);
	add_bias(work + all, b->up, n, gate->rows);
	compute_run(cp, (double)all * 16, (int)((all + PIECE - 1) / PIECE), activate, &a);
	matmul(cp, down, work, width, n, y, hidden);
	add_bias(y, b->down, n, down->rows);
}
