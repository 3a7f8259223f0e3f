/* SPDX-License-Identifier: Apache-2.0
 *
 * model.json -> struct modelfile. Everything is checked here against everything else: after this
 * no size, offset or name needs a second look, only the files' own sizes do.
 */
#include "engine/modelfile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "engine/fail.h"
#include "engine/jsonread.h"
#include "engine/mount.h"

#define MAX_TENSORS      1000000
#define MAX_EXPERT_BYTES ((int64_t)64 << 30) /* no number of them that a model has overflows */

static const char *const matrix_names[EXPERT_MATRICES] = { "gate", "up", "down" };

static int read_format(const struct json_in *in, struct wfmt *f, char *why)
{
	const char *type;
	int r = in_text(in, "type", NULL, &type, why);

	if (r)
		return r;
	if (wtype_parse(type, &f->type))
		return fail(why, EINVAL, "%s: type \"%s\" is unknown", in->where, type);
	f->group = 0;
	if (f->type != W_Q8 && f->type != W_Q4)
		return 0;
	r = in_int32(in, "group", 32, 128, JSON_REQUIRED, &f->group, why);
	if (!r && f->group != 32 && f->group != 64 && f->group != 128)
		r = fail(why, EINVAL, "%s: \"group\" is %d, not 32, 64 or 128", in->where,
			 f->group);
	return r;
}

/* file_bytes: the size of the file that the tensor lies in. */
static int read_tensor(const struct json_in *in, uint64_t file_bytes, struct tensor *t, char *why)
{
	const json_t *shape;
	int64_t n[2] = { 1, 1 }, offset, bytes;
	int r = read_format(in, &t->fmt, why);

	if (!r)
		r = in_array(in, "shape", &shape, why);
	if (!r)
		r = in_int(in, "offset", 0, INT64_MAX / 2, JSON_REQUIRED, &offset, why);
	if (!r)
		r = in_int(in, "bytes", 1, INT64_MAX / 2, JSON_REQUIRED, &bytes, why);
	if (r)
		return r;
	size_t dims = json_array_size(shape);
	if (dims < 1 || dims > 2)
		return fail(why, EINVAL, "%s: the shape has %zu dimensions", in->where, dims);
	for (size_t i = 0; i < dims; i++) {
		n[2 - dims + i] = json_integer_value(json_array_get(shape, i));
		if (n[2 - dims + i] < 1 || n[2 - dims + i] > 1 << 28)
			return fail(why, EINVAL, "%s: the shape is impossible", in->where);
	}
	t->dims = (int)dims;
	t->rows = (int)n[0];
	t->cols = (int)n[1];
	t->offset = (uint64_t)offset;
	t->bytes = (uint64_t)bytes;
	if (t->cols % wtype_block(t->fmt.type))
		return fail(why, EINVAL, "%s: rows of %d numbers are not whole blocks of type %s",
			    in->where, t->cols, wtype_name(t->fmt.type));
	if (!wfmt_bytes_fit(t->fmt, t->rows, t->cols, t->bytes))
		return fail(why, EINVAL, "%s: %llu bytes, but %d x %d of type %s take %zu",
			    in->where, (unsigned long long)t->bytes, t->rows, t->cols,
			    wtype_name(t->fmt.type), wfmt_bytes(t->fmt, t->rows, t->cols));
	if (t->offset % wfmt_align(t->fmt) || t->offset > file_bytes ||
	    t->bytes > file_bytes - t->offset)
		return fail(
			why, EINVAL,
			"%s: offset %llu with %llu bytes is not aligned or beyond the file's %llu",
			in->where, (unsigned long long)t->offset, (unsigned long long)t->bytes,
			(unsigned long long)file_bytes);
	return 0;
}

/* Of an expert's matrix: wherever it begins in the experts' files, it must lie within them. */
static int read_skew(const struct json_in *in, uint64_t file_bytes, int experts, struct tensor *t,
		     char *why)
{
	int skew, r = in_int32(in, "skew", 0, SKEW_BLOCK - 1, 0, &skew, why);
	uint64_t last = 0;

	if (r || !skew)
		return r;
	t->skew = (uint32_t)skew;
	for (int e = 0; e < experts; e++) {
		uint64_t at = expert_matrix_offset(t, e);
		last = at > last ? at : last;
	}
	if (t->skew % wfmt_align(t->fmt) || last > file_bytes || t->bytes > file_bytes - last)
		return fail(why, EINVAL, "%s: a skew of %d is not aligned or leads out of the file",
			    in->where, skew);
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct tensor *)a)->name, ((const struct tensor *)b)->name);
}

/* Of a layer behind the last one. */
static bool is_extra(const struct model_config *c, const char *name)
{
	static const char prefix[] = "model.layers.";

	return strncmp(name, prefix, sizeof(prefix) - 1) == 0 &&
	       strtol(name + sizeof(prefix) - 1, NULL, 10) >= c->layers;
}

static int read_dense_tensors(const json_t *list, const char *where, struct modelfile *m, char *why)
{
	size_t n = json_array_size(list);

	if (n > MAX_TENSORS)
		return fail(why, EINVAL, "%s: %zu dense tensors are too many", where, n);
	m->tensor = calloc(n ? n : 1, sizeof(*m->tensor));
	if (!m->tensor)
		return fail(why, ENOMEM, "%s: no memory", where);
	for (size_t i = 0; i < n; i++) {
		struct tensor *t = &m->tensor[i];
		char place[512];
		struct json_in in = { json_array_get(list, i), where };
		const char *name;
		int r = in_text(&in, "name", NULL, &name, why);
		if (r)
			return r;
		snprintf(place, sizeof(place), "%s: tensor %.200s", where, name);
		in.where = place;
		t->name = strdup(name);
		m->tensors = i + 1;
		if (!t->name)
			return fail(why, ENOMEM, "%s: no memory", where);
		r = in_int32(&in, "part", 0, m->dense_files - 1, 0, &t->part, why);
		if (!r)
			r = read_tensor(&in, m->dense_file[t->part].bytes, t, why);
		if (r)
			return r;
		t->extra = is_extra(&m->config, name);
		m->dense_bytes += t->bytes;
		m->extra_bytes += t->extra ? t->bytes : 0;
		if (m->dense_bytes > INT64_MAX / 2)
			return fail(why, EINVAL, "%s: the dense tensors have impossibly many bytes",
				    where);
	}
	qsort(m->tensor, n, sizeof(*m->tensor), by_name);
	for (size_t i = 1; i < n; i++)
		if (strcmp(m->tensor[i - 1].name, m->tensor[i].name) == 0)
			return fail(why, EINVAL, "%s: tensor %.200s is there twice", where,
				    m->tensor[i].name);
	return 0;
}

static int read_dense_file(const struct json_in *in, struct modelfile *m, char *why)
{
	struct dense_file *f = &m->dense_file[m->dense_files];
	const char *file;
	int64_t bytes;
	int r = in_text(in, "file", NULL, &file, why);

	if (!r)
		r = in_int(in, "bytes", 0, INT64_MAX / 2, JSON_REQUIRED, &bytes, why);
	if (r)
		return r;
	if (!*file || *file == '.' || strchr(file, '/'))
		return fail(why, EINVAL, "%s: \"%s\" is not a plain file name", in->where, file);
	f->bytes = (uint64_t)bytes;
	f->name = strdup(file);
	if (!f->name)
		return fail(why, ENOMEM, "%s: no memory", in->where);
	m->dense_files++;
	return 0;
}

static int read_dense(const struct json_in *in, struct modelfile *m, char *why)
{
	const json_t *dense, *list, *more;
	int r = in_object(in, "dense", &dense, why);
	struct json_in at = { dense, in->where };

	if (!r)
		r = in_array(&at, "tensors", &list, why);
	if (r)
		return r;
	more = in_at(&at, "more");
	if (json_array_size(more) >= DENSE_FILES_MAX)
		return fail(why, EINVAL, "%s: too many files of dense tensors", in->where);
	m->dense_file = calloc(json_array_size(more) + 1, sizeof(*m->dense_file));
	if (!m->dense_file)
		return fail(why, ENOMEM, "%s: no memory", in->where);
	r = read_dense_file(&at, m, why);
	for (size_t i = 0; i < json_array_size(more) && !r; i++) {
		at.obj = json_array_get(more, i);
		r = read_dense_file(&at, m, why);
	}
	return r ? r : read_dense_tensors(list, in->where, m, why);
}

static int read_matrices(const json_t *list, const char *where, struct expert_layout *l,
			 const struct model_config *c, char *why)
{
	const int rows[] = { c->expert_width, c->expert_width, c->hidden };
	const int cols[] = { c->hidden, c->hidden, c->expert_width };

	if (json_array_size(list) != EXPERT_MATRICES)
		return fail(why, EINVAL, "%s: an expert has %zu matrices, not 3", where,
			    json_array_size(list));
	for (size_t i = 0; i < EXPERT_MATRICES; i++) {
		struct json_in in = { json_array_get(list, i), where };
		const char *name;
		int k = 0, r = in_text(&in, "name", NULL, &name, why);
		if (r)
			return r;
		while (k < EXPERT_MATRICES && strcmp(name, matrix_names[k]) != 0)
			k++;
		if (k == EXPERT_MATRICES || l->matrix[k].rows)
			return fail(why, EINVAL,
				    "%s: expert matrix \"%.100s\" is unknown or there twice", where,
				    name);
		r = read_tensor(&in, l->bytes, &l->matrix[k], why);
		if (!r)
			r = read_skew(&in, l->bytes, c->experts, &l->matrix[k], why);
		if (r)
			return r;
		if (l->matrix[k].rows != rows[k] || l->matrix[k].cols != cols[k])
			return fail(
				why, EINVAL,
				"%s: expert matrix %s is %d x %d, the configuration says %d x %d",
				where, name, l->matrix[k].rows, l->matrix[k].cols, rows[k],
				cols[k]);
	}
	return 0;
}

static int read_layout(const struct json_in *in, struct expert_layout *l, struct modelfile *m,
		       char *why)
{
	const json_t *layers, *matrices;
	int64_t bytes;
	int r = in_int(in, "bytes", 1, MAX_EXPERT_BYTES, JSON_REQUIRED, &bytes, why);

	if (!r)
		r = in_array(in, "layers", &layers, why);
	if (!r)
		r = in_array(in, "matrices", &matrices, why);
	if (r)
		return r;
	l->bytes = (uint64_t)bytes;
	if (l->bytes > m->largest_expert)
		m->largest_expert = l->bytes;
	for (size_t i = 0; i < json_array_size(layers); i++) {
		json_int_t n = json_integer_value(json_array_get(layers, i));
		if (!json_is_integer(json_array_get(layers, i)) || n < 0 || n >= MODEL_MAX_LAYERS)
			return fail(why, EINVAL, "%s: a layout names an impossible layer",
				    in->where);
		if (m->layer_layout[n])
			return fail(why, EINVAL, "%s: layer %d is in two layouts", in->where,
				    (int)n);
		m->layer_layout[n] = l;
	}
	return read_matrices(matrices, in->where, l, &m->config, why);
}

static int read_experts(const struct json_in *in, struct modelfile *m, char *why)
{
	const json_t *experts, *list;
	int count;
	int r = in_object(in, "experts", &experts, why);
	struct json_in at = { experts, in->where };

	if (!r)
		r = in_int32(&at, "count", 1, MODEL_MAX_EXPERTS, JSON_REQUIRED, &count, why);
	if (!r)
		r = in_array(&at, "layouts", &list, why);
	if (r)
		return r;
	if (count != m->config.experts)
		return fail(why, EINVAL, "%s: %d experts a layer, the configuration says %d",
			    in->where, count, m->config.experts);
	if (json_array_size(list) > MODEL_MAX_LAYERS)
		return fail(why, EINVAL, "%s: too many layouts", in->where);
	m->layouts = (int)json_array_size(list);
	m->layout = calloc((size_t)m->layouts + 1, sizeof(*m->layout));
	if (!m->layout)
		return fail(why, ENOMEM, "%s: no memory", in->where);
	for (int i = 0; i < m->layouts && !r; i++) {
		at.obj = json_array_get(list, (size_t)i);
		r = read_layout(&at, &m->layout[i], m, why);
	}
	for (int i = 0; i < m->config.layers && !r; i++)
		if (m->config.sparse[i] && !m->layer_layout[i])
			r = fail(why, EINVAL,
				 "%s: layer %d should have experts, but no layout holds it",
				 in->where, i);
	return r;
}

static int read_eos(const struct json_in *in, struct modelfile *m, char *why)
{
	const json_t *list;
	int r = in_array(in, "eos_token_ids", &list, why);

	if (r)
		return r;
	size_t n = json_array_size(list);
	if (n > 1024)
		return fail(why, EINVAL, "%s: %zu end tokens are too many", in->where, n);
	m->eos = calloc(n + 1, sizeof(*m->eos));
	if (!m->eos)
		return fail(why, ENOMEM, "%s: no memory", in->where);
	m->eos_count = (int)n;
	for (size_t i = 0; i < n; i++) {
		json_int_t id = json_integer_value(json_array_get(list, i));
		if (!json_is_integer(json_array_get(list, i)) || id < 0 || id >= m->config.vocab)
			return fail(why, EINVAL, "%s: an end token is outside the vocabulary of %d",
				    in->where, m->config.vocab);
		m->eos[i] = (int32_t)id;
	}
	return 0;
}

static int read_root(const struct json_in *in, struct modelfile *m, char *why)
{
	const json_t *config;
	const char *format;
	char where[4200];
	int version;
	int r = in_text(in, "format", NULL, &format, why);

	if (!r && strcmp(format, "expertfs-model") != 0)
		r = fail(why, EINVAL, "%s is not an expertfs model but \"%.100s\"", in->where,
			 format);
	if (!r)
		r = in_int32(in, "version", 0, INT32_MAX, JSON_REQUIRED, &version, why);
	if (!r && version != MODEL_VERSION)
		r = fail(
			why, EINVAL,
			"%s is of format version %d, this program reads version %d: pack the model "
			"anew with coli-pack",
			in->where, version, MODEL_VERSION);
	if (!r)
		r = in_object(in, "config", &config, why);
	if (r)
		return r;
	snprintf(where, sizeof(where), "%s: config", in->where);
	r = config_read(config, where, &m->config, why);
	if (!r)
		r = read_eos(in, m, why);
	if (!r)
		r = read_dense(in, m, why);
	return r ? r : read_experts(in, m, why);
}

static int parse_object(const char *text, size_t bytes, const char *where, json_t **out, char *why)
{
	json_error_t err;
	json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &err);

	*out = NULL;
	if (!root)
		return fail(why, EINVAL, "%s is not JSON: line %d: %s", where, err.line, err.text);
	if (!json_is_object(root)) {
		json_decref(root);
		return fail(why, EINVAL, "%s is not a JSON object", where);
	}
	*out = root;
	return 0;
}

/* Lets go of root. */
static int read_model(json_t *root, const char *dir, const char *where, struct modelfile **out,
		      char *why)
{
	struct modelfile *m = calloc(1, sizeof(*m));
	struct json_in in = { root, where };
	int r;

	if (m)
		m->dir = strdup(dir);
	r = m && m->dir ? read_root(&in, m, why) : fail(why, ENOMEM, "%s: no memory", where);
	json_decref(root);
	if (r)
		modelfile_free(m);
	else
		*out = m;
	return r;
}

int modelfile_parse(const char *text, size_t bytes, const char *dir, const char *where,
		    struct modelfile **out, char *why)
{
	json_t *root;
	int r = parse_object(text, bytes, where, &root, why);

	*out = NULL;
	if (!r)
		r = read_model(root, dir, where, out, why);
	if (!r)
		(*out)->hash = XXH3_64bits(text, bytes);
	return r;
}

static int read_text(const char *dir, char path[MODEL_PATH_MAX], char **text, size_t *bytes,
		     char *why)
{
	if (snprintf(path, MODEL_PATH_MAX, "%s/model.json", dir) >= MODEL_PATH_MAX)
		return fail(why, ENAMETOOLONG, "the name of the mount is too long");
	int r = read_whole(path, MODEL_TEXT_MAX, text, bytes);
	if (r == -ENOENT || r == -ENOTDIR)
		return fail(why, ENOENT, "%s holds no model.json: is expertfs mounted there?", dir);
	return r ? mount_fail(why, -r, dir, "the model description", path) : 0;
}

int modelfile_json(const char *dir, char path[MODEL_PATH_MAX], json_t **out, char *why)
{
	char *text = NULL;
	size_t bytes = 0;
	int r = read_text(dir, path, &text, &bytes, why);

	*out = NULL;
	if (r)
		return r;
	r = parse_object(text, bytes, path, out, why);
	free(text);
	return r;
}

int modelfile_load(const char *dir, struct modelfile **out, char *why)
{
	char path[MODEL_PATH_MAX], *text = NULL;
	size_t bytes = 0;
	int r = read_text(dir, path, &text, &bytes, why);

	*out = NULL;
	if (r)
		return r;
	r = modelfile_parse(text, bytes, dir, path, out, why);
	free(text);
	return r;
}

void modelfile_free(struct modelfile *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->tensors; i++)
		free(m->tensor[i].name);
	free(m->tensor);
	free(m->layout);
	free(m->eos);
	for (int i = 0; i < m->dense_files; i++)
		free(m->dense_file[i].name);
	free(m->dense_file);
	free(m->dir);
	free(m);
}

const struct tensor *modelfile_tensor(const struct modelfile *m, const char *name)
{
	struct tensor key = { .name = (char *)(uintptr_t)name };

	return bsearch(&key, m->tensor, m->tensors, sizeof(*m->tensor), by_name);
}
