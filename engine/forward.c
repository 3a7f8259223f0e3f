/* SPDX-License-Identifier: Apache-2.0
 *
 * The forward pass.
 */
#include "engine/forward.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "engine/attention_grouped.h"
#include "engine/fail.h"
#include "engine/ffn.h"
#include "engine/norm.h"

static int min_int(int a, int b)
{
	return a < b ? a : b;
}

static void lay_out_attention(struct attention_work *w, const struct model_config *c, int ctx,
			      int rows, int threads, struct arena *a)
{
	size_t n = (size_t)rows, heads = (size_t)c->heads, f = sizeof(float);
	size_t width = (size_t)c->kv_lora + (size_t)c->rope;

	w->keys = (size_t)min_int(ctx, c->index_topk);
	w->x = arena_take(a, n * (size_t)c->hidden, f);
	w->qr = arena_take(a, n * (size_t)c->q_lora, f);
	w->q = arena_take(a, n * heads * ((size_t)c->nope + (size_t)c->rope), f);
	w->kv = arena_take(a, n * width, f);
	w->angles = arena_take(a, n * (size_t)c->rope, f);
	w->absorbed = arena_take(a, n * heads * width, f);
	w->mixed = arena_take(a, n * heads * (size_t)c->kv_lora, f);
	w->heads = arena_take(a, n * heads * (size_t)c->v_dim, f);
	w->out = arena_take(a, n * (size_t)c->hidden, f);
	w->score = arena_take(a, (size_t)threads * w->keys, f);
	w->index.query = arena_take(a, n * (size_t)c->index_heads * (size_t)c->index_dim, f);
	w->index.weight = arena_take(a, n * (size_t)c->index_heads, f);
	w->index.key = arena_take(a, n * (size_t)c->index_dim, f);
	w->index.score = arena_take(a, (size_t)ctx, f);
	w->index.items = arena_take(a, (size_t)min_int(ctx, INDEX_REFERENCE_LENGTH),
				    sizeof(struct topk_item));
}

static void lay_out(struct forward *f, const struct model_config *c, int ctx, int chunk,
		    int threads, struct arena *a)
{
	size_t hidden = (size_t)c->hidden, rows = (size_t)min_int(chunk, ATTENTION_ROWS);

	f->h = arena_take(a, (size_t)chunk * hidden, sizeof(float));
	f->logit_x = arena_take(a, FORWARD_LOGIT_ROWS * hidden, sizeof(float));
	f->dense_work = arena_take(a, rows * 2 * (size_t)c->dense_width, sizeof(float));
	f->dense_out = arena_take(a, rows * hidden, sizeof(float));
	if (c->attention == ATTENTION_GROUPED)
		attention_grouped_lay_out(&f->attention, c, ctx, (int)rows, threads, a);
	else
		lay_out_attention(&f->attention, c, ctx, (int)rows, threads, a);
	f->sets.topk = c->index_topk;
	f->sets.count = arena_take(a, (size_t)chunk, sizeof(int32_t));
	f->sets.item = NULL;
	if (ctx > c->index_topk)
		f->sets.item =
			arena_take(a, (size_t)chunk * (size_t)c->index_topk, sizeof(int32_t));
	moe_lay_out(&f->moe, c, chunk, a);
}

size_t forward_bytes(const struct model_config *c, int ctx, int chunk, int threads)
{
	struct forward f;
	struct arena a = { NULL, 0 };

	lay_out(&f, c, ctx, chunk, threads, &a);
	return a.used;
}

int forward_init(struct forward *f, int ctx, int chunk, enum kv_type kv, char *why)
{
	size_t bytes = forward_bytes(f->config, ctx, chunk, f->compute->threads);
	struct arena a = { NULL, 0 };

	f->ctx = ctx;
	f->chunk = chunk;
	f->memory = bytes == SIZE_MAX ? NULL : aligned_alloc(64, bytes);
	if (!f->memory)
		return fail(why, ENOMEM, "no memory for %zu bytes of activations", bytes);
	a.base = f->memory;
	lay_out(f, f->config, ctx, chunk, f->compute->threads, &a);
	memset(f->sets.count, 0,
	       (size_t)chunk * sizeof(*f->sets.count)); /* where nothing chooses */
	int r = kvcache_init(&f->kv, f->config, ctx, kv, why);
	if (r)
		forward_free(f);
	return r;
}

void forward_free(struct forward *f)
{
	kvcache_free(&f->kv);
	free(f->memory);
	f->memory = NULL;
}

static void dense_layer(struct forward *f, const struct layer_weights *l, float *h, int m)
{
	const struct model_config *c = f->config;
	size_t hidden = (size_t)c->hidden;
	float *x = f->attention.x;

	for (int i = 0; i < m; i++)
		rms_norm(x + (size_t)i * hidden, h + (size_t)i * hidden, l->ffn_norm, c->hidden,
			 c->norm_eps);
	ffn(f->compute, &l->ffn.gate, &l->ffn.up, &l->ffn.down, x, m, f->dense_work, f->dense_out);
	for (size_t i = 0; i < (size_t)m * hidden; i++)
		h[i] += f->dense_out[i];
}

static int layer(struct forward *f, int n, int position, int m, char *why)
{
	const struct layer_weights *l = &f->weights->layer[n];
	size_t hidden = (size_t)f->config->hidden;

	for (int i = 0; i < m; i += ATTENTION_ROWS) {
		const struct attention_task task = { n, position + i,
						     min_int(m - i, ATTENTION_ROWS), i };
		if (f->config->attention == ATTENTION_GROUPED)
			attention_grouped(f->compute, f->config, l, &f->kv, &task, &f->attention,
					  f->h + (size_t)i * hidden);
		else
			attention(f->compute, f->config, l, &f->kv, &task, &f->sets, &f->attention,
				  f->h + (size_t)i * hidden);
	}
	if (f->config->sparse[n])
		return moe(f->compute, f->config, l, n, f->experts, &f->moe, f->h, m, why);
	for (int i = 0; i < m; i += ATTENTION_ROWS)
		dense_layer(f, l, f->h + (size_t)i * hidden, min_int(m - i, ATTENTION_ROWS));
	return 0;
}

void forward_expect(struct forward *f, int length)
{
	f->sets.length = length;
	f->sets.tied_from = INT_MAX;
}

int forward_run(struct forward *f, const int32_t *ids, int position, int m,
		const struct progress *progress, double done, double total, char *why)
{
	const struct model_config *c = f->config;

	for (int i = 0; i < m; i++)
		kernel()->dequant(&f->weights->embed, ids[i], 1,
				  f->h + (size_t)i * (size_t)c->hidden, 0);
	for (int n = 0; n < c->layers; n++) {
		int r = layer(f, n, position, m, why);
		if (r)
			return r;
		progress_report(progress, "prompt", done + (double)m * (n + 1) / c->layers, total);
	}
	return 0;
}

void forward_logits(struct forward *f, int first, int n, float *logits)
{
	const struct model_config *c = f->config;
	size_t hidden = (size_t)c->hidden;

	for (int i = 0; i < n; i++)
		rms_norm(f->logit_x + (size_t)i * hidden, f->h + (size_t)(first + i) * hidden,
			 f->weights->norm, c->hidden, c->norm_eps);
	matmul(f->compute, &f->weights->head, f->logit_x, hidden, n, logits, (size_t)c->vocab);
}
