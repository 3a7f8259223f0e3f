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
	struct wmat q_a, q_b, kv_a, out;
	/* Keys and values out of the latent vector: kv_b, of each head the rows of keys and then those
	 * of values; or (GGUF files, kv_b.rows 0) in two, k_b transposed head by head: rows
	 * [heads][kv_lora] of nope columns, and v_b, rows [heads][v_dim]. */
	struct wmat kv_b, k_b, v_b;
	const float *q_norm, *kv_norm;
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
	const float *router_bias;
};

struct weights {
	struct wmat embed, head;
	const float *norm;
	struct layer_weights *layer; /* [config.layers] */
};

/* 0, or negative errno with a sentence that names the tensor that is missing or of another shape.
 */
int weights_bind(struct weights *w, const struct dense *d, char *why);
void weights_free(struct weights *w); /* a zeroed one is fine */

/* Columns of the widest matrix, experts included: what struct compute needs. */
int weights_max_cols(const struct model_config *c);

#endif
