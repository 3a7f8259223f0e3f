/* SPDX-License-Identifier: Apache-2.0
 *
 * The guess: its inputs, their weights, and how both follow what is chosen. See expert_guess.h.
 *
 * The rates are kept as logarithms so that an expert which is not chosen costs nothing: all of a
 * layer decay together, by one number of the layer, and only those that were chosen are touched.
 */
#include "cachepolicy/expert_guess.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
	VISITS = 64,        /* bits in seen */
	PAST = 8,           /* room in past for so many members for each expert of the layer */
	SEEDED_VISITS = 16, /* visits that a seed is worth against what comes */
	EAGER_VISITS = 256, /* from then on some experts of a layer teach, in turn: */
	TEACHERS = 32       /* so many at least; more do not make the weights better */
};

/* Shares of a new visit in the rates: 1 - 2^(-1/half-life). What is a half-life is of little account:
 * half or twice of either changed the mean hit rate of the first halves of the traces by 0.01
 * percent points, a third one between them by as little. In the first visits the share is
 * 1/(visits + 4), so that a rate starts as a plain mean. */
static const float fast_share = 0.0669670f, slow_share = 0.0069075f;
static const float young = 4;

static const float least_log = -7;       /* a rate below 1/1000 is as good as none */
static const float rebase_below = -1000; /* keep the floats fine */
static const float no_use = 1.0f / 512;  /* GUESS_RECENT of none of the last eight visits */

/* What an earlier visit says counts by about the third power of its closeness: a share of equal
 * members (the second power is worse by 0.1 points, the fourth the same). The mean rate counts as
 * much as one visit of the same set. */
static const float mean_weight = 1.0f;

/* What the weights come to on most traces: a start, not a limit. The rate is that of Adagrad with
 * a window of 1,000 visits; a third or three times of it is as good on the traces. Without learning
 * all but one lose 0.1 points or less, and that one, of another model with five layers, loses 2. */
static const float start_weight[GUESS_INPUTS] = { 0, 0.15f, 0.1f, 0.25f, 0.45f, 0.2f };
static const float learning_rate = 0.03f, slope_memory = 0.999f, most_weight = 8;

struct guess_layer {
	float fast_decay, slow_decay; /* log of what is left of a use of the first visit */
	uint64_t visits;
	double heat;            /* sum of what was seeded; 0: nothing */
	uint64_t members;       /* of all visits together; that is where past goes on */
	uint64_t start[VISITS]; /* of a visit's members among them; visit modulo VISITS */
};

int guess_create(struct guess *g, uint32_t layers, uint32_t experts)
{
	uint32_t stride = (experts + GUESS_LANES - 1) / GUESS_LANES * GUESS_LANES;
	size_t n = (size_t)layers * stride;

	*g = (struct guess){
		.layers = layers, .experts = experts, .stride = stride, .open = GUESS_NO_LAYER
	};
	g->seen = calloc(n, sizeof(g->seen[0]));
	g->past = calloc((size_t)layers * experts, PAST * sizeof(g->past[0]));
	g->fast = calloc(n, sizeof(g->fast[0]));
	g->slow = calloc(n, sizeof(g->slow[0]));
	g->echo = calloc(n, sizeof(g->echo[0]));
	g->layer = calloc(layers, sizeof(g->layer[0]));
	g->members = calloc(experts, sizeof(g->members[0]));
	g->fresh = calloc(stride, sizeof(g->fresh[0]));
	if (!g->seen || !g->past || !g->fast || !g->slow || !g->echo || !g->layer || !g->members ||
	    !g->fresh)
		return -ENOMEM;
	memcpy(g->weight, start_weight, sizeof(g->weight));
	for (int k = 0; k < GUESS_INPUTS; k++)
		g->slope2[k] = 1;
	for (int bits = 0; bits < 256; bits++) {
		float rate = no_use;

		for (int v = 0; v < 8; v++)
			rate += (float)(bits >> v & 1) / (float)(2 << v);
		g->recent[bits] = logf(rate);
	}
	for (int k = 0; k < GUESS_CHANCES; k++)
		g->chance[k] = 1 / (1 + expf(GUESS_MOST_ODDS - (float)k / GUESS_ODDS_STEPS));
	return 0;
}

void guess_destroy(struct guess *g)
{
	free(g->seen);
	free(g->past);
	free(g->fast);
	free(g->slow);
	free(g->echo);
	free(g->layer);
	free(g->members);
	free(g->fresh);
}

bool guess_knows(const struct guess *g, uint32_t layer)
{
	return g->layer[layer].visits || g->layer[layer].heat > 0;
}

/* fmaxf() without its care for NaN, which there is none of. */
static inline float larger(float a, float b)
{
	return a > b ? a : b;
}

/* Natural logarithm of a normal positive number, within 0.007. */
static inline float quick_log(float x)
{
	union {
		float f;
		int32_t i;
	} u = { x }, m;

	m.i = (u.i & 0x7fffff) | 0x3f800000;
	return 0.6931472f *
	       ((float)((u.i >> 23) - 127) + (2 - m.f * (1.0f / 3)) * m.f - 1.6633333f);
}

/* What a visit counts for in the rates of its layer. */
static float share_of(const struct guess_layer *l, float share)
{
	float before = (float)l->visits + (l->heat > 0 ? SEEDED_VISITS : 0);

	return fmaxf(share, 1 / (before + young));
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

/* An earlier visit that is like the open one. */
struct alike {
	uint32_t ago; /* visits: bit in seen */
	float closeness;
};

static inline uint64_t start_of(const struct guess_layer *l, uint64_t visit)
{
	return l->start[visit % VISITS];
}

/* Finds them among the last VISITS visits. The third power is made of the sizes of the two sets
 * and of what they have in common. */
static uint32_t find_alike(const struct guess *g, struct alike found[VISITS])
{
	const uint64_t *seen = g->seen + (size_t)g->open * g->stride;
	const struct guess_layer *l = &g->layer[g->open];
	uint32_t common[VISITS] = { 0 }, most = 0, n = 0;
	float here = (float)g->n;

	for (uint32_t k = 0; k < g->n; k++)
		for (uint64_t bits = seen[g->members[k]]; bits; bits &= bits - 1)
			common[__builtin_ctzll(bits)]++;
	for (uint32_t v = 0; v < VISITS; v++)
		if (common[v] > most)
			most = common[v];
	for (uint32_t v = 0; v < VISITS && most; v++) {
		uint64_t visit = l->visits - 1 - v;
		float both = (float)common[v], there;

		/* Weaker ones by far are only noise. */
		if (3 * common[v] < most)
			continue;
		there = (float)((v ? start_of(l, visit + 1) : l->members) - start_of(l, visit));
		found[n].ago = v;
		found[n++].closeness = both * both * both / (here * there * larger(here, there));
	}
	return n;
}

/* Adds what an earlier visit says to those that came in the visit after it: for the last one that
 * is the open visit itself. */
static float add_successors(struct guess *g, const struct alike *a)
{
	const struct guess_layer *l = &g->layer[g->open];
	uint32_t room = PAST * g->experts, at, n;
	const uint16_t *past = g->past + (size_t)g->open * room;
	uint64_t visit = l->visits - a->ago, from, to;

	if (a->ago == 0) {
		for (uint32_t k = 0; k < g->n; k++)
			g->fresh[g->members[k]] += a->closeness;
		return a->closeness;
	}
	assert(room);
	from = start_of(l, visit);
	to = a->ago == 1 ? l->members : start_of(l, visit + 1);
	if (l->members - from > room)
		return 0; /* overwritten by large sets since */
	at = (uint32_t)(from % room);
	n = (uint32_t)(to - from);
	for (uint32_t k = 0; k < n; k++) {
		g->fresh[past[at]] += a->closeness;
		if (++at == room)
			at = 0;
	}
	return a->closeness;
}

/* Fills fresh: what came after the sets that the members are like. */
static void listen(struct guess *g)
{
	struct alike alike[VISITS];
	uint32_t n = find_alike(g, alike);
	float sum = mean_weight, scale, mean = mean_weight * (float)g->n / (float)g->experts;
	float *fresh = g->fresh;

	memset(fresh, 0, g->stride * sizeof(fresh[0]));
	for (uint32_t k = 0; k < n; k++)
		sum += add_successors(g, &alike[k]);
	scale = 1 / sum;
	for (size_t x = 0; x < g->stride; x += GUESS_LANES)
		for (size_t k = 0; k < GUESS_LANES; k++)
			fresh[x + k] = quick_log((fresh[x + k] + mean) * scale);
	g->fresh_n = g->n;
}

uint32_t guess_last_size(const struct guess *g, uint32_t layer)
{
	const struct guess_layer *l = &g->layer[layer];

	return l->visits ? (uint32_t)(l->members - start_of(l, l->visits - 1)) : 0;
}

/* Before anything of a layer was seen, all its experts are alike, or as they were seeded. */
static void start_rates(struct guess *g)
{
	const struct guess_layer *l = &g->layer[g->open];
	size_t base = (size_t)g->open * g->stride;
	float mean = (float)g->n / (float)g->experts;

	if (l->visits)
		return;
	for (uint32_t x = 0; x < g->experts; x++) {
		float rate = mean;

		if (l->heat > 0)
			rate = fminf(0.9f, (float)(g->n * (g->echo[base + x] / l->heat)));
		g->fast[base + x] = g->slow[base + x] = logf(fmaxf(rate, mean / 10));
	}
}

bool guess_preview(struct guess *g)
{
	if (g->open == GUESS_NO_LAYER || g->fresh_n == g->n)
		return false;
	start_rates(g);
	listen(g);
	return true;
}

/* Where the inputs of a layer's experts are. */
struct view {
	const uint64_t *seen;
	const float *fast, *slow, *echo;
	float fast_decay, slow_decay;
	int later,
		earlier; /* visits that are not yet in seen, and that are in it and must not be */
};

/* As of the last visit that was closed. */
static struct view view_closed(const struct guess *g, uint32_t layer)
{
	const struct guess_layer *l = &g->layer[layer];
	size_t base = (size_t)layer * g->stride;

	return (struct view){
		.seen = g->seen + base,
		.fast = g->fast + base,
		.slow = g->slow + base,
		.echo = g->echo + base,
		.fast_decay = l->fast_decay,
		.slow_decay = l->slow_decay,
	};
}

/* As if the open visit, if it is of this layer, were closed and this expert not in it. */
static struct view view_now(const struct guess *g, uint32_t layer)
{
	const struct guess_layer *l = &g->layer[layer];
	struct view v = view_closed(g, layer);

	if (layer == g->open) {
		v.echo = g->fresh;
		v.fast_decay += logf(1 - share_of(l, fast_share));
		v.slow_decay += logf(1 - share_of(l, slow_share));
		v.later = 1;
	}
	return v;
}

static inline void inputs_of(const struct guess *g, const struct view *v, uint32_t x,
			     float in[GUESS_INPUTS])
{
	unsigned seen = (unsigned)(v->seen[x] << v->later >> v->earlier) & 0xff;

	in[GUESS_BIAS] = 1;
	in[GUESS_RECENT] = g->recent[seen];
	in[GUESS_FAST] = larger(v->fast[x] + v->fast_decay, least_log);
	in[GUESS_SLOW] = larger(v->slow[x] + v->slow_decay, least_log);
	in[GUESS_ECHO] = v->echo[x];
	in[GUESS_LAST] = (float)(seen & 1);
}

static inline float odds_of(const struct guess *g, const float in[GUESS_INPUTS])
{
	const float *w = g->weight;

	/* No loop: a compiler that does not unroll one sends each input through memory. */
	return w[GUESS_BIAS] * in[GUESS_BIAS] + w[GUESS_RECENT] * in[GUESS_RECENT] +
	       w[GUESS_FAST] * in[GUESS_FAST] + w[GUESS_SLOW] * in[GUESS_SLOW] +
	       w[GUESS_ECHO] * in[GUESS_ECHO] + w[GUESS_LAST] * in[GUESS_LAST];
}

/* Of a layer that was seeded and not yet visited; one expert in sixteen is what models choose. */
static float seeded_odds(const struct guess *g, uint32_t layer, uint32_t x)
{
	double heat = g->layer[layer].heat;

	if (heat <= 0)
		return 0;
	heat = g->echo[(size_t)layer * g->stride + x] / heat;
	return fmaxf(logf((float)heat * (float)g->experts / 16), least_log);
}

static bool only_seeded(const struct guess *g, uint32_t layer)
{
	return g->layer[layer].visits == 0 && layer != g->open;
}

void guess_inputs(const struct guess *g, uint32_t layer, uint32_t expert, float in[GUESS_INPUTS])
{
	struct view v = view_now(g, layer);

	inputs_of(g, &v, expert, in);
}

/* odds_of() for some experts in a row. */
static inline void odds_of_lanes(const struct guess *g, const struct view *v, uint32_t x,
				 float *restrict odds)
{
	const float *restrict fast = v->fast + x, *restrict slow = v->slow + x;
	const float *restrict echo = v->echo + x, *w = g->weight;
	float last[GUESS_LANES], fast_decay = v->fast_decay, slow_decay = v->slow_decay;

	for (size_t k = 0; k < GUESS_LANES; k++) {
		unsigned seen = (unsigned)(v->seen[x + k] << v->later >> v->earlier) & 0xff;

		odds[k] = g->recent[seen];
		last[k] = (float)(seen & 1);
	}
	for (size_t k = 0; k < GUESS_LANES; k++)
		odds[k] = w[GUESS_BIAS] + w[GUESS_RECENT] * odds[k] +
			  w[GUESS_FAST] * larger(fast[k] + fast_decay, least_log) +
			  w[GUESS_SLOW] * larger(slow[k] + slow_decay, least_log) +
			  w[GUESS_ECHO] * echo[k] + w[GUESS_LAST] * last[k];
}

void guess_layer_log_odds(const struct guess *g, uint32_t layer, float *odds)
{
	bool seeded = only_seeded(g, layer);
	struct view v = view_now(g, layer);

	for (uint32_t x = 0; x < g->stride && seeded; x++)
		odds[x] = seeded_odds(g, layer, x);
	for (uint32_t x = 0; x < g->stride && !seeded; x += GUESS_LANES)
		odds_of_lanes(g, &v, x, odds + x);
}

float guess_log_odds(const struct guess *g, uint32_t layer, uint32_t expert)
{
	float in[GUESS_INPUTS];

	if (only_seeded(g, layer))
		return seeded_odds(g, layer, expert);
	guess_inputs(g, layer, expert, in);
	return odds_of(g, in);
}

float guess_member_log_odds(const struct guess *g, uint32_t expert)
{
	const struct guess_layer *l = &g->layer[g->open];
	struct view v = view_now(g, g->open);
	float in[GUESS_INPUTS];

	inputs_of(g, &v, expert, in);
	in[GUESS_RECENT] = g->recent[(v.seen[expert] << 1 | 1) & 0xff];
	in[GUESS_FAST] = logf(expf(in[GUESS_FAST]) + share_of(l, fast_share));
	in[GUESS_SLOW] = logf(expf(in[GUESS_SLOW]) + share_of(l, slow_share));
	in[GUESS_LAST] = 1;
	return odds_of(g, in);
}

static float chance_of(const struct guess *g, float odds)
{
	odds = -larger(-larger(odds, -GUESS_MOST_ODDS), -GUESS_MOST_ODDS);
	return g->chance[(int)((odds + GUESS_MOST_ODDS) * GUESS_ODDS_STEPS + 0.5f)];
}

/* One step of the regression. The open visit is in seen already, and in nothing else. */
static void learn(struct guess *g)
{
	bool eager = g->visits < EAGER_VISITS || g->experts < TEACHERS;
	uint32_t stride = eager ? 1 : g->experts / TEACHERS;
	struct view v = view_closed(g, g->open);
	float slope[GUESS_INPUTS] = { 0 };

	v.earlier = 1;
	for (uint32_t x = (uint32_t)(g->visits % stride); x < g->experts; x += stride) {
		float in[GUESS_INPUTS], error;

		inputs_of(g, &v, x, in);
		error = (float)(v.seen[x] & 1) - chance_of(g, odds_of(g, in));
		slope[GUESS_BIAS] += error * in[GUESS_BIAS];
		slope[GUESS_RECENT] += error * in[GUESS_RECENT];
		slope[GUESS_FAST] += error * in[GUESS_FAST];
		slope[GUESS_SLOW] += error * in[GUESS_SLOW];
		slope[GUESS_ECHO] += error * in[GUESS_ECHO];
		slope[GUESS_LAST] += error * in[GUESS_LAST];
	}
	for (int k = 0; k < GUESS_INPUTS; k++) {
		float s = slope[k] * (float)stride / sqrtf((float)g->experts), *w = &g->weight[k];

		g->slope2[k] = slope_memory * g->slope2[k] + s * s;
		*w += learning_rate * s / sqrtf(g->slope2[k]);
		*w = fminf(fmaxf(*w, -most_weight), most_weight);
	}
}

/* Decays a layer's rates by one visit and adds those that were chosen. */
static void add_use(const struct guess *g, float *rate, float *decay, float share)
{
	*decay += logf(1 - share);
	for (uint32_t k = 0; k < g->n; k++) {
		float *r = &rate[g->members[k]];

		*r = logf(expf(*r + *decay) + share) - *decay;
	}
	if (*decay > rebase_below)
		return;
	for (uint32_t x = 0; x < g->experts; x++)
		rate[x] += *decay;
	*decay = 0;
}

static void remember(struct guess *g, struct guess_layer *l)
{
	uint32_t room = PAST * g->experts, at;
	uint16_t *past = g->past + (size_t)g->open * room;

	assert(room);
	at = (uint32_t)(l->members % room);
	l->start[l->visits % VISITS] = l->members;
	for (uint32_t k = 0; k < g->n; k++) {
		past[at] = (uint16_t)g->members[k];
		if (++at == room)
			at = 0;
	}
	l->members += g->n;
	l->visits++;
}

void guess_close(struct guess *g)
{
	struct guess_layer *l;
	uint64_t *seen;
	size_t base;

	if (g->open == GUESS_NO_LAYER)
		return;
	l = &g->layer[g->open];
	base = (size_t)g->open * g->stride;
	seen = g->seen + base;
	guess_preview(g);
	for (size_t x = 0; x < g->stride; x += GUESS_LANES)
		for (size_t k = 0; k < GUESS_LANES; k++)
			seen[x + k] <<= 1;
	for (uint32_t k = 0; k < g->n; k++)
		seen[g->members[k]] |= 1;
	if (l->visits)
		learn(g);
	add_use(g, g->fast + base, &l->fast_decay, share_of(l, fast_share));
	add_use(g, g->slow + base, &l->slow_decay, share_of(l, slow_share));
	memcpy(g->echo + base, g->fresh, g->stride * sizeof(g->echo[0]));
	remember(g, l);
	g->visits++;
	g->open = GUESS_NO_LAYER;
}

void guess_seed(struct guess *g, uint32_t layer, uint32_t expert, double heat)
{
	struct guess_layer *l = &g->layer[layer];

	if (l->visits || layer == g->open)
		return;
	g->echo[(size_t)layer * g->stride + expert] += (float)heat;
	l->heat += heat;
}
