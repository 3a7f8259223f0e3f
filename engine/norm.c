/* SPDX-License-Identifier: Apache-2.0
 *
 * Norms and biases. Sums of squares go through the kernels' fixed order.
 */
#include "engine/norm.h"

#include <math.h>
#include <stddef.h>

#include "engine/kernel.h"

void rms_norm(float *y, const float *x, const float *w, int n, float eps)
{
	float scale = 1.0f / sqrtf(kernel()->dot(x, x, n) / (float)n + eps);

	for (int i = 0; i < n; i++)
		y[i] = w[i] * (x[i] * scale);
}

struct norm {
	float *y;
	const float *x, *w;
	int n;
	float eps;
};

static void norm_row(void *arg, int i, int thread)
{
	const struct norm *m = arg;
	size_t at = (size_t)i * (size_t)m->n;

	(void)thread;
	rms_norm(m->y + at, m->x + at, m->w, m->n, m->eps);
}

void rms_norm_rows(const struct compute *cp, float *y, const float *x, const float *w, int rows,
		   int n, float eps)
{
	struct norm m = { y, x, w, n, eps };

	/* A number takes the time of some 4 multiply-adds. */
	compute_run(cp, 4.0 * rows * n, rows, norm_row, &m);
}

void layer_norm(float *y, const float *x, const float *w, const float *b, int n, float eps)
{
	double mean = 0, var = 0;

	for (int i = 0; i < n; i++)
		mean += x[i];
	mean /= n;
	for (int i = 0; i < n; i++)
		var += (x[i] - mean) * (x[i] - mean);
	var /= n;
	float scale = (float)(1 / sqrt(var + (double)eps));
	for (int i = 0; i < n; i++)
		y[i] = w[i] * ((float)(x[i] - mean) * scale) + b[i];
}

void add_bias(float *y, const float *bias, int rows, int n)
{
	for (int r = 0; bias && r < rows; r++, y += n)
		for (int i = 0; i < n; i++)
			y[i] += bias[i];
}
