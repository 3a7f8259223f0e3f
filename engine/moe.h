/* SPDX-License-Identifier: Apache-2.0
 *
 * A layer of experts: router, chosen experts, shared expert, and their sum.
 *
 * Each expert is opened once for all rows that chose it. The shared expert is computed while the
 * first ones come; each is computed as it arrives, into rows of its own; the sum is taken in
 * ascending order of experts, the shared one last. So what arrives when changes no bit, nor does
 * how a prompt is cut.
 */
#ifndef ENGINE_MOE_H
#define ENGINE_MOE_H

#include "engine/arena.h"
#include "engine/compute.h"
#include "engine/experts.h"
#include "engine/router.h"
#include "engine/weights.h"

struct moe_work {
	int rows, out_rows;
	float *x;              /* [rows][hidden], normed input */
	float *logits, *score; /* [rows][experts] */
	struct choice *choice; /* [rows][topk] */
	/* Entries start[e] .. start[e + 1] are the rows that chose expert e. */
	int32_t *start;         /* [experts + 1] */
	int32_t *row;           /* [rows * topk] */
	float *weight;          /* [rows * topk] */
	int32_t *ids;           /* [experts], those that anyone chose, ascending */
	float *gathered;        /* [rows][hidden], input of one expert */
	float *ffn;             /* activations of one expert, or of a block of the shared one */
	float *out;             /* [out_rows][hidden], what the experts of one window gave */
	float *routed, *shared; /* [rows][hidden] */
	float *gates;           /* [rows], of the shared expert, where it has one */
	float *biases;          /* those of one expert, where it has any */
};

/* Takes the arrays for chunks of up to `rows` rows. */
void moe_lay_out(struct moe_work *w, const struct model_config *c, int rows, struct arena *a);

/* h [m][hidden] += experts(rms_norm(h)), m <= rows. 0 or negative errno with the sentence. */
int moe(const struct compute *cp, const struct model_config *c, const struct layer_weights *l,
	int layer, struct experts *experts, struct moe_work *w, float *h, int m, char *why);

#endif
