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
	int width, index_dim;
	void *base;
	size_t bytes;
	void *rows[MODEL_MAX_LAYERS];        /* [ctx][width] */
	float *index_keys[MODEL_MAX_LAYERS]; /* [ctx][index_dim]; NULL on layers that share */
};

/* layers: those of the forward pass, and the MTP layer behind them if it is used. */
size_t kvcache_bytes(const struct model_config *c, int layers, int ctx, enum kv_type type);
/* 0 or -ENOMEM. */
int kvcache_init(struct kvcache *kv, const struct model_config *c, int layers, int ctx,
		 enum kv_type type, char *why);
void kvcache_free(struct kvcache *kv); /* a zeroed one is fine */

void kvcache_put(struct kvcache *kv, int layer, int position, const float *row);
/* All that the first `layers` layers keep of one position, in bytes. */
size_t kvcache_position_bytes(const struct kvcache *kv, int layers);
/* Positions first .. first + n - 1 as one array of n * kvcache_position_bytes(): layer after layer
 * its rows, then its index keys if it has any. */
void kvcache_copy_out(const struct kvcache *kv, int layers, int first, int n, void *to);
/* Back from such an array of `of` positions: the first n of them. */
void kvcache_copy_in(struct kvcache *kv, int layers, int first, int n, int of, const void *from);
/* Rows set[0 .. n) of a layer, or from .. from + n - 1 if set is NULL, one behind the other as
 * floats: where they lie if they lie like that, else in buf [n][width]. */
const float *kvcache_rows(const struct kvcache *kv, int layer, const int32_t *set, int from, int n,
			  float *buf);
/* Numbers from .. from + count - 1 of the rows of positions position .. position + n - 1 as floats,
 * *ld apart: where they lie, or in buf [n][count]. */
const float *kvcache_part(const struct kvcache *kv, int layer, int position, int n, int from,
			  int count, float *buf, size_t *ld);

#endif
