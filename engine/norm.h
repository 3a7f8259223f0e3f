/* SPDX-License-Identifier: Apache-2.0
 *
 * Small functions on vectors of floats: norms, biases.
 */
#ifndef ENGINE_NORM_H
#define ENGINE_NORM_H

#include "engine/compute.h"

/* y = w * x / sqrt(mean(x^2) + eps). y may be x. (arXiv 1910.07467) */
void rms_norm(float *y, const float *x, const float *w, int n, float eps);
/* The same of each row of x [rows][n], with the same weights, shared out to the threads. */
void rms_norm_rows(const struct compute *cp, float *y, const float *x, const float *w, int rows,
		   int n, float eps);

/* y = w * (x - mean) / sqrt(var + eps) + b. y may be x. */
void layer_norm(float *y, const float *x, const float *w, const float *b, int n, float eps);

/* y [rows][n] += bias [n], each row; nothing if bias is NULL. */
void add_bias(float *y, const float *bias, int rows, int n);

#endif
