/* SPDX-License-Identifier: Apache-2.0
 *
 * expert: the policy made for experts, and the default. Whoever earns the fewest hits for the time
 * that it would have to be kept goes first.
 *
 *	worth = p / d^b
 *
 * p: the probability that the expert is chosen at the next visit of its layer, which
 * expert_guess.c learns from what is chosen. d: the time until that visit, in layers, as a share of
 * a whole round. Layers come round in a fixed order, so d is known: the layer that was just visited
 * is one round away, the next one a step. An expert just before its visit is worth keeping though
 * it be an unlikely one: its place is free again soon. For an LRU below one round's working set it
 * is the first to go, and so LRU hits nothing there. (Hits per time kept is the measure of Beckmann,
 * Chen and Cidon, "LHD", NSDI 2018; for a chance that stays the same at each visit p/d is the best
 * that any stopping time reaches, the index of Gittins 1979.)
 *
 * Nothing is assumed about the layers' order: the round is the mean of the gaps seen, counted in
 * layer changes, so a prompt that visits one layer once for each token does not stretch it. How
 * likely the running layer is to be visited again at once is learned too; while a prompt runs,
 * its experts are worth p times that.
 *
 * Where members come one by one, with evictions between them (cp_open()), those that are to come
 * must not go for those that came first: as long as there are fewer than the last visit had, the
 * running layer's experts stay.
 *
 * What is admitted or touched outside any event was foretold by somebody: until the next visit of
 * its layer is over its p is taken as 0.9.
 *
 * An expert's size plays no part: a large one takes more room, but a hit on it saves as much more
 * reading.
 *
 * Odds change at the visits of their layer only. So a layer's least is looked for when the last one
 * is gone, the worths of all layers' leasts are made once an event, and a victim costs a look at one
 * number a layer and at one layer's experts; an event some passes over the experts of its layer. At
 * 75 layers of 256 that is 0.25 us for a use and 0.5 us for a victim (2.1 GHz). 45 bytes for each
 * expert of the model with those of the guess, 600 for each layer.
 */
#include "cachepolicy/expert_guess.h"
#include "cachepolicy/policies.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NEARNESS, DECLINE };

static const struct cp_param params[] = {
	/* 1 would be right if p were; with a p that is a guess, 0.5 to 1 are alike. Without any
	 * distance the mean hit rate is 0.4 percent points lower. */
	[NEARNESS] = { "nearness", "how much the distance to an expert's layer counts", 0, 2, 0.7 },
	/* Declined experts are misses all the same, and slower ones: worth it in no cache but one
	 * below a round's working set. */
	[DECLINE] = { "decline", "an expert worth less than this share of any other is not kept", 0,
		      1, 0 },
	{ .name = NULL },
};

enum {
	DISTANCES = 4,        /* rounds that a layer can be overdue before it counts as gone */
	PIECEMEAL_MEMORY = 64 /* visits */
};

/* Log odds of 0.9: routers that are run a layer early foretell more than nine experts in ten. */
static const float promise = 2.2f;

/* What remains of the old mean at a new gap, and at a new visit. */
static const float round_memory = 0.95f, again_memory = 0.9f;

static const float UNKNOWN = -1; /* below any worth */

enum {
	CHOSEN = 1,  /* in the open visit */
	PROMISED = 2 /* foretold, and its layer not visited since */
};

struct place {
	int64_t step;      /* of the last visit, if visited */
	uint32_t least;    /* expert that goes first, or CP_NONE; if the value is known */
	float chance;      /* its p */
	uint32_t promised; /* experts with that flag */
	bool visited;
	bool stale; /* odds are to be made anew */
};

struct expert {
	struct cp_order order;
	struct guess guess;
	float *odds;    /* of those that may go; INFINITY for the others, and up to the stride */
	float *held;    /* 0 for those that may go, INFINITY for the others: added, not asked */
	uint8_t *flags; /* laid out as the arrays of guess, like odds */
	float *scratch; /* odds of a layer */
	struct place *place;
	float *value;    /* by layer: worth of its least; INFINITY if none may go; or UNKNOWN */
	uint32_t values; /* layers, up to a multiple of GUESS_LANES; INFINITY beyond the layers */
	bool moved;      /* time has: values are of before */
	uint32_t scored; /* members of the open visit when the odds of its layer were made */
	uint32_t asked;  /* members of the open visit when a victim was last asked for */
	uint32_t piecemeal; /* visits for which members are still thought to come one by one */
	uint32_t newcomers; /* released while nothing was known of their layer */

	uint32_t last;  /* layer of the last visit, or CP_NONE */
	int64_t step;   /* layer changes */
	float round;    /* mean gap between the visits of a layer, in steps */
	float again[2]; /* chance that the next visit is of the same layer: after one that was not,
			   and one that was */
	bool was_again;
	float *worth; /* of certain use, by the steps since the last visit of its layer */
	uint32_t worths;
	float worth_round; /* for which round; 0: none */
};

static struct expert *expert_of(struct cp_order *o)
{
	return (struct expert *)o;
}

/* The odds of a layer are to be made anew. */
static void expect_anew(struct expert *e, uint32_t layer)
{
	e->place[layer].stale = true;
	e->value[layer] = UNKNOWN;
}

static int create(struct cp_order *o, const char *inner)
{
	struct expert *e = expert_of(o);
	int err = guess_create(&e->guess, o->layers, o->experts);
	size_t n = (size_t)o->layers * e->guess.stride;

	(void)inner;
	e->worths = DISTANCES * o->layers + 1;
	e->odds = calloc(n, sizeof(e->odds[0]));
	e->held = calloc(n, sizeof(e->held[0]));
	e->flags = calloc(n, sizeof(e->flags[0]));
	e->scratch = calloc(e->guess.stride, sizeof(e->scratch[0]));
	e->place = calloc(o->layers, sizeof(e->place[0]));
	e->values = (o->layers + GUESS_LANES - 1) / GUESS_LANES * GUESS_LANES;
	e->value = calloc(e->values, sizeof(e->value[0]));
	e->worth = calloc(e->worths, sizeof(e->worth[0]));
	if (err || !e->odds || !e->held || !e->flags || !e->scratch || !e->place || !e->value ||
	    !e->worth)
		return -ENOMEM;
	for (size_t k = 0; k < n; k++)
		e->odds[k] = e->held[k] = INFINITY;
	for (uint32_t l = 0; l < e->values; l++)
		e->value[l] = INFINITY;
	for (uint32_t l = 0; l < o->layers; l++)
		expect_anew(e, l);
	e->last = CP_NONE;
	e->round = (float)o->layers;
	e->again[0] = 0.05f;
	e->again[1] = 0.9f;
	e->moved = true;
	return 0;
}

static void destroy(struct cp_order *o)
{
	struct expert *e = expert_of(o);

	guess_destroy(&e->guess);
	free(e->odds);
	free(e->held);
	free(e->flags);
	free(e->scratch);
	free(e->place);
	free(e->value);
	free(e->worth);
}

/* Of experts that nothing is known about the one that came first goes first. */
static float newcomer_odds(struct expert *e)
{
	return fminf(promise + (float)e->newcomers++ / 65536, 2 * promise);
}

static float chance_of(float odds)
{
	return 1 / (1 + expf(-odds));
}

/* What a certain use of this layer's next visit is worth. */
static inline float worth_of(const struct expert *e, uint32_t layer)
{
	const struct place *p = &e->place[layer];
	uint64_t age = (uint64_t)(e->step - p->step);

	if (!p->visited)
		age = (uint64_t)(e->round / 2);
	else if (layer == e->last)
		return fmaxf(1, e->again[e->was_again] * e->round);
	return e->worth[age < e->worths ? age : e->worths - 1];
}

static void set_least(struct expert *e, uint32_t layer, uint32_t x, float odds)
{
	struct place *p = &e->place[layer];

	p->least = x;
	p->chance = chance_of(odds);
	e->value[layer] = p->chance * worth_of(e, layer);
}

static void score_layer(struct expert *e, uint32_t layer)
{
	size_t base = (size_t)layer * e->guess.stride;
	float *restrict odds = e->odds + base, *restrict made = e->scratch;
	const float *restrict held = e->held + base;
	const uint8_t *flags = e->flags + base;

	e->place[layer].stale = false;
	if (!guess_knows(&e->guess, layer))
		return;
	guess_layer_log_odds(&e->guess, layer, made);
	for (uint32_t x = 0; x < e->order.experts && e->place[layer].promised; x++)
		if (flags[x] & PROMISED)
			made[x] = promise;
	for (size_t x = 0; x < e->guess.stride; x += GUESS_LANES)
		for (size_t k = 0; k < GUESS_LANES; k++)
			odds[x + k] = made[x + k] + held[x + k];
}

/* The first of the least of n numbers, n being a multiple of GUESS_LANES. */
static uint32_t least_of(const float *odds, size_t n)
{
	float lane[GUESS_LANES], least;
	uint32_t i = 0;
	int32_t here = 0;

	memcpy(lane, odds, sizeof(lane));
	for (size_t at = GUESS_LANES; at < n; at += GUESS_LANES)
		for (size_t k = 0; k < GUESS_LANES; k++)
			lane[k] = odds[at + k] < lane[k] ? odds[at + k] : lane[k];
	least = lane[0];
	for (size_t k = 1; k < GUESS_LANES; k++)
		least = lane[k] < least ? lane[k] : least;
	for (size_t at = 0; !here; at += GUESS_LANES) {
		for (size_t k = 0; k < GUESS_LANES; k++)
			here |= -(int32_t)(odds[at + k] <= least);
		i = (uint32_t)at;
	}
	while (odds[i] > least)
		i++;
	return i;
}

static void find_least(struct expert *e, uint32_t layer)
{
	const float *odds = e->odds + (size_t)layer * e->guess.stride;
	uint32_t least;

	if (e->place[layer].stale)
		score_layer(e, layer);
	least = least_of(odds, e->guess.stride);
	if (odds[least] < INFINITY) {
		set_least(e, layer, least, odds[least]);
	} else {
		e->place[layer].least = CP_NONE;
		e->value[layer] = INFINITY;
	}
}

/* The odds of the running layer as its members stand now. */
static void score_running(struct expert *e)
{
	if (e->guess.open == GUESS_NO_LAYER)
		return;
	if (guess_preview(&e->guess) || e->scored != e->guess.n) {
		expect_anew(e, e->guess.open);
		e->scored = e->guess.n;
	}
}

/* If its layer's odds stood for these members already, only theirs are new. */
static void close_visit(struct expert *e)
{
	uint32_t layer = e->guess.open;
	size_t base = (size_t)layer * e->guess.stride;
	float *odds = e->odds + base;
	uint8_t *flags = e->flags + base;
	struct place *p;

	if (layer == GUESS_NO_LAYER)
		return;
	p = &e->place[layer];
	e->value[layer] = UNKNOWN;
	e->piecemeal -= e->piecemeal > 0;
	if (e->scored != e->guess.n || p->promised || !guess_knows(&e->guess, layer))
		p->stale = true;
	guess_close(&e->guess);
	for (uint32_t x = 0; x < e->order.experts && p->promised; x++) {
		p->promised -= (flags[x] & PROMISED) != 0;
		flags[x] &= CHOSEN;
	}
	for (uint32_t k = 0; k < e->guess.n; k++) {
		uint32_t x = e->guess.members[k];

		flags[x] = 0;
		if (!p->stale && odds[x] < INFINITY)
			odds[x] = guess_log_odds(&e->guess, layer, x);
	}
}

static void open_visit(struct expert *e, uint32_t layer)
{
	struct place *p = &e->place[layer];
	bool again = layer == e->last;
	float *chance = &e->again[e->was_again];

	if (e->last != CP_NONE) {
		*chance += (1 - again_memory) * ((float)again - *chance);
		e->was_again = again;
	}
	if (!again)
		e->step++;
	if (!again && p->visited) {
		float gap = fminf((float)(e->step - p->step), (float)(e->worths - 1));

		e->round += (1 - round_memory) * (gap - e->round);
	}
	p->step = e->step;
	p->visited = true;
	e->last = layer;
	e->scored = UINT32_MAX;
	e->asked = 0;
	e->moved = true;
}

static void begin(struct cp_order *o, uint64_t now)
{
	(void)now;
	close_visit(expert_of(o));
}

/* An expert of the order as the arrays know it. */
struct spot {
	uint32_t layer, x;
	float *odds, *held;
	uint8_t *flags;
	struct place *place;
};

static struct spot spot_of(struct expert *e, uint32_t i)
{
	uint32_t layer = i / e->order.experts, x = i % e->order.experts;
	size_t at = (size_t)layer * e->guess.stride + x;

	return (struct spot){
		layer, x, e->odds + at, e->held + at, e->flags + at, e->place + layer
	};
}

static void set_promise(const struct spot *s)
{
	s->place->promised += !(*s->flags & PROMISED);
	*s->flags |= PROMISED;
}

static void use(struct cp_order *o, uint32_t i, uint32_t weight)
{
	struct expert *e = expert_of(o);
	struct spot s = spot_of(e, i);

	(void)weight;
	if (*s.flags & CHOSEN)
		return;
	if (!o->entry[i].member) {
		set_promise(&s);
		return;
	}
	/* Events of several layers are no model's, but must not harm. */
	if (s.layer != e->guess.open) {
		close_visit(e);
		open_visit(e, s.layer);
	}
	if (e->asked)
		e->piecemeal = PIECEMEAL_MEMORY;
	*s.flags |= CHOSEN;
	guess_use(&e->guess, s.layer, s.x);
}

static void admit(struct cp_order *o, uint32_t i)
{
	struct spot s = spot_of(expert_of(o), i);

	if (!o->entry[i].member)
		set_promise(&s);
}

static void drop(struct cp_order *o, uint32_t i)
{
	struct spot s = spot_of(expert_of(o), i);

	s.place->promised -= (*s.flags & PROMISED) != 0;
	*s.flags &= CHOSEN;
}

static void hold(struct cp_order *o, uint32_t i)
{
	struct expert *e = expert_of(o);
	struct spot s = spot_of(e, i);

	*s.odds = *s.held = INFINITY;
	if (s.place->least == s.x)
		e->value[s.layer] = UNKNOWN;
}

static void release(struct cp_order *o, uint32_t i)
{
	struct expert *e = expert_of(o);
	struct spot s = spot_of(e, i);

	*s.held = 0;
	if (*s.flags & CHOSEN) {
		*s.odds = 0; /* its event ends: close_visit() follows */
		return;
	}
	if (s.layer == e->guess.open)
		score_running(e);
	if (!guess_knows(&e->guess, s.layer))
		*s.odds = newcomer_odds(e);
	else if (*s.flags & PROMISED)
		*s.odds = promise;
	else
		*s.odds = guess_log_odds(&e->guess, s.layer, s.x);
	if (e->value[s.layer] >= 0 &&
	    (s.place->least == CP_NONE || *s.odds < s.odds[(int64_t)s.place->least - s.x]))
		set_least(e, s.layer, s.x, *s.odds);
}

static void make_worths(struct expert *e)
{
	float nearness = (float)e->order.param[NEARNESS];

	e->worth_round = e->round;
	for (uint32_t age = 0; age < e->worths; age++) {
		float left = e->round - (float)age;

		/* Overdue: each step that it does not come, it is half a step farther. */
		if (left < 0.5f)
			left = 0.75f - left / 2;
		e->worth[age] = powf(left / e->round, -nearness);
	}
}

static void move_values(struct expert *e)
{
	e->moved = false;
	if (fabsf(e->round - e->worth_round) > 0.02f * e->round)
		make_worths(e);
	for (uint32_t l = 0; l < e->order.layers; l++)
		if (e->value[l] >= 0 && e->place[l].least != CP_NONE)
			e->value[l] = e->place[l].chance * worth_of(e, l);
}

static float member_worth(const struct expert *e, uint32_t i)
{
	float odds = guess_member_log_odds(&e->guess, i % e->order.experts);

	return chance_of(odds) * worth_of(e, e->guess.open);
}

/* The least worth of all layers but one. */
static uint32_t cheapest(struct expert *e, uint32_t but, float *least)
{
	float kept = but == CP_NONE ? 0 : e->value[but];
	uint32_t l;

	if (but != CP_NONE)
		e->value[but] = INFINITY;
	/* An unknown value is below all others, so that these become known first. */
	while (e->value[l = least_of(e->value, e->values)] < 0)
		find_least(e, l);
	*least = e->value[l];
	if (but != CP_NONE)
		e->value[but] = kept;
	return *least < INFINITY ? l * e->order.experts + e->place[l].least : CP_NONE;
}

static uint32_t victim(struct cp_order *o, uint32_t want)
{
	struct expert *e = expert_of(o);
	uint32_t open = e->guess.open, best = CP_NONE;
	float least;

	if (e->moved)
		move_values(e);
	if (open != GUESS_NO_LAYER) {
		e->asked = e->guess.n;
		if (e->piecemeal && e->guess.n < guess_last_size(&e->guess, open))
			best = cheapest(e, open, &least);
	}
	if (best == CP_NONE) {
		score_running(e);
		best = cheapest(e, CP_NONE, &least);
	}
	if (o->param[DECLINE] > 0 && want != CP_NONE && *spot_of(e, want).flags & CHOSEN) {
		score_running(e);
		if (member_worth(e, want) < least * (float)o->param[DECLINE])
			return CP_NONE;
	}
	return best;
}

static void tuned(struct cp_order *o)
{
	expert_of(o)->worth_round = 0;
	expert_of(o)->moved = true;
}

static void seed(struct cp_order *o, uint32_t i, double heat)
{
	struct expert *e = expert_of(o);
	uint32_t layer = i / o->experts;

	guess_seed(&e->guess, layer, i % o->experts, heat);
	expect_anew(e, layer);
}

const struct cp_policy cp_expert = {
	.name = "expert",
	.about = "made for experts: learned chance of use over the distance to the layer",
	.params = params,
	.size = sizeof(struct expert),
	.create = create,
	.destroy = destroy,
	.begin = begin,
	.use = use,
	.admit = admit,
	.remove = drop,
	.hold = hold,
	.release = release,
	.victim = victim,
	.tuned = tuned,
	.seed = seed,
};
