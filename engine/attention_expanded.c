/* SPDX-License-Identifier: Apache-2.0
 *
 * Multi-head latent attention, expanded form.
 */
#include "engine/attention_expanded.h"

#include <math.h>
#include <string.h>

#include "engine/attention.h"
#include "engine/min.h"

/* Of one query so far: the largest score, and the sum of the exponentials above it. */
struct softmax_state {
	float max;
	double sum;
};

void expanded_lay_out(struct expanded_work *w, const struct model_config *c, int keys, int threads,
		      struct arena *a)
{
	size_t nope = (size_t)c->nope, n = (size_t)threads, block = n * EXPANDED_KEYS;
	size_t tiles = (size_t)compute_tiles(keys);

	w->acts_bytes = acts_bytes(ACTS_ROWS, c->kv_lora);
	w->acts = arena_take(a, tiles, sizeof(*w->acts));
	w->codes = arena_take(a, tiles, w->acts_bytes);
	w->both = arena_take(a, block * (nope + (size_t)c->v_dim), sizeof(float));
	w->keys = arena_take(a, block * (nope + (size_t)c->rope), sizeof(float));
	w->wide = arena_take(a, n * (size_t)c->kv_lora * nope, sizeof(float));
	w->score = arena_take(a, block * EXPANDED_ROWS, sizeof(float));
	w->state = arena_take(a, n * EXPANDED_ROWS, sizeof(*w->state));
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
	int parts, per_part;       /* of the queries, for each head */
};

/* One head, and queries from .. to - 1; buffers of the thread at work. */
struct part {
	int head, from, to, thread;
	float *both, *keys, *wide, *score;
	struct softmax_state *state;
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
	kernel()->mix_block(latent, (size_t)j->kv->width, m, p->wide, (size_t)c->nope, c->kv_lora,
			    c->nope, p->both, ld);
	multiply(j, p, &w->v_b, p->head * c->v_dim, c->v_dim, s, m, latent, p->both + c->nope);
}

/* Columns s of `rows` rows: numbers of m vectors, ld apart, scaled. Sixteen rows at a time, so that
 * what is written stays in the nearest cache. */
static void turn(const float *from, size_t ld, int m, int rows, float scale, float *to)
{
	for (int d = 0, n; d < rows; d += n) {
		n = min_int(rows - d, 16);
		for (size_t s = 0; s < (size_t)m; s++)
			for (int i = d; i < d + n; i++)
				to[(size_t)i * EXPANDED_KEYS + s] =
					from[s * ld + (size_t)i] * scale;
	}
}

/* The keys of a block as columns: so scores are sums of rows, which need no adding up of lanes.
 * Columns that no key has are 0. */
static void turn_keys(const struct job *j, const struct part *p, int m, const float *latent)
{
	const struct model_config *c = j->config;
	size_t nope = (size_t)c->nope;

	if (m < EXPANDED_KEYS)
		memset(p->keys, 0, (nope + (size_t)c->rope) * EXPANDED_KEYS * sizeof(float));
	turn(p->both, nope + (size_t)c->v_dim, m, c->nope, c->score_scale, p->keys);
	turn(latent + c->kv_lora, (size_t)j->kv->width, m, c->rope, c->score_scale,
	     p->keys + nope * EXPANDED_KEYS);
}

/* The scores of one query with the first n keys of a block become their shares, as far as they are
 * known; what the query has of earlier blocks is brought to the same measure. */
static void share_out(const struct job *j, struct softmax_state *state, float *score, int n,
		      float *out)
{
	float shrink;
	double sum = kernel()->softmax_part(score, n, &state->max, &shrink);

	memset(score + n, 0, (size_t)(EXPANDED_KEYS - n) * sizeof(float));
	state->sum = state->sum * (double)shrink + sum;
	for (int d = 0; shrink != 1 && d < j->config->v_dim; d++)
		out[d] *= shrink;
}

/* All queries of the part that see a block's keys s .. s + m - 1, with them. */
static void attend_block(const struct job *j, const struct part *p, int s, int m)
{
	const struct model_config *c = j->config;
	size_t q_dim = (size_t)c->nope + (size_t)c->rope, heads = (size_t)c->heads;
	size_t ld = heads * (size_t)c->v_dim, head = (size_t)p->head;
	int position = j->task->position;
	int from = s - position > p->from ? s - position : p->from, count = p->to - from;
	const float *q = j->work->q + ((size_t)from * heads + head) * q_dim;
	float *out = j->work->heads + (size_t)from * ld + head * (size_t)c->v_dim;

	memset(p->score, 0, (size_t)count * EXPANDED_KEYS * sizeof(float));
	kernel()->mix_block(q, heads * q_dim, count, p->keys, EXPANDED_KEYS, (int)q_dim,
			    EXPANDED_KEYS, p->score, EXPANDED_KEYS);
	for (int i = 0; i < count; i++)
		share_out(j, &p->state[from + i - p->from], p->score + (size_t)i * EXPANDED_KEYS,
			  min_int(m, position + from + i + 1 - s), out + (size_t)i * ld);
	kernel()->mix_block(p->score, EXPANDED_KEYS, count, p->both + c->nope,
			    (size_t)c->nope + (size_t)c->v_dim, m, c->v_dim, out, ld);
}

static struct part part_of(const struct job *j, int item, int thread)
{
	const struct model_config *c = j->config;
	const struct expanded_work *w = &j->work->expanded;
	size_t t = (size_t)thread, block = t * EXPANDED_KEYS;
	int from = item % j->parts * j->per_part;

	return (struct part){ .head = item / j->parts,
			      .from = from,
			      .to = min_int(from + j->per_part, j->task->m),
			      .thread = thread,
			      .both = w->both + block * ((size_t)c->nope + (size_t)c->v_dim),
			      .keys = w->keys + block * ((size_t)c->nope + (size_t)c->rope),
			      .wide = w->wide + t * (size_t)c->kv_lora * (size_t)c->nope,
			      .score = w->score + block * EXPANDED_ROWS,
			      .state = w->state + t * EXPANDED_ROWS };
}

static void attend_part(void *arg, int item, int thread)
{
	const struct job *j = arg;
	const struct model_config *c = j->config;
	struct part p = part_of(j, item, thread);
	int keys = j->task->position + p.to;
	size_t ld = (size_t)c->heads * (size_t)c->v_dim;
	float *out = j->work->heads + (size_t)p.from * ld + (size_t)p.head * (size_t)c->v_dim;

	if (!j->weights->kv_b.rows)
		kernel()->dequant(&j->weights->k_b, p.head * c->kv_lora, c->kv_lora, p.wide,
				  (size_t)c->nope);
	for (int i = 0; i < p.to - p.from; i++) {
		p.state[i] = (struct softmax_state){ .max = -INFINITY };
		memset(out + (size_t)i * ld, 0, (size_t)c->v_dim * sizeof(float));
	}
	for (int s = 0, m; s < keys; s += m) {
		m = min_int(keys - s, EXPANDED_KEYS);
		const float *latent = latents(j, s, m, thread);
		expand(j, &p, s, m, latent);
		turn_keys(j, &p, m, latent);
		attend_block(j, &p, s, m);
	}
	for (int i = 0; i < p.to - p.from; i++)
		for (int d = 0; d < c->v_dim; d++)
			out[(size_t)i * ld + (size_t)d] *= (float)(1 / p.state[i].sum);
}

void expanded_run(const struct compute *cp, const struct model_config *c,
		  const struct attention_weights *weights, const struct kvcache *kv,
		  const struct attention_task *t, struct attention_work *w)
{
	struct job j = {
		cp, c, weights, kv, t, w, weights->kv_b.rows ? &weights->kv_b : &weights->v_b, 0, 0
	};
	int all = t->position + t->m;
	double keys = all, expanding = keys * c->kv_lora * (c->nope + c->v_dim);

	/* Heads are enough work, unless the threads are many: a part expands all keys again. */
	j.parts = min_int((2 * cp->threads + c->heads - 1) / c->heads, t->m);
	j.per_part = (t->m + j.parts - 1) / j.parts;
	j.parts = (t->m + j.per_part - 1) / j.per_part;
	if (compute_in_int8(cp, j.values))
		compute_run(cp, keys * c->kv_lora * 16, compute_tiles(all), quantise_item, &j);
	compute_run(cp, c->heads * (expanding + t->m * keys * (c->nope + c->rope + c->v_dim)),
		    c->heads * j.parts, attend_part, &j);
}
