/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding the slices of experts and laying out an expert's file; see gguf_experts.h.
 */
#include "expertfs/gguf_experts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/fail.h"
#include "expertfs/shard.h"
#include "expertfs/store.h"

#define EXPERTS_MAX 65536 /* an expert's number is 16 bits in a store */
#define SIDE_MAX    (1u << 28)

static const char *const stack_names[] = { "ffn_gate_exps.weight", "ffn_up_exps.weight",
					   "ffn_down_exps.weight", "ffn_gate_up_exps.weight" };
#define STACKS  (sizeof(stack_names) / sizeof(*stack_names))
#define GATE_UP 3

static const char *const own_names[GGUF_MATRICES] = { "ffn_gate", "ffn_up", "ffn_down" };

/* "7." at text, below max and without zeros in front, to what stands behind it; NULL: it is not. */
static const char *take_number(const char *text, uint32_t max, uint32_t *out)
{
	char *end;
	unsigned long n;

	if (text[0] < '0' || text[0] > '9')
		return NULL;
	n = strtoul(text, &end, 10);
	if (*end != '.' || n >= max || (text[0] == '0' && end != text + 1))
		return NULL;
	*out = (uint32_t)n;
	return end + 1;
}

const char *gguf_in_layer(const char *name, uint32_t *layer)
{
	return strncmp(name, "blk.", 4) == 0 ? take_number(name + 4, GGUF_LAYERS_MAX, layer) : NULL;
}

/* Whether what stands behind "blk.N." is "ffn_gate.E.weight" or the like. */
static bool is_own(const char *rest)
{
	uint32_t expert;

	for (int m = 0; m < GGUF_MATRICES; m++) {
		size_t n = strlen(own_names[m]);
		if (strncmp(rest, own_names[m], n) != 0 || rest[n] != '.')
			continue;
		rest = take_number(rest + n + 1, EXPERTS_MAX, &expert);
		return rest && strcmp(rest, "weight") == 0;
	}
	return false;
}

bool gguf_is_stack(const struct gguf_tensor *t)
{
	uint32_t layer;
	const char *rest = gguf_in_layer(t->name, &layer);

	for (size_t i = 0; rest && i < STACKS; i++)
		if (strcmp(rest, stack_names[i]) == 0)
			return true;
	return rest && is_own(rest);
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
				 .stack = t,
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

static int find_stacks(const struct gguf *g, uint32_t layer, struct gguf_layer *l, char *why)
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
	l->experts = (uint32_t)t[GGUF_DOWN]->dim[2];
	l->matrix[GGUF_GATE] = slices_of(merged ? t[GATE_UP] : t[GGUF_GATE], merged ? 0 : -1);
	l->matrix[GGUF_UP] = slices_of(merged ? t[GATE_UP] : t[GGUF_UP], merged ? 1 : -1);
	l->matrix[GGUF_DOWN] = slices_of(t[GGUF_DOWN], -1);
	for (size_t i = 0; i < STACKS; i++)
		if (t[i] && t[i]->dim[2] != l->experts)
			return fail(why, EINVAL,
				    "%s: %s has not %" PRIu32 " experts, as others of its layer",
				    file, t[i]->name, l->experts);
	return 0;
}

static const struct gguf_tensor *own_tensor(const struct gguf *g, uint32_t layer, int matrix,
					    uint32_t expert)
{
	char name[64];

	snprintf(name, sizeof(name), "blk.%" PRIu32 ".%s.%" PRIu32 ".weight", layer,
		 own_names[matrix], expert);
	return gguf_tensor(g, name);
}

/* Is t, of expert e, a matrix like that of expert 0, at a place that fits s? */
static int check_own(const struct gguf *g, const struct gguf_slices *s, uint32_t e, char *why)
{
	const struct gguf_tensor *t = s->each[e];
	const char *file = g->part[t->part].path;

	if (t->dims != 2 || t->dim[0] > SIDE_MAX || t->dim[1] > SIDE_MAX)
		return fail(why, EINVAL, "%s: %s is no matrix", file, t->name);
	if (t->type != s->type || t->dim[0] != s->cols || t->dim[1] != s->rows)
		return fail(
			why, EINVAL,
			"%s: %s has not the type and shape of %s: experts of a layer that differ "
			"are not supported",
			file, t->name, s->each[0]->name);
	if ((t->offset - s->start - e * s->stride) % SHARD_ALIGN)
		return fail(
			why, EINVAL,
			"%s: %s lies at an odd place: experts as tensors of their own must lie at "
			"equal distances, or at whole blocks of %u bytes",
			file, t->name, SHARD_ALIGN);
	return 0;
}

/* The tensors of one matrix, of all n experts. */
static int find_each(const struct gguf *g, uint32_t layer, int matrix, uint32_t n,
		     struct gguf_slices *s, char *why)
{
	int err = 0;

	s->each = calloc(n, sizeof(const struct gguf_tensor *));
	if (!s->each)
		return fail(why, ENOMEM, "out of memory");
	for (uint32_t e = 0; e < n; e++) {
		s->each[e] = own_tensor(g, layer, matrix, e);
		if (!s->each[e])
			return fail(why, EINVAL,
				    "%s: there is no blk.%" PRIu32 ".%s.%" PRIu32 ".weight",
				    g->part[0].path, layer, own_names[matrix], e);
	}
	s->type = s->each[0]->type;
	s->start = s->each[0]->offset;
	s->stride = n > 1 ? (s->each[1]->offset - s->start) % SHARD_ALIGN : 0;
	s->bytes = s->each[0]->bytes;
	s->rows = s->each[0]->dim[1];
	s->cols = s->each[0]->dim[0];
	for (uint32_t e = 0; e < n && !err; e++)
		err = check_own(g, s, e, why);
	return err;
}

/* count: tensors of the layer that are an expert's own. */
static int find_own(const struct gguf *g, uint32_t layer, size_t count, struct gguf_layer *l,
		    char *why)
{
	uint32_t n = (uint32_t)(count / GGUF_MATRICES);
	int err = 0;

	for (size_t i = 0; i < STACKS; i++)
		if (stack_of(g, layer, i))
			return fail(why, EINVAL,
				    "%s: layer %" PRIu32
				    " has experts both in stacks and as tensors of their own",
				    g->part[0].path, layer);
	if (count % GGUF_MATRICES)
		return fail(why, EINVAL,
			    "%s: layer %" PRIu32
			    " has %zu tensors of experts, not ffn_gate, ffn_up and "
			    "ffn_down of each",
			    g->part[0].path, layer, count);
	l->experts = n;
	for (int m = 0; m < GGUF_MATRICES && !err; m++)
		err = find_each(g, layer, m, n, &l->matrix[m], why);
	return err;
}

static int find_layer(const struct gguf *g, uint32_t layer, size_t own, struct gguf_layer *l,
		      char *why)
{
	const struct gguf_slices *m = l->matrix;
	int err = own ? find_own(g, layer, own, l, why) : find_stacks(g, layer, l, why);

	if (err)
		return err;
	l->layer = (uint16_t)layer;
	if (m[GGUF_UP].rows != m[GGUF_GATE].rows || m[GGUF_UP].cols != m[GGUF_GATE].cols ||
	    m[GGUF_DOWN].cols != m[GGUF_GATE].rows || m[GGUF_DOWN].rows != m[GGUF_GATE].cols)
		return fail(why, EINVAL,
			    "%s: the shapes of the experts of layer %" PRIu32
			    " do not fit together",
			    g->part[0].path, layer);
	lay_out(l);
	if (l->bytes > STORE_EXPERT_BYTES_MAX)
		return fail(why, EINVAL,
			    "%s: an expert of layer %" PRIu32 " has %" PRIu64
			    " bytes, more than %" PRIu64,
			    g->part[0].path, layer, l->bytes, STORE_EXPERT_BYTES_MAX);
	return 0;
}

/* Why there are none. */
static int no_experts(const struct gguf *g, char *why)
{
	if (g->tensors == 0)
		return fail(why, EINVAL, "%s is a vocabulary without tensors", g->part[0].path);
	return fail(why, EINVAL, "%s is a dense model (%s): it has no experts to mount",
		    g->part[0].path, g->arch);
}

int gguf_experts_find(const struct gguf *g, struct gguf_experts *out, char *why)
{
	size_t own[GGUF_LAYERS_MAX] = { 0 };
	bool there[GGUF_LAYERS_MAX] = { false };
	uint64_t all = 0;
	int err = 0;

	*out = (struct gguf_experts){ .layer = calloc(GGUF_LAYERS_MAX, sizeof(*out->layer)) };
	if (!out->layer)
		return fail(why, ENOMEM, "out of memory");
	for (size_t i = 0; i < g->tensors; i++) {
		uint32_t layer;
		const char *rest = gguf_in_layer(g->tensor[i].name, &layer);
		if (!rest || !gguf_is_stack(&g->tensor[i]))
			continue;
		there[layer] = true;
		own[layer] += is_own(rest);
	}
	for (uint32_t i = 0; i < GGUF_LAYERS_MAX && !err; i++) {
		if (!there[i])
			continue;
		err = find_layer(g, i, own[i], &out->layer[out->layers++], why);
		all += out->layer[out->layers - 1].experts;
	}
	if (!err && out->layers == 0)
		err = no_experts(g, why);
	if (!err && all > STORE_EXPERTS_MAX)
		err = fail(why, EINVAL, "%s has %" PRIu64 " experts, more than %u", g->part[0].path,
			   all, STORE_EXPERTS_MAX);
	if (err)
		gguf_experts_free(out);
	return err;
}

void gguf_experts_free(struct gguf_experts *x)
{
	for (uint32_t i = 0; i < x->layers; i++)
		for (int m = 0; m < GGUF_MATRICES; m++)
			free(x->layer[i].matrix[m].each);
	free(x->layer);
	*x = (struct gguf_experts){ 0 };
}

uint64_t gguf_slice_offset(const struct gguf_slices *s, uint32_t e)
{
	return s->each ? s->each[e]->offset : s->start + e * s->stride;
}

const struct gguf_tensor *gguf_slice_tensor(const struct gguf_slices *s, uint32_t e)
{
	return s->each ? s->each[e] : s->stack;
}

uint64_t gguf_slice_place(const struct gguf_slices *s, uint32_t e)
{
	return s->place + gguf_slice_offset(s, e) % SHARD_ALIGN;
}
