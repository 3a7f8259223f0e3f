/* SPDX-License-Identifier: Apache-2.0
 *
 * The indexer of DeepSeek sparse attention (DeepSeek-V3.2 report; GLM-5 shares its sets between
 * layers, arXiv 2603.12201): a small attention that scores all keys of a query and keeps the best
 * index_topk of them.
 *
 *	score[t,s] = sum_h w_h[t] relu(q_h[t] . k[s]) / sqrt(heads * dim)
 *
 * While no more than index_topk keys are visible every one is kept and nothing is scored; the key
 * is appended to the cache all the same, as later queries will need it.
 */
#ifndef ENGINE_INDEXER_H
#define ENGINE_INDEXER_H

#include <stdint.h>

#include "engine/compute.h"
#include "engine/kvcache.h"
#include "engine/weights.h"

/* The keys that each query of a chunk attends to; written on full layers, used there and on the
 * layers after it that share. */
struct index_sets {
	int topk;
	int32_t *count; /* [rows]; 0: all that the query can see */
	int32_t *item;  /* [rows][topk], ascending; NULL if the context never exceeds topk */
};

struct index_work {
	float *query;  /* [rows][index_heads][index_dim] */
	float *weight; /* [rows][index_heads] */
	float *key;    /* [rows][index_dim] */
	float *score;  /* [ctx] */
};

/* m queries at positions position .. position + m - 1, rows first .. of the sets. x [m][hidden]:
 * the normed input of attention; qr [m][q_lora]: its normed low-rank query; angles [m][rope]:
 * rope_angles() of each position. */
struct index_task {
	int layer, position, first, m;
	const float *x, *qr, *angles;
};

void indexer_run(const struct compute *cp, const struct model_config *c,
		 const struct attention_weights *w, struct kvcache *kv,
		 const struct index_task *task, struct index_work *work, struct index_sets *sets);

/* The k largest of n scores (k <= n), of equal ones those that come first; out ascending. */
void index_select(const float *score, int n, int k, int32_t *out);

#endif
