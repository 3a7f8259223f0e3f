/* SPDX-License-Identifier: Apache-2.0
 *
 * A layer of experts.
 */
#include "engine/moe.h"

#include <string.h>

#include "engine/ffn.h"
#include "engine/norm.h"

/* Of one expert. */
static size_t bias_floats(const struct model_config *c)
{
	return c->expert_biases ? 2 * (size_t)c->expert_width + (size_t)c->hidden : 0;
}

void moe_lay_out(struct moe_work *w, const struct model_config *c, int rows, struct arena *a)
{
	size_t n = (size_t)rows, hidden = (size_t)c->hidden, experts = (size_t)c->experts;
	size_t entries = n * (size_t)c->topk;

	w->x = arena_take(a, n * hidden, sizeof(float));
	w->logits = arena_take(a, n * experts, sizeof(float));
	w->score = arena_take(a, n * experts, sizeof(float));
	w->choice = arena_take(a, entries, sizeof(*w->choice));
	w->start = arena_take(a, experts + 1, sizeof(*w->start));
	w->row = arena_take(a, entries, sizeof(*w->row));
	w->entry = arena_take(a, entries, sizeof(*w->entry));
	w->ids = arena_take(a, experts, sizeof(*w->ids));
	/* Any one expert may be chosen by all rows; small ones are computed together. */
	ffn_lay_out(&w->ffn, rows > EXPERTS_BATCH ? rows : EXPERTS_BATCH, EXPERTS_BATCH, c->hidden,
		    c->expert_width > c->shared_width ? c->expert_width : c->shared_width, a);
	ffn_lay_out_rows(&w->rows, rows, c->hidden, a);
	w->out = arena_take(a, entries * hidden, sizeof(float));
	w->shared = arena_take(a, n * hidden, sizeof(float));
	w->gates = arena_take(a, c->shared_gate ? n : 0, sizeof(float));
	w->biases = arena_take(a, EXPERTS_BATCH * bias_floats(c), sizeof(float));
}

struct routing {
	const struct model_config *config;
	const float *bias;
	struct moe_work *work;
};

static void route_row(void *arg, int i, int thread)
{
	const struct routing *r = arg;
	size_t row = (size_t)i, experts = (size_t)r->config->experts;

	(void)thread;
	router_choose(r->config, r->work->logits + row * experts, r->bias,
		      r->work->score + row * experts,
		      r->work->choice + row * (size_t)r->config->topk);
}

static void route(const struct compute *cp, const struct model_config *c,
		  const struct layer_weights *l, struct moe_work *w, int m)
{
	struct routing r = { c, l->router_bias, w };

	matmul(cp, &l->router, w->x, (size_t)c->hidden, m, w->logits, (size_t)c->experts);
	add_bias(w->logits, l->logit_bias, m, c->experts);
	compute_run(cp, (double)m * c->experts * c->topk, m, route_row, &r);
}

/* Turns the choices round: which rows each expert serves. Returns the number of experts chosen. */
static int group_by_expert(const struct model_config *c, struct moe_work *w, int m)
{
	size_t entries = (size_t)m * (size_t)c->topk;
	int chosen = 0;

	memset(w->start, 0, ((size_t)c->experts + 1) * sizeof(*w->start));
	for (size_t i = 0; i < entries; i++)
		w->start[w->choice[i].expert + 1]++;
	for (int e = 0; e < c->experts; e++) {
		if (w->start[e + 1])
			w->ids[chosen++] = e;
		w->start[e + 1] += w->start[e];
	}
	for (size_t i = 0; i < entries; i++) { /* start[e] moves to the end of e's entries ... */
		int32_t at = w->start[w->choice[i].expert]++;
		w->row[at] = (int32_t)(i / (size_t)c->topk);
		w->entry[i] = at;
	}
	memmove(w->start + 1, w->start, (size_t)c->experts * sizeof(*w->start)); /* ... and back */
	w->start[0] = 0;
	return chosen;
}

/* Each row of the shared expert counts as much as its gate says (Qwen2-MoE). */
static void gate_shared(const struct compute *cp, const struct model_config *c,
			const struct wmat *gate, struct moe_work *w, int m)
{
	size_t hidden = (size_t)c->hidden;

	matmul(cp, gate, w->x, hidden, m, w->gates, 1);
	for (size_t i = 0; i < (size_t)m; i++) {
		float open = sigmoid(w->gates[i]);
		for (size_t k = 0; k < hidden; k++)
			w->shared[i * hidden + k] *= open;
	}
}

static void run_shared(const struct compute *cp, const struct model_config *c,
		       const struct layer_weights *l, struct moe_work *w, int m)
{
	const struct ffn_weights *f = &l->ffn;
	const struct ffn_task t = {
		.matrix = { &f->gate, &f->up, &f->down }, .x = w->x, .n = m, .y = w->shared
	};

	if (f->width)
		ffn_run(cp, &t, 1, &w->ffn);
	if (c->shared_gate)
		gate_shared(cp, c, &l->shared_gate, w, m);
}

static int rows_of(const struct moe_work *w, const struct expert *e)
{
	return w->start[e->id + 1] - w->start[e->id];
}

/* Those of one expert, as floats into `to` [2 * expert_width + hidden]. */
static struct ffn_biases biases_of(const struct model_config *c, const struct layer_weights *l,
				   int expert, float *to)
{
	float *up = to + c->expert_width, *down = up + c->expert_width;

	kernel()->dequant(&l->gate_bias, expert, 1, to, 0);
	kernel()->dequant(&l->up_bias, expert, 1, up, 0);
	kernel()->dequant(&l->down_bias, expert, 1, down, 0);
	return (struct ffn_biases){ to, up, down, c->act_limit };
}

/* Into each expert's own rows of w->out. */
static void run_batch(const struct compute *cp, const struct model_config *c,
		      const struct layer_weights *l, struct expert *const *e, int n,
		      struct moe_work *w)
{
	struct ffn_task task[EXPERTS_BATCH];
	struct ffn_biases biases[EXPERTS_BATCH];

	for (int i = 0; i < n; i++) {
		int first = w->start[e[i]->id];
		task[i] = (struct ffn_task){ .matrix = { &e[i]->gate, &e[i]->up, &e[i]->down },
					     .from = &w->rows,
					     .row = w->row + first,
					     .n = rows_of(w, e[i]),
					     .y = w->out + (size_t)first * (size_t)c->hidden };
		if (!c->expert_biases)
			continue;
		biases[i] = biases_of(c, l, e[i]->id, w->biases + (size_t)i * bias_floats(c));
		task[i].biases = &biases[i];
	}
	ffn_run(cp, task, n, &w->ffn);
}

/* The n experts asked for in any order: as they arrive, those that are there together. */
static int run_experts(const struct compute *cp, const struct model_config *c,
		       const struct layer_weights *l, struct experts *experts, struct moe_work *w,
		       int n, char *why)
{
	struct expert *batch[EXPERTS_BATCH], *next = NULL;

	for (int done = 0, count; done < n; done += count) {
		int rows = 0, r = 0;
		profile_enter(w->profile, PART_WAIT);
		if (!next)
			r = experts_next(experts, &next, why);
		if (r)
			return r;
		for (count = 0;
		     next && count < EXPERTS_BATCH && rows + rows_of(w, next) <= w->ffn.rows;) {
			rows += rows_of(w, next);
			batch[count++] = next;
			next = done + count < n ? experts_another(experts) : NULL;
		}
		profile_enter(w->profile, PART_EXPERTS);
		if (experts_all_here(experts)) /* the drive would be idle from now on */
			lookahead_send(w->lookahead);
		run_batch(cp, c, l, batch, count, w);
		for (int i = 0; i < count; i++)
			experts_done(experts, batch[i]);
		progress_report(w->progress, "prompt", w->done + w->share * (done + count) / n,
				w->total);
	}
	return 0;
}

struct sum {
	const struct compute *compute;
	const struct model_config *config;
	const struct moe_work *work;
	bool shared;
	float *h;
};

/* The experts of a row in ascending order, which is that of its choices; the shared one last. */
static void add_row(void *arg, int i, int thread)
{
	const struct sum *s = arg;
	const struct moe_work *w = s->work;
	size_t row = (size_t)i, hidden = (size_t)s->config->hidden, topk = (size_t)s->config->topk;
	float *routed = compute_rows(s->compute, thread), *h = s->h + row * hidden;

	memset(routed, 0, hidden * sizeof(float));
	for (size_t k = row * topk; k < (row + 1) * topk; k++)
		kernel()->axpy(routed, w->choice[k].weight, w->out + (size_t)w->entry[k] * hidden,
			       s->config->hidden);
	for (size_t k = 0; k < hidden; k++)
		h[k] += s->shared ? routed[k] + w->shared[row * hidden + k] : routed[k];
}

int moe(const struct compute *cp, const struct model_config *c, const struct layer_weights *l,
	int layer, struct experts *experts, struct moe_work *w, float *h, int m, char *why)
{
	struct sum sum = { cp, c, w, l->ffn.width != 0, h };

	w->rows.x = w->x;
	w->rows.n = m;
	w->rows.group = 0;
	profile_enter(w->profile, PART_ROUTER);
	rms_norm_rows(cp, w->x, h, l->ffn_norm, m, c->hidden, c->norm_eps);
	route(cp, c, l, w, m);
	int chosen = group_by_expert(c, w, m);
	experts_ask(experts, layer, w->ids, chosen);
	draft_cost_layer(w->drafts, layer, w->ids, chosen, w->start, w->row);
	/* While the first ones come. */
	if (layer + 1 < c->layers && c->sparse[layer + 1])
		lookahead_guess(w->lookahead, cp, l + 1, layer + 1, h, m);
	profile_enter(w->profile, PART_EXPERTS);
	run_shared(cp, c, l, w, m);
	int r = run_experts(cp, c, l, experts, w, chosen, why);
	if (!r)
		compute_run(cp, (double)m * c->hidden * c->topk, m, add_row, &sum);
	return r;
}
