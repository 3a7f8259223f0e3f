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
#include "engine/topk.h"
#include "engine/weights.h"

/* Where the edge of a set falls among equal scores, sequences of up to this many tokens follow the
 * reference (topk.h), in which a query's set then depends on how long the sequence is; longer ones
 * take the lower index. No real model comes to the first case (GLM-5.2 keeps 2,048 keys): it is
 * there because small models with few indexer heads tie often, and are what correctness is tested
 * with. */
#define INDEX_REFERENCE_LENGTH 512

/* The keys that each query of a chunk attends to; written on full layers, used there and on the
 * layers after it that share. */
struct index_sets {
	int topk;
	int32_t *count; /* [rows]; 0: all that the query can see */
	int32_t *item;  /* [rows][topk], ascending; NULL if the context never exceeds topk */
	/* Of the feed: tokens that the whole sequence has when it is done; whether it has
	 * ATTENTION_PROMPT of them itself, which attention may take in another form. */
	int length;
	bool long_prompt;
	int tied_from; /* lowest position so far whose set follows the reference among equals */
};

/* As the length: each query is the last one of its sequence, as if they came one by one. A query
 * behind tied_from is then not what it would be: it should have seen the tied one for its own
 * length. */
#define INDEX_GROWING 0

struct index_work {
	float *query;            /* [rows][index_heads][index_dim] */
	float *weight;           /* [rows][index_heads] */
	float *key;              /* [rows][index_dim] */
	float *score;            /* [ctx] */
	struct topk_item *items; /* [min(ctx, INDEX_REFERENCE_LENGTH)] */
};

/* m queries at positions position .. position + m - 1, rows first .. of the sets. x [m][hidden]:
 * the normed input of attention; qr [m][q_lora]: its normed low-rank query; angles [m][rope]:
 * rope_angles() of each position. */
struct index_task {
	int layer, position, first, m;
	const float *x, *qr, *angles;
};

/* The keys of the task's rows into the cache, and no more: qr is not read. */
void indexer_keys(const struct compute *cp, const struct model_config *c,
		  const struct attention_weights *w, struct kvcache *kv,
		  const struct index_task *task, struct index_work *work);

void indexer_run(const struct compute *cp, const struct model_config *c,
		 const struct attention_weights *w, struct kvcache *kv,
		 const struct index_task *task, struct index_work *work, struct index_sets *sets);

#endif
