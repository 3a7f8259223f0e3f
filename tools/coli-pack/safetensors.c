/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a safetensors header that may be damaged or made to harm. Every number in it is compared
 * with the size of the file before it is used, so what is allocated is bounded by what is there.
 */
#include "tools/coli-pack/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expertfs/fail.h"
#include "expertfs/xxh3.h"
#include "tools/coli-pack/textfile.h"

/* Bits an element of the types that the format knows. */
static const struct dtype {
	const char *name;
	uint8_t bits;
	enum st_dtype type;
} dtypes[] = {
	{ "F32", 32, ST_F32 },        { "F16", 16, ST_F16 },   { "BF16", 16, ST_BF16 },
	{ "F8_E4M3", 8, ST_F8_E4M3 }, { "F64", 64, ST_OTHER }, { "F8_E5M2", 8, ST_OTHER },
	{ "F8_E8M0", 8, ST_OTHER },   { "BOOL", 8, ST_OTHER }, { "I8", 8, ST_OTHER },
	{ "U8", 8, ST_OTHER },        { "I16", 16, ST_OTHER }, { "U16", 16, ST_OTHER },
	{ "I32", 32, ST_OTHER },      { "U32", 32, ST_OTHER }, { "I64", 64, ST_OTHER },
	{ "U64", 64, ST_OTHER },      { "C64", 64, ST_OTHER },
};

static const struct dtype *find_dtype(const char *name)
{
	for (size_t i = 0; i < sizeof(dtypes) / sizeof(*dtypes); i++)
		if (strcmp(dtypes[i].name, name) == 0)
			return &dtypes[i];
	return NULL;
}

unsigned st_dtype_size(enum st_dtype t)
{
	switch (t) {
	case ST_F32:
		return 4;
	case ST_F16:
	case ST_BF16:
		return 2;
	case ST_F8_E4M3:
		return 1;
	case ST_OTHER:
		break;
	}
	return 0;
}

const char *st_shape_text(const uint64_t *shape, int dims, char *buf, size_t bytes)
{
	size_t at = (size_t)snprintf(buf, bytes, "[");

	for (int i = 0; i < dims && at < bytes; i++)
		at += (size_t)snprintf(buf + at, bytes - at, "%s%" PRIu64, i ? ", " : "", shape[i]);
	if (at < bytes)
		snprintf(buf + at, bytes - at, "]");
	return buf;
}

static int bad_tensor(const struct st_file *f, const char *name, const char *what, char *why)
{
	return fail(why, EINVAL, "%s: the header's entry of %s %s", f->path, name, what);
}

static int parse_shape(const struct st_file *f, struct st_tensor *t, const json_t *shape, char *why)
{
	if (!json_is_array(shape) || json_array_size(shape) > ST_DIMS_MAX)
		return bad_tensor(f, t->name, "has no valid shape", why);
	t->dims = (int)json_array_size(shape);
	for (int i = 0; i < t->dims; i++) {
		const json_t *n = json_array_get(shape, (size_t)i);
		if (!json_is_integer(n) || json_integer_value(n) < 0)
			return bad_tensor(f, t->name, "has no valid shape", why);
		t->shape[i] = (uint64_t)json_integer_value(n);
	}
	return 0;
}

/* dtype x shape must be the length of the range. Types that we do not know cannot be checked. */
static int check_length(const struct st_file *f, const struct st_tensor *t, char *why)
{
	const struct dtype *d = find_dtype(t->dtype_name);
	uint64_t bits = d ? d->bits : 0;
	char text[160];

	if (!d)
		return 0;
	bool over = false;
	for (int i = 0; i < t->dims; i++)
		over |= __builtin_mul_overflow(bits, t->shape[i], &bits);
	if (over || bits / 8 != t->bytes)
		return fail(why, EINVAL,
			    "%s: %s is said to be %s %s, but its range has %" PRIu64 " bytes",
			    f->path, t->name, t->dtype_name,
			    st_shape_text(t->shape, t->dims, text, sizeof(text)), t->bytes);
	return 0;
}

static int parse_tensor(struct st_file *f, const char *name, const json_t *entry, char *why)
{
	const json_t *dtype = json_object_get(entry, "dtype");
	const json_t *range = json_object_get(entry, "data_offsets");
	const json_t *from = json_array_get(range, 0), *to = json_array_get(range, 1);
	struct st_tensor *t = &f->tensor[f->tensors];

	*t = (struct st_tensor){ .name = strdup(name), .file = f };
	if (!t->name)
		return fail(why, ENOMEM, "out of memory");
	f->tensors++;
	if (!json_is_string(dtype))
		return bad_tensor(f, name, "has no dtype", why);
	snprintf(t->dtype_name, sizeof(t->dtype_name), "%s", json_string_value(dtype));
	const struct dtype *d = find_dtype(json_string_value(dtype));
	t->dtype = d ? d->type : ST_OTHER;
	int err = parse_shape(f, t, json_object_get(entry, "shape"), why);
	if (err)
		return err;
	if (json_array_size(range) != 2 || !json_is_integer(from) || !json_is_integer(to) ||
	    json_integer_value(from) < 0 || json_integer_value(to) < json_integer_value(from))
		return bad_tensor(f, name, "has no valid data_offsets", why);
	t->offset = (uint64_t)json_integer_value(from);
	t->bytes = (uint64_t)json_integer_value(to) - t->offset;
	return check_length(f, t, why);
}

static int by_offset(const void *a, const void *b)
{
	const struct st_tensor *x = a, *y = b;
	uint64_t ends[2] = { x->offset + x->bytes, y->offset + y->bytes };

	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	/* Empty tensors come before the one that starts at the same place. */
	if (ends[0] != ends[1])
		return ends[0] < ends[1] ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* The ranges must tile the data; then makes the offsets those of the file. */
static int check_tiling(struct st_file *f, char *why)
{
	uint64_t start = 8 + f->header_bytes, data = f->bytes - start, at = 0, end = 0;

	for (size_t i = 0; i < f->tensors; i++)
		if (f->tensor[i].offset + f->tensor[i].bytes > end)
			end = f->tensor[i].offset + f->tensor[i].bytes;
	if (end > data)
		return fail(why, EINVAL,
			    "%s is truncated: it has %" PRIu64
			    " bytes, its header describes %" PRIu64,
			    f->path, f->bytes, start + end);
	if (f->tensors)
		qsort(f->tensor, f->tensors, sizeof(*f->tensor), by_offset);
	for (size_t i = 0; i < f->tensors; i++) {
		struct st_tensor *t = &f->tensor[i];
		if (t->offset < at)
			return fail(why, EINVAL, "%s: %s and %s overlap", f->path,
				    f->tensor[i - 1].name, t->name);
		if (t->offset > at)
			return fail(why, EINVAL,
				    "%s: the %" PRIu64 " bytes before %s belong to no tensor",
				    f->path, t->offset - at, t->name);
		at += t->bytes;
		t->offset += start;
	}
	if (at != data)
		return fail(why, EINVAL, "%s: the last %" PRIu64 " bytes belong to no tensor",
			    f->path, data - at);
	return 0;
}

static int parse_header(struct st_file *f, const char *text, char *why)
{
	json_error_t where;
	json_t *root = json_loadb(text, f->header_bytes, JSON_REJECT_DUPLICATES, &where);
	const char *name;
	json_t *entry;
	int err = 0;

	/* The library's own text is not shown: it quotes the input. */
	if (!json_is_object(root)) {
		err = fail(why, EINVAL, "%s: the header is not a valid JSON object%s", f->path,
			   !root && json_error_code(&where) == json_error_duplicate_key
				   ? " (a tensor is named twice)"
				   : "");
		json_decref(root);
		return err;
	}
	f->tensor = calloc(json_object_size(root) + 1, sizeof(*f->tensor));
	if (!f->tensor) {
		json_decref(root);
		return fail(why, ENOMEM, "out of memory for the header of %s", f->path);
	}
	json_object_foreach(root, name, entry)
	{
		if (err == 0 && strcmp(name, "__metadata__") != 0)
			err = parse_tensor(f, name, entry, why);
	}
	f->metadata = json_incref(json_object_get(root, "__metadata__"));
	json_decref(root);
	return err ? err : check_tiling(f, why);
}

static int read_header(struct st_file *f, char *why)
{
	static const char lfs[] = "version https://git-lfs";
	uint8_t head[sizeof(lfs) - 1];
	int err = text_read_at(f->fd, f->path, head, 8, 0, why);

	if (err)
		return err;
	for (int i = 7; i >= 0; i--)
		f->header_bytes = f->header_bytes << 8 | head[i];
	if (f->bytes >= sizeof(head) &&
	    text_read_at(f->fd, f->path, head, sizeof(head), 0, NULL) == 0 &&
	    memcmp(head, lfs, sizeof(head)) == 0)
		return fail(why, EINVAL,
			    "%s is only a Git LFS pointer: fetch the file itself (git lfs pull)",
			    f->path);
	if (f->header_bytes > ST_HEADER_MAX || f->header_bytes < 2)
		return fail(why, EINVAL,
			    "%s is not a safetensors file: its header would have %" PRIu64 " bytes",
			    f->path, f->header_bytes);
	if (f->header_bytes > f->bytes - 8)
		return fail(why, EINVAL,
			    "%s is truncated: it has %" PRIu64 " bytes, its header alone %" PRIu64,
			    f->path, f->bytes, f->header_bytes + 8);
	char *text = malloc(f->header_bytes);
	if (!text)
		return fail(why, ENOMEM, "out of memory for the header of %s", f->path);
	err = text_read_at(f->fd, f->path, text, f->header_bytes, 8, why);
	if (err == 0) {
		f->header_check = XXH3_64bits(text, f->header_bytes);
		err = parse_header(f, text, why);
	}
	free(text);
	return err;
}

int st_open(const char *path, struct st_file *f, char *why)
{
	struct stat st;
	int err;

	*f = (struct st_file){ .path = strdup(path), .fd = -1 };
	if (!f->path)
		return fail(why, ENOMEM, "out of memory");
	f->fd = text_open(path, &st, why);
	err = f->fd < 0 ? f->fd : 0;
	if (err == 0) {
		f->bytes = (uint64_t)st.st_size;
		f->mtime = st.st_mtim;
		if (f->bytes < 8)
			err = fail(why, EINVAL,
				   "%s is truncated: it has %" PRIu64 " bytes, not even a header",
				   path, f->bytes);
	}
	err = err ? err : read_header(f, why);
	if (err)
		st_close(f);
	return err;
}

void st_close(struct st_file *f)
{
	for (size_t i = 0; i < f->tensors; i++)
		free(f->tensor[i].name);
	free(f->tensor);
	json_decref(f->metadata);
	if (f->fd >= 0)
		close(f->fd);
	free(f->path);
	*f = (struct st_file){ .fd = -1 };
}
