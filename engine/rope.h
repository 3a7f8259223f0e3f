/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary position embedding (arXiv 2104.09864), plain: no scaling of long contexts.
 *
 * Pair i of a vector of d numbers turns by position * theta^(-2i/d). Which two numbers make a pair
 * differs between models and even between the parts of one.
 */
#ifndef ENGINE_ROPE_H
#define ENGINE_ROPE_H

#include <stdbool.h>

/* cs[2i] = cos, cs[2i + 1] = sin of pair i at this position; d numbers, d even. In double, as the
 * product position * frequency needs more digits than a float has at long contexts. */
void rope_angles(float *cs, int d, double theta, int position);

/* Turns x[0..d). interleave: pairs (2i, 2i + 1), else (i, i + d/2). */
void rope_turn(float *x, const float *cs, int d, bool interleave);

#endif
