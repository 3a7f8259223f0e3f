/* SPDX-License-Identifier: Apache-2.0
 *
 * GGUF files for coli-pack; see gguf.h.
 */
#include "tools/coli-pack/gguf.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expertfs/fail.h"
#include "expertfs/gguf_model.h"
#include "tools/coli-pack/reader.h"

struct gguf_source {
	struct gguf *file;
	struct gguf_experts experts;
	struct st_tensor *tensor; /* as file->tensor: name and file, for reading and sentences */
};

/* -- the checkpoint -------------------------------------------------------------------------------
 */

static int list_files(struct checkpoint *ck, const struct gguf *g, char *why)
{
	ck->file = calloc(g->parts, sizeof(*ck->file));
	if (!ck->file)
		return fail(why, ENOMEM, "out of memory");
	for (uint32_t i = 0; i < g->parts; i++) {
		const struct gguf_part *p = &g->part[i];
		ck->file[i] = (struct st_file){ .path = strdup(p->path),
						.fd = dup(p->fd),
						.bytes = p->bytes,
						.header_bytes = p->header_bytes,
						.header_check = p->header_check,
						.mtime = p->mtime };
		ck->files++;
		if (!ck->file[i].path)
			return fail(why, ENOMEM, "out of memory");
		if (ck->file[i].fd < 0)
			return fail(why, errno, "%s: %s", p->path, strerror(errno));
	}
	return 0;
}

static int list_tensors(struct checkpoint *ck, struct gguf_source *s, char *why)
{
	const struct gguf *g = s->file;

	s->tensor = calloc(g->tensors + 1, sizeof(*s->tensor));
	if (!s->tensor)
		return fail(why, ENOMEM, "out of memory");
	for (size_t i = 0; i < g->tensors; i++) {
		s->tensor[i] = (struct st_tensor){ .name = g->tensor[i].name,
						   .file = &ck->file[g->tensor[i].part],
						   .offset = g->tensor[i].offset,
						   .bytes = g->tensor[i].bytes };
		snprintf(s->tensor[i].dtype_name, sizeof(s->tensor[i].dtype_name), "%s",
			 g->tensor[i].type->name);
	}
	return 0;
}

static int read_config(struct checkpoint *ck, const struct gguf *g, char *why)
{
	json_t *config = gguf_config(g, why);
	int err;

	if (!config)
		return -EINVAL;
	err = pack_config_parse(config, g->part[0].path, &ck->config, why);
	ck->config_text = err ? NULL : json_dumps(config, JSON_INDENT(1));
	json_decref(config);
	if (!err && !ck->config_text)
		err = fail(why, ENOMEM, "out of memory");
	ck->config_bytes = err ? 0 : strlen(ck->config_text);
	return err;
}

static int read_eos(struct checkpoint *ck, const struct gguf *g, char *why)
{
	json_t *list = gguf_eos(g, why);

	if (!list)
		return -EINVAL;
	ck->eos = calloc(json_array_size(list) + 1, sizeof(*ck->eos));
	for (size_t i = 0; ck->eos && i < json_array_size(list); i++)
		ck->eos[ck->eos_count++] = json_integer_value(json_array_get(list, i));
	json_decref(list);
	return ck->eos ? 0 : fail(why, ENOMEM, "out of memory");
}

static int fill(struct checkpoint *ck, const char *path, char *why)
{
	struct gguf_source *s = ck->gguf;
	int err = gguf_open(path, &s->file, why);

	err = err ? err : gguf_experts_find(s->file, &s->experts, why);
	if (err)
		return err;
	ck->dir = strdup(s->file->part[0].path);
	ck->tokenizer_path = strdup(s->file->part[0].path);
	if (!ck->dir || !ck->tokenizer_path)
		return fail(why, ENOMEM, "out of memory");
	ck->name = strrchr(ck->dir, '/') + 1;
	err = list_files(ck, s->file, why);
	err = err ? err : list_tensors(ck, s, why);
	err = err ? err : read_config(ck, s->file, why);
	err = err ? err : read_eos(ck, s->file, why);
	err = err ? err : gguf_chat(s->file, &ck->chat, why);
	err = err ? err : gguf_vocab_json(s->file, &ck->tokenizer_text, why);
	ck->tokenizer_bytes = err ? 0 : strlen(ck->tokenizer_text);
	return err;
}

int gguf_ckpt_open(const char *path, struct checkpoint **out, char *why)
{
	struct checkpoint *ck = calloc(1, sizeof(*ck));
	int err;

	if (ck)
		ck->gguf = calloc(1, sizeof(*ck->gguf));
	if (!ck || !ck->gguf) {
		free(ck);
		return fail(why, ENOMEM, "out of memory");
	}
	err = fill(ck, path, why);
	if (err)
		ckpt_close(ck);
	else
		*out = ck;
	return err;
}

void gguf_source_free(struct gguf_source *s)
{
	if (!s)
		return;
	gguf_experts_free(&s->experts);
	gguf_close(s->file);
	free(s->tensor);
	free(s);
}

/* -- the plan -------------------------------------------------------------------------------------
 */

/* The engine's format for a type of GGUF; name: of the tensor, for the sentence. */
static int format_of(const struct plan *p, const struct gguf_type *t, const char *name,
		     struct wfmt *out, char *why)
{
	*out = (struct wfmt){ 0 };
	if (wtype_parse(t->name, &out->type) == 0)
		return 0;
	return fail(why, EINVAL, "%s: %s is of type %s, which the engine cannot compute with",
		    p->ck->dir, name, t->name);
}

static int add_dense(struct plan *p, size_t i, char *why)
{
	const struct gguf_source *g = p->ck->gguf;
	const struct gguf_tensor *t = &g->file->tensor[i];
	uint64_t rows = t->dim[1] * t->dim[2] * t->dim[3];
	char name[GGUF_HF_NAME];
	struct wfmt fmt;
	int err = format_of(p, t->type, t->name, &fmt, why);

	if (err)
		return err;
	if (t->dim[0] > CHUNK_COLS || rows > INT32_MAX)
		return fail(why, EINVAL, "%s: %s is too large to be packed", p->ck->dir, t->name);
	const struct source src = { .tensor = &g->tensor[i],
				    .offset = t->offset,
				    .rows = (int64_t)rows,
				    .cols = (int)t->dim[0],
				    .raw_row = t->bytes / rows };
	return plan_add_as(p, gguf_hf_name(g->file, t->name, name), t->dims == 1 ? 1 : 2, &src, fmt,
			   why);
}

static int make_layout(const struct plan *p, const struct gguf_layer *from, struct plan_layout *l,
		       char *why)
{
	*l = (struct plan_layout){ 0 };
	for (int m = 0; m < MATRICES; m++) {
		const struct gguf_slices *s = &from->matrix[m];
		struct wfmt fmt;
		int err = format_of(p, s->type, "an expert", &fmt, why);
		if (err)
			return err;
		if (s->cols > CHUNK_COLS || s->rows > INT32_MAX)
			return fail(why, EINVAL, "%s: its experts are too large to be packed",
				    p->ck->dir);
		plan_put_matrix(l, m, fmt, (int)s->rows, (int)s->cols);
	}
	return 0;
}

static int add_layer(struct plan *p, const struct gguf_layer *from, char *why)
{
	struct plan_layout l;
	int err = make_layout(p, from, &l, why);

	if (err)
		return err;
	if ((int)from->experts != p->ck->config.model.experts)
		return fail(why, EINVAL,
			    "%s: layer %u has %" PRIu32 " experts, the configuration says %d",
			    p->ck->dir, from->layer, from->experts, p->ck->config.model.experts);
	return plan_add_layer(p, from->layer, EXPERTS_SINGLE, &l, why);
}

int gguf_plan(struct plan *p, char *why)
{
	const struct gguf_source *g = p->ck->gguf;
	int err = 0;

	p->layer = calloc(g->experts.layers, sizeof(*p->layer));
	if (!p->layer)
		return fail(why, ENOMEM, "out of memory for the plan");
	for (size_t i = 0; i < g->file->tensors && !err; i++)
		if (!gguf_is_stack(&g->file->tensor[i]))
			err = add_dense(p, i, why);
	for (uint32_t i = 0; i < g->experts.layers && !err; i++)
		err = add_layer(p, &g->experts.layer[i], why);
	p->experts = (uint32_t)p->layers * (uint32_t)p->ck->config.model.experts;
	return err;
}

void gguf_expert_source(const struct plan *p, uint32_t expert, int matrix, struct source *s)
{
	const struct gguf_source *g = p->ck->gguf;
	uint32_t per_layer = (uint32_t)p->ck->config.model.experts, e = expert % per_layer;
	const struct gguf_slices *from = &g->experts.layer[expert / per_layer].matrix[matrix];

	*s = (struct source){ .tensor = &g->tensor[gguf_slice_tensor(from, e) - g->file->tensor],
			      .offset = gguf_slice_offset(from, e),
			      .rows = (int64_t)from->rows,
			      .cols = (int)from->cols,
			      .raw_row = from->bytes / from->rows };
}
