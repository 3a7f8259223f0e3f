/* SPDX-License-Identifier: Apache-2.0
 *
 * Families of models: what their configurations leave unsaid, and the choices in which they differ.
 *
 * A family is a row of one table (arch.c). config.c reads a configuration with its family's row at
 * hand and writes every choice down in struct model_config; the forward pass asks that, never the
 * family's name. Source of all rows: transformers' configuration and model classes of that name;
 * where the trained models differ from them, the row says so.
 */
#ifndef ENGINE_ARCH_H
#define ENGINE_ARCH_H

#include <stdbool.h>

/* MLA, keys and values in a latent space (arXiv 2405.04434); or heads of keys and values that
 * groups of query heads share (GQA, arXiv 2305.13245). */
enum attention_kind { ATTENTION_LATENT, ATTENTION_GROUPED };

/* What an expert's weight is made of: the sigmoid of its logit, its share of the softmax over all
 * experts, or of that over the chosen ones. */
enum router_scoring { SCORE_SIGMOID, SCORE_SOFTMAX, SCORE_SOFTMAX_CHOSEN };

/* What a group of experts counts as when only the best groups are kept. */
enum group_score { GROUP_TWO_LARGEST, GROUP_LARGEST };

/* Queries and keys may be normed: each head alone, or all heads as one vector. */
enum qk_norm { QK_NORM_NONE, QK_NORM_HEAD, QK_NORM_WHOLE };

/* Layers that see only the last tokens: none, all of them, or those that "layer_types" names (by
 * default every other one, the first included). */
enum window_rule { WINDOW_NEVER, WINDOW_ALL, WINDOW_BY_LAYER };

struct arch {
	const char *model_type;
	/* Values of keys that a configuration may lack: a JSON object. What is not in here is
	 * required. */
	const char *defaults;
	/* Keys of config.json. */
	const char *bias_key;         /* the switch of the projections' biases; NULL: no biases */
	const char *qk_norm_key;      /* the switch of qk_norm; NULL: always */
	const char *window_key;       /* the switch of the window; NULL: its size alone says */
	const char *scoring_name;     /* what "scoring_func" may say */
	const char *expert_width_key; /* how wide an expert is */
	/* Names of tensors, below "model.layers.N.". shared NULL: no shared expert. */
	const char *router, *shared, *experts, *expert_matrix[3]; /* gate, up, down */
	/* Attention */
	enum attention_kind attention;
	enum qk_norm qk_norm;
	enum window_rule window;
	/* Router and experts */
	enum router_scoring scoring;
	enum group_score group_score;
	/* Constants that no configuration holds. */
	float index_norm_eps; /* of the indexer's LayerNorm */
	float lora_norm_eps;  /* of the norms between low-rank steps; 0: rms_norm_eps */
	bool indexer;         /* DSA */
	bool sinks;
	bool out_bias;      /* bias_key is the switch of the output projection's bias too */
	bool select_bias;   /* a bias that helps to choose and is no part of the weight */
	bool scale_if_raw;  /* routed_scaling_factor is not for normalised weights */
	bool router_bias;   /* of the logits */
	bool expert_biases; /* of the experts' matrices; with them the clamped activation (ffn.h) */
	bool shared_gate;   /* the shared expert has a gate, and a width of its own */
	bool transposed;    /* experts in one tensor lie [in, out], gate and up in turn */
	bool two_codes;     /* spelled "rope_parameters", a checkpoint is one of transformers' own
			       class, which leaves out two things: see arch.c */
};

/* NULL if this engine does not know the family. */
const struct arch *arch_find(const char *model_type);

/* All of them, "a, b, c", for sentences; room for ARCH_NAMES bytes. Returns buf. */
#define ARCH_NAMES 256
const char *arch_names(char *buf);

#endif
