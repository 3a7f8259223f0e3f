/* SPDX-License-Identifier: Apache-2.0
 *
 * The dense tensors of a model, bound to their places in dense.bin. Owns nothing but its array.
 */
#ifndef ENGINE_WEIGHTS_H
#define ENGINE_WEIGHTS_H

#include "engine/dense.h"

/* Feed-forward of the usual shape: down(silu(gate x) * up x). */
struct ffn_weights {
	int width;
	struct wmat gate, up, down;
};

struct attention_weights {
	/* MLA; q alone instead of q_a and q_b where there is no low-rank step. */
	struct wmat q_a, q_b, kv_a;
	/* Keys and values out of the latent vector: kv_b, of each head the rows of keys and then those
	 * of values; or (GGUF files, kv_b.rows 0) in two, k_b transposed head by head: rows
	 * [heads][kv_lora] of nope columns, and v_b, rows [heads][v_dim]. */
	struct wmat kv_b, k_b, v_b;
	const float *kv_norm, *q_a_bias, *kv_a_bias;
	/* GQA */
	struct wmat q, k, v;
	const float *k_norm, *q_bias, *k_bias, *v_bias, *sinks; /* [heads] */
	/* Both. What the model does not have is NULL. */
	struct wmat out;
	const float *q_norm, *out_bias;
	/* Indexer, on full layers only. */
	struct wmat index_q, index_k, index_w;
	const float *index_norm_w, *index_norm_b;
};

struct layer_weights {
	const float *attention_norm, *ffn_norm;
	struct attention_weights attention;
	/* Dense layers: ffn. Sparse layers: router, and ffn is the shared expert (width 0: none).
	 */
	struct ffn_weights ffn;
	struct wmat router;
	const float *router_bias; /* helps to choose; NULL if there is none */
	const float *logit_bias;  /* of the router's matrix; NULL likewise */
	struct wmat shared_gate;  /* [1][hidden], where config.shared_gate */
	/* [experts][expert_width], the same, [experts][hidden], where config.expert_biases */
	struct wmat gate_bias, up_bias, down_bias;
};

/* The first layer behind the last one (mtp.h). */
struct mtp_weights {
	struct wmat embed, head; /* its own, or else the model's */
	struct wmat join;        /* eh_proj */
	const float *embed_norm, *hidden_norm, *norm;
	struct layer_weights layer;
};

struct weights {
	struct wmat embed, head;
	const float *norm;
	struct layer_weights *layer; /* [config.layers] */
	struct mtp_weights mtp;      /* of zeros if it was not asked for */
};

/* Whether a store holds an MTP layer. Its configuration may promise one that it has not. */
bool weights_have_mtp(const struct modelfile *m);

/* mtp: bind the MTP layer as well, which is there. 0, or negative errno with a sentence that names
 * the tensor that is missing or of another shape. */
int weights_bind(struct weights *w, const struct dense *d, bool mtp, char *why);
void weights_free(struct weights *w); /* a zeroed one is fine */

/* Columns of the widest matrix, experts included: what struct compute needs. */
int weights_max_cols(const struct model_config *c);

#endif
