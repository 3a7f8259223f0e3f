/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding the stacks of experts and laying out an expert's file; see gguf_experts.h.
 */
#include "expertfs/gguf_experts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/fail.h"
#include "expertfs/shard.h"

#define EXPERTS_MAX 65536 /* an expert's number is 16 bits in a store */
#define SIDE_MAX    (1u << 28)

static const char *const stack_names[] = { "ffn_gate_exps.weight", "ffn_up_exps.weight",
					   "ffn_down_exps.weight", "ffn_gate_up_exps.weight" };
#define STACKS  (sizeof(stack_names) / sizeof(*stack_names))
#define GATE_UP 3

const char *gguf_in_layer(const char *name, uint32_t *layer)
{
	char *end;
	unsigned long n;

	if (strncmp(name, "blk.", 4) != 0 || name[4] < '0' || name[4] > '9')
		return NULL;
	n = strtoul(name + 4, &end, 10);
	if (*end != '.' || n >= GGUF_LAYERS_MAX || (name[4] == '0' && end != name + 5))
		return NULL;
	*layer = (uint32_t)n;
	return end + 1;
}

bool gguf_is_stack(const struct gguf_tensor *t)
{
	uint32_t layer;
	const char *rest = gguf_in_layer(t->name, &layer);

	for (size_t i = 0; rest && i < STACKS; i++)
		if (strcmp(rest, stack_names[i]) == 0)
			return true;
	return false;
}

static const struct gguf_tensor *stack_of(const struct gguf *g, uint32_t layer, size_t which)
{
	char name[64];

	snprintf(name, sizeof(name), "blk.%" PRIu32 ".%s", layer, stack_names[which]);
	return gguf_tensor(g, name);
}

/* The slices of a stack, or half of each: `half` 0 or 1 of a merged one, -1: whole. */
static struct gguf_slices slices_of(const struct gguf_tensor *t, int half)
{
	struct gguf_slices s = { .type = t->type,
				 .part = t->part,
				 .start = t->offset,
				 .stride = gguf_slice_bytes(t),
				 .bytes = gguf_slice_bytes(t),
				 .rows = t->dim[1],
				 .cols = t->dim[0] };

	if (half >= 0) {
		s.bytes /= 2;
		s.rows /= 2;
		s.start += (uint64_t)half * s.bytes;
	}
	return s;
}

static int check_stack(const struct gguf *g, const struct gguf_tensor *t, char *why)
{
	const char *file = g->part[t->part].path;

	if (t->dims != 3 || t->dim[0] > SIDE_MAX || t->dim[1] > SIDE_MAX)
		return fail(why, EINVAL, "%s: %s is no stack of matrices", file, t->name);
	if (t->dim[2] > EXPERTS_MAX)
		return fail(why, EINVAL, "%s: %s has %" PRIu64 " experts, more than %u", file,
			    t->name, t->dim[2], EXPERTS_MAX);
	return 0;
}

/* Distances of a slice from the block it begins in are multiples of this. */
static uint64_t grain(const struct gguf_slices *s)
{
	uint64_t all = s->start | s->stride | SHARD_ALIGN;

	return all & -all;
}

/* One behind the other, each with the blocks that it may touch to itself. */
static void lay_out(struct gguf_layer *l)
{
	uint64_t at = 0;

	for (int m = 0; m < GGUF_MATRICES; m++) {
		struct gguf_slices *s = &l->matrix[m];
		bool fixed = s->stride % SHARD_ALIGN == 0;
		uint64_t farthest = fixed ? s->start % SHARD_ALIGN : SHARD_ALIGN - grain(s);
		s->place = at;
		at += shard_round_up(farthest + s->bytes);
	}
	l->bytes = at;
}

static int find_layer(const struct gguf *g, uint32_t layer, struct gguf_layer *l, char *why)
{
	const struct gguf_tensor *t[STACKS];
	const char *file = g->part[0].path;
	int err = 0;

	for (size_t i = 0; i < STACKS && !err; i++) {
		t[i] = stack_of(g, layer, i);
		err = t[i] ? check_stack(g, t[i], why) : 0;
	}
	if (err)
		return err;
	bool merged = t[GATE_UP] != NULL;
	if (!t[GGUF_DOWN] || (merged ? t[GGUF_GATE] || t[GGUF_UP] : !t[GGUF_GATE] || !t[GGUF_UP]))
		return fail(why, EINVAL,
			    "%s: layer %" PRIu32
			    " has not just the stacks ffn_gate_exps, ffn_up_exps and "
			    "ffn_down_exps that experts are made of",
			    file, layer);
	if (merged && t[GATE_UP]->dim[1] % 2)
		return fail(why, EINVAL, "%s: %s has an odd number of rows", file,
			    t[GATE_UP]->name);
	l->layer = (uint16_t)layer;
	l->experts = (uint32_t)t[GGUF_DOWN]->dim[2];
	l->matrix[GGUF_GATE] = slices_of(merged ? t[GATE_UP] : t[GGUF_GATE], merged ? 0 : -1);
	l->matrix[GGUF_UP] = slices_of(merged ? t[GATE_UP] : t[GGUF_UP], merged ? 1 : -1);
	l->matrix[GGUF_DOWN] = slices_of(t[GGUF_DOWN], -1);
	const struct gguf_slices *m = l->matrix;
	for (size_t i = 0; i < STACKS; i++)
		if (t[i] && t[i]->dim[2] != l->experts)
			return fail(why, EINVAL,
				    "%s: %s has not %" PRIu32 " experts, as others of its layer",
				    file, t[i]->name, l->experts);
	if (m[GGUF_UP].rows != m[GGUF_GATE].rows || m[GGUF_UP].cols != m[GGUF_GATE].cols ||
	    m[GGUF_DOWN].cols != m[GGUF_GATE].rows || m[GGUF_DOWN].rows != m[GGUF_GATE].cols)
		return fail(why, EINVAL,
			    "%s: the shapes of the experts of layer %" PRIu32
			    " do not fit together",
			    file, layer);
	lay_out(l);
	return 0;
}

/* Why there are none. */
static int no_experts(const struct gguf *g, char *why)
{
	for (uint32_t i = 0; i < GGUF_LAYERS_MAX; i++) {
		char name[64];
		snprintf(name, sizeof(name), "blk.%" PRIu32 ".ffn_gate.0.weight", i);
		if (gguf_tensor(g, name))
			return fail(why, EINVAL,
				    "%s has each expert as a tensor of its own, as files of early "
				    "2024 have: convert the model anew",
				    g->part[0].path);
	}
	if (g->tensors == 0)
		return fail(why, EINVAL, "%s is a vocabulary without tensors", g->part[0].path);
	return fail(why, EINVAL, "%s is a dense model (%s): it has no experts to mount",
		    g->part[0].path, g->arch);
}

int gguf_experts_find(const struct gguf *g, struct gguf_experts *out, char *why)
{
	uint32_t layer;
	bool there[GGUF_LAYERS_MAX] = { false };
	int err = 0;

	*out = (struct gguf_experts){ .layer = calloc(GGUF_LAYERS_MAX, sizeof(*out->layer)) };
	if (!out->layer)
		return fail(why, ENOMEM, "out of memory");
	for (size_t i = 0; i < g->tensors; i++)
		if (gguf_is_stack(&g->tensor[i]) && gguf_in_layer(g->tensor[i].name, &layer))
			there[layer] = true;
	for (uint32_t i = 0; i < GGUF_LAYERS_MAX && !err; i++)
		if (there[i])
			err = find_layer(g, i, &out->layer[out->layers++], why);
	if (!err && out->layers == 0)
		err = no_experts(g, why);
	if (err)
		gguf_experts_free(out);
	return err;
}

void gguf_experts_free(struct gguf_experts *x)
{
	free(x->layer);
	*x = (struct gguf_experts){ 0 };
}

uint64_t gguf_slice_offset(const struct gguf_slices *s, uint32_t e)
{
	return s->start + e * s->stride;
}

uint64_t gguf_slice_place(const struct gguf_slices *s, uint32_t e)
{
	return s->place + gguf_slice_offset(s, e) % SHARD_ALIGN;
}
