/* SPDX-License-Identifier: Apache-2.0
 *
 * The forward pass: tokens through all layers, a chunk at a time, with everything it writes to.
 *
 * A chunk's rows go through a layer together, so that each expert is opened once for all of them.
 * Attention takes attention_rows() of them at a time, a dense layer ATTENTION_ROWS.
 */
#ifndef ENGINE_FORWARD_H
#define ENGINE_FORWARD_H

#include "engine/attention.h"
#include "engine/moe.h"
#include "engine/progress.h"

struct forward {
	/* Not owned. */
	const struct model_config *config;
	const struct weights *weights;
	const struct compute *compute;
	struct experts *experts;
	struct profile *profile;
	/* Owned. */
	struct kvcache kv; /* the MTP layer's rows too, if it is used */
	int ctx, chunk;    /* positions; rows of a chunk */
	float *h;          /* [chunk][hidden] */
	float *angles;     /* [chunk][rope], of the rows under way */
	float *logit_x;    /* [FORWARD_LOGIT_ROWS][hidden] */
	struct ffn_work dense;
	float *dense_out; /* [ATTENTION_ROWS][hidden] */
	struct attention_work attention;
	struct index_sets sets;
	bool absorbed; /* long prompts are as others; set by the owner */
	struct moe_work moe;
	void *memory;
};

/* Rows of logits that forward_logits() makes at a time at most. */
#define FORWARD_LOGIT_ROWS 16

/* Bytes that forward_init() takes, without the key-value cache; SIZE_MAX if no machine has them. */
size_t forward_bytes(const struct model_config *c, int ctx, int chunk, int threads);

/* f->config, weights, compute, experts and profile are set, and lookahead and profile of f->moe.
 * 1 <= chunk <= ctx. layers: of the cache. */
int forward_init(struct forward *f, int layers, int ctx, int chunk, enum kv_type kv, char *why);
void forward_free(struct forward *f); /* a zeroed one is fine */

/* Before the runs of one feed: its first position, and how many tokens the sequence has when they are
 * done; or INDEX_GROWING (indexer.h). Afterwards sets.tied_from is the lowest position whose keys depend on
 * that number; INT_MAX: none. */
void forward_expect(struct forward *f, int position, int length);

/* m <= chunk valid tokens at positions position .. position + m - 1 < ctx. What earlier calls left
 * at lower positions is what they attend to. done and total: tokens, for the progress of a long
 * prompt. 0 or negative errno with the sentence. */
int forward_run(struct forward *f, const int32_t *ids, int position, int m,
		const struct progress *progress, double done, double total, char *why);

/* The rows that go through layers next are those at positions position .. position + m - 1. */
void forward_positions(struct forward *f, int position, int m);
/* One layer, for forward_run() and for the MTP layer, after forward_positions(): h [m][hidden] at positions position ..
 * position + m - 1, changed in place; sets [m]. 0 or negative errno with the sentence. */
int forward_layer(struct forward *f, const struct layer_weights *l, int n, int position, float *h,
		  int m, struct index_sets *sets, char *why);

/* The same for rows whose own result nobody wants: what later ones see of them, and no more. h stays
 * as it is. */
void forward_keys(struct forward *f, const struct layer_weights *l, int n, int position, float *h,
		  int m, struct index_sets *sets);

/* What the head gets of rows first .. first + n - 1 of the last forward_run(): x [n][hidden]. */
void forward_normed(const struct forward *f, int first, int n, float *x);

/* Logits [n][vocab] of rows first .. first + n - 1 of the last forward_run(), n <=
 * FORWARD_LOGIT_ROWS. */
void forward_logits(struct forward *f, int first, int n, float *logits);

#endif
