/* SPDX-License-Identifier: Apache-2.0
 *
 * Multi-head latent attention, expanded form.
 */
#include "engine/attention_expanded.h"

#include <string.h>

#include "engine/attention.h"
#include "engine/min.h"

void expanded_lay_out(struct expanded_work *w, const struct model_config *c, int keys, int threads,
		      struct arena *a)
{
	size_t nope = (size_t)c->nope, n = (size_t)threads;
	size_t tiles = (size_t)compute_tiles(keys);

	w->acts_bytes = acts_bytes(ACTS_ROWS, c->kv_lora);
	w->acts = arena_take(a, tiles, sizeof(*w->acts));
	w->codes = arena_take(a, tiles, w->acts_bytes);
	w->both = arena_take(a, n * BLOCK_KEYS * (nope + (size_t)c->v_dim), sizeof(float));
	w->wide = arena_take(a, n * (size_t)c->kv_lora * nope, sizeof(float));
}

/* What the loops work on. */
struct job {
	const struct compute *compute;
	const struct model_config *config;
	const struct attention_weights *weights;
	const struct kvcache *kv;
	const struct attention_task *task;
	struct attention_work *work;
	const struct wmat *values; /* the matrix that values come out of */
	kernel_mix *mix;
	int parts, per_part; /* of the queries, for each head */
};

/* One head, and queries from .. to - 1; buffers of the thread at work. */
struct part {
	int head, from, to, thread;
	float *both, *wide;
};

/* Latent vectors m of them from position s on, each a row of the cache. */
static const float *latents(const struct job *j, int s, int m, int thread)
{
	return kvcache_rows(j->kv, j->task->layer, NULL, s, m,
			    j->work->key_rows +
				    (size_t)thread * ATTENTION_KEYS * (size_t)j->kv->width);
}

/* The same codes serve all heads. */
static void quantise_item(void *arg, int tile, int thread)
{
	const struct job *j = arg;
	struct expanded_work *w = &j->work->expanded;
	int s = tile * ACTS_ROWS, n = min_int(j->task->position + j->task->m - s, ACTS_ROWS);

	acts_place(&w->acts[tile], n, j->config->kv_lora, wfmt_acts_group(j->values->fmt),
		   w->codes + (size_t)tile * w->acts_bytes);
	kernel()->quantise(latents(j, s, n, thread), (size_t)j->kv->width, &w->acts[tile]);
}

/* Rows first .. first + rows - 1 of a matrix times m latent vectors, into y. */
static void multiply(const struct job *j, const struct part *p, const struct wmat *w, int first,
		     int rows, int s, int m, const float *latent, float *y)
{
	const struct product product = { .w = w,
					 .x = latent,
					 .ldx = (size_t)j->kv->width,
					 .n = m,
					 .acts = j->work->expanded.acts + s / ACTS_ROWS,
					 .y = y,
					 .ldy = (size_t)j->config->nope +
						(size_t)j->config->v_dim };

	compute_product_rows(j->compute, p->thread, &product, first, rows);
}

/* Keys and values of positions s .. s + m - 1 into p->both. */
static void expand(const struct job *j, const struct part *p, int s, int m, const float *latent)
{
	const struct model_config *c = j->config;
	const struct attention_weights *w = j->weights;
	size_t ld = (size_t)c->nope + (size_t)c->v_dim;

	if (w->kv_b.rows) {
		multiply(j, p, &w->kv_b, p->head * (int)ld, (int)ld, s, m, latent, p->both);
		return;
	}
	for (int i = 0; i < m; i++)
		memset(p->both + (size_t)i * ld, 0, (size_t)c->nope * sizeof(float));
	j->mix(latent, (size_t)j->kv->width, m, p->wide, (size_t)c->nope, c->kv_lora, c->nope,
	       p->both, ld);
	multiply(j, p, &w->v_b, p->head * c->v_dim, c->v_dim, s, m, latent, p->both + c->nope);
}

static struct part part_of(const struct job *j, int item, int thread)
{
	const struct model_config *c = j->config;
	const struct expanded_work *w = &j->work->expanded;
	size_t t = (size_t)thread;
	int from = item % j->parts * j->per_part;

	return (struct part){ .head = item / j->parts,
			      .from = from,
			      .to = min_int(from + j->per_part, j->task->m),
			      .thread = thread,
			      .both = w->both +
				      t * BLOCK_KEYS * ((size_t)c->nope + (size_t)c->v_dim),
			      .wide = w->wide + t * (size_t)c->kv_lora * (size_t)c->nope };
}

static struct block_queries queries_of(const struct job *j, const struct part *p)
{
	const struct model_config *c = j->config;
	size_t ldq = (size_t)c->heads * ((size_t)c->nope + (size_t)c->rope),
	       ldo = (size_t)c->heads * (size_t)c->v_dim, head = (size_t)p->head;

	return (struct block_queries){ .n = p->to - p->from,
				       .dim = c->nope + c->rope,
				       .v_dim = c->v_dim,
				       .position = j->task->position + p->from,
				       .group = 1,
				       .q = j->work->q + (size_t)p->from * ldq +
					    head * ((size_t)c->nope + (size_t)c->rope),
				       .ldq = ldq,
				       .out = j->work->heads + (size_t)p->from * ldo +
					      head * (size_t)c->v_dim,
				       .ldo = ldo,
				       .mix = j->mix };
}

static void attend_part(void *arg, int item, int thread)
{
	const struct job *j = arg;
	const struct model_config *c = j->config;
	const struct part p = part_of(j, item, thread);
	struct block_queries q = queries_of(j, &p);
	size_t ld = (size_t)c->nope + (size_t)c->v_dim;
	int keys = j->task->position + p.to;

	if (!j->weights->kv_b.rows)
		kernel()->dequant(&j->weights->k_b, p.head * c->kv_lora, c->kv_lora, p.wide,
				  (size_t)c->nope);
	blocks_begin(&q, &j->work->blocks, thread, NULL);
	for (int s = 0, m; s < keys; s += m) {
		m = min_int(keys - s, BLOCK_KEYS);
		const float *latent = latents(j, s, m, thread);
		expand(j, &p, s, m, latent);
		blocks_turn_keys(&q, 0, c->nope, p.both, ld, m, c->score_scale);
		blocks_turn_keys(&q, c->nope, c->rope, latent + c->kv_lora, (size_t)j->kv->width, m,
				 c->score_scale);
		blocks_add(&q, s, m, p.both + c->nope, ld);
	}
	blocks_end(&q);
}

void expanded_run(const struct compute *cp, const struct model_config *c,
		  const struct attention_weights *weights, const struct kvcache *kv,
		  const struct attention_task *t, struct attention_work *w)
{
	struct job j = {
		.compute = cp,
		.config = c,
		.weights = weights,
		.kv = kv,
		.task = t,
		.work = w,
		.values = weights->kv_b.rows ? &weights->kv_b : &weights->v_b,
	};
	int all = t->position + t->m;
	double keys = all, expanding = keys * c->kv_lora * (c->nope + c->v_dim);

	/* Heads are enough work, unless the threads are many: a part expands all keys again. */
	j.parts = min_int((2 * cp->threads + c->heads - 1) / c->heads, t->m);
	j.per_part = (t->m + j.parts - 1) / j.parts;
	j.parts = (t->m + j.per_part - 1) / j.per_part;
	j.mix = blocks_mix(cp, j.values);
	if (compute_in_int8(cp, j.values))
		compute_run(cp, keys * c->kv_lora * 16, compute_tiles(all), quantise_item, &j);
	compute_run(cp, c->heads * (expanding + t->m * keys * (c->nope + c->rope + c->v_dim)),
		    c->heads * j.parts, attend_part, &j);
}
