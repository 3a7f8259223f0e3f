/* SPDX-License-Identifier: Apache-2.0
 *
 * The feed-forward.
 */
#include "engine/ffn.h"

#include "engine/norm.h"

#define PIECE 1024 /* numbers of the activation that a thread takes at a time */

struct activation {
	float *gate;
	const float *up;
	size_t n;
};

static void activate(void *arg, int item, int thread)
{
	const struct activation *a = arg;
	size_t at = (size_t)item * PIECE, n = a->n - at < PIECE ? a->n - at : PIECE;

	(void)thread;
	swiglu(a->gate + at, a->up + at, (int)n);
}

void ffn(const struct compute *cp, const struct wmat *gate, const struct wmat *up,
	 const struct wmat *down, const float *x, int n, float *work, float *y)
{
	size_t width = (size_t)gate->rows, hidden = (size_t)gate->cols, all = (size_t)n * width;
	struct activation a = { work, work + all, all };

	matmul(cp, gate, x, hidden, n, work, width);
	matmul(cp, up, x, hidden, n, work + all, width);
	/* An exp costs some 16 multiply-adds. */
	compute_run(cp, (double)all * 16, (int)((all + PIECE - 1) / PIECE), activate, &a);
	matmul(cp, down, work, width, n, y, hidden);
}
