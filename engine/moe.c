/* SPDX-License-Identifier: Apache-2.0
 *
 * A layer of experts.
 */
#include "engine/moe.h"

#include <string.h>

#include "engine/ffn.h"
#include "engine/norm.h"

/* The shared expert takes this many rows at a time, which bounds its activations. */
#define SHARED_ROWS 64

static int min_int(int a, int b)
{
	return a < b ? a : b;
}

void moe_lay_out(struct moe_work *w, const struct model_config *c, int rows, struct arena *a)
{
	size_t n = (size_t)rows, hidden = (size_t)c->hidden, experts = (size_t)c->experts;
	size_t entries = n * (size_t)c->topk;
	size_t one = n * 2 * (size_t)c->expert_width;
	size_t shared = (size_t)min_int(rows, SHARED_ROWS) * 2 * (size_t)c->shared_width;

	w->rows = rows;
	w->x = arena_take(a, n * hidden, sizeof(float));
	w->logits = arena_take(a, n * experts, sizeof(float));
	w->score = arena_take(a, n * experts, sizeof(float));
	w->choice = arena_take(a, entries, sizeof(*w->choice));
	w->start = arena_take(a, experts + 1, sizeof(*w->start));
	w->row = arena_take(a, entries, sizeof(*w->row));
	w->entry = arena_take(a, entries, sizeof(*w->entry));
	w->ids = arena_take(a, experts, sizeof(*w->ids));
	w->gathered = arena_take(a, n * hidden, sizeof(float));
	w->ffn = arena_take(a, one > shared ? one : shared, sizeof(float));
	w->out = arena_take(a, entries * hidden, sizeof(float));
	w->shared = arena_take(a, n * hidden, sizeof(float));
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

static void run_shared(const struct compute *cp, const struct model_config *c,
		       const struct ffn_weights *f, struct moe_work *w, int m)
{
	for (int i = 0; f->width && i < m; i += SHARED_ROWS)
		ffn(cp, &f->gate, &f->up, &f->down, w->x + (size_t)i * (size_t)c->hidden,
		    min_int(m - i, SHARED_ROWS), w->ffn, w->shared + (size_t)i * (size_t)c->hidden);
}

/* Into the expert's own rows of w->out. */
static void run_expert(const struct compute *cp, const struct model_config *c,
		       const struct expert *e, struct moe_work *w)
{
	int first = w->start[e->id], n = w->start[e->id + 1] - first;
	size_t hidden = (size_t)c->hidden;

	for (int i = 0; i < n; i++)
		memcpy(w->gathered + (size_t)i * hidden, w->x + (size_t)w->row[first + i] * hidden,
		       hidden * sizeof(float));
	ffn(cp, &e->gate, &e->up, &e->down, w->gathered, n, w->ffn,
	    w->out + (size_t)first * hidden);
}

/* In any order: as they arrive. */
static int run_experts(const struct compute *cp, const struct model_config *c,
		       struct experts *experts, struct moe_work *w, int n, char *why)
{
	for (int i = 0; i < n; i++) {
		struct expert *e;
		profile_enter(w->profile, PART_WAIT);
		int r = experts_next(experts, &e, why);
		profile_enter(w->profile, PART_EXPERTS);
		if (r)
			return r;
		if (experts_all_here(experts)) /* the drive would be idle from now on */
			lookahead_send(w->lookahead);
		run_expert(cp, c, e, w);
		experts_done(experts, e);
		progress_report(w->progress, "prompt", w->done + w->share * (i + 1) / n, w->total);
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
	size_t hidden = (size_t)c->hidden;

	profile_enter(w->profile, PART_ROUTER);
	for (int i = 0; i < m; i++)
		rms_norm(w->x + (size_t)i * hidden, h + (size_t)i * hidden, l->ffn_norm, c->hidden,
			 c->norm_eps);
	route(cp, c, l, w, m);
	int chosen = group_by_expert(c, w, m);
	experts_ask(experts, layer, w->ids, chosen);
	/* While the first ones come. */
	if (layer + 1 < c->layers && c->sparse[layer + 1])
		lookahead_guess(w->lookahead, cp, l + 1, layer + 1, h, m);
	profile_enter(w->profile, PART_EXPERTS);
	run_shared(cp, c, &l->ffn, w, m);
	int r = run_experts(cp, c, experts, w, chosen, why);
	if (!r)
		compute_run(cp, (double)m * c->hidden * c->topk, m, add_row, &sum);
	return r;
}
