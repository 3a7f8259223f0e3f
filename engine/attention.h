/* SPDX-License-Identifier: Apache-2.0
 *
 * Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434) over the keys that the indexer chose.
 * For one query, or few, in its absorbed form: a query is carried into the latent space, so that keys
 * and values are the cached rows themselves.
 *
 *	q'_h  = Wk_h^T q_nope_h
 *	score = (q'_h . c[s] + q_rope_h . k_rope[s]) / sqrt(nope + rope)
 *	u_h   = sum_s softmax(score)[s] c[s]
 *	o_h   = Wv_h u_h
 *
 * For the many of a long prompt in its expanded form (attention_expanded.h), which is cheaper there
 * and rounds otherwise. Which one it is, the length of what is fed at once decides, and the position;
 * never the chunk or the number of threads. Queries that have chosen their keys are absorbed: each
 * has others.
 */
#ifndef ENGINE_ATTENTION_H
#define ENGINE_ATTENTION_H

#include "engine/arena.h"
#include "engine/attention_expanded.h"
#include "engine/indexer.h"

/* Queries that attention() takes at once at most, in the absorbed form. It bounds two of the buffers
 * below, which are large (70,000 floats a query for GLM-5.2), and is enough for unpacked weights to
 * be used well. */
#define ATTENTION_ROWS 64

/* So many tokens that are fed at once are a long prompt. */
#define ATTENTION_PROMPT 256

/* Heads of a query that a thread takes at a time, since all of them have the same keys; and how
 * many keys it takes in at once, where their rows have to be gathered or widened. 64 rows of 576
 * floats lie in a second-level cache. */
#define ATTENTION_HEADS 8
#define ATTENTION_KEYS  64

/* Shapes in [..] are those of latent attention; grouped attention (attention_grouped.h) has its own
 * where a second one stands. */
struct attention_work {
	/* rows: EXPANDED_ROWS at most; of absorbed and mixed, and of grouped attention,
	 * ATTENTION_ROWS */
	float *x;        /* [rows][hidden], normed input */
	float *qr;       /* [rows][q_lora] */
	float *q;        /* [rows][heads][nope + rope]; [rows][heads][head_dim] */
	float *kv;       /* [rows][kv_lora + rope]; [rows][2][kv_heads][head_dim] */
	float *absorbed; /* [rows][heads][kv_lora + rope]; [kv_heads][rows][group][head_dim] */
	float *mixed;    /* [rows][heads][kv_lora]; as absorbed */
	float *heads;    /* [rows][heads][v_dim] */
	float *out;      /* [rows][hidden] */
	/* [threads][ATTENTION_HEADS][keys], keys = min(ctx, index_topk); GROUPED_TILE of them, keys
	 * = ctx + 1 */
	float *score;
	float *key_rows; /* [threads][ATTENTION_KEYS][kv_lora + rope]; of head_dim */
	size_t keys;
	struct index_work index;
	struct block_work blocks;
	struct expanded_work expanded;
};

struct attention_task {
	int layer, position, m; /* attention_rows() queries at position, position + 1, ... */
	bool blocks;            /* attention_by_blocks(), in a long prompt */
	bool keys_only; /* what later queries see of these rows, and no more: h is not changed */
	int first;      /* row of the first one in the index sets */
	const float *angles; /* [m][rope], rope_angles() of each position: the same in all layers */
};

/* Whether the query at this position is taken with many others by blocks of keys (attention_blocks.h), if
 * it is part of a long prompt. Latent attention is expanded then. */
bool attention_by_blocks(const struct model_config *c, int position);
/* Of `left` queries at position and on, as many as attention() takes at once. */
int attention_rows(const struct model_config *c, int position, int left, bool blocks);

/* Takes the arrays of w for chunks of `rows` rows and contexts of ctx tokens. */
void attention_lay_out(struct attention_work *w, const struct model_config *c, int ctx, int rows,
		       int threads, struct arena *a);

/* h [m][hidden] += attention(rms_norm(h)). Appends the m rows to the cache. */
void attention(const struct compute *cp, const struct model_config *c,
	       const struct layer_weights *l, struct kvcache *kv, const struct attention_task *task,
	       struct index_sets *sets, struct attention_work *work, float *h);

#endif
