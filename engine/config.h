/* SPDX-License-Identifier: Apache-2.0
 *
 * The numbers of a model: the checkpoint's config.json, read, completed with the family's defaults
 * and checked, so that the forward pass never has to.
 *
 * A family of models (struct arch) is a descriptor: what its configurations leave unsaid, and the
 * choices in which families differ. The forward pass asks the configuration, never the family's
 * name. Source for glm_moe_dsa: transformers GlmMoeDsaConfig; GLM-5.2 config.json.
 */
#ifndef ENGINE_CONFIG_H
#define ENGINE_CONFIG_H

#include <jansson.h>
#include <stdbool.h>

#define MODEL_MAX_LAYERS  1024
#define MODEL_MAX_EXPERTS 65536 /* an expert's number is 16 bits in a store */

enum router_scoring { SCORE_SIGMOID };

struct arch {
	const char *model_type;
	/* Defaults for keys that older configurations lack. */
	bool rope_interleave, index_interleave;
	enum router_scoring scoring;
	int first_dense; /* leading layers without experts */
	double routed_scale, norm_eps;
	/* Constants that no configuration holds. */
	float index_norm_eps; /* of the indexer's LayerNorm */
};

/* NULL if this engine does not know the family. */
const struct arch *arch_find(const char *model_type);

struct model_config {
	const struct arch *arch;
	int vocab, hidden, layers, max_positions;
	bool tied; /* lm_head is the embedding */
	float norm_eps;
	/* MLA */
	int heads, q_lora, kv_lora, nope, rope, v_dim;
	double rope_theta;
	bool rope_interleave;
	/* DSA */
	int index_heads, index_dim, index_topk;
	bool index_interleave;
	/* Feed-forward */
	int dense_width; /* of the dense layers */
	int expert_width, experts, topk;
	int shared_width; /* of the shared experts together; 0: there is none */
	int groups, groups_kept;
	enum router_scoring scoring;
	bool norm_topk;
	float routed_scale;
	/* Per layer, the extra ones included: those have experts and an indexer each */
	bool sparse[MODEL_MAX_LAYERS]; /* experts, else a dense feed-forward */
	bool full[MODEL_MAX_LAYERS];   /* has its own indexer, else uses the set of the nearest full
					  layer before */
	int extra_layers; /* MTP layers behind the last one, no part of the forward pass. A store
			     may lack them all the same (mtp.h) */
};

/* config: the object as it stands in model.json; where: begins the sentences. 0 or -EINVAL. */
int config_read(const json_t *config, const char *where, struct model_config *c, char *why);

#endif
