/* SPDX-License-Identifier: Apache-2.0
 *
 * Making the plan. See plan.h.
 */
#include "tools/coli-pack/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/fail.h"
#include "tools/coli-pack/gguf.h"
#include "tools/coli-pack/reader.h"
#include "tools/coli-pack/tensors.h"
#include "tools/coli-pack/usage.h"

#define ALIGN_UP(n, a) (((n) + (a)-1) / (a) * (a))
#define ALIGN          64 /* what model.json promises of the formats that need it */

const char *const plan_matrix_name[MATRICES] = { "gate", "up", "down" };

static struct wfmt format_of(int bits, int group)
{
	switch (bits) {
	case 4:
		return (struct wfmt){ W_Q4, group };
	case 8:
		return (struct wfmt){ W_Q8, group };
	case 16:
		return (struct wfmt){ W_BF16, 0 };
	default:
		return (struct wfmt){ W_F32, 0 };
	}
}

static uint64_t source_size(const struct source *s)
{
	return (uint64_t)s->rows * source_row_bytes(s);
}

static void count_codes(struct plan *p, const struct source *s, struct wfmt to)
{
	if ((s->form != SOURCE_INT8 && s->form != SOURCE_INT4) || !to.group)
		return;
	if (source_keeps_codes(s, to)) {
		p->codes_kept++;
	} else if (p->codes_anew++ == 0) {
		p->anew = *s;
		p->anew_as = to;
	}
}

int plan_add_as(struct plan *p, const char *name, int dims, const struct source *src,
		struct wfmt fmt, char *why)
{
	if (src->cols > CHUNK_COLS)
		return fail(why, EINVAL, "%s has %d columns, more than the %d that can be packed",
			    name, src->cols, CHUNK_COLS);
	if (p->dense_count == p->dense_room) {
		size_t room = p->dense_room ? 2 * p->dense_room : 256;
		struct plan_dense *more = reallocarray(p->dense, room, sizeof(*more));
		if (!more)
			return fail(why, ENOMEM, "out of memory for the plan");
		p->dense = more;
		p->dense_room = room;
	}
	struct plan_dense *d = &p->dense[p->dense_count];
	*d = (struct plan_dense){ .name = strdup(name),
				  .dims = dims,
				  .fmt = fmt,
				  .offset = ALIGN_UP(p->dense_bytes, ALIGN),
				  .bytes = wfmt_bytes(fmt, src->rows, src->cols),
				  .src = *src };
	if (!d->name)
		return fail(why, ENOMEM, "out of memory for the plan");
	p->dense_count++;
	p->dense_bytes = d->offset + d->bytes;
	p->source_bytes += source_size(src);
	count_codes(p, src, fmt);
	return 0;
}

int plan_add_source(struct plan *p, const char *name, int dims, const struct source *src,
		    bool plain, char *why)
{
	int bits = plain ? 32 : p->options.dense_bits;

	return plan_add_as(p, name, dims, src, format_of(bits, p->options.group), why);
}

int plan_add(struct plan *p, const char *name, int dims, int64_t rows, int cols, bool plain,
	     char *why)
{
	struct source src;
	int err = source_whole(p->ck, name, dims, rows, cols, &src, why);

	return err ? err : plan_add_source(p, name, dims, &src, plain, why);
}

void plan_put_matrix(struct plan_layout *l, int matrix, struct wfmt fmt, int rows, int cols)
{
	struct plan_matrix *m = &l->matrix[matrix];

	*m = (struct plan_matrix){ .fmt = fmt,
				   .rows = rows,
				   .cols = cols,
				   .offset = l->bytes,
				   .bytes = wfmt_bytes(fmt, rows, cols) };
	l->bytes = ALIGN_UP(m->offset + m->bytes, ALIGN);
}

static bool same_layout(const struct plan_layout *a, const struct plan_layout *b)
{
	for (int m = 0; m < MATRICES; m++)
		if (a->matrix[m].fmt.type != b->matrix[m].fmt.type ||
		    a->matrix[m].fmt.group != b->matrix[m].fmt.group ||
		    a->matrix[m].rows != b->matrix[m].rows ||
		    a->matrix[m].cols != b->matrix[m].cols)
			return false;
	return true;
}

int plan_add_layer(struct plan *p, uint16_t layer, enum expert_form form,
		   const struct plan_layout *l, char *why)
{
	int i = 0;

	while (i < p->layouts && !same_layout(&p->layout[i], l))
		i++;
	if (i == PLAN_LAYOUTS)
		return fail(why, EINVAL,
			    "%s: more than %d mixtures of types in experts are not supported",
			    p->ck->dir, PLAN_LAYOUTS);
	if (i == p->layouts)
		p->layout[p->layouts++] = *l;
	p->layer[p->layers++] =
		(struct plan_layer){ .layer = layer, .layout = (uint8_t)i, .form = form };
	return 0;
}

static struct plan_layout make_layout(const struct model_config *c, struct wfmt fmt)
{
	struct plan_layout l = { 0 };

	plan_put_matrix(&l, GATE, fmt, c->expert_width, c->hidden);
	plan_put_matrix(&l, UP, fmt, c->expert_width, c->hidden);
	plan_put_matrix(&l, DOWN, fmt, c->hidden, c->expert_width);
	return l;
}

static struct wfmt expert_format(const struct plan *p, int layer, enum expert_form form)
{
	int bits = p->options.bits;

	if (form == EXPERTS_MXFP4 && p->options.keep)
		return (struct wfmt){ W_MXFP4, 0 };
	/* Draft tokens are cheap to lose and dear to get wrong: the MTP layer keeps 8 bits. */
	if (layer >= p->ck->config.model.layers && bits < 8)
		bits = 8;
	return format_of(bits, p->options.group);
}

static int plan_layers(struct plan *p, char *why)
{
	const struct pack_config *c = &p->ck->config;
	int total = c->model.layers + c->mtp_layers, err = 0;

	p->layer = calloc((size_t)total, sizeof(*p->layer));
	if (!p->layer)
		return fail(why, ENOMEM, "out of memory for the plan");
	for (int i = 0; i < total && !err; i++) {
		if (!pack_is_sparse(c, i))
			continue;
		enum expert_form form = tensors_expert_form(p->ck, i);
		struct plan_layout l = make_layout(&c->model, expert_format(p, i, form));
		err = plan_add_layer(p, (uint16_t)i, form, &l, why);
	}
	p->experts = (uint32_t)p->layers * (uint32_t)c->model.experts;
	return err;
}

static int check_experts(struct plan *p, char *why)
{
	struct source s;

	for (uint32_t e = 0; e < p->experts; e++) {
		for (int m = 0; m < MATRICES; m++) {
			int err = plan_expert_source(p, e, m, &s, why);
			if (err)
				return err;
			p->source_bytes += source_size(&s);
			count_codes(p, &s, plan_layout_of(p, e)->matrix[m].fmt);
		}
	}
	return 0;
}

/* Says of each expert how many copies there are to be. */
static int count_copies(struct plan *p, const uint64_t *bytes, uint8_t *copies, char *why)
{
	const struct spread *s = &p->spread;
	bool *hot;
	int err;

	memset(copies, (int)s->replicas, p->experts);
	if (!s->hot_bytes)
		return 0;
	hot = calloc((size_t)p->experts + 1, sizeof(*hot));
	if (!hot)
		return fail(why, ENOMEM, "out of memory for the plan");
	err = usage_hottest(p, bytes, hot, &p->usage_check, why);
	for (uint32_t e = 0; e < p->experts && !err; e++) {
		copies[e] = (uint8_t)(copies[e] + hot[e]);
		p->hot += hot[e];
	}
	free(hot);
	return err;
}

static int place_all(struct plan *p, uint64_t *bytes, uint8_t *copies, char *why)
{
	struct to_place t = { .layout = p->spread.layout,
			      .experts = p->experts,
			      .per_layer = (uint32_t)p->ck->config.model.experts,
			      .drives = p->spread.drives,
			      .speed = p->spread.speed,
			      .bytes = bytes,
			      .copies = copies };

	for (uint32_t e = 0; e < p->experts; e++)
		bytes[e] = plan_layout_of(p, e)->bytes;
	int err = count_copies(p, bytes, copies, why);
	return err ? err : placement_make(&t, &p->place, why);
}

static int place_experts(struct plan *p, char *why)
{
	uint64_t *bytes = calloc(p->experts, sizeof(*bytes));
	uint8_t *copies = calloc(p->experts, sizeof(*copies));
	int err;

	if (bytes && copies)
		err = place_all(p, bytes, copies, why);
	else
		err = fail(why, ENOMEM, "out of memory for the plan");
	free(bytes);
	free(copies);
	return err;
}

int plan_make(const struct checkpoint *ck, const struct pack_options *o,
	      const struct spread *spread, struct plan **out, char *why)
{
	struct plan *p = calloc(1, sizeof(*p));

	if (!p)
		return fail(why, ENOMEM, "out of memory for the plan");
	p->ck = ck;
	p->options = *o;
	p->spread = *spread;
	int err = ck->gguf ? gguf_plan(p, why) : tensors_plan_dense(p, why);
	if (!err && !ck->gguf)
		err = plan_layers(p, why);
	err = err ? err : check_experts(p, why);
	err = err ? err : place_experts(p, why);
	if (err)
		plan_free(p);
	else
		*out = p;
	return err;
}

void plan_free(struct plan *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->dense_count; i++)
		free(p->dense[i].name);
	free(p->dense);
	free(p->layer);
	placement_free(&p->place);
	free(p);
}

const struct plan_layer *plan_layer_of(const struct plan *p, uint32_t expert)
{
	return &p->layer[expert / (uint32_t)p->ck->config.model.experts];
}

const struct plan_layout *plan_layout_of(const struct plan *p, uint32_t expert)
{
	return &p->layout[plan_layer_of(p, expert)->layout];
}

unsigned plan_number_of(const struct plan *p, uint32_t expert)
{
	return expert % (uint32_t)p->ck->config.model.experts;
}

int plan_expert_source(const struct plan *p, uint32_t expert, int matrix, struct source *s,
		       char *why)
{
	const struct plan_layer *l = plan_layer_of(p, expert);

	if (p->ck->gguf) {
		gguf_expert_source(p, expert, matrix, s);
		return 0;
	}
	return tensors_expert_source(p->ck, l->layer, l->form, (int)plan_number_of(p, expert),
				     matrix, s, why);
}
