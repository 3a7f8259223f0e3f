/* SPDX-License-Identifier: Apache-2.0
 *
 * The rhythm of the layers: expert_rhythm.h.
 */
#include "cachepolicy/expert_rhythm.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cachepolicy/expert_lanes.h"

enum {
	ROUNDS = 4,       /* after so many a layer counts as gone, */
	MOST_AGES = 4096, /* or after so many steps: no model has a thousand layers */
	START = 2         /* gaps that count as seen at the start */
};

/* What remains of counts and of means at the next gap. Twice or a tenth as fast is as good. */
static const float memory = 0.95f;
/* What remains of a count below this is none. It would fade into numbers that are slow to reckon with
 * and, as shares of a worth, come to nothing: a worth of 0, where all are more. */
static const float forgotten = 1e-30f;
/* At the start: how many visits repeat the one before, after one that did not and one that did. All
 * others come after a round. */
static const float start_again[] = { 0.05f, 0.9f };
/* However sure it is, a round is that likely as well. */
static const float least_round = 0.05f;
/* A visit that repeats the one before is so many steps away. */
static const float again_distance = 0.25f;
/* Rows stand while no share differs by more than this from those that they were made of, and no
 * mean by more than this part. */
static const float same_share = 0.03f, same_mean = 0.02f;

/* 0 for none, else 1 + twice the binary logarithm. */
static uint32_t class_of(uint64_t gap)
{
	uint32_t octave;

	if (gap == 0)
		return 0;
	octave = 63 - (uint32_t)__builtin_clzll(gap);
	/* The upper half of an octave begins at the root of 2. */
	return 1 + 2 * octave + (gap * gap >= UINT64_C(2) << 2 * octave);
}

/* The longest gap of a class. */
static uint32_t end_of(uint32_t c)
{
	return c ? (uint32_t)ceil(exp2((double)c / 2)) - 1 : 0;
}

static void start_classes(struct rhythm *r)
{
	uint32_t round = class_of(r->round);

	for (uint32_t c = 0; c < r->classes; c++) {
		struct rhythm_class *k = &r->class[c];
		float again = start_again[c == 0] * START;

		k->mean = c ? fminf(exp2f((float)(c - 1) / 2 + 0.25f), (float)(r->ages - 1)) : 0;
		k->after[0] = again;
		k->after[round] += START - again;
		k->sum = START;
		r->end[c] = end_of(c) < r->ages ? end_of(c) + 1 : r->ages;
	}
	r->class[round].mean = (float)r->round;
}

int rhythm_create(struct rhythm *r, uint32_t layers, float nearness)
{
	size_t row;

	*r = (struct rhythm){ .last = UINT32_MAX };
	r->ages = layers < MOST_AGES / ROUNDS ? ROUNDS * layers + 1 : MOST_AGES;
	r->round = layers < r->ages ? layers : r->ages - 1;
	r->stride = whole_lanes(r->ages);
	r->classes = class_of(r->ages) + 1;
	row = r->stride * sizeof(float);
	assert(row && r->classes);
	r->visit = calloc(layers, sizeof(r->visit[0]));
	r->gap = calloc(layers, sizeof(r->gap[0]));
	r->visited = calloc(layers, sizeof(r->visited[0]));
	r->class = calloc(r->classes, sizeof(r->class[0]));
	r->power = calloc(2, row);
	r->reach = calloc(r->classes, row);
	r->worth = calloc(r->classes + 1, row);
	r->end = calloc(r->classes, sizeof(r->end[0]));
	if (!r->visit || !r->gap || !r->visited || !r->class || !r->power || !r->reach ||
	    !r->worth || !r->end)
		return -ENOMEM;
	memset(r->gap, (int)r->classes, layers);
	start_classes(r);
	rhythm_tune(r, nearness);
	return 0;
}

void rhythm_destroy(struct rhythm *r)
{
	free(r->visit);
	free(r->gap);
	free(r->visited);
	free(r->class);
	free(r->power);
	free(r->reach);
	free(r->worth);
	free(r->end);
}

void rhythm_tune(struct rhythm *r, float nearness)
{
	r->nearness = nearness;
	for (uint32_t d = 1; d < 2 * r->stride; d++)
		r->power[d] = powf((float)d / 2, -nearness);
	for (uint32_t age = 0; age < r->ages; age++)
		r->worth[r->classes * r->stride + age] = r->power[r->round];
	for (uint32_t c = 0; c < r->classes; c++) {
		memset(r->class[c].made_of, 0, sizeof(r->class[c].made_of));
		r->class[c].made_of_mean = -1;
	}
	r->changed = (UINT64_C(1) << r->classes) - 1;
}

/* A gap of class c came after one of class k. */
static void count(struct rhythm *r, struct rhythm_class *k, uint32_t c)
{
	for (uint32_t x = 0; x < RHYTHM_CLASSES; x += LANES) {
		lanes left = lanes_load(k->after + x) * memory;

		lanes_store(k->after + x, lanes_choose(left > forgotten, left, lanes_all(0)));
	}
	k->after[c]++;
	k->sum = k->sum * memory + 1;
	r->changed |= UINT64_C(1) << (k - r->class);
}

void rhythm_visit(struct rhythm *r, uint32_t layer)
{
	uint64_t gap;
	uint32_t c;

	r->step += layer != r->last;
	gap = (uint64_t)(r->step - r->visit[layer]);
	if (gap >= r->ages)
		gap = r->ages - 1;
	/* The first visit has no gap before it; as if it came as all do in the end. */
	c = r->visited[layer] ? class_of(gap) : class_of(r->round);
	if (r->visited[layer]) {
		count(r, &r->class[r->gap[layer]], c);
		r->class[c].mean += (1 - memory) * ((float)gap - r->class[c].mean);
	}
	r->visited[layer] = true;
	r->visit[layer] = r->step;
	r->gap[layer] = (uint8_t)c;
	r->last = layer;
}

/* Does the row still stand for what was learned? */
static bool stands(const struct rhythm_class *k)
{
	lanes most = lanes_all(0), sum = lanes_all(k->sum);

	for (uint32_t x = 0; x < RHYTHM_CLASSES; x += LANES) {
		lanes d = lanes_load(k->after + x) - lanes_load(k->made_of + x) * sum;

		most = lanes_larger(most, lanes_larger(d, -d));
	}
	return -lanes_least(-most) <= same_share * k->sum;
}

/* Of a class whose mean has moved. Overdue, a layer is half a step farther for each step that it
 * does not come. */
static bool make_reach(struct rhythm *r, uint32_t c)
{
	struct rhythm_class *k = &r->class[c];
	float *reach = r->reach + (size_t)c * r->stride, now = powf(again_distance, -r->nearness);

	if (k->made_of_mean >= 0 && fabsf(k->mean - k->made_of_mean) <= same_mean * k->mean)
		return false;
	k->made_of_mean = k->mean;
	for (uint32_t age = 0; age < r->end[c]; age++) {
		float left = k->mean - (float)age;

		if (left < 0.5f)
			left = 0.75f - left / 2;
		reach[age] = c ? r->power[(uint32_t)(2 * left + 0.5f)] : now;
	}
	return true;
}

/* The mean over the classes whose gaps are not shorter than the age already. What is older than any
 * gap that is known is as far as it has been away. */
static void make_worth(struct rhythm *r, uint32_t of)
{
	struct rhythm_class *k = &r->class[of];
	float *worth = r->worth + (size_t)of * r->stride, sum = 0;
	uint32_t round = class_of(r->round), age;

	memset(worth, 0, r->stride * sizeof(worth[0]));
	for (uint32_t c = 0; c < r->classes; c++) {
		const float *reach = r->reach + (size_t)c * r->stride;

		k->made_of[c] = k->after[c] / k->sum;
		k->share[c] = k->made_of[c] + (c == round ? least_round : 0);
		for (age = 0; age < r->end[c] && k->share[c] > 0; age += LANES)
			lanes_store(worth + age, lanes_load(worth + age) +
							 k->share[c] * lanes_load(reach + age));
	}
	/* From the oldest age down, as more and more classes reach so far. */
	age = r->ages;
	for (uint32_t c = r->classes; c-- > 0;) {
		uint32_t down = c ? r->end[c - 1] : 0;

		sum += k->share[c];
		while (age > down) {
			age--;
			worth[age] = sum > 0 ? worth[age] / sum : r->power[2 * age + 1];
		}
	}
}

void rhythm_update(struct rhythm *r)
{
	bool moved = false;

	for (uint64_t left = r->changed; left; left &= left - 1)
		moved |= make_reach(r, (uint32_t)__builtin_ctzll(left));
	for (uint32_t c = 0; c < r->classes; c++)
		if (moved || (r->changed >> c & 1 && !stands(&r->class[c])))
			make_worth(r, c);
	r->changed = 0;
}
