/* SPDX-License-Identifier: Apache-2.0
 *
 * Which keys a query attends to.
 */
#include "engine/indexer.h"

#include <math.h>
#include <string.h>

#include "engine/norm.h"
#include "engine/rope.h"

void indexer_keys(const struct compute *cp, const struct model_config *c,
		  const struct attention_weights *w, struct kvcache *kv, const struct index_task *t,
		  struct index_work *work)
{
	matmul(cp, &w->index_k, t->x, (size_t)c->hidden, t->m, work->key, (size_t)c->index_dim);
	for (int i = 0; i < t->m; i++) {
		float *key =
			kv->index_keys[t->layer] + (size_t)(t->position + i) * (size_t)c->index_dim;
		layer_norm(key, work->key + (size_t)i * (size_t)c->index_dim, w->index_norm_w,
			   w->index_norm_b, c->index_dim, c->arch->index_norm_eps);
		rope_turn(key, t->angles + (size_t)i * (size_t)c->rope, c->rope,
			  c->index_interleave);
	}
}

static void make_queries(const struct compute *cp, const struct model_config *c,
			 const struct attention_weights *w, const struct index_task *t,
			 struct index_work *work)
{
	size_t width = (size_t)c->index_heads * (size_t)c->index_dim;
	float scale = 1.0f / sqrtf((float)c->index_heads * (float)c->index_dim);

	matmul(cp, &w->index_q, t->qr, (size_t)c->q_lora, t->m, work->query, width);
	matmul(cp, &w->index_w, t->x, (size_t)c->hidden, t->m, work->weight,
	       (size_t)c->index_heads);
	for (int i = 0; i < t->m; i++)
		for (int h = 0; h < c->index_heads; h++) {
			rope_turn(work->query + (size_t)i * width +
					  (size_t)h * (size_t)c->index_dim,
				  t->angles + (size_t)i * (size_t)c->rope, c->rope,
				  c->index_interleave);
			work->weight[(size_t)i * (size_t)c->index_heads + (size_t)h] *= scale;
		}
}

#define SCORE_KEYS  64 /* keys that a thread takes at a time, with so many heads */
#define SCORE_HEADS 16

struct scoring {
	const struct model_config *config;
	const float *query, *weight, *keys;
	int n;
	float *score;
};

static void score_item(void *arg, int item, int thread)
{
	const struct scoring *s = arg;
	const struct kernel_table *k = kernel();
	size_t dim = (size_t)s->config->index_dim;
	float dots[SCORE_HEADS * SCORE_KEYS], *score = s->score + (size_t)item * SCORE_KEYS;
	int n = s->n - item * SCORE_KEYS < SCORE_KEYS ? s->n - item * SCORE_KEYS : SCORE_KEYS;

	(void)thread;
	memset(score, 0, (size_t)n * sizeof(float));
	for (int h = 0, heads; h < s->config->index_heads; h += heads) {
		heads = s->config->index_heads - h < SCORE_HEADS ? s->config->index_heads - h
								 : SCORE_HEADS;
		k->dot_block(s->query + (size_t)h * dim, dim, heads,
			     s->keys + (size_t)item * SCORE_KEYS * dim, dim, n, (int)dim, dots,
			     SCORE_KEYS);
		for (int j = 0; j < heads; j++)
			for (int i = 0; i < n; i++) {
				float d = dots[j * SCORE_KEYS + i];
				score[i] += s->weight[h + j] * (d > 0 ? d : 0);
			}
	}
}

void indexer_run(const struct compute *cp, const struct model_config *c,
		 const struct attention_weights *w, struct kvcache *kv, const struct index_task *t,
		 struct index_work *work, struct index_sets *sets)
{
	indexer_keys(cp, c, w, kv, t, work);
	if (t->position + t->m > c->index_topk)
		make_queries(cp, c, w, t, work);
	for (int i = 0; i < t->m; i++) {
		int visible = t->position + i + 1, row = t->first + i;
		sets->count[row] = 0;
		if (visible <= c->index_topk)
			continue;
		struct scoring s = { c,
				     work->query + (size_t)i * (size_t)c->index_heads *
							   (size_t)c->index_dim,
				     work->weight + (size_t)i * (size_t)c->index_heads,
				     kv->index_keys[t->layer],
				     visible,
				     work->score };
		compute_run(cp, (double)visible * c->index_heads * c->index_dim,
			    (visible + SCORE_KEYS - 1) / SCORE_KEYS, score_item, &s);
		sets->count[row] = c->index_topk;
		int length = sets->length == INDEX_GROWING ? visible : sets->length;
		bool reference = length <= INDEX_REFERENCE_LENGTH;
		bool tied = topk_select(work->score, visible, length, c->index_topk,
					reference ? TIES_REFERENCE : TIES_LOWER_INDEX, work->items,
					sets->item + (size_t)row * (size_t)c->index_topk);
		if (tied && reference && t->position + i < sets->tied_from)
			sets->tied_from = t->position + i;
	}
}
