/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a checkpoint's output head is its embedding.
 */
#ifndef COLI_PACK_TIED_H
#define COLI_PACK_TIED_H

#include "tools/coli-pack/checkpoint.h"

/* A checkpoint that says so and all the same holds two matrices that differ has two: its
 * configuration is changed to say that. (So transformers 5, tie_weights().) 0, or negative errno
 * with the sentence in why. */
int tied_check(struct checkpoint *ck, char *why);

/* The name of the tensor that is the embedding: of a tied checkpoint it may stand under the head's
 * name alone, as safetensors' save_model() leaves it. */
const char *tied_embedding(const struct checkpoint *ck);

#endif
