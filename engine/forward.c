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
#include "engine/min.h"
#include "engine/norm.h"
#include "engine/rope.h"

static void lay_out(struct forward *f, const struct model_config *c, int ctx, int chunk,
		    int threads, struct arena *a)
{
	size_t hidden = (size_t)c->hidden, rows = (size_t)min_int(chunk, ATTENTION_ROWS);

	f->h = arena_take(a, (size_t)chunk * hidden, sizeof(float));
	f->angles = arena_take(a, (size_t)chunk * (size_t)c->rope, sizeof(float));
	f->logit_x = arena_take(a, FORWARD_LOGIT_ROWS * hidden, sizeof(float));
	ffn_lay_out(&f->dense, (int)rows, 1, c->hidden, c->dense_width, a);
	f->dense_out = arena_take(a, rows * hidden, sizeof(float));
	if (c->attention == ATTENTION_GROUPED)
		attention_grouped_lay_out(&f->attention, c, ctx, (int)rows, threads, a);
	else
		attention_lay_out(&f->attention, c, ctx, chunk, threads, a);
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

int forward_init(struct forward *f, int layers, int ctx, int chunk, enum kv_type kv, char *why)
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
	/* Where there is no indexer it stays so: all keys. */
	memset(f->sets.count, 0, (size_t)chunk * sizeof(*f->sets.count));
	int r = kvcache_init(&f->kv, f->config, layers, ctx, kv, why);
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
	const struct ffn_task task = { .matrix = { &l->ffn.gate, &l->ffn.up, &l->ffn.down },
				       .x = x,
				       .n = m,
				       .y = f->dense_out };

	rms_norm_rows(f->compute, x, h, l->ffn_norm, m, c->hidden, c->norm_eps);
	ffn_run(f->compute, &task, 1, &f->dense);
	for (size_t i = 0; i < (size_t)m * hidden; i++)
		h[i] += f->dense_out[i];
}

struct positions {
	const struct model_config *config;
	int first;
	float *angles;
};

static void angles_of_row(void *arg, int i, int thread)
{
	const struct positions *p = arg;
	const struct model_config *c = p->config;

	(void)thread;
	rope_angles(p->angles + (size_t)i * (size_t)c->rope, c->rope, c->rope_theta,
		    &c->rope_scaling, p->first + i);
}

void forward_positions(struct forward *f, int position, int m)
{
	struct positions p = { f->config, position, f->angles };

	/* A pair costs a power, a sine and a cosine. */
	compute_run(f->compute, 100.0 * m * f->config->rope, m, angles_of_row, &p);
}

/* keys_only: of the task. */
static void attend(struct forward *f, const struct layer_weights *l, int n, int position, float *h,
		   int m, struct index_sets *sets, bool keys_only)
{
	const struct model_config *c = f->config;

	profile_enter(f->profile, PART_ATTENTION);
	for (int i = 0, rows; i < m; i += rows) {
		bool blocks = sets->long_prompt && attention_by_blocks(c, position + i);
		rows = attention_rows(c, position + i, m - i, blocks);
		const struct attention_task task = { .layer = n,
						     .position = position + i,
						     .m = rows,
						     .blocks = blocks,
						     .keys_only = keys_only,
						     .first = i,
						     .angles = f->angles +
							       (size_t)i * (size_t)c->rope };
		float *to = h + (size_t)i * (size_t)c->hidden;
		if (c->attention == ATTENTION_GROUPED)
			attention_grouped(f->compute, c, l, &f->kv, &task, &f->attention, to);
		else
			attention(f->compute, c, l, &f->kv, &task, sets, &f->attention, to);
	}
}

int forward_layer(struct forward *f, const struct layer_weights *l, int n, int position, float *h,
		  int m, struct index_sets *sets, char *why)
{
	size_t hidden = (size_t)f->config->hidden;

	attend(f, l, n, position, h, m, sets, false);
	if (f->config->sparse[n])
		return moe(f->compute, f->config, l, n, f->experts, &f->moe, h, m, why);
	profile_enter(f->profile, PART_EXPERTS);
	for (int i = 0; i < m; i += ATTENTION_ROWS)
		dense_layer(f, l, h + (size_t)i * hidden, min_int(m - i, ATTENTION_ROWS));
	return 0;
}

void forward_keys(struct forward *f, const struct layer_weights *l, int n, int position, float *h,
		  int m, struct index_sets *sets)
{
	attend(f, l, n, position, h, m, sets, true);
}

void forward_expect(struct forward *f, int position, int length)
{
	f->sets.long_prompt = length - position >= ATTENTION_PROMPT && !f->absorbed;
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
	forward_positions(f, position, m);
	f->moe.progress = progress;
	f->moe.share = (double)m / c->layers;
	f->moe.total = total;
	for (int n = 0; n < c->layers; n++) {
		f->moe.done = done + (double)m * n / c->layers;
		int r = forward_layer(f, &f->weights->layer[n], n, position, f->h, m, &f->sets,
				      why);
		if (r)
			return r;
		profile_enter(f->profile, PART_OTHER);
		progress_report(progress, "prompt", done + (double)m * (n + 1) / c->layers, total);
	}
	profile_pass(f->profile, m);
	return 0;
}

void forward_normed(const struct forward *f, int first, int n, float *x)
{
	const struct model_config *c = f->config;

	rms_norm_rows(f->compute, x, f->h + (size_t)first * (size_t)c->hidden, f->weights->norm, n,
		      c->hidden, c->norm_eps);
}

void forward_logits(struct forward *f, int first, int n, float *logits)
{
	const struct model_config *c = f->config;

	profile_enter(f->profile, PART_HEAD);
	forward_normed(f, first, n, f->logit_x);
	matmul(f->compute, &f->weights->head, f->logit_x, (size_t)c->hidden, n, logits,
	       (size_t)c->vocab);
	profile_enter(f->profile, PART_OTHER);
}
