/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary position embedding (arXiv 2104.09864), and the ways to stretch it to longer contexts.
 *
 * Pair i of a vector of d numbers turns by position * f(i), plainly f(i) = theta^(-2i/d). Which two
 * numbers make a pair differs between models and even between the parts of one.
 */
#ifndef ENGINE_ROPE_H
#define ENGINE_ROPE_H

#include <stdbool.h>

enum rope_kind {
	ROPE_PLAIN,
	ROPE_LINEAR,  /* f / factor */
	ROPE_YARN,    /* arXiv 2309.00071: f up to pair `low`, f / factor from pair `high`, a ramp
			between */
	ROPE_LLAMA3,  /* f / factor where a turn takes more than length / low positions, f where
			fewer than length / high, a ramp between (Llama 3.1) */
	ROPE_DYNAMIC, /* f as far as max_position_embeddings, where this engine ends */
};

struct rope_scaling {
	enum rope_kind kind;
	double factor, low, high, length;
	double amplitude; /* of cosine and sine; 0 stands for 1 */
};

/* cs[2i] = cos, cs[2i + 1] = sin of pair i at this position; d numbers, d even. In double, as the
 * product position * frequency needs more digits than a float has at long contexts. */
void rope_angles(float *cs, int d, double theta, const struct rope_scaling *s, int position);

/* Turns x[0..d). interleave: pairs (2i, 2i + 1), else (i, i + d/2). */
void rope_turn(float *x, const float *cs, int d, bool interleave);

#endif
