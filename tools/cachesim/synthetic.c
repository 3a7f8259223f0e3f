/* SPDX-License-Identifier: Apache-2.0
 *
 * Made-up traces: synthetic.h.
 */
#include "tools/cachesim/synthetic.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/fail.h"

struct model {
	const char *name;
	uint32_t layers, experts, chosen; /* layers with experts */
	uint64_t bytes; /* of an expert with 4-bit weights, 1/16 more for scales */
};

#define FOUR_BIT(hidden, inner) (UINT64_C(3) * (hidden) * (inner)*17 / 32)

static const struct model models[] = {
	{ "glm-5.2", 75, 256, 8, FOUR_BIT(6144, 2048) },
	{ "deepseek-v3", 58, 256, 8, FOUR_BIT(7168, 2048) },
	{ "qwen3-235b", 94, 128, 8, FOUR_BIT(4096, 1536) },
	{ "qwen3-30b", 48, 128, 8, FOUR_BIT(2048, 768) },
	{ "gpt-oss-120b", 36, 128, 4, FOUR_BIT(2880, 2880) },
	{ "gpt-oss-20b", 24, 32, 4, FOUR_BIT(2880, 2880) },
	{ "olmoe-1b-7b", 16, 64, 8, FOUR_BIT(2048, 1024) },
	{ "mixtral-8x7b", 32, 8, 2, FOUR_BIT(4096, 14336) },
};

enum { TOKENS, ZIPF, TOPICS, DRIFT, REPEAT, PROMPT, SEED, KEYS };

static const struct {
	const char *name;
	double low, high, start;
	bool whole;
	const char *about;
} keys[KEYS] = {
	[TOKENS] = { "tokens", 1, 1e6, 500, true, "tokens that are decoded" },
	[ZIPF] = { "zipf", 0, 10, 0.8, false, "skew of popularity; 0 is none" },
	[TOPICS] = { "topics", 1, 64, 8, true, "topics, each with its own popularity" },
	[DRIFT] = { "drift", 0, 1, 0.01, false, "probability that a token begins another topic" },
	[REPEAT] = { "repeat", 0, 1, 0.3, false,
		     "probability that an expert is kept for the next" },
	[PROMPT] = { "prompt", 0, 1e6, 0, true, "tokens of a prompt before, an event a layer" },
	[SEED] = { "seed", 0, 1e9, 1, true, "another number, another trace" },
};

struct maker {
	const struct model *model;
	double value[KEYS];
	uint64_t random;
	double *sum;     /* experts + 1: sums of the probabilities by place */
	uint16_t *order; /* [topic][layer][place]: the expert there */
	uint16_t *last;  /* [layer][chosen]: those of the token before */
	uint32_t topic;
	bool started;
};

/* xorshift64*: uniform in [0, 1), the same everywhere. */
static double draw(struct maker *m)
{
	m->random ^= m->random >> 12;
	m->random ^= m->random << 25;
	m->random ^= m->random >> 27;
	return (double)((m->random * UINT64_C(2685821657736338717)) >> 11) * 0x1p-53;
}

static uint32_t draw_below(struct maker *m, uint32_t n)
{
	return (uint32_t)(draw(m) * n);
}

static uint16_t *order_of(struct maker *m, uint32_t topic, uint32_t layer)
{
	return m->order + ((size_t)topic * m->model->layers + layer) * m->model->experts;
}

static int prepare(struct maker *m, char *why)
{
	const struct model *d = m->model;
	uint32_t topics = (uint32_t)m->value[TOPICS];
	size_t orders = (size_t)topics * d->layers;

	assert(orders && d->experts);
	m->random = UINT64_C(0x9e3779b97f4a7c15) * ((uint64_t)m->value[SEED] + 1);
	m->sum = calloc(d->experts + 1, sizeof(m->sum[0]));
	m->order = calloc(orders * d->experts, sizeof(m->order[0]));
	m->last = calloc((size_t)d->layers * d->chosen, sizeof(m->last[0]));
	if (!m->sum || !m->order || !m->last)
		return fail(why, ENOMEM, "not enough memory for the trace");
	for (uint32_t r = 0; r < d->experts; r++)
		m->sum[r + 1] = m->sum[r] + pow(r + 1, -m->value[ZIPF]);
	for (size_t k = 0; k < orders; k++) {
		uint16_t *order = m->order + k * d->experts;

		for (uint32_t r = 0; r < d->experts; r++) {
			uint32_t other = draw_below(m, r + 1);

			order[r] = order[other];
			order[other] = (uint16_t)r;
		}
	}
	return 0;
}

/* The place whose share of the sums holds x. */
static uint32_t place_of(const struct maker *m, double x)
{
	uint32_t low = 0, high = m->model->experts - 1;

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (m->sum[middle + 1] > x)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static bool among(const uint16_t *experts, uint32_t n, uint16_t expert)
{
	for (uint32_t k = 0; k < n; k++)
		if (experts[k] == expert)
			return true;
	return false;
}

/* The experts of one token in one layer, without doubles. */
static void choose(struct maker *m, uint32_t layer)
{
	const struct model *d = m->model;
	uint16_t *last = m->last + (size_t)layer * d->chosen, fresh[16], expert;
	uint32_t n = 0;

	for (uint32_t k = 0; m->started && k < d->chosen; k++)
		if (draw(m) < m->value[REPEAT])
			fresh[n++] = last[k];
	while (n < d->chosen) {
		/* A steep law draws the same few for ever: after some tries, the next free place. */
		uint32_t place = place_of(m, draw(m) * m->sum[d->experts]), tries = 0;

		while (among(fresh, n, expert = order_of(m, m->topic, layer)[place]))
			place = ++tries < 8 ? place_of(m, draw(m) * m->sum[d->experts])
					    : (place + 1) % d->experts;
		fresh[n++] = expert;
	}
	memcpy(last, fresh, d->chosen * sizeof(last[0]));
}

static int add_layer(struct maker *m, struct trace *t, uint32_t layer, char *why)
{
	int err = 0;

	choose(m, layer);
	for (uint32_t k = 0; !err && k < m->model->chosen; k++)
		err = trace_use(t, layer, m->last[(size_t)layer * m->model->chosen + k], 1, why);
	return err;
}

static int add_tokens(struct maker *m, struct trace *t, char *why)
{
	uint32_t topics = (uint32_t)m->value[TOPICS];
	int err = 0;

	for (uint32_t layer = 0; !err && m->value[PROMPT] > 0 && layer < t->layers; layer++) {
		m->started = false;
		err = trace_event(t, t->events, why);
		for (double k = 0; !err && k < m->value[PROMPT]; k++) {
			err = add_layer(m, t, layer, why);
			m->started = true;
		}
	}
	for (double token = 0; !err && token < m->value[TOKENS]; token++) {
		if (draw(m) < m->value[DRIFT])
			m->topic = draw_below(m, topics);
		for (uint32_t layer = 0; !err && layer < t->layers; layer++) {
			err = trace_event(t, t->events, why);
			if (!err)
				err = add_layer(m, t, layer, why);
		}
		m->started = true;
	}
	return err;
}

static int parse_key(struct maker *m, char *setting, char *why)
{
	char *equals = strchr(setting, '='), *end;
	double value;

	if (equals)
		*equals = '\0';
	for (int k = 0; equals && k < KEYS; k++) {
		if (strcmp(setting, keys[k].name) != 0)
			continue;
		value = strtod(equals + 1, &end);
		if (end == equals + 1 || *end || !(value >= keys[k].low && value <= keys[k].high) ||
		    (keys[k].whole && value != floor(value)))
			return fail(why, EINVAL, "--synthetic: %s is a%s number from %g to %g",
				    keys[k].name, keys[k].whole ? " whole" : "", keys[k].low,
				    keys[k].high);
		m->value[k] = value;
		return 0;
	}
	return fail(why, EINVAL, "--synthetic: %s is no key=value that is known; see --list",
		    setting);
}

static int parse_spec(struct maker *m, char *spec, char *why)
{
	char *rest = spec, *name = strsep(&rest, ":"), *setting;
	int err = 0;

	for (size_t k = 0; k < sizeof(models) / sizeof(models[0]); k++)
		if (strcmp(models[k].name, name) == 0)
			m->model = &models[k];
	if (!m->model)
		return fail(why, EINVAL, "--synthetic: no model %s; see --list", name);
	for (int k = 0; k < KEYS; k++)
		m->value[k] = keys[k].start;
	while (!err && (setting = strsep(&rest, ",")))
		err = parse_key(m, setting, why);
	return err;
}

static int make_trace(struct maker *m, struct trace *t, char *why)
{
	const struct model *d = m->model;
	double uses = m->value[TOKENS] * d->layers * d->chosen;
	int err = trace_geometry(t, d->layers, d->experts, why);

	if (uses > TRACE_MAX_USES) /* said before the memory is filled */
		return fail(why, EINVAL, "--synthetic %s: %.0f uses are more than %u", t->name,
			    uses, TRACE_MAX_USES);
	for (uint32_t layer = 0; !err && layer < d->layers; layer++)
		err = trace_layer_bytes(t, layer, d->bytes, why);
	if (!err)
		err = prepare(m, why);
	if (!err)
		err = add_tokens(m, t, why);
	return err ? err : trace_finish(t, why);
}

int synthetic_trace(const char *spec, struct trace **out, char *why)
{
	struct maker m = { .model = NULL };
	struct trace *t = NULL;
	char *copy = strdup(spec);
	int err = copy ? parse_spec(&m, copy, why) : fail(why, ENOMEM, "not enough memory");

	free(copy);
	if (!err)
		err = trace_new(spec, &t, why);
	if (!err && m.model && t)
		err = make_trace(&m, t, why);
	free(m.sum);
	free(m.order);
	free(m.last);
	if (err)
		trace_free(t);
	else
		*out = t;
	return err;
}

void synthetic_list(FILE *f)
{
	fputs("Models:", f);
	for (size_t k = 0; k < sizeof(models) / sizeof(models[0]); k++)
		fprintf(f, " %s", models[k].name);
	fputs("\nKeys:\n", f);
	for (int k = 0; k < KEYS; k++)
		fprintf(f, "  %-8s %-46s (%g)\n", keys[k].name, keys[k].about, keys[k].start);
}
