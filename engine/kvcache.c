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

size_t kvcache_bytes(const struct model_config *c, int layers, int ctx, enum kv_type type)
{
	size_t bytes = (size_t)layers * rows_bytes(c, ctx, type);

	for (int i = 0; i < layers; i++)
		bytes += c->full[i] ? keys_bytes(c, ctx) : 0;
	return bytes;
}

int kvcache_init(struct kvcache *kv, const struct model_config *c, int layers, int ctx,
		 enum kv_type type, char *why)
{
	memset(kv, 0, sizeof(*kv));
	kv->type = type;
	kv->width = config_kv_width(c);
	kv->index_dim = c->index_dim;
	kv->bytes = kvcache_bytes(c, layers, ctx, type);
	kv->base = mmap(NULL, kv->bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (kv->base == MAP_FAILED) {
		kv->base = NULL;
		return fail(why, ENOMEM, "no memory for %zu bytes of key-value cache", kv->bytes);
	}
	/* A head's part of a row lies a page or more from the next: with small pages each key costs a
	 * miss of the TLB. 32 heads over 4 of 128 numbers, 3,000 keys, 2 cores with other work on
	 * them: prompts 164, 191 tokens/s, with huge pages 250, 274; decoding 18 and 30. */
	madvise(kv->base, kv->bytes, MADV_HUGEPAGE);
	char *at = kv->base;
	for (int i = 0; i < layers; i++) {
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

static size_t row_bytes(const struct kvcache *kv)
{
	return (size_t)kv->width * (kv->type == KV_F32 ? sizeof(float) : sizeof(uint16_t));
}

static size_t key_bytes(const struct kvcache *kv)
{
	return (size_t)kv->index_dim * sizeof(float);
}

size_t kvcache_position_bytes(const struct kvcache *kv, int layers)
{
	size_t bytes = 0;

	for (int i = 0; i < layers; i++)
		bytes += row_bytes(kv) + (kv->index_keys[i] ? key_bytes(kv) : 0);
	return bytes;
}

void kvcache_copy_out(const struct kvcache *kv, int layers, int first, int n, void *to)
{
	size_t row = row_bytes(kv), key = key_bytes(kv), at = (size_t)first, count = (size_t)n;
	char *p = to;

	for (int i = 0; i < layers; i++) {
		memcpy(p, (const char *)kv->rows[i] + at * row, count * row);
		p += count * row;
		if (!kv->index_keys[i])
			continue;
		memcpy(p, (const char *)kv->index_keys[i] + at * key, count * key);
		p += count * key;
	}
}

void kvcache_copy_in(struct kvcache *kv, int layers, int first, int n, int of, const void *from)
{
	size_t row = row_bytes(kv), key = key_bytes(kv), at = (size_t)first, count = (size_t)n;
	const char *p = from;

	for (int i = 0; i < layers; i++) {
		memcpy((char *)kv->rows[i] + at * row, p, count * row);
		p += (size_t)of * row;
		if (!kv->index_keys[i])
			continue;
		memcpy((char *)kv->index_keys[i] + at * key, p, count * key);
		p += (size_t)of * key;
	}
}

static void widen(float *to, const uint16_t *from, int n)
{
	for (int i = 0; i < n; i++)
		to[i] = bf16_to_float(from[i]);
}

const float *kvcache_rows(const struct kvcache *kv, int layer, const int32_t *set, int from, int n,
			  float *buf)
{
	size_t width = (size_t)kv->width;

	if (kv->type == KV_F32 && !set)
		return row_f32(kv, layer, from);
	for (int i = 0; i < n; i++) {
		int position = set ? set[i] : from + i;
		float *to = buf + (size_t)i * width;
		if (kv->type == KV_F32)
			memcpy(to, row_f32(kv, layer, position), width * sizeof(float));
		else
			widen(to, row_bf16(kv, layer, position), kv->width);
	}
	return buf;
}

const float *kvcache_part(const struct kvcache *kv, int layer, int position, int n, int from,
			  int count, float *buf, size_t *ld)
{
	*ld = (size_t)(kv->type == KV_F32 ? kv->width : count);
	if (kv->type == KV_F32)
		return row_f32(kv, layer, position) + from;
	for (int i = 0; i < n; i++)
		widen(buf + (size_t)i * *ld, row_bf16(kv, layer, position + i) + from, count);
	return buf;
}
