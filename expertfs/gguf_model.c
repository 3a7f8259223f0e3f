/* SPDX-License-Identifier: Apache-2.0
 *
 * model.json of a mounted GGUF file; see gguf_model.h.
 */
#include "expertfs/gguf_model.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/fail.h"
#include "expertfs/store.h"

#define MODEL_VERSION 2 /* engine/modelfile.h */

/* A vector, or a matrix with all but the fastest dimension as its rows. */
static json_t *dense_tensor(const struct gguf *g, const struct gguf_tensor *t)
{
	uint64_t rows = t->dim[1] * t->dim[2] * t->dim[3]; /* of at most the file's bytes */
	char name[GGUF_HF_NAME];
	json_t *shape = t->dims == 1 ? json_pack("[I]", (json_int_t)t->dim[0])
				     : json_pack("[I, I]", (json_int_t)rows, (json_int_t)t->dim[0]);
	json_t *o = json_pack("{s:s, s:s, s:o, s:I, s:I}", "name", gguf_hf_name(g, t->name, name),
			      "type", t->type->name, "shape", shape, "offset",
			      (json_int_t)t->offset, "bytes", (json_int_t)t->bytes);

	if (o && t->part)
		json_object_set_new(o, "part", json_integer(t->part));
	return o;
}

static json_t *dense(const struct gguf *g)
{
	json_t *list = json_array(), *more = json_array();
	char name[STORE_NAME_ROOM];

	for (size_t i = 0; i < g->tensors; i++)
		if (!gguf_is_stack(&g->tensor[i]))
			json_array_append_new(list, dense_tensor(g, &g->tensor[i]));
	for (uint32_t i = 1; i < g->parts; i++)
		json_array_append_new(more, json_pack("{s:s, s:I}", "file",
						      store_file_name(STORE_FILES - 1 + i, name),
						      "bytes", (json_int_t)g->part[i].bytes));
	return json_pack("{s:s, s:I, s:o, s:o}", "file", store_file_names[STORE_FILES - 1], "bytes",
			 (json_int_t)g->part[0].bytes, "more", more, "tensors", list);
}

static json_t *matrix(const struct gguf_slices *s, const char *name)
{
	uint64_t skew = s->stride % SHARD_ALIGN;
	json_t *o = json_pack("{s:s, s:s, s:[I, I], s:I, s:I}", "name", name, "type", s->type->name,
			      "shape", (json_int_t)s->rows, (json_int_t)s->cols, "offset",
			      (json_int_t)gguf_slice_place(s, 0), "bytes", (json_int_t)s->bytes);

	if (o && skew)
		json_object_set_new(o, "skew", json_integer((json_int_t)skew));
	return o;
}

static json_t *layout(const struct gguf_layer *l)
{
	static const char *const names[GGUF_MATRICES] = { "gate", "up", "down" };
	json_t *list = json_array();

	for (int m = 0; m < GGUF_MATRICES; m++)
		json_array_append_new(list, matrix(&l->matrix[m], names[m]));
	return json_pack("{s:[], s:I, s:o}", "layers", "bytes", (json_int_t)l->bytes, "matrices",
			 list);
}

/* One layout for all layers that have the same. */
static json_t *experts(const struct gguf_experts *x)
{
	json_t *layouts = json_array();
	uint32_t most = 0;

	for (uint32_t i = 0; i < x->layers; i++) {
		json_t *now = layout(&x->layer[i]), *other;
		bool known = false;
		size_t at;
		most = x->layer[i].experts > most ? x->layer[i].experts : most;
		json_array_foreach(layouts, at, other)
		{
			json_t *layers = json_object_get(other, "layers");
			json_object_set(now, "layers", layers); /* the rest is compared */
			known = json_equal(now, other);
			if (known) {
				json_array_append_new(layers, json_integer(x->layer[i].layer));
				break;
			}
		}
		if (!known) {
			json_object_set_new(now, "layers",
					    json_pack("[i]", (int)x->layer[i].layer));
			json_array_append(layouts, now);
		}
		json_decref(now);
	}
	return json_pack("{s:I, s:o}", "count", (json_int_t)most, "layouts", layouts);
}

/* For people: general.name, or the name of the file. */
static json_t *name_of(const struct gguf *g)
{
	struct gguf_text t;
	json_t *name = NULL;
	const char *slash = strrchr(g->part[0].path, '/');

	if (gguf_string(g, "general.name", &t, NULL) == 0 && t.bytes < 256)
		name = json_stringn(t.at, t.bytes);
	name = name ? name : json_string(slash ? slash + 1 : g->part[0].path);
	return name ? name : json_string("unnamed");
}

int gguf_model_json(const struct gguf *g, const struct gguf_experts *x, char **text, char *why)
{
	json_t *config = gguf_config(g, why), *eos = NULL, *chat, *root;
	int err;

	if (config)
		eos = gguf_eos(g, why);
	err = eos ? gguf_chat(g, &chat, why) : -EINVAL;
	if (err) {
		json_decref(config);
		json_decref(eos);
		return err;
	}
	root = json_pack("{s:s, s:i, s:O, s:o, s:o, s:o, s:o*, s:o, s:o}", "format",
			 "expertfs-model", "version", MODEL_VERSION, "architecture",
			 json_object_get(config, "model_type"), "name", name_of(g), "config",
			 config, "eos_token_ids", eos, "chat", chat, "dense", dense(g), "experts",
			 experts(x));
	*text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
	json_decref(root);
	return *text ? 0 : fail(why, ENOMEM, "out of memory for model.json");
}
