/* SPDX-License-Identifier: Apache-2.0
 *
 * Grouped-query attention.
 */
#include "engine/attention_grouped.h"

#include <string.h>

#include "engine/min.h"
#include "engine/norm.h"
#include "engine/rope.h"

void attention_grouped_lay_out(struct attention_work *w, const struct model_config *c, int ctx,
			       int rows, int threads, struct arena *a)
{
	size_t n = (size_t)rows, f = sizeof(float), hidden = (size_t)c->hidden;
	size_t q = (size_t)c->heads * (size_t)c->head_dim, kv = (size_t)config_kv_width(c);

	w->keys = (size_t)ctx + 1; /* the sink */
	w->x = arena_take(a, n * hidden, f);
	w->q = arena_take(a, n * q, f);
	w->kv = arena_take(a, n * kv, f);
	w->absorbed = arena_take(a, n * q, f);
	w->mixed = arena_take(a, n * q, f);
	w->heads = arena_take(a, n * q, f);
	w->out = arena_take(a, n * hidden, f);
	blocks_lay_out(&w->blocks, c->head_dim, threads, a);
	w->score = arena_take(a, (size_t)threads * GROUPED_TILE * w->keys, f);
	w->key_rows = arena_take(a, (size_t)threads * ATTENTION_KEYS * (size_t)c->head_dim, f);
}

/* What the loops work on. */
struct job {
	const struct compute *compute;
	const struct model_config *config;
	const struct attention_weights *weights;
	struct kvcache *kv;
	const struct attention_task *task;
	struct attention_work *work;
	int group; /* query heads that share a head of keys */
	int tile, tiles;
	kernel_mix *mix;
};

static void clip(float *x, int n, float limit)
{
	for (int i = 0; i < n; i++) {
		if (x[i] > limit)
			x[i] = limit;
		else if (x[i] < -limit)
			x[i] = -limit;
	}
}

/* One vector of queries, keys or values of all heads: bias, norm and clipping, in that order. */
static void finish(const struct model_config *c, float *x, int heads, const float *bias,
		   const float *norm)
{
	int n = heads * c->head_dim;

	add_bias(x, bias, 1, n);
	if (norm && c->qk_norm == QK_NORM_WHOLE)
		rms_norm(x, x, norm, n, c->norm_eps);
	for (float *head = x; norm && c->qk_norm == QK_NORM_HEAD && head < x + n;
	     head += c->head_dim)
		rms_norm(head, head, norm, c->head_dim, c->norm_eps);
	if (c->clip_qkv != 0)
		clip(x, n, c->clip_qkv);
}

/* The queries of row i, turned and scaled, to where those of their group lie together. */
static void place_queries(const struct job *j, int i, const float *cs)
{
	const struct model_config *c = j->config;
	size_t dim = (size_t)c->head_dim, group = (size_t)j->group, m = (size_t)j->task->m;
	float *q = j->work->q + (size_t)i * (size_t)c->heads * dim;

	finish(c, q, c->heads, j->weights->q_bias, j->weights->q_norm);
	for (size_t n = 0; n < (size_t)c->heads; n++) {
		size_t at = (n / group * m + (size_t)i) * group + n % group;
		float *to = j->work->absorbed + at * dim;
		rope_turn(q + n * dim, cs, c->rope, c->rope_interleave);
		for (size_t k = 0; k < dim; k++)
			to[k] = q[n * dim + k] * c->score_scale;
	}
}

/* One row after its projections: its queries into place, its keys and values into the cache. */
static void finish_row(void *arg, int i, int thread)
{
	const struct job *j = arg;
	const struct model_config *c = j->config;
	struct kvcache *kv = j->kv;
	const struct attention_weights *a = j->weights;
	const float *cs = j->task->angles + (size_t)i * (size_t)c->rope;
	float *key = j->work->kv + (size_t)i * (size_t)kv->width, *value = key + kv->width / 2;

	(void)thread;
	if (!j->task->keys_only)
		place_queries(j, i, cs);
	finish(c, key, c->kv_heads, a->k_bias, a->k_norm);
	finish(c, value, c->kv_heads, a->v_bias, NULL);
	for (int n = 0; n < c->kv_heads; n++)
		rope_turn(key + (size_t)n * (size_t)c->head_dim, cs, c->rope, c->rope_interleave);
	kvcache_put(kv, j->task->layer, j->task->position + i, key);
}

static void project(struct job *j, const float *norm, const float *h)
{
	const struct model_config *c = j->config;
	const struct compute *cp = j->compute;
	const struct attention_weights *a = j->weights;
	struct attention_work *w = j->work;
	size_t hidden = (size_t)c->hidden, width = (size_t)j->kv->width;
	const struct matmul all[] = { { &a->v, w->kv + width / 2, width },
				      { &a->k, w->kv, width },
				      { &a->q, w->q, (size_t)c->heads * (size_t)c->head_dim } };
	bool queries = !j->task->keys_only;
	int m = j->task->m;

	rms_norm_rows(cp, w->x, h, norm, m, c->hidden, c->norm_eps);
	matmuls(cp, all, queries ? 3 : 2, w->x, hidden, m);
	/* A number is normed and turned in the time of some 16 multiply-adds. */
	compute_run(cp, 16.0 * m * ((queries ? c->heads * c->head_dim : 0) + j->kv->width), m,
		    finish_row, j);
}

static int window_of(const struct job *j)
{
	return j->config->windowed[j->task->layer] ? j->config->window : 0;
}

/* The lowest key that a query at this position sees. */
static int first_key(const struct job *j, int position)
{
	return blocks_first_key(position, window_of(j));
}

/* Queries from .. to - 1 of those that share head n, row by row; keys lo .. hi - 1 are all that any
 * of them sees. */
struct tile {
	int n, from, to, lo, hi;
};

/* Where query i of head n has its numbers in one of the arrays by group. */
static float *place(const struct job *j, float *base, const struct tile *t, int i)
{
	size_t all = (size_t)j->task->m * (size_t)j->group;

	return base + ((size_t)t->n * all + (size_t)i) * (size_t)j->config->head_dim;
}

/* Some keys, or values, of the tile's head: m of them from s on. */
static const float *rows_of(const struct job *j, const struct tile *t, int s, int m, bool values,
			    float *buf, size_t *ld)
{
	int dim = j->config->head_dim, from = (values ? j->kv->width / 2 : 0) + t->n * dim;

	return kvcache_part(j->kv, j->task->layer, s, m, from, dim, buf, ld);
}

/* All queries of the tile with all its keys: what a query does not see is computed in vain, which
 * costs less than to leave it out. */
static void score_keys(const struct job *j, const struct tile *t, float *score, float *buf)
{
	int dim = j->config->head_dim;
	size_t ld;

	for (int s = t->lo, m; s < t->hi; s += m) {
		m = min_int(t->hi - s, ATTENTION_KEYS);
		const float *keys = rows_of(j, t, s, m, false, buf, &ld);
		kernel()->dot_block(place(j, j->work->absorbed, t, t->from), (size_t)dim,
				    t->to - t->from, keys, ld, m, dim, score + s - t->lo,
				    j->work->keys);
	}
}

/* The scores of query i become the shares of the keys: none for those that it does not see. The
 * sink takes part as one key more. */
static void share_out(const struct job *j, const struct tile *t, int i, float *score)
{
	const float *sinks = j->weights->sinks;
	int position = j->task->position + i / j->group, first = first_key(j, position) - t->lo;
	int end = position + 1 - t->lo, all = t->hi - t->lo;

	if (sinks)
		score[end] = sinks[t->n * j->group + i % j->group];
	kernel()->softmax(score + first, end - first + (sinks ? 1 : 0));
	memset(score, 0, (size_t)first * sizeof(*score));
	memset(score + end, 0, (size_t)(all - end) * sizeof(*score));
}

static void mix_values(const struct job *j, const struct tile *t, const float *score, float *buf)
{
	int dim = j->config->head_dim, count = t->to - t->from;
	float *out = place(j, j->work->mixed, t, t->from);
	size_t ld;

	memset(out, 0, (size_t)count * (size_t)dim * sizeof(float));
	for (int s = t->lo, m; s < t->hi; s += m) {
		m = min_int(t->hi - s, ATTENTION_KEYS);
		const float *values = rows_of(j, t, s, m, true, buf, &ld);
		kernel()->mix_block(score + s - t->lo, j->work->keys, count, values, ld, m, dim,
				    out, (size_t)dim);
	}
}

static struct tile tile_of(const struct job *j, int item)
{
	struct tile t = { .n = item / j->tiles, .from = item % j->tiles * j->tile };

	t.to = min_int(t.from + j->tile, j->task->m * j->group);
	t.lo = first_key(j, j->task->position + t.from / j->group);
	t.hi = j->task->position + (t.to - 1) / j->group + 1;
	return t;
}

static float *row_buffer(const struct job *j, int thread)
{
	return j->work->key_rows + (size_t)thread * ATTENTION_KEYS * (size_t)j->config->head_dim;
}

static void attend_tile(void *arg, int item, int thread)
{
	const struct job *j = arg;
	const struct attention_work *w = j->work;
	const struct tile t = tile_of(j, item);
	float *score = w->score + (size_t)thread * GROUPED_TILE * w->keys;
	float *buf = row_buffer(j, thread);

	score_keys(j, &t, score, buf);
	for (int i = t.from; i < t.to; i++)
		share_out(j, &t, i, score + (size_t)(i - t.from) * w->keys);
	mix_values(j, &t, score, buf);
}

/* The same by blocks of keys, of whole rows. */
static void attend_blocks(void *arg, int item, int thread)
{
	const struct job *j = arg;
	const struct tile t = tile_of(j, item);
	const float *sinks = j->weights->sinks;
	int dim = j->config->head_dim;
	float *buf = row_buffer(j, thread);
	struct block_queries q = { .n = t.to - t.from,
				   .dim = dim,
				   .v_dim = dim,
				   .position = j->task->position + t.from / j->group,
				   .group = j->group,
				   .window = window_of(j),
				   .q = place(j, j->work->absorbed, &t, t.from),
				   .ldq = (size_t)dim,
				   .out = place(j, j->work->mixed, &t, t.from),
				   .ldo = (size_t)dim,
				   .mix = j->mix };

	blocks_begin(&q, &j->work->blocks, thread, sinks ? sinks + t.n * j->group : NULL);
	for (int s = t.lo / BLOCK_KEYS * BLOCK_KEYS, m; s < t.hi; s += m) {
		size_t ld;
		m = min_int(t.hi - s, BLOCK_KEYS);
		const float *keys = rows_of(j, &t, s, m, false, buf, &ld);
		blocks_turn_keys(&q, 0, dim, keys, ld, m, 1);
		const float *values = rows_of(j, &t, s, m, true, buf, &ld);
		blocks_add(&q, s, m, values, ld);
	}
	blocks_end(&q);
}

/* What each head gave, back in the order of heads. */
static void gather_heads(const struct job *j)
{
	const struct model_config *c = j->config;
	size_t dim = (size_t)c->head_dim, heads = (size_t)c->heads, group = (size_t)j->group,
	       m = (size_t)j->task->m;

	for (size_t i = 0; i < m; i++)
		for (size_t n = 0; n < heads; n++)
			memcpy(j->work->heads + (i * heads + n) * dim,
			       j->work->mixed + ((n / group * m + i) * group + n % group) * dim,
			       dim * sizeof(float));
}

void attention_grouped(const struct compute *cp, const struct model_config *c,
		       const struct layer_weights *l, struct kvcache *kv,
		       const struct attention_task *t, struct attention_work *w, float *h)
{
	struct job job = { .compute = cp,
			   .config = c,
			   .weights = &l->attention,
			   .kv = kv,
			   .task = t,
			   .work = w,
			   .group = c->heads / c->kv_heads,
			   .mix = blocks_mix(cp, &l->attention.v) };
	int share = t->m * c->heads / (2 * cp->threads);
	bool blocks = t->blocks && job.group <= BLOCK_QUERIES;
	int unit = blocks ? job.group : 1, most = (blocks ? BLOCK_QUERIES : GROUPED_TILE) / unit;
	size_t hidden = (size_t)c->hidden;

	/* Smaller tiles where there would be too few for the threads. */
	job.tile = unit * (share < unit ? 1 : min_int(share / unit, most));
	job.tiles = (t->m * job.group + job.tile - 1) / job.tile;
	project(&job, l->attention_norm, h);
	if (t->keys_only)
		return;
	compute_run(cp, 2.0 * t->m * c->heads * (t->position + t->m) * c->head_dim,
		    c->kv_heads * job.tiles, blocks ? attend_blocks : attend_tile, &job);
	gather_heads(&job);
	matmul(cp, &l->attention.out, w->heads, (size_t)c->heads * (size_t)c->head_dim, t->m,
	       w->out, hidden);
	add_bias(w->out, l->attention.out_bias, t->m, c->hidden);
	for (size_t i = 0; i < (size_t)t->m * hidden; i++)
		h[i] += w->out[i];
}
