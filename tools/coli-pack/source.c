/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrices of the checkpoint, row by row as floats. See source.h.
 */
#include "tools/coli-pack/source.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/fail.h"
#include "tools/coli-pack/colibri.h"
#include "tools/coli-pack/textfile.h"

#define MXFP4_GROUP   32 /* numbers with one scale */
#define MXFP4_BYTES   16
#define MXFP4_LARGEST 252 /* scale with which all numbers are finite as float32 */

static int64_t blocks(int64_t n, int size)
{
	return (n + size - 1) / size;
}

static int wrong_shape(const struct st_tensor *t, const uint64_t *want, int dims, char *why)
{
	char is[160], asked[160];

	return fail(why, EINVAL, "%s in %s has the shape %s, config.json asks for %s", t->name,
		    t->file->path, st_shape_text(t->shape, t->dims, is, sizeof(is)),
		    st_shape_text(want, dims, asked, sizeof(asked)));
}

static bool has_shape(const struct st_tensor *t, const uint64_t *want, int dims)
{
	return t->dims == dims && memcmp(t->shape, want, (size_t)dims * sizeof(*want)) == 0;
}

static int bind_scale(const struct checkpoint *ck, struct source *s, const uint64_t *shape,
		      int dims, char *why)
{
	char name[512];
	uint64_t want[3] = { 0 };

	if (dims < 2)
		return fail(why, EINVAL, "%s in %s is a vector of type F8_E4M3", s->tensor->name,
			    s->tensor->file->path);
	snprintf(name, sizeof(name), "%s_scale_inv", s->tensor->name);
	s->scale = ckpt_find(ck, name);
	if (!s->scale)
		return fail(why, EINVAL, "%s in %s is F8_E4M3, but there is no %s", s->tensor->name,
			    s->tensor->file->path, name);
	if (s->scale->dtype != ST_F32 && s->scale->dtype != ST_BF16)
		return fail(why, EINVAL, "%s in %s is %s, not F32 or BF16", name,
			    s->scale->file->path, s->scale->dtype_name);
	s->form = SOURCE_E4M3;
	s->block_rows = ck->config.block_rows;
	s->block_cols = ck->config.block_cols;
	want[0] = shape[0];
	want[dims - 2] = (uint64_t)blocks((int64_t)shape[dims - 2], s->block_rows);
	want[dims - 1] = (uint64_t)blocks((int64_t)shape[dims - 1], s->block_cols);
	if (!has_shape(s->scale, want, dims))
		return wrong_shape(s->scale, want, dims, why);
	s->scale_offset = s->scale->offset;
	return 0;
}

static int bind_tensor(const struct checkpoint *ck, const char *name, const uint64_t *shape,
		       int dims, struct source *s, char *why)
{
	const struct st_tensor *t = ckpt_find(ck, name);
	uint64_t cols = shape[dims - 1];

	if (cols > SOURCE_MAX_COLS)
		return fail(why, EINVAL, "%s would have rows of %" PRIu64 " weights", name, cols);
	if (!t)
		return fail(why, EINVAL, "the checkpoint %s has no tensor %s", ck->dir, name);
	if (colibri_scales(ck, name))
		return colibri_source(ck, t, shape, dims, s, why);
	if (!has_shape(t, shape, dims))
		return wrong_shape(t, shape, dims, why);
	if (t->dtype == ST_OTHER)
		return fail(why, EINVAL,
			    "%s in %s is of type %s; supported: F32, F16, BF16, F8_E4M3", name,
			    t->file->path, t->dtype_name);
	*s = (struct source){ .tensor = t, .offset = t->offset, .cols = (int)cols };
	return t->dtype == ST_F8_E4M3 ? bind_scale(ck, s, shape, dims, why) : 0;
}

int source_whole(const struct checkpoint *ck, const char *name, int dims, int64_t rows, int cols,
		 struct source *s, char *why)
{
	uint64_t shape[2] = { (uint64_t)rows, (uint64_t)cols };
	int err = bind_tensor(ck, name, dims == 1 ? shape + 1 : shape, dims, s, why);

	s->rows = rows;
	return err;
}

int source_slice(const struct checkpoint *ck, const char *name, int experts, int e, int all_rows,
		 int from, int rows, int cols, struct source *s, char *why)
{
	uint64_t shape[3] = { (uint64_t)experts, (uint64_t)all_rows, (uint64_t)cols };
	int err = bind_tensor(ck, name, shape, 3, s, why);

	if (err)
		return err;
	uint64_t row = (uint64_t)e * (uint64_t)all_rows + (uint64_t)from;
	s->offset += row * source_row_bytes(s);
	s->rows = rows;
	s->skipped = from;
	if (s->scale)
		s->scale_offset += (uint64_t)e * st_dtype_size(s->scale->dtype) *
				   s->scale->shape[1] * s->scale->shape[2];
	return 0;
}

int source_part(const struct checkpoint *ck, const char *name, const uint64_t *shape, int dims,
		const struct source_part *part, struct source *s, char *why)
{
	int err = bind_tensor(ck, name, shape, dims, s, why);

	if (err)
		return err;
	if (s->scale)
		return fail(why, EINVAL,
			    "%s in %s has scales: a matrix that is interleaved or transposed "
			    "cannot have them",
			    name, s->tensor->file->path);
	uint64_t each = st_dtype_size(s->tensor->dtype);
	s->offset += part->first * each;
	s->row_step = part->row_step * each;
	s->unit_step = part->col_step * each;
	s->rows = part->rows;
	s->cols = part->cols;
	s->again = part->again;
	return 0;
}

static int bind_bytes(const struct checkpoint *ck, const char *name, const char *end,
		      const uint64_t *shape, int dims, const struct st_tensor **out, char *why)
{
	char full[256];

	snprintf(full, sizeof(full), "%s%s", name, end);
	const struct st_tensor *t = ckpt_find(ck, full);
	if (!t)
		return fail(why, EINVAL, "the checkpoint %s has no tensor %s", ck->dir, full);
	if (!has_shape(t, shape, dims))
		return wrong_shape(t, shape, dims, why);
	if (strcmp(t->dtype_name, "U8") != 0)
		return fail(why, EINVAL, "%s in %s is of type %s, not U8", full, t->file->path,
			    t->dtype_name);
	*out = t;
	return 0;
}

int source_mxfp4(const struct checkpoint *ck, const char *name, int experts, int e, int all_rows,
		 int from, int row_step, int rows, int cols, struct source *s, char *why)
{
	uint64_t groups = (uint64_t)cols / MXFP4_GROUP, row_bytes = groups * MXFP4_BYTES;
	const uint64_t shape[4] = { (uint64_t)experts, (uint64_t)all_rows, groups, MXFP4_BYTES };
	uint64_t row = (uint64_t)e * (uint64_t)all_rows + (uint64_t)from;

	if (cols % MXFP4_GROUP)
		return fail(why, EINVAL, "%s: rows of %d numbers are not whole groups of %d", name,
			    cols, MXFP4_GROUP);
	*s = (struct source){ .form = SOURCE_MXFP4,
			      .rows = rows,
			      .cols = cols,
			      .block_rows = 1,
			      .block_cols = MXFP4_GROUP };
	int err = bind_bytes(ck, name, "_blocks", shape, 4, &s->tensor, why);
	err = err ? err : bind_bytes(ck, name, "_scales", shape, 3, &s->scale, why);
	if (err)
		return err;
	s->offset = s->tensor->offset + row * row_bytes;
	s->scale_offset = s->scale->offset + row * groups;
	s->row_step = (uint64_t)row_step * row_bytes;
	s->unit_step = 1;
	s->again = from + 1 < row_step;
	return 0;
}

static size_t unit_bytes(const struct source *s)
{
	return s->form == SOURCE_NUMBERS ? st_dtype_size(s->tensor->dtype) : 1;
}

size_t source_row_bytes(const struct source *s)
{
	if (s->raw_row)
		return s->raw_row;
	if (s->form == SOURCE_MXFP4 || s->form == SOURCE_INT4)
		return (size_t)(s->cols + 1) / 2;
	return (size_t)s->cols * unit_bytes(s);
}

static int64_t first_block(const struct source *s, int64_t row)
{
	return (s->skipped + row) / s->block_rows;
}

size_t source_scales(const struct source *s, int64_t row, int64_t rows)
{
	if (!s->scale)
		return 0;
	int64_t n = first_block(s, row + rows - 1) - first_block(s, row) + 1;
	return (size_t)(n * blocks(s->cols, s->block_cols));
}

/* Rows row .. row + rows - 1 of a source whose rows do not lie one after the other. It is read in
 * runs along the nearer step: of a row, or, where it is transposed, of a column. */
static int read_scattered(const struct source *s, int64_t row, int64_t rows, char *buf, char *why)
{
	const struct st_file *f = s->tensor->file;
	size_t unit = unit_bytes(s), row_bytes = source_row_bytes(s);
	uint64_t n = (uint64_t)rows, width = row_bytes / unit;
	bool across = s->row_step < s->unit_step;
	uint64_t near = across ? s->row_step : s->unit_step, count = across ? n : width;
	uint64_t far = across ? s->unit_step : s->row_step, runs = across ? width : n;
	bool dense = !across && near == unit; /* each run is a row as it will lie */
	size_t bytes = (size_t)(near * (count - 1) + unit);
	char *run = malloc(bytes);
	int err = 0;

	if (!run)
		return fail(why, ENOMEM, "out of memory for %zu bytes of a tensor", bytes);
	for (uint64_t i = 0; i < runs && !err; i++) {
		err = text_read_at(f->fd, f->path, dense ? buf + i * row_bytes : run, bytes,
				   s->offset + (uint64_t)row * s->row_step + i * far, why);
		for (uint64_t k = 0; k < count && !dense && !err; k++)
			memcpy(buf + (across ? k * row_bytes + i * unit : i * row_bytes + k * unit),
			       run + k * near, unit);
	}
	free(run);
	return err;
}

/* One byte a group: the exponent of 2, with an offset of 127. 255 is no number. */
static int read_exponents(const struct source *s, int64_t row, int64_t rows, float *scales,
			  char *why)
{
	const struct st_file *f = s->scale->file;
	size_t groups = (size_t)s->cols / MXFP4_GROUP;
	uint64_t step = s->row_step / MXFP4_BYTES;
	uint8_t *bytes = malloc(groups);
	int err = 0;

	if (!bytes)
		return fail(why, ENOMEM, "out of memory for %zu scales", groups);
	for (int64_t r = 0; r < rows && !err; r++, scales += groups) {
		err = text_read_at(f->fd, f->path, bytes, groups,
				   s->scale_offset + (uint64_t)(row + r) * step, why);
		for (size_t i = 0; i < groups && !err; i++)
			scales[i] = bytes[i] == 255 ? NAN : ldexpf(1, bytes[i] - 127);
	}
	free(bytes);
	return err;
}

/* As float32, or as bfloat16 (Qwen): then widened from the back, where the first ones do not yet lie
 * in the way. */
static int read_blocks(const struct source *s, int64_t row, int64_t rows, float *scales, char *why)
{
	const struct st_file *f = s->scale->file;
	size_t count = source_scales(s, row, rows), each = st_dtype_size(s->scale->dtype);
	uint64_t first = (uint64_t)(first_block(s, row) * blocks(s->cols, s->block_cols));
	int err = text_read_at(f->fd, f->path, scales, count * each, s->scale_offset + first * each,
			       why);

	for (size_t i = count; !err && s->scale->dtype == ST_BF16 && i-- > 0;) {
		uint16_t v;
		memcpy(&v, (const char *)scales + i * each, sizeof(v));
		scales[i] = bf16_to_float(v);
	}
	return err;
}

/* Where rows row .. row + rows - 1 lie, with what is between them. */
static uint64_t range_of(const struct source *s, int64_t row, int64_t rows, uint64_t *bytes)
{
	size_t unit = unit_bytes(s), row_bytes = source_row_bytes(s);
	uint64_t step = s->row_step ? s->row_step : row_bytes;
	uint64_t width = s->row_step ? (row_bytes / unit - 1) * s->unit_step + unit : row_bytes;

	*bytes = (uint64_t)(rows - 1) * step + width;
	return s->offset + (uint64_t)row * step;
}

int source_read(const struct source *s, int64_t row, int64_t rows, void *buf, float *scales,
		char *why)
{
	const struct st_file *f = s->tensor->file;
	uint64_t bytes, from = range_of(s, row, rows, &bytes);
	int err;

	/* The whole range is asked for at once: the drive sees a deep queue, not one small request.
	 */
	posix_fadvise(f->fd, (off_t)from, (off_t)bytes, POSIX_FADV_WILLNEED);
	err = s->row_step ? read_scattered(s, row, rows, buf, why)
			  : text_read_at(f->fd, f->path, buf, bytes, from, why);
	if (!s->again)
		posix_fadvise(f->fd, (off_t)from, (off_t)bytes, POSIX_FADV_DONTNEED);
	if (err || !s->scale)
		return err;
	return s->form == SOURCE_MXFP4 ? read_exponents(s, row, rows, scales, why)
				       : read_blocks(s, row, rows, scales, why);
}

/* The OCP 8-bit format E4M3: bias 7, no infinities, all ones is not a number. */
static float e4m3_table[256];

static void make_e4m3(void)
{
	for (int i = 0; i < 256; i++) {
		int exp = i >> 3 & 15, man = i & 7;
		float v = exp ? ldexpf((float)(8 + man), exp - 10) : ldexpf((float)man, -9);
		if (exp == 15 && man == 7)
			v = NAN;
		e4m3_table[i] = i & 0x80 ? -v : v;
	}
}

static void row_e4m3(const struct source *s, const uint8_t *from, const float *scales, float *dst)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, make_e4m3);
	for (int c = 0; c < s->cols; scales++) {
		int end = s->cols - c > s->block_cols ? c + s->block_cols : s->cols;
		for (; c < end; c++)
			dst[c] = e4m3_table[from[c]] * *scales;
	}
}

static void row_mxfp4(const struct source *s, const uint8_t *from, const float *scales, float *dst)
{
	static const float e2m1[16] = { 0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
					-0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6 };

	for (int c = 0; c < s->cols; c += 2, from++) {
		float scale = scales[c / MXFP4_GROUP];
		dst[c] = e2m1[*from & 15] * scale;
		dst[c + 1] = e2m1[*from >> 4] * scale;
	}
}

static int integer(const struct source *s, const uint8_t *from, int i)
{
	if (s->form == SOURCE_INT8)
		return (int8_t)from[i];
	return (from[i / 2] >> i % 2 * 4 & 15) - 8;
}

static void row_integers(const struct source *s, const uint8_t *from, const float *scales,
			 float *dst)
{
	for (int c = 0; c < s->cols; scales++) {
		int end = s->cols - c > s->block_cols ? c + s->block_cols : s->cols;
		for (; c < end; c++)
			dst[c] = (float)integer(s, from, c) * *scales;
	}
}

static void row_numbers(const struct source *s, const char *from, float *dst)
{
	enum st_dtype type = s->tensor->dtype;

	if (type == ST_F32) {
		memcpy(dst, from, (size_t)s->cols * sizeof(float));
		return;
	}
	for (int i = 0; i < s->cols; i++) {
		uint16_t v;
		memcpy(&v, from + 2 * (size_t)i, sizeof(v));
		dst[i] = type == ST_BF16 ? bf16_to_float(v) : half_to_float(v);
	}
}

static const void *row_of(const struct source *s, int64_t first, int64_t row, const void *buf)
{
	return (const char *)buf + (size_t)(row - first) * source_row_bytes(s);
}

const float *source_row_scales(const struct source *s, int64_t first, int64_t row,
			       const float *scales)
{
	return scales +
	       (first_block(s, row) - first_block(s, first)) * blocks(s->cols, s->block_cols);
}

void source_row(const struct source *s, int64_t first, int64_t row, const void *buf,
		const float *scales, float *dst)
{
	const void *from = row_of(s, first, row, buf);

	if (s->form == SOURCE_NUMBERS) {
		row_numbers(s, from, dst);
		return;
	}
	scales = source_row_scales(s, first, row, scales);
	if (s->form == SOURCE_E4M3)
		row_e4m3(s, from, scales, dst);
	else if (s->form == SOURCE_MXFP4)
		row_mxfp4(s, from, scales, dst);
	else
		row_integers(s, from, scales, dst);
}

bool source_keeps_codes(const struct source *s, struct wfmt f)
{
	bool holds = f.type == W_Q8 ? s->form == SOURCE_INT8 || s->form == SOURCE_INT4
				    : f.type == W_Q4 && s->form == SOURCE_INT4;

	return holds && (s->block_cols >= s->cols || s->block_cols % f.group == 0);
}

void source_codes(const struct source *s, int64_t first, int64_t row, const void *buf, int8_t *dst)
{
	const uint8_t *from = row_of(s, first, row, buf);

	for (int i = 0; i < s->cols; i++)
		dst[i] = (int8_t)integer(s, from, i);
}

/* The exponent that read_exponents() made a scale of. */
static unsigned exponent_of(float scale)
{
	union {
		float f;
		uint32_t u;
	} x = { .f = scale };

	return x.u >> 23 & 255;
}

int source_blocks(const struct source *s, int64_t first, int64_t row, const void *buf,
		  const float *scales, uint8_t *dst)
{
	const uint8_t *from = row_of(s, first, row, buf);

	scales = source_row_scales(s, first, row, scales);
	for (int g = 0; g < s->cols / MXFP4_GROUP; g++, from += MXFP4_BYTES) {
		unsigned e = exponent_of(scales[g]);
		if (e > MXFP4_LARGEST)
			return -EDOM;
		*dst++ = (uint8_t)e;
		/* Numbers 2k and 2k + 1 share a byte of ours, k and 16 + k one of theirs. */
		for (int k = 0; k < MXFP4_GROUP / 2; k++) {
			int low = from[k / 2] >> k % 2 * 4 & 15;
			int high = from[8 + k / 2] >> k % 2 * 4 & 15;
			*dst++ = (uint8_t)(low | high << 4);
		}
	}
	return 0;
}
