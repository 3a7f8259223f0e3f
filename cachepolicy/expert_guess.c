/* SPDX-License-Identifier: Apache-2.0
 *
 * The guess: its inputs, their weights, and how both follow what is chosen. See expert_guess.h.
 *
 * The rates are kept as logarithms so that an expert which is not chosen costs nothing: all of a
 * layer decay together, by one number of the layer, and only those that were chosen are touched.
 */
#include "cachepolicy/expert_guess.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cachepolicy/expert_lanes.h"

enum {
	SEEDED_VISITS = 16, /* visits that a seed is worth against what comes */
	EAGER_VISITS = 256, /* from then on some experts of a layer teach, in turn: */
	TEACHERS = 32       /* so many at least; more do not make the weights better */
};

/* Shares of a new visit in the rates: 1 - 2^(-1/half-life). What is a half-life is of little
 * account: half or twice of either of the longer ones changed the mean hit rate of the first halves
 * of the traces by 0.01 percent points, another one between them by as little. The shortest is
 * above one half, so that it tells the last visit from all before. In the first visits the share is
 * 1/(visits + 4), so that a rate starts as a plain mean. */
static const float shares[GUESS_RATES] = { 0.52f, 0.0669670f, 0.0069075f };
static const float young = 4;

/* Logarithm of one half: a recent rate above it was chosen in the last visit. */
static const float half = -0.6931472f;
static const float least_rate = -7;      /* one below 1/1000 counts as this */
static const float rebase_below = -1000; /* keep the floats fine */
static const float most_odds = 12;       /* nearer to certain is nothing */

/* What the weights come to on most traces: a start, not a limit. The rate is that of Adagrad with
 * a window of 1,000 visits; a third or three times of it is as good on the traces. Without learning
 * all but one lose 0.1 points or less, and that one, of another model with five layers, loses 2. */
static const float start_weight[GUESS_INPUTS] = {
	[GUESS_RECENT] = 0.15f, [GUESS_FAST] = 0.1f, [GUESS_SLOW] = 0.25f,
	[GUESS_ECHO] = 0.45f,   [GUESS_LAST] = 0.2f,
};
static const float learning_rate = 0.03f, slope_memory = 0.999f, most_weight = 8;

/* What the next visit counts for in a rate, and what it makes of the visits before it. */
struct decay {
	float share, step; /* step = log(1 - share) */
	float sum; /* of the steps so far: log of what is left of a use of the first visit */
};

struct guess_layer {
	struct decay decay[GUESS_RATES];
	double heat; /* sum of what was seeded; 0: nothing */
};

static uint64_t visits_of(const struct guess *g, uint32_t layer)
{
	return g->past.layer[layer].visits;
}

/* For the next visit of this layer. */
static void set_shares(struct guess *g, uint32_t layer)
{
	struct guess_layer *l = &g->layer[layer];
	float before = (float)visits_of(g, layer) + (l->heat > 0 ? SEEDED_VISITS : 0);

	for (int r = 0; r < GUESS_RATES; r++) {
		float share = fmaxf(shares[r], 1 / (before + young));

		if (share < l->decay[r].share || l->decay[r].share <= 0)
			l->decay[r].step = logf(1 - share);
		l->decay[r].share = share;
	}
}

int guess_create(struct guess *g, uint32_t layers, uint32_t experts)
{
	uint32_t stride = whole_lanes(experts);
	size_t n = (size_t)layers * stride;
	int err;

	*g = (struct guess){
		.layers = layers, .experts = experts, .stride = stride, .open = GUESS_NO_LAYER
	};
	err = past_create(&g->past, layers, experts, stride);
	for (int r = 0; r < GUESS_RATES; r++) {
		g->rate[r] = calloc(n, sizeof(g->rate[r][0]));
		if (!g->rate[r])
			err = -ENOMEM;
	}
	g->echo = calloc(n, sizeof(g->echo[0]));
	g->layer = calloc(layers, sizeof(g->layer[0]));
	g->members = calloc(experts, sizeof(g->members[0]));
	g->fresh = calloc(stride, sizeof(g->fresh[0]));
	g->taught = calloc(stride, sizeof(g->taught[0]));
	g->teaches = calloc(stride, sizeof(g->teaches[0]));
	if (err || !g->echo || !g->layer || !g->members || !g->fresh || !g->taught || !g->teaches)
		return -ENOMEM;
	for (uint32_t x = 0; x < experts; x++)
		g->teaches[x] = 1;
	for (uint32_t l = 0; l < layers; l++)
		set_shares(g, l);
	memcpy(g->weight, start_weight, sizeof(g->weight));
	for (int k = 0; k < GUESS_INPUTS; k++)
		g->slope2[k] = 1;
	return 0;
}

void guess_destroy(struct guess *g)
{
	past_destroy(&g->past);
	for (int r = 0; r < GUESS_RATES; r++)
		free(g->rate[r]);
	free(g->echo);
	free(g->layer);
	free(g->members);
	free(g->fresh);
	free(g->taught);
	free(g->teaches);
}

bool guess_knows(const struct guess *g, uint32_t layer)
{
	return visits_of(g, layer) || g->layer[layer].heat > 0;
}

void guess_use(struct guess *g, uint32_t layer, uint32_t expert)
{
	if (g->open == GUESS_NO_LAYER) {
		g->open = layer;
		g->n = 0;
		g->fresh_n = UINT32_MAX;
	}
	g->members[g->n++] = expert;
}

uint32_t guess_last_size(const struct guess *g, uint32_t layer)
{
	return past_last_size(&g->past, layer);
}

/* Before anything of a layer was seen, all its experts are alike, or as they were seeded. */
static void start_rates(struct guess *g)
{
	const struct guess_layer *l = &g->layer[g->open];
	size_t base = (size_t)g->open * g->stride;
	float mean = (float)g->n / (float)g->experts;

	if (visits_of(g, g->open))
		return;
	for (uint32_t x = 0; x < g->experts; x++) {
		float rate = mean;

		if (l->heat > 0)
			rate = fminf(0.9f, (float)(g->n * (g->echo[base + x] / l->heat)));
		rate = logf(fmaxf(rate, mean / 10));
		for (int r = 0; r < GUESS_RATES; r++)
			g->rate[r][base + x] = rate;
	}
}

bool guess_preview(struct guess *g)
{
	if (g->open == GUESS_NO_LAYER || g->fresh_n == g->n)
		return false;
	start_rates(g);
	past_listen(&g->past, g->open, g->members, g->n, g->fresh);
	g->fresh_n = g->n;
	return true;
}

/* Where the inputs of a layer's experts are, and what they are weighed with. */
struct view {
	const float *recent, *fast, *slow, *echo;
	float recent_sum, fast_sum, slow_sum;
	float w[GUESS_INPUTS];
};

/* As of the last visit that was closed. */
static inline struct view view_closed(const struct guess *g, uint32_t layer)
{
	const struct decay *d = g->layer[layer].decay;
	size_t base = (size_t)layer * g->stride;
	struct view v = {
		.recent = g->rate[GUESS_RECENT] + base,
		.fast = g->rate[GUESS_FAST] + base,
		.slow = g->rate[GUESS_SLOW] + base,
		.echo = g->echo + base,
		.recent_sum = d[GUESS_RECENT].sum,
		.fast_sum = d[GUESS_FAST].sum,
		.slow_sum = d[GUESS_SLOW].sum,
	};

	memcpy(v.w, g->weight, sizeof(v.w));
	return v;
}

/* As if the open visit, if it is of this layer, were closed and this expert not in it. */
static inline struct view view_now(const struct guess *g, uint32_t layer)
{
	const struct decay *d = g->layer[layer].decay;
	struct view v = view_closed(g, layer);

	if (layer == g->open) {
		v.echo = g->fresh;
		v.recent_sum += d[GUESS_RECENT].step;
		v.fast_sum += d[GUESS_FAST].step;
		v.slow_sum += d[GUESS_SLOW].step;
	}
	return v;
}

/* The inputs of some experts in a row. */
struct inputs {
	lanes recent, fast, slow, echo;
	lane_bits last; /* all bits set, or none */
};

static inline lanes rate_of(lanes rate)
{
	return lanes_larger(rate, lanes_all(least_rate));
}

static inline struct inputs inputs_of(const struct view *v, size_t x)
{
	struct inputs in = { .recent = rate_of(lanes_load(v->recent + x) + v->recent_sum),
			     .fast = rate_of(lanes_load(v->fast + x) + v->fast_sum),
			     .slow = rate_of(lanes_load(v->slow + x) + v->slow_sum),
			     .echo = lanes_load(v->echo + x) };

	in.last = in.recent > half;
	return in;
}

static inline lanes odds_of(const struct view *v, const struct inputs *in)
{
	return v->w[GUESS_BIAS] + v->w[GUESS_RECENT] * in->recent + v->w[GUESS_FAST] * in->fast +
	       v->w[GUESS_SLOW] * in->slow + v->w[GUESS_ECHO] * in->echo +
	       lanes_choose(in->last, lanes_all(v->w[GUESS_LAST]), lanes_all(0));
}

void guess_inputs(const struct guess *g, uint32_t layer, uint32_t expert, float in[GUESS_INPUTS])
{
	struct view v = view_now(g, layer);
	struct inputs all = inputs_of(&v, expert / LANES * LANES);
	uint32_t k = expert % LANES;

	in[GUESS_RECENT] = all.recent[k];
	in[GUESS_FAST] = all.fast[k];
	in[GUESS_SLOW] = all.slow[k];
	in[GUESS_ECHO] = all.echo[k];
	in[GUESS_LAST] = all.last[k] ? 1 : 0;
	in[GUESS_BIAS] = 1;
}

/* Of a layer that was seeded and not yet visited; one expert in sixteen is what models choose. */
static float seeded_odds(const struct guess *g, uint32_t layer, uint32_t x)
{
	double heat = g->layer[layer].heat;

	if (heat <= 0)
		return 0;
	heat = g->echo[(size_t)layer * g->stride + x] / heat;
	return fmaxf(logf((float)heat * (float)g->experts / 16), least_rate);
}

static bool only_seeded(const struct guess *g, uint32_t layer)
{
	return visits_of(g, layer) == 0 && layer != g->open;
}

void guess_layer_log_odds(const struct guess *g, uint32_t layer, const float *plus, float *odds)
{
	struct view v = view_now(g, layer);
	uint32_t stride = g->stride;

	if (only_seeded(g, layer)) {
		for (uint32_t x = 0; x < stride; x++)
			odds[x] = seeded_odds(g, layer, x) + plus[x];
		return;
	}
	for (size_t x = 0; x < stride; x += LANES) {
		struct inputs in = inputs_of(&v, x);

		lanes_store(odds + x, odds_of(&v, &in) + lanes_load(plus + x));
	}
}

float guess_log_odds(const struct guess *g, uint32_t layer, uint32_t expert)
{
	struct view v = view_now(g, layer);
	struct inputs in;

	if (only_seeded(g, layer))
		return seeded_odds(g, layer, expert);
	in = inputs_of(&v, expert / LANES * LANES);
	return odds_of(&v, &in)[expert % LANES];
}

/* Rates with one use more. */
static inline lanes with_use(lanes rate, float share)
{
	return lanes_log(lanes_exp(rate) + share);
}

float guess_member_log_odds(const struct guess *g, uint32_t expert)
{
	const struct decay *d = g->layer[g->open].decay;
	struct view v = view_now(g, g->open);
	struct inputs in = inputs_of(&v, expert / LANES * LANES);

	in.recent = with_use(in.recent, d[GUESS_RECENT].share);
	in.fast = with_use(in.fast, d[GUESS_FAST].share);
	in.slow = with_use(in.slow, d[GUESS_SLOW].share);
	in.last = in.recent > half;
	return odds_of(&v, &in)[expert % LANES];
}

/* Those that teach at this visit: experts from *x to *end, whole lanes. Returns how many. A part
 * begins at the lane in which its share of the layer does, so none is without experts. */
static uint32_t choose_teachers(const struct guess *g, uint32_t *x, uint32_t *end)
{
	bool eager = g->visits < EAGER_VISITS || g->experts < TEACHERS;
	uint32_t parts = eager ? 1 : g->experts / TEACHERS;
	uint32_t part = (uint32_t)(g->visits % parts);

	*x = part * g->experts / parts / LANES * LANES;
	*end = part + 1 < parts ? (part + 1) * g->experts / parts / LANES * LANES : g->stride;
	return (*end < g->experts ? *end : g->experts) - *x;
}

/* The slope of the error by each weight, summed up over the experts from x to end. */
static void find_slope(const struct guess *g, const struct view *v, uint32_t x, uint32_t end,
		       float slope[GUESS_INPUTS])
{
	lanes recent = lanes_all(0), fast = recent, slow = recent, echo = recent, last = recent;
	lanes bias = recent, most = lanes_all(most_odds);

	for (; x < end; x += LANES) {
		struct inputs in = inputs_of(v, x);
		lanes odds = lanes_larger(-most, lanes_smaller(most, odds_of(v, &in)));
		lanes error = (lanes_load(g->taught + x) - lanes_chance(odds)) *
			      lanes_load(g->teaches + x);

		recent += error * in.recent;
		fast += error * in.fast;
		slow += error * in.slow;
		echo += error * in.echo;
		last += lanes_choose(in.last, error, lanes_all(0));
		bias += error;
	}
	slope[GUESS_RECENT] = lanes_sum(recent);
	slope[GUESS_FAST] = lanes_sum(fast);
	slope[GUESS_SLOW] = lanes_sum(slow);
	slope[GUESS_ECHO] = lanes_sum(echo);
	slope[GUESS_LAST] = lanes_sum(last);
	slope[GUESS_BIAS] = lanes_sum(bias);
}

/* One step of the regression. */
static void learn(struct guess *g)
{
	struct view v = view_closed(g, g->open);
	float slope[GUESS_INPUTS], scale;
	uint32_t x, end, teachers = choose_teachers(g, &x, &end);

	scale = sqrtf((float)g->experts) / (float)teachers;
	for (uint32_t k = 0; k < g->n; k++)
		g->taught[g->members[k]] = 1;
	find_slope(g, &v, x, end, slope);
	for (uint32_t k = 0; k < g->n; k++)
		g->taught[g->members[k]] = 0;
	for (int k = 0; k < GUESS_INPUTS; k++) {
		float s = slope[k] * scale, *w = &g->weight[k];

		g->slope2[k] = slope_memory * g->slope2[k] + s * s;
		*w += learning_rate * s / sqrtf(g->slope2[k]);
		*w = *w < -most_weight ? -most_weight : *w > most_weight ? most_weight : *w;
	}
}

/* Adds a use to the rates of four experts, which may be the same ones. */
static inline void add_to_lanes(float *rate, const struct decay *d, uint32_t a, uint32_t b,
				uint32_t c, uint32_t e)
{
	lanes r = { rate[a], rate[b], rate[c], rate[e] };

	r = with_use(rate_of(r + d->sum), d->share) - d->sum;
	rate[a] = r[0];
	rate[b] = r[1];
	rate[c] = r[2];
	rate[e] = r[3];
}

/* Decays the open layer's rates by its visit and adds those that were chosen. */
static void add_uses(struct guess *g)
{
	struct decay *d = g->layer[g->open].decay;
	size_t base = (size_t)g->open * g->stride;
	const uint32_t *m = g->members;
	uint32_t last = g->n - 1;

	for (int r = 0; r < GUESS_RATES; r++)
		d[r].sum += d[r].step;
	for (uint32_t k = 0; k < g->n; k += LANES) {
		uint32_t a = m[k], b = m[k + 1 < last ? k + 1 : last];
		uint32_t c = m[k + 2 < last ? k + 2 : last], e = m[k + 3 < last ? k + 3 : last];

		for (int r = 0; r < GUESS_RATES; r++)
			add_to_lanes(g->rate[r] + base, &d[r], a, b, c, e);
	}
	for (int r = 0; r < GUESS_RATES; r++) {
		if (d[r].sum > rebase_below)
			continue;
		for (uint32_t x = 0; x < g->experts; x++)
			g->rate[r][base + x] += d[r].sum;
		d[r].sum = 0;
	}
}

void guess_close(struct guess *g)
{
	size_t base;

	if (g->open == GUESS_NO_LAYER)
		return;
	base = (size_t)g->open * g->stride;
	guess_preview(g);
	if (visits_of(g, g->open))
		learn(g);
	add_uses(g);
	memcpy(g->echo + base, g->fresh, g->stride * sizeof(g->echo[0]));
	past_add(&g->past, g->open, g->members, g->n);
	set_shares(g, g->open);
	g->visits++;
	g->open = GUESS_NO_LAYER;
}

void guess_seed(struct guess *g, uint32_t layer, uint32_t expert, double heat)
{
	struct guess_layer *l = &g->layer[layer];

	if (visits_of(g, layer) || layer == g->open)
		return;
	g->echo[(size_t)layer * g->stride + expert] += (float)heat;
	l->heat += heat;
	set_shares(g, layer);
}
