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
 * Nothing is assumed about the layers' order, nor that there is only one reader: expert_rhythm.c
 * learns when a layer is visited next, and d^-b is its mean over what may come. While a prompt goes
 * through the running layer token by token, that layer is the nearest.
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
 * number a layer and at one layer's experts; an event some passes over the experts of its layer. All
 * that is 0.2 us for a use at 80 layers of 256 (make bench-policy). 49 bytes for each expert of the
 * model with those of the guess, 1,500 for each layer.
 */
#include "cachepolicy/expert_guess.h"
#include "cachepolicy/expert_lanes.h"
#include "cachepolicy/expert_rhythm.h"
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
	PART = 32,            /* numbers of which the least is found before it is looked for */
	MOST_ODDS = 20,       /* log odds that are as good as certain */
	PIECEMEAL_MEMORY = 64 /* visits */
};

/* Log odds of 0.9: routers that are run a layer early foretell more than nine experts in ten. */
static const float promise = 2.2f;

static const float UNKNOWN = -1; /* below any chance and any worth */

enum {
	CHOSEN = 1,  /* in the open visit */
	PROMISED = 2 /* foretold, and its layer not visited since */
};

struct place {
	uint32_t least;    /* expert that goes first, or CP_NONE; if its chance is known */
	uint32_t promised; /* experts with that flag */
	uint64_t changed;  /* bit p % 64 is set: the least odds of part p are to be looked for */
	bool stale;        /* odds are to be made anew */
};

struct expert {
	struct cp_order order;
	struct guess guess;
	struct rhythm rhythm;
	float *odds;    /* of those that may go; INFINITY for the others, and up to the stride */
	float *held;    /* 0 for those that may go, INFINITY for the others: added, not asked */
	uint8_t *flags; /* laid out as the arrays of guess, like odds */
	float *part;    /* the least odds of each PART of a layer; INFINITY up to whole lanes */
	uint32_t parts; /* of a layer, up to whole lanes */
	uint64_t all_parts; /* for place->changed */

	/* By layer. */
	struct place *place;
	float *chance;     /* p of its least; INFINITY if none may go; or UNKNOWN */
	float *factor;     /* worth of a certain use of its next visit */
	float *value;      /* chance times factor; UNKNOWN or INFINITY as chance is */
	uint32_t values;   /* layers, up to whole lanes */
	uint32_t *unknown; /* the layers of which that is unknown */
	uint32_t unknowns;

	bool moved;         /* time has: values are of before */
	uint32_t scored;    /* members of the open visit when the odds of its layer were made */
	uint32_t asked;     /* members of the open visit when a victim was last asked for */
	uint32_t piecemeal; /* visits for which members are still thought to come one by one */
	uint32_t newcomers; /* released while nothing was known of their layer */
	uint32_t near_layer, near; /* the last one that was looked up, and its first expert */
};

static struct expert *expert_of(struct cp_order *o)
{
	return (struct expert *)o;
}

static void forget_least(struct expert *e, uint32_t layer)
{
	if (e->chance[layer] < 0)
		return;
	e->chance[layer] = e->value[layer] = UNKNOWN;
	e->unknown[e->unknowns++] = layer;
}

/* The odds of a layer are to be made anew. */
static void expect_anew(struct expert *e, uint32_t layer)
{
	e->place[layer].stale = true;
	forget_least(e, layer);
}

static int create(struct cp_order *o, const char *inner)
{
	struct expert *e = expert_of(o);
	int err = guess_create(&e->guess, o->layers, o->experts);
	int err2 = rhythm_create(&e->rhythm, o->layers, (float)o->param[NEARNESS]);
	size_t n = (size_t)o->layers * e->guess.stride;

	(void)inner;
	e->parts = whole_lanes((e->guess.stride + PART - 1) / PART);
	e->all_parts = e->parts < 64 ? (UINT64_C(1) << e->parts) - 1 : ~UINT64_C(0);
	e->values = whole_lanes(o->layers);
	e->odds = calloc(n, sizeof(e->odds[0]));
	e->held = calloc(n, sizeof(e->held[0]));
	e->flags = calloc(n, sizeof(e->flags[0]));
	e->part = calloc((size_t)o->layers * e->parts, sizeof(e->part[0]));
	e->place = calloc(o->layers, sizeof(e->place[0]));
	e->chance = calloc(e->values, sizeof(e->chance[0]));
	e->factor = calloc(e->values, sizeof(e->factor[0]));
	e->value = calloc(e->values, sizeof(e->value[0]));
	e->unknown = calloc(o->layers, sizeof(e->unknown[0]));
	if (err || err2 || !e->odds || !e->held || !e->flags || !e->part || !e->place ||
	    !e->chance || !e->factor || !e->value || !e->unknown)
		return -ENOMEM;
	for (size_t k = 0; k < n; k++)
		e->odds[k] = e->held[k] = INFINITY;
	for (uint32_t l = 0; l < e->values; l++) {
		e->chance[l] = e->value[l] = INFINITY;
		e->factor[l] = 1;
	}
	for (size_t p = 0; p < (size_t)o->layers * e->parts; p++)
		e->part[p] = INFINITY;
	for (uint32_t l = 0; l < o->layers; l++)
		expect_anew(e, l);
	e->moved = true;
	return 0;
}

static void destroy(struct cp_order *o)
{
	struct expert *e = expert_of(o);

	guess_destroy(&e->guess);
	rhythm_destroy(&e->rhythm);
	free(e->odds);
	free(e->held);
	free(e->flags);
	free(e->part);
	free(e->place);
	free(e->chance);
	free(e->factor);
	free(e->value);
	free(e->unknown);
}

/* Of experts that nothing is known about the one that came first goes first. */
static float newcomer_odds(struct expert *e)
{
	return fminf(promise + (float)e->newcomers++ / 65536, 2 * promise);
}

static float chance_of(float odds)
{
	return lanes_chance(lanes_all(fmaxf(-MOST_ODDS, fminf(odds, MOST_ODDS))))[0];
}

static void set_least(struct expert *e, uint32_t layer, uint32_t x, float odds)
{
	e->place[layer].least = x;
	e->chance[layer] = chance_of(odds);
	e->value[layer] = e->chance[layer] * e->factor[layer];
}

static void score_layer(struct expert *e, uint32_t layer)
{
	size_t base = (size_t)layer * e->guess.stride;
	float *odds = e->odds + base;
	const float *held = e->held + base;
	const uint8_t *flags = e->flags + base;

	e->place[layer].stale = false;
	e->place[layer].changed = e->all_parts;
	if (!guess_knows(&e->guess, layer))
		return;
	guess_layer_log_odds(&e->guess, layer, held, odds);
	for (uint32_t x = 0; x < e->order.experts && e->place[layer].promised; x++)
		if (flags[x] & PROMISED)
			odds[x] = promise + held[x];
}

/* In these two, n is a multiple of LANES, and two vectors keep a processor from waiting for each
 * result before the next one. */
static inline float least_in(const float *from, uint32_t n)
{
	lanes even = lanes_load(from), odd = even;
	uint32_t k = LANES;

	for (; k + LANES < n; k += 2 * LANES) {
		odd = lanes_smaller(odd, lanes_load(from + k));
		even = lanes_smaller(even, lanes_load(from + k + LANES));
	}
	if (k < n)
		odd = lanes_smaller(odd, lanes_load(from + k));
	return lanes_least(lanes_smaller(even, odd));
}

/* Where the first is that is not above the least. A loop that ended there would end where no
 * processor foresees it. */
static inline uint32_t place_of(const float *from, uint32_t n, float least)
{
	lanes here = { 0, 1, 2, 3 }, none = lanes_all((float)n), even = none, odd = none;
	uint32_t k = 0;

	for (; k + LANES < n; k += 2 * LANES) {
		even = lanes_smaller(even, lanes_choose(lanes_load(from + k) <= least, here, none));
		odd = lanes_smaller(odd, lanes_choose(lanes_load(from + k + LANES) <= least,
						      here + LANES, none));
		here += 2 * LANES;
	}
	if (k < n)
		even = lanes_smaller(even, lanes_choose(lanes_load(from + k) <= least, here, none));
	return (uint32_t)lanes_least(lanes_smaller(even, odd));
}

static void find_least(struct expert *e, uint32_t layer)
{
	const float *odds = e->odds + (size_t)layer * e->guess.stride;
	float *part = e->part + (size_t)layer * e->parts, least;
	struct place *place = &e->place[layer];
	uint32_t stride = e->guess.stride, first;

	if (place->stale)
		score_layer(e, layer);
	for (; place->changed; place->changed &= place->changed - 1)
		for (uint32_t p = (uint32_t)__builtin_ctzll(place->changed); p * PART < stride;
		     p += 64)
			part[p] = least_in(odds + p * PART,
					   stride - p * PART < PART ? stride - p * PART : PART);
	least = least_in(part, e->parts);
	if (least < INFINITY) {
		first = place_of(part, e->parts, least) * PART;
		first += place_of(odds + first, stride - first < PART ? stride - first : PART,
				  least);
		set_least(e, layer, first, least);
	} else {
		place->least = CP_NONE;
		e->chance[layer] = e->value[layer] = INFINITY;
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
	forget_least(e, layer);
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
		if (!p->stale && odds[x] < INFINITY) {
			odds[x] = guess_log_odds(&e->guess, layer, x);
			p->changed |= UINT64_C(1) << x / PART % 64;
		}
	}
}

static void open_visit(struct expert *e, uint32_t layer)
{
	rhythm_visit(&e->rhythm, layer);
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
	size_t at; /* in odds, held and flags */
};

static struct spot spot_of(struct expert *e, uint32_t i)
{
	uint32_t x = i - e->near;

	/* Most come from the same layer as the one before; a division takes long. */
	if (x >= e->order.experts) {
		e->near_layer = i / e->order.experts;
		e->near = e->near_layer * e->order.experts;
		x = i - e->near;
	}
	return (struct spot){ e->near_layer, x, (size_t)e->near_layer * e->guess.stride + x };
}

static void set_promise(struct expert *e, struct spot s)
{
	e->place[s.layer].promised += !(e->flags[s.at] & PROMISED);
	e->flags[s.at] |= PROMISED;
}

static void use(struct cp_order *o, uint32_t i, uint32_t weight)
{
	struct expert *e = expert_of(o);
	struct spot s = spot_of(e, i);

	(void)weight;
	if (e->flags[s.at] & CHOSEN)
		return;
	if (!o->entry[i].member) {
		set_promise(e, s);
		return;
	}
	/* Events of several layers are no model's, but must not harm. */
	if (s.layer != e->guess.open) {
		close_visit(e);
		open_visit(e, s.layer);
	}
	if (e->asked)
		e->piecemeal = PIECEMEAL_MEMORY;
	e->flags[s.at] |= CHOSEN;
	guess_use(&e->guess, s.layer, s.x);
}

static void admit(struct cp_order *o, uint32_t i)
{
	if (!o->entry[i].member)
		set_promise(expert_of(o), spot_of(expert_of(o), i));
}

static void drop(struct cp_order *o, uint32_t i)
{
	struct expert *e = expert_of(o);
	struct spot s = spot_of(e, i);

	e->place[s.layer].promised -= (e->flags[s.at] & PROMISED) != 0;
	e->flags[s.at] &= CHOSEN;
}

static void hold(struct cp_order *o, uint32_t i)
{
	struct expert *e = expert_of(o);
	struct spot s = spot_of(e, i);

	e->odds[s.at] = e->held[s.at] = INFINITY;
	e->place[s.layer].changed |= UINT64_C(1) << s.x / PART % 64;
	if (e->place[s.layer].least == s.x)
		forget_least(e, s.layer);
}

static void release(struct cp_order *o, uint32_t i)
{
	struct expert *e = expert_of(o);
	struct spot s = spot_of(e, i);
	struct place *p = &e->place[s.layer];
	float odds, *part = &e->part[s.layer * e->parts + s.x / PART];

	e->held[s.at] = e->odds[s.at] = 0;
	if (e->flags[s.at] & CHOSEN) {
		/* Its event ends: close_visit() follows; under quota not before the next event of
		 * this layer, and until then it may go as well. */
		p->changed |= UINT64_C(1) << s.x / PART % 64;
		forget_least(e, s.layer);
		return;
	}
	if (s.layer == e->guess.open)
		score_running(e);
	if (!guess_knows(&e->guess, s.layer))
		odds = newcomer_odds(e);
	else if (e->flags[s.at] & PROMISED)
		odds = promise;
	else
		odds = guess_log_odds(&e->guess, s.layer, s.x);
	e->odds[s.at] = odds;
	*part = odds < *part ? odds : *part;
	if (e->chance[s.layer] >= 0 &&
	    (p->least == CP_NONE || odds < e->odds[s.at - s.x + p->least]))
		set_least(e, s.layer, s.x, odds);
}

static void move_values(struct expert *e)
{
	e->moved = false;
	rhythm_update(&e->rhythm);
	for (uint32_t l = 0; l < e->order.layers; l++)
		e->factor[l] = rhythm_worth(&e->rhythm, l);
	for (uint32_t l = 0; l < e->values; l += LANES) {
		lanes chance = lanes_load(e->chance + l);

		lanes_store(e->value + l,
			    lanes_choose(chance < 0, chance, chance * lanes_load(e->factor + l)));
	}
}

static float member_worth(const struct expert *e, uint32_t i)
{
	float odds = guess_member_log_odds(&e->guess, i % e->order.experts);

	return chance_of(odds) * e->factor[e->guess.open];
}

/* The least worth of all layers but one. */
static uint32_t cheapest(struct expert *e, uint32_t but, float *least)
{
	uint32_t l, left = 0;
	float kept = 0;

	for (uint32_t k = 0; k < e->unknowns; k++) {
		if (e->unknown[k] == but)
			e->unknown[left++] = but;
		else
			find_least(e, e->unknown[k]);
	}
	e->unknowns = left;
	if (but != CP_NONE) {
		kept = e->value[but];
		e->value[but] = INFINITY;
	}
	*least = least_in(e->value, e->values);
	l = place_of(e->value, e->values, *least);
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
	if (o->param[DECLINE] > 0 && want != CP_NONE && e->flags[spot_of(e, want).at] & CHOSEN) {
		score_running(e);
		if (member_worth(e, want) < least * (float)o->param[DECLINE])
			return CP_NONE;
	}
	return best;
}

static void tuned(struct cp_order *o)
{
	rhythm_tune(&expert_of(o)->rhythm, (float)o->param[NEARNESS]);
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
