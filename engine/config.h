/* SPDX-License-Identifier: Apache-2.0
 *
 * The numbers of a model: the checkpoint's config.json, read, completed with the family's defaults
 * (arch.h) and checked, so that the forward pass never has to.
 */
#ifndef ENGINE_CONFIG_H
#define ENGINE_CONFIG_H

#include <jansson.h>
#include <stdbool.h>

#include "engine/arch.h"
#include "engine/rope.h"

#define MODEL_MAX_LAYERS  1024
#define MODEL_MAX_EXPERTS 65536 /* an expert's number is 16 bits in a store */

struct model_config {
	const struct arch *arch;
	int vocab, hidden, layers, max_positions;
	bool tied; /* lm_head is the embedding */
	float norm_eps;
	/* Attention. In heads of keys and values rope is how many numbers of a head turn, and
	 * kv_lora, q_lora and nope are 0. */
	enum attention_kind attention;
	int heads, rope, v_dim;
	double rope_theta;
	struct rope_scaling rope_scaling;
	bool rope_interleave;
	float score_scale; /* of a query's product with a key */
	bool qkv_bias, out_bias;
	/* MLA */
	int q_lora, kv_lora, nope; /* q_lora 0: queries in one step */
	float lora_norm_eps;
	/* GQA */
	int kv_heads, head_dim;
	enum qk_norm qk_norm;
	float clip_qkv; /* 0: not clipped */
	bool sinks;     /* an extra logit a head, whose share of the softmax is dropped */
	int window;     /* tokens that a windowed layer sees, the query's own included */
	/* DSA. Without: index_heads and index_dim are 0, index_topk is max_positions. */
	int index_heads, index_dim, index_topk;
	bool index_interleave;
	/* Feed-forward */
	int dense_width; /* of the dense layers; 0: there are none */
	int expert_width, experts, topk;
	int shared_width; /* of the shared experts together; 0: there is none */
	bool shared_gate;
	bool expert_biases; /* and the clamped activation, struct ffn_biases */
	float act_limit;
	int groups, groups_kept;
	enum group_score group_score;
	enum router_scoring scoring;
	bool router_bias, select_bias, norm_topk;
	float routed_scale;
	/* Per layer, the extra ones included: those have experts, their own indexer and no window */
	bool sparse[MODEL_MAX_LAYERS];   /* experts, else a dense feed-forward */
	bool full[MODEL_MAX_LAYERS];     /* has its own indexer, else uses the set of the nearest
					    full layer before */
	bool windowed[MODEL_MAX_LAYERS]; /* sees the last `window` tokens only */
	int extra_layers; /* MTP layers behind the last one, no part of the forward pass. A store
			     may lack them all the same (mtp.h) */
};

/* config: the object as it stands in model.json; where: begins the sentences. 0 or -EINVAL. */
int config_read(const json_t *config, const char *where, struct model_config *c, char *why);

/* Numbers that a layer's cache keeps of a position, beside the indexer's key: latent and turned
 * rope key, or keys and values of all heads. */
static inline int config_kv_width(const struct model_config *c)
{
	if (c->attention == ATTENTION_GROUPED)
		return 2 * c->kv_heads * c->head_dim;
	return c->kv_lora + c->rope;
}

#endif
