/* SPDX-License-Identifier: Apache-2.0
 *
 * Multi-head latent attention for many queries: keys and values of each head come out of the latent
 * vectors again.
 *
 *	k_h[s] = (Wk_h c[s], k_rope[s])      v_h[s] = Wv_h c[s]
 *	o_h    = sum_s softmax(q_h . k_h[s] / sqrt(nope + rope)) v_h[s]
 *
 * A query, a key and a head take nope + rope + v_dim multiply-adds (512 in GLM-5.2) instead of the
 * absorbed form's 2 kv_lora + rope (1,088). What comes first, kv_lora * (nope + v_dim) for each key
 * and head, is paid back by some two hundred queries, sooner where it is a product with 8-bit
 * activations.
 *
 * The rest is attention_blocks.h's.
 */
#ifndef ENGINE_ATTENTION_EXPANDED_H
#define ENGINE_ATTENTION_EXPANDED_H

#include "engine/arena.h"
#include "engine/attention_blocks.h"
#include "engine/compute.h"
#include "engine/config.h"

/* Queries that are taken at once at most: so often are all keys expanded. */
#define EXPANDED_ROWS BLOCK_QUERIES

struct expanded_work {
	struct acts *acts; /* the latent vectors as 8-bit codes, ACTS_ROWS positions each */
	char *codes;
	size_t acts_bytes;
	float *both; /* [threads][BLOCK_KEYS][nope + v_dim], keys and values of one head */
	float *wide; /* [threads][kv_lora][nope], a head's weights where they lie transposed */
};

/* Takes the arrays for contexts of up to `keys` tokens. */
void expanded_lay_out(struct expanded_work *w, const struct model_config *c, int keys, int threads,
		      struct arena *a);

struct attention_task;
struct attention_weights;
struct attention_work;
struct kvcache;

/* The queries in w->q [m][heads][nope + rope] over keys 0 .. their own, all in the cache:
 * w->heads [m][heads][v_dim]. m <= EXPANDED_ROWS. */
void expanded_run(const struct compute *cp, const struct model_config *c,
		  const struct attention_weights *weights, const struct kvcache *kv,
		  const struct attention_task *t, struct attention_work *w);

#endif
