/* SPDX-License-Identifier: Apache-2.0
 *
 * Multi-head latent attention, absorbed form.
 */
#include "engine/attention.h"

#include <math.h>
#include <string.h>

#include "engine/norm.h"
#include "engine/rope.h"

static void project(const struct compute *cp, const struct model_config *c,
		    const struct layer_weights *l, struct kvcache *kv,
		    const struct attention_task *t, struct attention_work *w, const float *h)
{
	const struct attention_weights *a = &l->attention;
	size_t hidden = (size_t)c->hidden, q_lora = (size_t)c->q_lora, width = (size_t)kv->width;
	size_t q_dim = (size_t)c->nope + (size_t)c->rope, q_width = (size_t)c->heads * q_dim;

	for (int i = 0; i < t->m; i++) {
		rms_norm(w->x + (size_t)i * hidden, h + (size_t)i * hidden, l->attention_norm,
			 c->hidden, c->norm_eps);
		rope_angles(w->angles + (size_t)i * (size_t)c->rope, c->rope, c->rope_theta,
			    t->position + i);
	}
	matmul(cp, &a->q_a, w->x, hidden, t->m, w->qr, q_lora);
	for (int i = 0; i < t->m; i++)
		rms_norm(w->qr + (size_t)i * q_lora, w->qr + (size_t)i * q_lora, a->q_norm,
			 c->q_lora, c->norm_eps);
	matmul(cp, &a->q_b, w->qr, q_lora, t->m, w->q, q_width);
	matmul(cp, &a->kv_a, w->x, hidden, t->m, w->kv, width);
	for (int i = 0; i < t->m; i++) {
		float *row = w->kv + (size_t)i * width,
		      *cs = w->angles + (size_t)i * (size_t)c->rope;
		rms_norm(row, row, a->kv_norm, c->kv_lora, c->norm_eps);
		rope_turn(row + c->kv_lora, cs, c->rope, c->rope_interleave);
		kvcache_put(kv, t->layer, t->position + i, row);
		for (int n = 0; n < c->heads; n++)
			rope_turn(w->q + (size_t)i * q_width + (size_t)n * q_dim + c->nope, cs,
				  c->rope, c->rope_interleave);
	}
}

/* What the loops over heads, and over heads of queries, work on. */
struct job {
	const struct compute *compute;
	const struct model_config *config;
	const struct attention_weights *weights;
	const struct kvcache *kv;
	const struct attention_task *task;
	const struct index_sets *sets;
	struct attention_work *work;
};

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

/* One head of one query over its keys: w->absorbed -> w->mixed. */
static void attend(const struct model_config *c, const struct kvcache *kv, int layer, int visible,
		   const int32_t *set, int n, const float *query, float *score, float *out)
{
	float scale = 1.0f / sqrtf((float)(c->nope + c->rope));

	if (!set)
		n = visible;
	for (int i = 0; i < n; i++)
		score[i] = kvcache_dot(kv, layer, set ? set[i] : i, query) * scale;
	softmax(score, n);
	memset(out, 0, (size_t)c->kv_lora * sizeof(float));
	for (int i = 0; i < n; i++)
		kvcache_axpy(kv, layer, set ? set[i] : i, score[i], out, c->kv_lora);
}

static void attend_item(void *arg, int item, int thread)
{
	const struct job *j = arg;
	const struct attention_task *t = j->task;
	int i = item / j->config->heads, row = t->first + i, n = j->sets->count[row];
	const int32_t *set = n ? j->sets->item + (size_t)row * (size_t)j->sets->topk : NULL;

	attend(j->config, j->kv, t->layer, t->position + i + 1, set, n,
	       j->work->absorbed + (size_t)item * (size_t)j->kv->width,
	       j->work->score + (size_t)thread * j->work->keys,
	       j->work->mixed + (size_t)item * (size_t)j->config->kv_lora);
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

void attention(const struct compute *cp, const struct model_config *c,
	       const struct layer_weights *l, struct kvcache *kv, const struct attention_task *t,
	       struct index_sets *sets, struct attention_work *w, float *h)
{
	struct job job = { cp, c, &l->attention, kv, t, sets, w };
	double all_kv_b = (double)t->m * c->heads * (c->nope + c->v_dim) * c->kv_lora;

	project(cp, c, l, kv, t, w, h);
	if (c->full[t->layer]) {
		const struct index_task task = { t->layer, t->position, t->first, t->m,
						 w->x,     w->qr,       w->angles };
		indexer_run(cp, c, &l->attention, kv, &task, &w->index, sets);
	}
	compute_run(cp, all_kv_b, c->heads, absorb, &job);
	compute_run(cp, (double)t->m * c->heads * (t->position + 1) * kv->width, t->m * c->heads,
		    attend_item, &job);
	compute_run(cp, all_kv_b, c->heads, values_of_head, &job);
	matmul(cp, &l->attention.out, w->heads, (size_t)c->heads * (size_t)c->v_dim, t->m, w->out,
	       (size_t)c->hidden);
	for (size_t i = 0; i < (size_t)t->m * (size_t)c->hidden; i++)
		h[i] += w->out[i];
}
