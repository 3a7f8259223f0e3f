/* SPDX-License-Identifier: Apache-2.0
 *
 * The feed-forward of every kind of layer: down(silu(gate x) * up x).
 */
#ifndef ENGINE_FFN_H
#define ENGINE_FFN_H

#include "engine/compute.h"

/* y [n][hidden] from x [n][hidden]; work: 2 * n * (rows of gate) floats. */
void ffn(const struct compute *cp, const struct wmat *gate, const struct wmat *up,
	 const struct wmat *down, const float *x, int n, float *work, float *y);

/* gpt-oss: each matrix has a bias, and the activation is swiglu_clamped(). */
struct ffn_biases {
	const float *gate, *up, *down; /* [rows of gate], the same, [hidden] */
	float limit;
};

void ffn_biased(const struct compute *cp, const struct wmat *gate, const struct wmat *up,
		const struct wmat *down, const struct ffn_biases *b, const float *x, int n,
		float *work, float *y);

#endif
