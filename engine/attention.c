/* SPDX-License-Identifier: Apache-2.0
 *
 * Multi-head latent attention: what is before and behind the heads, and these in their absorbed form.
 */
#include "engine/attention.h"

#include <string.h>

#include "engine/min.h"
#include "engine/norm.h"
#include "engine/rope.h"

bool attention_by_blocks(const struct model_config *c, int position)
{
	return c->attention == ATTENTION_GROUPED || position < c->index_topk;
}

int attention_rows(const struct model_config *c, int position, int left, bool blocks)
{
	if (!blocks || c->attention == ATTENTION_GROUPED)
		return min_int(left, ATTENTION_ROWS);
	return min_int(min_int(left, c->index_topk - position), EXPANDED_ROWS);
}

void attention_lay_out(struct attention_work *w, const struct model_config *c, int ctx, int rows,
		       int threads, struct arena *a)
{
	size_t n = (size_t)min_int(rows, EXPANDED_ROWS), heads = (size_t)c->heads,
	       f = sizeof(float);
	size_t absorbed = (size_t)min_int(rows, ATTENTION_ROWS) * heads;
	int keys = min_int(ctx, c->index_topk);
	size_t width = (size_t)c->kv_lora + (size_t)c->rope;

	w->keys = (size_t)keys;
	w->x = arena_take(a, n * (size_t)c->hidden, f);
	w->qr = arena_take(a, n * (size_t)c->q_lora, f);
	w->q = arena_take(a, n * heads * ((size_t)c->nope + (size_t)c->rope), f);
	w->kv = arena_take(a, n * width, f);
	w->absorbed = arena_take(a, absorbed * width, f);
	w->mixed = arena_take(a, absorbed * (size_t)c->kv_lora, f);
	w->heads = arena_take(a, n * heads * (size_t)c->v_dim, f);
	w->out = arena_take(a, n * (size_t)c->hidden, f);
	w->score = arena_take(a, (size_t)threads * ATTENTION_HEADS * w->keys, f);
	w->key_rows = arena_take(a, (size_t)threads * ATTENTION_KEYS * width, f);
	w->index.query = arena_take(a, n * (size_t)c->index_heads * (size_t)c->index_dim, f);
	w->index.weight = arena_take(a, n * (size_t)c->index_heads, f);
	w->index.key = arena_take(a, n * (size_t)c->index_dim, f);
	w->index.score = arena_take(a, (size_t)ctx, f);
	w->index.items =
		arena_take(a, ctx < INDEX_REFERENCE_LENGTH ? (size_t)ctx : INDEX_REFERENCE_LENGTH,
			   sizeof(struct topk_item));
	blocks_lay_out(&w->blocks, c->nope + c->rope, threads, a);
	expanded_lay_out(&w->expanded, c, keys, threads, a);
}

/* What the loops over heads, and over heads of queries, work on. */
struct job {
	const struct compute *compute;
	const struct model_config *config;
	const struct attention_weights *weights;
	struct kvcache *kv;
	const struct attention_task *task;
	const struct index_sets *sets;
	struct attention_work *work;
};

/* The second of the two steps that queries take. */
static void widen_queries(const struct job *j)
{
	const struct model_config *c = j->config;
	struct attention_work *w = j->work;
	int m = j->task->m;

	add_bias(w->qr, j->weights->q_a_bias, m, c->q_lora);
	rms_norm_rows(j->compute, w->qr, w->qr, j->weights->q_norm, m, c->q_lora, c->lora_norm_eps);
	matmul(j->compute, &j->weights->q_b, w->qr, (size_t)c->q_lora, m, w->q,
	       (size_t)c->heads * ((size_t)c->nope + (size_t)c->rope));
}

/* One row after its projections: latent vector and key into the cache, queries turned. */
static void finish_row(void *arg, int i, int thread)
{
	const struct job *j = arg;
	const struct model_config *c = j->config;
	size_t q_dim = (size_t)c->nope + (size_t)c->rope, row = (size_t)i;
	const float *cs = j->task->angles + row * (size_t)c->rope;
	float *kv = j->work->kv + row * (size_t)j->kv->width;
	float *q = j->work->q + row * (size_t)c->heads * q_dim;

	(void)thread;
	rms_norm(kv, kv, j->weights->kv_norm, c->kv_lora, c->lora_norm_eps);
	rope_turn(kv + c->kv_lora, cs, c->rope, c->rope_interleave);
	kvcache_put(j->kv, j->task->layer, j->task->position + i, kv);
	for (int n = 0; n < c->heads && !j->task->keys_only; n++)
		rope_turn(q + (size_t)n * q_dim + c->nope, cs, c->rope, c->rope_interleave);
}

static void project(struct job *j, const float *norm, const float *h)
{
	const struct model_config *c = j->config;
	const struct attention_weights *a = j->weights;
	struct attention_work *w = j->work;
	size_t q_lora = (size_t)c->q_lora, width = (size_t)j->kv->width;
	size_t q_width = (size_t)c->heads * ((size_t)c->nope + (size_t)c->rope);
	const struct matmul both[] = { { &a->kv_a, w->kv, width },
				       q_lora ? (struct matmul){ &a->q_a, w->qr, q_lora }
					      : (struct matmul){ &a->q, w->q, q_width } };
	bool queries = !j->task->keys_only;
	int m = j->task->m;

	rms_norm_rows(j->compute, w->x, h, norm, m, c->hidden, c->norm_eps);
	matmuls(j->compute, both, queries ? 2 : 1, w->x, (size_t)c->hidden, m);
	add_bias(w->kv, a->kv_a_bias, m, j->kv->width);
	if (queries && q_lora)
		widen_queries(j);
	/* A number is normed and turned in the time of some 16 multiply-adds. */
	compute_run(j->compute, 16.0 * m * ((queries ? c->heads * c->rope : 0) + j->kv->width), m,
		    finish_row, j);
}

/* Head n of all queries into the latent space: row r of Wk_n, times number r of the query. Where Wk_n
 * lies transposed that is a product like any other. */
static void absorb(void *arg, int n, int thread)
{
	const struct job *j = arg;
	const struct model_config *c = j->config;
	const struct attention_weights *w = j->weights;
	const struct kernel_table *k = kernel();
	size_t q_dim = (size_t)c->nope + (size_t)c->rope, width = (size_t)j->kv->width,
	       heads = (size_t)c->heads;
	const float *q = j->work->q + (size_t)n * q_dim;
	float *to = j->work->absorbed + (size_t)n * width, *row = compute_rows(j->compute, thread);
	size_t m = (size_t)j->task->m;

	for (size_t i = 0; i < m; i++)
		memcpy(to + i * heads * width + c->kv_lora, q + i * heads * q_dim + c->nope,
		       (size_t)c->rope * sizeof(float));
	if (w->k_b.rows) {
		matmul_rows(j->compute, thread, &w->k_b, n * c->kv_lora, c->kv_lora, q,
			    heads * q_dim, (int)m, to, heads * width);
		return;
	}
	for (size_t i = 0; i < m; i++)
		memset(to + i * heads * width, 0, (size_t)c->kv_lora * sizeof(float));
	if (w->kv_b.fmt.group) {
		k->absorb(&w->kv_b, n * (c->nope + c->v_dim), c->nope, q, heads * q_dim, (int)m, to,
			  heads * width);
		return;
	}
	for (int r = 0, rows; r < c->nope; r += rows) {
		rows = c->nope - r < COMPUTE_ROWS ? c->nope - r : COMPUTE_ROWS;
		k->dequant(&w->kv_b, n * (c->nope + c->v_dim) + r, rows, row,
			   j->compute->row_floats);
		for (size_t i = 0; i < m; i++)
			for (int s = 0; s < rows; s++)
				k->axpy(to + i * heads * width,
					q[i * heads * q_dim + (size_t)(r + s)],
					row + (size_t)s * j->compute->row_floats, c->kv_lora);
	}
}

/* Some heads of one query over its keys. */
struct heads {
	int layer, count;
	const int32_t *set; /* NULL: keys 0 .. n - 1 */
	int n;
	const float *query; /* [count][width] */
	float *score;       /* [count][n] */
	float *rows;        /* [ATTENTION_KEYS][width] */
	float *out;         /* [count][kv_lora] */
};

static void attend(const struct model_config *c, const struct kvcache *kv, const struct heads *a)
{
	const struct kernel_table *k = kernel();
	size_t width = (size_t)kv->width, ld = (size_t)a->n, kv_lora = (size_t)c->kv_lora;

	for (int i = 0, m; i < a->n; i += m) {
		m = a->n - i < ATTENTION_KEYS ? a->n - i : ATTENTION_KEYS;
		const float *rows =
			kvcache_rows(kv, a->layer, a->set ? a->set + i : NULL, i, m, a->rows);
		k->dot_block(a->query, width, a->count, rows, width, m, (int)width, a->score + i,
			     ld);
	}
	for (int h = 0; h < a->count; h++) {
		float *score = a->score + (size_t)h * ld;
		for (int i = 0; i < a->n; i++)
			score[i] *= c->score_scale;
		k->softmax(score, a->n);
	}
	memset(a->out, 0, (size_t)a->count * kv_lora * sizeof(float));
	for (int i = 0, m; i < a->n; i += m) {
		m = a->n - i < ATTENTION_KEYS ? a->n - i : ATTENTION_KEYS;
		const float *rows =
			kvcache_rows(kv, a->layer, a->set ? a->set + i : NULL, i, m, a->rows);
		k->mix_block(a->score + i, ld, a->count, rows, width, m, c->kv_lora, a->out,
			     kv_lora);
	}
}

static int groups_of_heads(const struct model_config *c)
{
	return (c->heads + ATTENTION_HEADS - 1) / ATTENTION_HEADS;
}

/* ATTENTION_HEADS heads of one query: w->absorbed -> w->mixed. */
static void attend_item(void *arg, int item, int thread)
{
	const struct job *j = arg;
	const struct attention_task *t = j->task;
	struct attention_work *w = j->work;
	int i = item / groups_of_heads(j->config),
	    first = item % groups_of_heads(j->config) * ATTENTION_HEADS;
	int row = t->first + i, left = j->config->heads - first, n = j->sets->count[row];
	size_t width = (size_t)j->kv->width,
	       head = (size_t)i * (size_t)j->config->heads + (size_t)first;
	const struct heads a = {
		.layer = t->layer,
		.count = left < ATTENTION_HEADS ? left : ATTENTION_HEADS,
		.set = n ? j->sets->item + (size_t)row * (size_t)j->sets->topk : NULL,
		.n = n ? n : t->position + i + 1,
		.query = w->absorbed + head * width,
		.score = w->score + (size_t)thread * ATTENTION_HEADS * w->keys,
		.rows = w->key_rows + (size_t)thread * ATTENTION_KEYS * width,
		.out = w->mixed + head * (size_t)j->config->kv_lora,
	};

	attend(j->config, j->kv, &a);
}

/* Head n of all queries out of the latent space: Wv_n. */
static void values_of_head(void *arg, int n, int thread)
{
	const struct job *j = arg;
	const struct model_config *c = j->config;
	const struct attention_weights *w = j->weights;
	bool split = w->v_b.rows;

	matmul_rows(j->compute, thread, split ? &w->v_b : &w->kv_b,
		    split ? n * c->v_dim : n * (c->nope + c->v_dim) + c->nope, c->v_dim,
		    j->work->mixed + (size_t)n * (size_t)c->kv_lora,
		    (size_t)c->heads * (size_t)c->kv_lora, j->task->m,
		    j->work->heads + (size_t)n * (size_t)c->v_dim,
		    (size_t)c->heads * (size_t)c->v_dim);
}

static void absorbed_run(struct job *j)
{
	const struct model_config *c = j->config;
	const struct attention_task *t = j->task;
	double all_kv_b = (double)t->m * c->heads * (c->nope + c->v_dim) * c->kv_lora;

	compute_run(j->compute, all_kv_b, c->heads, absorb, j);
	compute_run(j->compute, (double)t->m * c->heads * (t->position + 1) * j->kv->width,
		    t->m * groups_of_heads(c), attend_item, j);
	compute_run(j->compute, all_kv_b, c->heads, values_of_head, j);
}

void attention(const struct compute *cp, const struct model_config *c,
	       const struct layer_weights *l, struct kvcache *kv, const struct attention_task *t,
	       struct index_sets *sets, struct attention_work *w, float *h)
{
	struct job job = { cp, c, &l->attention, kv, t, sets, w };

	project(&job, l->attention_norm, h);
	if (c->full[t->layer]) {
		const struct index_task task = { t->layer, t->position, t->first, t->m,
						 w->x,     w->qr,       t->angles };
		if (t->keys_only)
			indexer_keys(cp, c, &l->attention, kv, &task, &w->index);
		else
			indexer_run(cp, c, &l->attention, kv, &task, &w->index, sets);
	}
	if (t->keys_only)
		return;
	if (t->blocks)
		expanded_run(cp, c, &l->attention, kv, t, w);
	else
		absorbed_run(&job);
	matmul(cp, &l->attention.out, w->heads, (size_t)c->heads * (size_t)c->v_dim, t->m, w->out,
	       (size_t)c->hidden);
	add_bias(w->out, l->attention.out_bias, t->m, c->hidden);
	for (size_t i = 0; i < (size_t)t->m * (size_t)c->hidden; i++)
		h[i] += w->out[i];
}
