/* SPDX-License-Identifier: Apache-2.0
 *
 * A layer of experts.
 */
#include "engine/moe.h"

#include <math.h>
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

	/* Any one expert may be chosen by all rows; twice that lets a window hold many experts. */
	w->rows = rows;
	w->out_rows = 2 * rows > EXPERTS_OPEN ? 2 * rows : EXPERTS_OPEN;
	w->x = arena_take(a, n * hidden, sizeof(float));
	w->logits = arena_take(a, n * experts, sizeof(float));
	w->score = arena_take(a, n * experts, sizeof(float));
	w->choice = arena_take(a, entries, sizeof(*w->choice));
	w->start = arena_take(a, experts + 1, sizeof(*w->start));
	w->row = arena_take(a, entries, sizeof(*w->row));
	w->weight = arena_take(a, entries, sizeof(*w->weight));
	w->ids = arena_take(a, experts, sizeof(*w->ids));
	w->gathered = arena_take(a, n * hidden, sizeof(float));
	w->ffn = arena_take(a, one > shared ? one : shared, sizeof(float));
	w->out = arena_take(a, (size_t)w->out_rows * hidden, sizeof(float));
	w->routed = arena_take(a, n * hidden, sizeof(float));
	w->shared = arena_take(a, n * hidden, sizeof(float));
	w->gates = arena_take(a, c->shared_gate ? n : 0, sizeof(float));
	w->biases = arena_take(a, c->expert_biases ? 2 * (size_t)c->expert_width + hidden : 0,
			       sizeof(float));
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
	for (size_t i = 0; l->logit_bias && i < (size_t)m * (size_t)c->experts; i++)
		w->logits[i] += l->logit_bias[i % (size_t)c->experts];
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
		w->weight[at] = w->choice[i].weight;
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
		float open = 1.0f / (1.0f + expf(-w->gates[i]));
		for (size_t k = 0; k < hidden; k++)
			w->shared[i * hidden + k] *= open;
	}
}

static void run_shared(const struct compute *cp, const struct model_config *c,
		       const struct layer_weights *l, struct moe_work *w, int m)
{
	const struct ffn_weights *f = &l->ffn;

	for (int i = 0; f->width && i < m; i += SHARED_ROWS)
		ffn(cp, &f->gate, &f->up, &f->down, w->x + (size_t)i * (size_t)c->hidden,
		    min_int(m - i, SHARED_ROWS), w->ffn, w->shared + (size_t)i * (size_t)c->hidden);
	if (c->shared_gate)
		gate_shared(cp, c, &l->shared_gate, w, m);
}

static int rows_of(const struct moe_work *w, int expert)
{
	return w->start[expert + 1] - w->start[expert];
}

static void run_biased(const struct compute *cp, const struct model_config *c,
		       const struct layer_weights *l, const struct expert *e, int n,
		       struct moe_work *w, float *out)
{
	float *gate = w->biases, *up = gate + c->expert_width, *down = up + c->expert_width;
	const struct ffn_biases b = { gate, up, down, c->act_limit };

	kernel()->dequant(&l->gate_bias, e->id, 1, gate, 0);
	kernel()->dequant(&l->up_bias, e->id, 1, up, 0);
	kernel()->dequant(&l->down_bias, e->id, 1, down, 0);
	ffn_biased(cp, &e->gate, &e->up, &e->down, &b, w->gathered, n, w->ffn, out);
}

static void run_expert(const struct compute *cp, const struct model_config *c,
		       const struct layer_weights *l, const struct expert *e, struct moe_work *w,
		       float *out)
{
	const int32_t *row = w->row + w->start[e->id];
	size_t hidden = (size_t)c->hidden;
	int n = rows_of(w, e->id);

	for (int i = 0; i < n; i++)
		memcpy(w->gathered + (size_t)i * hidden, w->x + (size_t)row[i] * hidden,
		       hidden * sizeof(float));
	if (c->act == ACT_CLAMPED)
		run_biased(cp, c, l, e, n, w, out);
	else
		ffn(cp, &e->gate, &e->up, &e->down, w->gathered, n, w->ffn, out);
}

/* What one expert gave, to be added to the rows that chose it. */
struct addition {
	int hidden;
	const int32_t *row;
	const float *weight, *out;
	float *to;
};

static void add_row(void *arg, int i, int thread)
{
	const struct addition *a = arg;

	(void)thread;
	kernel()->axpy(a->to + (size_t)a->row[i] * (size_t)a->hidden, a->weight[i],
		       a->out + (size_t)i * (size_t)a->hidden, a->hidden);
}

/* Adds what one window gave, expert by expert in ascending order. Rows of one expert are different
 * ones, so they may be added side by side. */
static void add_window(const struct compute *cp, const struct model_config *c, struct moe_work *w,
		       const int32_t *ids, int n)
{
	const float *out = w->out;

	for (int i = 0; i < n; i++) {
		int first = w->start[ids[i]], rows = rows_of(w, ids[i]);
		struct addition a = { c->hidden, w->row + first, w->weight + first, out,
				      w->routed };
		compute_run(cp, (double)rows * c->hidden, rows, add_row, &a);
		out += (size_t)rows * (size_t)c->hidden;
	}
}

/* How many of the n experts make the next window: as many as may be open, if their rows fit. */
static int window_size(const struct moe_work *w, const int32_t *ids, int n)
{
	int rows = 0, count = 0;

	while (count < n && count < EXPERTS_OPEN && rows + rows_of(w, ids[count]) <= w->out_rows)
		rows += rows_of(w, ids[count++]);
	return count;
}

static float *place_in_window(const struct moe_work *w, const struct model_config *c,
			      const int32_t *ids, int id)
{
	size_t rows = 0;

	for (; *ids != id; ids++)
		rows += (size_t)rows_of(w, *ids);
	return w->out + rows * (size_t)c->hidden;
}

/* The experts ids[from .. to) of those asked for. */
static int run_window(const struct compute *cp, const struct model_config *c,
		      const struct layer_weights *l, struct experts *experts, struct moe_work *w,
		      int from, int to, char *why)
{
	for (int i = from; i < to; i++) {
		struct expert *e;
		int r = experts_next(experts, to, &e, why);
		if (r)
			return r;
		run_expert(cp, c, l, e, w, place_in_window(w, c, w->ids + from, e->id));
		experts_done(experts, e);
	}
	add_window(cp, c, w, w->ids + from, to - from);
	return 0;
}

int moe(const struct compute *cp, const struct model_config *c, const struct layer_weights *l,
	int layer, struct experts *experts, struct moe_work *w, float *h, int m, char *why)
{
	size_t hidden = (size_t)c->hidden, all = (size_t)m * hidden;

	for (int i = 0; i < m; i++)
		rms_norm(w->x + (size_t)i * hidden, h + (size_t)i * hidden, l->ffn_norm, c->hidden,
			 c->norm_eps);
	route(cp, c, l, w, m);
	int chosen = group_by_expert(c, w, m);
	experts_ask(experts, layer, w->ids, chosen);
	run_shared(cp, c, l, w, m);
	memset(w->routed, 0, all * sizeof(float));
	for (int from = 0; from < chosen;) {
		int to = from + window_size(w, w->ids + from, chosen - from);
		int r = run_window(cp, c, l, experts, w, from, to, why);
		if (r)
			return r;
		from = to;
	}
	for (size_t i = 0; i < all; i++)
		h[i] += l->ffn.width ? w->routed[i] + w->shared[i] : w->routed[i];
	return 0;
}
