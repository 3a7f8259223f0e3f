/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces in memory: trace.h. Everything that a reader hands in is checked here.
 */
#include "tools/cachesim/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/fail.h"

#define KEY_PART 0x10000 /* a key has 16 bits for each of its parts */

static int no_memory(char *why)
{
	return fail(why, ENOMEM, "not enough memory for the trace");
}

int trace_new(const char *name, struct trace **out, char *why)
{
	struct trace *t = calloc(1, sizeof(*t));

	if (!t)
		return no_memory(why);
	t->name = strdup(name);
	t->bytes = calloc(KEY_PART, sizeof(t->bytes[0]));
	t->place = calloc(KEY_PART, sizeof(t->place[0]));
	if (!t->name || !t->bytes || !t->place) {
		trace_free(t);
		return no_memory(why);
	}
	*out = t;
	return 0;
}

void trace_free(struct trace *t)
{
	if (!t)
		return;
	free(t->name);
	free(t->bytes);
	free(t->uses);
	free(t->ends);
	free(t->times);
	free(t->place);
	free(t);
}

/* Room for one more of this size, by doubling. */
static void *grown(void *array, size_t used, size_t *room, size_t size)
{
	size_t wanted = *room ? *room * 2 : 1024;
	void *bigger;

	if (used < *room)
		return array;
	bigger = reallocarray(array, wanted, size);
	if (bigger)
		*room = wanted;
	return bigger;
}

static size_t event_start(const struct trace *t)
{
	return t->events > 1 ? t->ends[t->events - 2] : 0;
}

static void drop_empty_event(struct trace *t)
{
	if (t->open && t->ends[t->events - 1] == event_start(t))
		t->events--;
	t->open = false;
}

int trace_event(struct trace *t, uint64_t time, char *why)
{
	size_t room = t->events_room;
	void *bigger;

	drop_empty_event(t);
	bigger = grown(t->times, t->events, &room, sizeof(t->times[0]));
	if (!bigger)
		return no_memory(why);
	t->times = bigger;
	bigger = grown(t->ends, t->events, &t->events_room, sizeof(t->ends[0]));
	if (!bigger)
		return no_memory(why);
	t->ends = bigger;
	t->times[t->events] = time;
	t->ends[t->events++] = t->n_uses;
	t->open = true;
	return 0;
}

int trace_use(struct trace *t, uint64_t layer, uint64_t expert, uint32_t weight, char *why)
{
	struct cp_use *seen;
	void *bigger;

	if (layer >= (t->layers ? t->layers : KEY_PART) ||
	    expert >= (t->experts ? t->experts : KEY_PART))
		return fail(why, EINVAL, "expert %" PRIu64 " of layer %" PRIu64 " is out of range",
			    expert, layer);
	if (t->place[expert] >= event_start(t) && t->place[expert] < t->n_uses &&
	    (t->uses[t->place[expert]].key & 0xffff) == expert) {
		seen = &t->uses[t->place[expert]];
		seen->weight =
			seen->weight > UINT32_MAX - weight ? UINT32_MAX : seen->weight + weight;
		return 0;
	}
	if (t->n_uses == TRACE_MAX_USES)
		return fail(why, EINVAL, "more than %u uses", TRACE_MAX_USES);
	bigger = grown(t->uses, t->n_uses, &t->uses_room, sizeof(t->uses[0]));
	if (!bigger)
		return no_memory(why);
	t->uses = bigger;
	t->uses[t->n_uses] =
		(struct cp_use){ cp_key_of((unsigned)layer, (unsigned)expert), weight };
	t->place[expert] = (uint32_t)t->n_uses++;
	t->ends[t->events - 1] = t->n_uses;
	if (layer > t->most_layer)
		t->most_layer = (uint32_t)layer;
	if (expert > t->most_expert)
		t->most_expert = (uint32_t)expert;
	return 0;
}

int trace_geometry(struct trace *t, uint64_t layers, uint64_t experts, char *why)
{
	if (t->layers || t->events)
		return fail(why, EINVAL, "the geometry is given twice, or after an event");
	if (layers < 1 || layers > KEY_PART || experts < 1 || experts > KEY_PART ||
	    layers * experts > TRACE_MAX_EXPERTS)
		return fail(why, EINVAL,
			    "%" PRIu64 " layers of %" PRIu64 " experts are none or more than %u",
			    layers, experts, TRACE_MAX_EXPERTS);
	t->layers = (uint32_t)layers;
	t->experts = (uint32_t)experts;
	return 0;
}

void trace_forget_head(struct trace *t)
{
	t->layers = t->experts = 0;
	t->sized = false;
	memset(t->bytes, 0, KEY_PART * sizeof(t->bytes[0]));
}

int trace_layer_bytes(struct trace *t, uint64_t layer, uint64_t bytes, char *why)
{
	/* 2^40 a piece: the sum over all experts stays below 2^63. */
	if (layer >= (t->layers ? t->layers : KEY_PART) || bytes < 1 || bytes > UINT64_C(1) << 40)
		return fail(why, EINVAL, "%" PRIu64 " bytes for an expert of layer %" PRIu64, bytes,
			    layer);
	if (t->events || (t->bytes[layer] && t->bytes[layer] != bytes))
		return fail(why, EINVAL,
			    "%" PRIu64 " bytes for an expert of layer %" PRIu64
			    " come after an event or after another size",
			    bytes, layer);
	t->bytes[layer] = bytes;
	t->sized = true;
	return 0;
}

/* Counts the passes; a layer of which experts are used must have a size if others have. Where none
 * has, those that are used have experts of one byte. */
static int check_layers(struct trace *t, char *why)
{
	uint64_t *events = calloc(KEY_PART, sizeof(*events));
	int err = 0;

	if (!events)
		return no_memory(why);
	for (size_t e = 0; !err && e < t->events; e++) {
		uint32_t layer = t->uses[t->ends[e] - 1].key >> 16;

		if (++events[layer] > t->passes)
			t->passes = events[layer];
		if (!t->sized)
			t->bytes[layer] = 1;
		else if (!t->bytes[layer])
			err = fail(why, EINVAL, "says no size for experts of layer %u", layer);
	}
	free(events);
	return err;
}

int trace_finish(struct trace *t, char *why)
{
	drop_empty_event(t);
	if (t->events == 0)
		return fail(why, EINVAL, "holds no event");
	if (!t->layers) {
		t->layers = t->most_layer + 1;
		t->experts = t->most_expert + 1;
	}
	if ((uint64_t)t->layers * t->experts > TRACE_MAX_EXPERTS)
		return fail(why, EINVAL, "%u layers of %u experts are more than %u", t->layers,
			    t->experts, TRACE_MAX_EXPERTS);
	return check_layers(t, why);
}

uint64_t trace_total(const struct trace *t)
{
	uint64_t total = 0;

	for (uint32_t layer = 0; layer < t->layers; layer++)
		total += t->bytes[layer] * t->experts;
	return total;
}
