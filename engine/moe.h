/* SPDX-License-Identifier: Apache-2.0
 *
 * A layer of experts: router, chosen experts, shared expert, and their sum.
 *
 * Each expert is opened once for all rows that chose it. All of them are asked for at once. The
 * shared expert is computed while the first ones come; each is computed as it arrives, into rows of
 * its own; when the last one is done, each row adds its experts in ascending order, the shared one
 * last. So what arrives when changes no bit, nor does how a prompt is cut; and no expert waits for
 * another one, which keeps the drive busy, at the price of topk rows of output for each row.
 */
#ifndef ENGINE_MOE_H
#define ENGINE_MOE_H

#include "engine/arena.h"
#include "engine/compute.h"
#include "engine/experts.h"
#include "engine/ffn.h"
#include "engine/lookahead.h"
#include "engine/profile.h"
#include "engine/draft_cost.h"
#include "engine/progress.h"
#include "engine/router.h"
#include "engine/weights.h"

struct moe_work {
	/* Not owned; set by whoever laid it out. */
	struct lookahead *lookahead;
	struct profile *profile;
	struct draft_cost *drafts; /* may be NULL */
	/* Set before each layer of a prompt: from `done` on, the layer's experts are worth `share` of
	 * `total` tokens. NULL: nothing to report. */
	const struct progress *progress;
	double done, share, total;
	float *x;              /* [rows][hidden], normed input */
	float *logits, *score; /* [rows][experts] */
	struct choice *choice; /* [rows][topk] */
	/* Entries start[e] .. start[e + 1] are the rows that chose expert e. */
	int32_t *start;       /* [experts + 1] */
	int32_t *row;         /* [rows * topk], of each entry */
	int32_t *entry;       /* [rows][topk], of each choice */
	int32_t *ids;         /* [experts], those that anyone chose, ascending */
	struct ffn_rows rows; /* x, as experts want it */
	struct ffn_work ffn;  /* of experts that are computed together, or of the shared one */
	float *out;           /* [rows * topk][hidden], what the experts gave, an entry a row */
	float *shared;        /* [rows][hidden] */
	float *gates;         /* [rows], of the shared expert, where it has one */
	float *biases;        /* those of EXPERTS_BATCH experts, where they have any */
};

/* Takes the arrays for chunks of up to `rows` rows. */
void moe_lay_out(struct moe_work *w, const struct model_config *c, int rows, struct arena *a);

/* h [m][hidden] += experts(rms_norm(h)), m <= rows. l: element `layer` of the weights of all layers.
 * 0 or negative errno with the sentence. */
int moe(const struct compute *cp, const struct model_config *c, const struct layer_weights *l,
	int layer, struct experts *experts, struct moe_work *w, float *h, int m, char *why);

#endif
