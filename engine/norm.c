/* SPDX-License-Identifier: Apache-2.0
 *
 * Norms, activation and softmax. Sums of squares go through the kernels' fixed order.
 */
#include "engine/norm.h"

#include <math.h>

#include "engine/kernel.h"

void rms_norm(float *y, const float *x, const float *w, int n, float eps)
{
	float scale = 1.0f / sqrtf(kernel()->dot(x, x, n) / (float)n + eps);

	for (int i = 0; i < n; i++)
		y[i] = w[i] * (x[i] * scale);
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

void swiglu(float *gate, const float *up, int n)
{
	kernel()->swiglu(gate, up, n);
}

void swiglu_clamped(float *gate, const float *up, int n, float limit)
{
	kernel()->swiglu_clamped(gate, up, n, limit);
}

void softmax(float *x, int n)
{
	kernel()->softmax(x, n);
}
