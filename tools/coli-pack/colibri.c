/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrices of Colibri's containers. See colibri.h.
 */
#include "tools/coli-pack/colibri.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "expertfs/fail.h"

#define FP8_BLOCK 128
#define FORMATS   16 /* more than format_list() gives */

static const char scales_end[] = ".qs", fp8_name[] = "fp8-e4m3-b128";

static uint64_t blocks(uint64_t n, uint64_t size)
{
	return (n + size - 1) / size;
}

/* Groups that Colibri's reader knows. */
static const int group_sizes[] = { 16, 32, 48, 64, 96, 128, 192, 256 };

/* All formats of a matrix [r, c], in the order in which they are taken where lengths fit several.
 * Of the rest, those that are not read come first: to refuse is better than to guess; but 3 bits
 * behind 4, as in Colibri's reader, since narrow matrices of 4 bits are as long. */
static int format_list(uint64_t r, uint64_t c, struct colibri_format *out)
{
	const uint64_t half = r * blocks(c, 2);
	const uint64_t fp8 = blocks(r, FP8_BLOCK) * blocks(c, FP8_BLOCK);
	const struct colibri_format fixed[] = {
		{ "e8-iq3-lattice", SOURCE_NUMBERS, r * blocks(c, 256) * 98, 4, 0, 0 },
		{ fp8_name, SOURCE_NUMBERS, r * c, fp8, 0, 0 }, /* with UE8M0 scales */
		{ "int8-row", SOURCE_INT8, r * c, 4 * r, 1, (int)c },
		{ fp8_name, SOURCE_E4M3, r * c, 4 * fp8, FP8_BLOCK, FP8_BLOCK },
		{ "int4-row", SOURCE_INT4, half, 4 * r, 1, (int)c },
		{ "int2-row", SOURCE_NUMBERS, r * blocks(c, 4), 4 * r, 0, 0 },
		{ "int3-g64", SOURCE_NUMBERS, r * blocks(c, 64) * 24, 4 * r * blocks(c, 64), 0, 0 },
	};
	int n = 0;

	for (size_t i = 0; i < sizeof(group_sizes) / sizeof(*group_sizes); i++) {
		uint64_t size = (uint64_t)group_sizes[i];
		if (size < c)
			out[n++] = (struct colibri_format){
				"int4-grouped",          SOURCE_INT4, half,
				4 * r * blocks(c, size), 1,           (int)size
			};
	}
	memcpy(out + n, fixed, sizeof(fixed));
	return n + (int)(sizeof(fixed) / sizeof(*fixed));
}

static int take(const char *name, const struct colibri_format *f, struct colibri_format *out,
		char *why)
{
	if (f->form != SOURCE_NUMBERS) {
		*out = *f;
		return 0;
	}
	return fail(why, EINVAL,
		    "%s is in Colibri's format %s%s; coli-pack reads int8-row, int4-row, "
		    "int4-grouped, and fp8-e4m3-b128 with float32 scales",
		    name, f->name, f->name == fp8_name ? " with UE8M0 scales" : "");
}

int colibri_format_of(const char *name, uint64_t rows, uint64_t cols, uint64_t weight_bytes,
		      uint64_t scale_bytes, const char *stamp, struct colibri_format *out,
		      char *why)
{
	struct colibri_format list[FORMATS];
	const struct colibri_format *found = NULL;
	int n = format_list(rows, cols, list);

	for (int i = 0; i < n; i++) {
		const struct colibri_format *f = &list[i];
		if (f->weight_bytes != weight_bytes || f->scale_bytes != scale_bytes ||
		    (stamp && strcmp(stamp, f->name) != 0))
			continue;
		/* Of groups Colibri's reader takes the smallest. Where that is 48 and was 64 when the
		 * container was written, it reads nonsense. */
		if (found && f->form == found->form && found->block_cols & (found->block_cols - 1))
			return fail(
				why, EINVAL,
				"%s [%" PRIu64 ", %" PRIu64 "] is int4-grouped, but its %" PRIu64
				" bytes of scales are as many for groups of %d as of %d",
				name, rows, cols, scale_bytes, found->block_cols, f->block_cols);
		found = found ? found : f;
	}
	if (found)
		return take(name, found, out, why);
	return fail(why, EINVAL,
		    "%s has %" PRIu64 " bytes and %" PRIu64 " bytes of scales, which %s%.64s %s "
		    "for the shape [%" PRIu64 ", %" PRIu64 "] that config.json asks for",
		    name, weight_bytes, scale_bytes, stamp ? "its stamped format " : "",
		    stamp ? stamp : "no format of Colibri's", stamp ? "would not have" : "has",
		    rows, cols);
}

const struct st_tensor *colibri_scales(const struct checkpoint *ck, const char *name)
{
	char full[512];

	if (!ck->colibri)
		return NULL;
	snprintf(full, sizeof(full), "%s%s", name, scales_end);
	return ckpt_find(ck, full);
}

int colibri_source(const struct checkpoint *ck, const struct st_tensor *t, const uint64_t *shape,
		   int dims, struct source *s, char *why)
{
	const struct st_tensor *scale = colibri_scales(ck, t->name);
	const char *stamp = json_string_value(json_object_get(ck->stamps, t->name));
	struct colibri_format f = { 0 }, other;
	char name[512];

	if (dims != 2)
		return fail(why, EINVAL, "%s in %s has scales, but is no matrix by itself", t->name,
			    t->file->path);
	if (strcmp(t->dtype_name, "U8") != 0)
		return fail(why, EINVAL,
			    "%s in %s has scales as in Colibri's containers, but is %s, "
			    "not U8",
			    t->name, t->file->path, t->dtype_name);
	snprintf(name, sizeof(name), "%.160s in %.300s", t->name, t->file->path);
	int err =
		colibri_format_of(name, shape[0], shape[1], t->bytes, scale->bytes, stamp, &f, why);
	if (err)
		return err;
	if (!stamp && f.form == SOURCE_INT8 && ck->colibri_fp8 &&
	    colibri_format_of(name, shape[0], shape[1], t->bytes, scale->bytes, fp8_name, &other,
			      NULL) == 0)
		return fail(why, EINVAL,
			    "%s may be int8-row or fp8-e4m3-b128: the container says that it has "
			    "the latter, but not (in colibri.fmt) whether this is it",
			    name);
	if (scale->dtype != ST_F32)
		return fail(why, EINVAL, "%s in %s is %s, not F32", scale->name, scale->file->path,
			    scale->dtype_name);
	*s = (struct source){ .tensor = t,
			      .form = f.form,
			      .offset = t->offset,
			      .cols = (int)shape[1],
			      .scale = scale,
			      .scale_offset = scale->offset,
			      .block_rows = f.block_rows,
			      .block_cols = f.block_cols };
	return 0;
}

static bool has_scales(const struct checkpoint *ck, const char *name)
{
	char base[512];
	size_t n = strlen(name), end = sizeof(scales_end) - 1;

	if (n <= end || n - end >= sizeof(base) || strcmp(name + n - end, scales_end) != 0)
		return false;
	memcpy(base, name, n - end);
	base[n - end] = '\0';
	return ckpt_find(ck, base) != NULL;
}

/* A file's stamps, which may be of tensors in other files, and may repeat what those say. */
static int add_stamps(struct checkpoint *ck, const struct st_file *f, char *why)
{
	const json_t *text = json_object_get(f->metadata, "colibri.fmt");
	const char *all =
		json_string_value(json_object_get(f->metadata, "colibri.container.formats"));
	json_t *value, *stamps = NULL;
	const char *name;
	int err = 0;

	ck->colibri_fp8 = ck->colibri_fp8 || (all && strstr(all, fp8_name));
	if (!text)
		return 0;
	if (json_is_string(text))
		stamps = json_loadb(json_string_value(text), json_string_length(text),
				    JSON_REJECT_DUPLICATES, NULL);
	if (!json_is_object(stamps)) {
		json_decref(stamps);
		return fail(why, EINVAL,
			    "%s: colibri.fmt in its metadata is not the text of a JSON "
			    "object",
			    f->path);
	}
	json_object_foreach(stamps, name, value)
	{
		const json_t *other = json_object_get(ck->stamps, name);
		if (err)
			continue;
		if (!json_is_string(value) || (other && !json_equal(value, other)))
			err = fail(why, EINVAL, "%s: colibri.fmt in its metadata has for %.200s %s",
				   f->path, name,
				   other ? "another format than another file"
					 : "no name of a format");
		else if (json_object_set(ck->stamps, name, value) != 0)
			err = fail(why, ENOMEM, "out of memory for the stamps of %s", ck->dir);
		else if (strcmp(json_string_value(value), fp8_name) == 0)
			ck->colibri_fp8 = true;
	}
	json_decref(stamps);
	return err;
}

int colibri_look(struct checkpoint *ck, char *why)
{
	bool indexer = false;
	int err = 0;

	for (size_t i = 0; i < ck->tensors; i++) {
		const char *name = ck->by_name[i].tensor->name;
		ck->colibri = ck->colibri || has_scales(ck, name);
		indexer = indexer || strstr(name, ".self_attn.indexer.");
	}
	if (!ck->colibri)
		return 0;
	if (ck->config.model.arch->indexer && !indexer)
		return fail(why, EINVAL,
			    "the container %s has no indexer (out-idx-*.safetensors, which "
			    "Colibri's converter makes with --indexer); the model needs it",
			    ck->dir);
	ck->stamps = json_object();
	if (!ck->stamps)
		return fail(why, ENOMEM, "out of memory for the stamps of %s", ck->dir);
	for (size_t i = 0; i < ck->files && !err; i++)
		err = add_stamps(ck, &ck->file[i], why);
	return err;
}
