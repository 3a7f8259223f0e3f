/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of earlier tokens.
 */
#include "engine/kvcache.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/fail.h"
#include "engine/kernel.h"

#define ROUND_UP(n) (((n) + 63) / 64 * 64)

static size_t rows_bytes(const struct model_config *c, int ctx, enum kv_type type)
{
	size_t one = type == KV_F32 ? sizeof(float) : sizeof(uint16_t);

	return ROUND_UP((size_t)ctx * (size_t)config_kv_width(c) * one);
}

static size_t keys_bytes(const struct model_config *c, int ctx)
{
	return ROUND_UP((size_t)ctx * (size_t)c->index_dim * sizeof(float));
}

size_t kvcache_bytes(const struct model_config *c, int ctx, enum kv_type type)
{
	size_t bytes = (size_t)c->layers * rows_bytes(c, ctx, type);

	for (int i = 0; i < c->layers; i++)
		bytes += c->full[i] ? keys_bytes(c, ctx) : 0;
	return bytes;
}

int kvcache_init(struct kvcache *kv, const struct model_config *c, int ctx, enum kv_type type,
		 char *why)
{
	memset(kv, 0, sizeof(*kv));
	kv->type = type;
	kv->layers = c->layers;
	kv->ctx = ctx;
	kv->width = config_kv_width(c);
	kv->index_dim = c->index_dim;
	kv->bytes = kvcache_bytes(c, ctx, type);
	kv->base = mmap(NULL, kv->bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (kv->base == MAP_FAILED) {
		kv->base = NULL;
		return fail(why, ENOMEM, "no memory for %zu bytes of key-value cache", kv->bytes);
	}
	char *at = kv->base;
	for (int i = 0; i < c->layers; i++) {
		kv->rows[i] = at;
		at += rows_bytes(c, ctx, type);
		if (c->full[i]) {
			kv->index_keys[i] = (float *)(void *)at;
			at += keys_bytes(c, ctx);
		}
	}
	return 0;
}

void kvcache_free(struct kvcache *kv)
{
	if (kv->base)
		munmap(kv->base, kv->bytes);
	kv->base = NULL;
}

static float *row_f32(const struct kvcache *kv, int layer, int position)
{
	return (float *)kv->rows[layer] + (size_t)position * (size_t)kv->width;
}

static uint16_t *row_bf16(const struct kvcache *kv, int layer, int position)
{
	return (uint16_t *)kv->rows[layer] + (size_t)position * (size_t)kv->width;
}

void kvcache_put(struct kvcache *kv, int layer, int position, const float *row)
{
	if (kv->type == KV_F32) {
		memcpy(row_f32(kv, layer, position), row, (size_t)kv->width * sizeof(float));
		return;
	}
	uint16_t *to = row_bf16(kv, layer, position);
	for (int i = 0; i < kv->width; i++)
		to[i] = float_to_bf16(row[i]);
}

float kvcache_dot(const struct kvcache *kv, int layer, int position, const float *q)
{
	if (kv->type == KV_F32)
		return kernel()->dot(q, row_f32(kv, layer, position), kv->width);
	return kernel()->dot_bf16(q, row_bf16(kv, layer, position), kv->width);
}

void kvcache_axpy(const struct kvcache *kv, int layer, int position, float a, float *y, int n)
{
	if (kv->type == KV_F32)
		kernel()->axpy(y, a, row_f32(kv, layer, position), n);
	else
		kernel()->axpy_bf16(y, a, row_bf16(kv, layer, position), n);
}

const float *kvcache_floats(const struct kvcache *kv, int layer, int position, int from, int n,
			    float *buf)
{
	if (kv->type == KV_F32)
		return row_f32(kv, layer, position) + from;
	const uint16_t *row = row_bf16(kv, layer, position) + from;
	for (int i = 0; i < n; i++)
		buf[i] = bf16_to_float(row[i]);
	return buf;
}
