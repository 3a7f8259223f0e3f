/* SPDX-License-Identifier: Apache-2.0
 *
 * Small functions on one vector of floats: norms, activation, softmax.
 */
#ifndef ENGINE_NORM_H
#define ENGINE_NORM_H

/* y = w * x / sqrt(mean(x^2) + eps). y may be x. (arXiv 1910.07467) */
void rms_norm(float *y, const float *x, const float *w, int n, float eps);

/* y = w * (x - mean) / sqrt(var + eps) + b. y may be x. */
void layer_norm(float *y, const float *x, const float *w, const float *b, int n, float eps);

/* gate = silu(gate) * up, silu(v) = v / (1 + exp(-v)). */
void swiglu(float *gate, const float *up, int n);

/* gpt-oss's form: g = min(gate, limit), u = clamp(up, -limit, limit),
 * gate = g / (1 + exp(-1.702 g)) * (u + 1). */
void swiglu_clamped(float *gate, const float *up, int n, float limit);

/* x = exp(x - max) / sum. n >= 1. */
void softmax(float *x, int n);

#endif
