/* SPDX-License-Identifier: Apache-2.0
 *
 * What attention remembers of earlier tokens: per layer and position one row of
 * config_kv_width() numbers, as float32 or bfloat16: kv_lora + rope (latent and turned rope key,
 * multi-head latent attention, arXiv 2405.04434), or the turned keys of all heads and then their
 * values; and on layers with an indexer its key, index_dim floats.
 *
 * Plain arrays for ctx positions, written once a position; memory is taken from the kernel as
 * positions fill up. No lock: one forward pass at a time.
 */
#ifndef ENGINE_KVCACHE_H
#define ENGINE_KVCACHE_H

#include <stddef.h>
#include <stdint.h>

#include "engine/config.h"

enum kv_type { KV_F32, KV_BF16 };

struct kvcache {
	enum kv_type type;
	int layers, ctx, width, index_dim;
	void *base;
	size_t bytes;
	void *rows[MODEL_MAX_LAYERS];        /* [ctx][width] */
	float *index_keys[MODEL_MAX_LAYERS]; /* [ctx][index_dim]; NULL on layers that share */
};

size_t kvcache_bytes(const struct model_config *c, int ctx, enum kv_type type);
/* 0 or -ENOMEM. */
int kvcache_init(struct kvcache *kv, const struct model_config *c, int ctx, enum kv_type type,
		 char *why);
void kvcache_free(struct kvcache *kv); /* a zeroed one is fine */

void kvcache_put(struct kvcache *kv, int layer, int position, const float *row);
/* Inner product of q[0..width) with the row; y[0..n) += a * row[0..n). */
float kvcache_dot(const struct kvcache *kv, int layer, int position, const float *q);
void kvcache_axpy(const struct kvcache *kv, int layer, int position, float a, float *y, int n);
/* Numbers from .. from + n - 1 of the row as floats: where they lie, or in buf [n]. */
const float *kvcache_floats(const struct kvcache *kv, int layer, int position, int from, int n,
			    float *buf);

#endif
