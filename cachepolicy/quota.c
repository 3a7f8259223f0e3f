/* SPDX-License-Identifier: Apache-2.0
 *
 * Quotas: each layer its part of the capacity, and any other policy within it ("quota:lru").
 *
 * Every layer asks for the same number of experts in each pass, so one may think that each should
 * have the same room. A layer that has its part or more gives up one of its own experts for the
 * next one; a layer that has less takes from the layer that has most, by that layer's policy. So
 * room that nobody claims is not wasted. arXiv 2608.07911 warns of parts smaller than what one
 * event asks for.
 *
 * Each layer has an order of its own under the inner policy, which sees the experts and the events
 * of this layer alone. The parameters are those of the inner policy.
 *
 * Memory: that of the inner policy. A use costs what the inner policy takes, a victim a look at
 * the bytes of each layer besides.
 */
#include "cachepolicy/policies.h"

#include <errno.h>
#include <stdlib.h>

struct part {
	struct cp_order *order;
	uint64_t bytes; /* resident */
	uint64_t event; /* the last one of this layer */
	uint32_t free;  /* entries that may go */
};

struct quota {
	struct cp_order base;
	struct part *part; /* for each layer */
	uint64_t event;
};

static struct quota *quota_of(struct cp_order *o)
{
	return (struct quota *)o;
}

static struct part *part_of(struct cp_order *o, uint32_t i)
{
	return &quota_of(o)->part[i / o->experts];
}

static const char *inner_spec(const char *inner)
{
	return inner ? inner : cp_lru.name;
}

static int create(struct cp_order *o, const char *inner)
{
	struct cp_order shape = { .layers = 1,
				  .experts = o->experts,
				  .n = o->experts,
				  .capacity = o->capacity / o->layers };
	struct part *part = calloc(o->layers, sizeof(*part));

	quota_of(o)->part = part;
	if (!part)
		return -ENOMEM;
	for (uint32_t layer = 0; layer < o->layers; layer++) {
		int err;

		shape.entry = o->entry + (size_t)layer * o->experts;
		err = cp_order_create_spec(inner_spec(inner), &shape, &part[layer].order);
		if (err)
			return err;
	}
	return 0;
}

static void destroy(struct cp_order *o)
{
	struct part *part = quota_of(o)->part;

	for (uint32_t layer = 0; part && layer < o->layers; layer++)
		cp_order_destroy(part[layer].order);
	free(part);
}

static void begin(struct cp_order *o, uint64_t now)
{
	(void)now;
	quota_of(o)->event++;
}

/* The first member of an event begins it for its layer. */
static void use(struct cp_order *o, uint32_t i, uint32_t weight)
{
	struct part *part = part_of(o, i);
	const struct cp_policy *inner = part->order->policy;

	if (o->entry[i].member && part->event != quota_of(o)->event) {
		part->event = quota_of(o)->event;
		if (inner->begin)
			inner->begin(part->order, part->event);
	}
	if (inner->use)
		inner->use(part->order, i % o->experts, weight);
}

static void admit(struct cp_order *o, uint32_t i)
{
	struct part *part = part_of(o, i);

	part->bytes += o->entry[i].bytes;
	if (part->order->policy->admit)
		part->order->policy->admit(part->order, i % o->experts);
}

static void remove_entry(struct cp_order *o, uint32_t i)
{
	struct part *part = part_of(o, i);

	part->bytes -= o->entry[i].bytes;
	if (part->order->policy->remove)
		part->order->policy->remove(part->order, i % o->experts);
}

static void hold(struct cp_order *o, uint32_t i)
{
	struct cp_order *inner = part_of(o, i)->order;

	part_of(o, i)->free--;
	if (inner->policy->hold)
		inner->policy->hold(inner, i % o->experts);
}

static void release(struct cp_order *o, uint32_t i)
{
	struct cp_order *inner = part_of(o, i)->order;

	part_of(o, i)->free++;
	inner->policy->release(inner, i % o->experts);
}

static void seed(struct cp_order *o, uint32_t i, double heat)
{
	struct cp_order *inner = part_of(o, i)->order;

	if (inner->policy->seed)
		inner->policy->seed(inner, i % o->experts, heat);
}

/* want lies in this layer, or is CP_NONE. */
static uint32_t victim_of_layer(struct cp_order *o, uint32_t layer, uint32_t want)
{
	struct cp_order *inner = quota_of(o)->part[layer].order;
	uint32_t i = inner->policy->victim(inner, want == CP_NONE ? want : want % o->experts);

	return i == CP_NONE ? i : layer * o->experts + i;
}

/* The layer that has most among those of which something may go, or CP_NONE. */
static uint32_t fullest_layer(struct cp_order *o)
{
	const struct part *part = quota_of(o)->part;
	uint32_t fullest = CP_NONE;

	for (uint32_t layer = 0; layer < o->layers; layer++)
		if (part[layer].free &&
		    (fullest == CP_NONE || part[layer].bytes > part[fullest].bytes))
			fullest = layer;
	return fullest;
}

static uint32_t victim(struct cp_order *o, uint32_t want)
{
	uint32_t layer;

	if (want != CP_NONE && part_of(o, want)->free &&
	    part_of(o, want)->bytes >= o->capacity / o->layers)
		return victim_of_layer(o, want / o->experts, want);
	layer = fullest_layer(o);
	return layer == CP_NONE ? CP_NONE : victim_of_layer(o, layer, CP_NONE);
}

static void resize(struct cp_order *o)
{
	for (uint32_t layer = 0; layer < o->layers; layer++) {
		struct cp_order *inner = quota_of(o)->part[layer].order;

		inner->capacity = o->capacity / o->layers;
		if (inner->policy->resize)
			inner->policy->resize(inner);
	}
}

static int set(struct cp_order *o, const char *name, double value)
{
	int err = 0;

	for (uint32_t layer = 0; !err && layer < o->layers; layer++)
		err = cp_order_set(quota_of(o)->part[layer].order, name, value);
	return err;
}

static int get(const struct cp_order *o, const char *name, double *value)
{
	return cp_order_get(((const struct quota *)o)->part[0].order, name, value);
}

static bool retune(struct cp_order *o, const char *inner)
{
	bool same = true;

	for (uint32_t layer = 0; same && layer < o->layers; layer++)
		same = cp_order_retune(quota_of(o)->part[layer].order, inner_spec(inner));
	return same;
}

const struct cp_policy cp_quota = {
	.name = "quota",
	.about = "equal parts for all layers, another policy in each: quota:lru",
	.size = sizeof(struct quota),
	.takes_inner = true,
	.create = create,
	.destroy = destroy,
	.begin = begin,
	.use = use,
	.admit = admit,
	.remove = remove_entry,
	.hold = hold,
	.release = release,
	.victim = victim,
	.resize = resize,
	.set = set,
	.get = get,
	.retune = retune,
	.seed = seed,
};
