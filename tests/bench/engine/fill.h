/* SPDX-License-Identifier: Apache-2.0
 *
 * Random weights, made directly as they lie in a file: nothing is quantised.
 */
#ifndef BENCH_FILL_H
#define BENCH_FILL_H

#include <stdint.h>

#include "engine/modelfile.h"

/* Writes the t->bytes of a tensor to `to` (on 64 bytes), the same ones for the same seed. Elements of
 * a matrix have mean 0 and the variance 1/columns, those of the embedding 1; a vector is ones, or
 * zeros if it is a bias. Rows of a quantised matrix are a multiple of 16, columns of its group. */
void fill_tensor(const struct tensor *t, uint64_t seed, void *to);

#endif
