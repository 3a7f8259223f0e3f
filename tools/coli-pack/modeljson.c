/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes model.json. Put together as text, not as a tree: so config.json goes in as it is (unless
 * a key of it had to change), with its numbers spelled as they were, and the tables are one entry a
 * line, for people.
 */
#include "tools/coli-pack/modeljson.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/modelfile.h"
#include "expertfs/fail.h"

static void put_string(FILE *f, const char *s)
{
	json_t *v = json_string(s);

	/* The name of a folder need not be UTF-8; it is for people only. */
	if (!v || json_dumpf(v, f, JSON_ENCODE_ANY) != 0)
		fputs("\"unnamed\"", f);
	json_decref(v);
}

static void put_type(FILE *f, struct wfmt fmt)
{
	fprintf(f, "\"type\": \"%s\"", wtype_name(fmt.type));
	if (fmt.group)
		fprintf(f, ", \"group\": %d", fmt.group);
}

static void put_dense(FILE *f, const struct plan *p)
{
	fprintf(f, "\"dense\": {\n\"file\": \"dense.bin\", \"bytes\": %" PRIu64 ",\n\"tensors\": [",
		p->dense_bytes);
	for (size_t i = 0; i < p->dense_count; i++) {
		const struct plan_dense *d = &p->dense[i];
		fprintf(f, "%s\n{\"name\": ", i ? "," : "");
		put_string(f, d->name);
		fputs(", ", f);
		put_type(f, d->fmt);
		if (d->dims == 1)
			fprintf(f, ", \"shape\": [%d]", d->src.cols);
		else
			fprintf(f, ", \"shape\": [%" PRId64 ", %d]", d->src.rows, d->src.cols);
		fprintf(f, ", \"offset\": %" PRIu64 ", \"bytes\": %" PRIu64 "}", d->offset,
			d->bytes);
	}
	fputs("\n]},\n", f);
}

static void put_layout(FILE *f, const struct plan *p, int layout)
{
	const struct plan_layout *l = &p->layout[layout];
	const char *comma = "";

	fputs("{\"layers\": [", f);
	for (int i = 0; i < p->layers; i++) {
		if (p->layer[i].layout != layout)
			continue;
		fprintf(f, "%s%d", comma, p->layer[i].layer);
		comma = ", ";
	}
	fprintf(f, "], \"bytes\": %" PRIu64 ", \"matrices\": [", l->bytes);
	for (int m = 0; m < MATRICES; m++) {
		const struct plan_matrix *x = &l->matrix[m];
		fprintf(f, "%s\n{\"name\": \"%s\", ", m ? "," : "", plan_matrix_name[m]);
		put_type(f, x->fmt);
		fprintf(f,
			", \"shape\": [%d, %d], \"offset\": %" PRIu64 ", \"bytes\": %" PRIu64 "}",
			x->rows, x->cols, x->offset, x->bytes);
	}
	fputs("\n]}", f);
}

static void put_model(FILE *f, const struct plan *p)
{
	const struct checkpoint *ck = p->ck;

	fprintf(f, "{\n\"format\": \"expertfs-model\", \"version\": %d,\n", MODEL_VERSION);
	fputs("\"architecture\": ", f);
	put_string(f, ck->config.model.arch->model_type);
	fputs(",\n\"name\": ", f);
	put_string(f, ck->name);
	fputs(",\n\"config\": ", f);
	fwrite(ck->config_text, 1, ck->config_bytes, f);
	fputs(",\n\"eos_token_ids\": [", f);
	for (size_t i = 0; i < ck->eos_count; i++)
		fprintf(f, "%s%" PRId64, i ? ", " : "", ck->eos[i]);
	fputs("],\n", f);
	if (ck->chat) {
		fputs("\"chat\": ", f);
		json_dumpf(ck->chat, f, 0);
		fputs(",\n", f);
	}
	put_dense(f, p);
	fprintf(f, "\"experts\": {\n\"count\": %d,\n\"layouts\": [\n", ck->config.model.experts);
	for (int i = 0; i < p->layouts; i++) {
		if (i)
			fputs(",\n", f);
		put_layout(f, p, i);
	}
	fputs("\n]}\n}\n", f);
}

int modeljson_text(const struct plan *p, char **text, char *why)
{
	size_t bytes;
	FILE *f = open_memstream(text, &bytes);

	if (!f)
		return fail(why, ENOMEM, "out of memory for model.json");
	put_model(f, p);
	int bad = ferror(f);
	if (fclose(f) == 0 && !bad)
		return 0;
	free(*text);
	*text = NULL;
	return fail(why, ENOMEM, "out of memory for model.json");
}
