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
#include <string.h>

#include "engine/quant.h"
#include "expertfs/fail.h"
#include "tools/coli-pack/textfile.h"

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
	if (s->scale->dtype != ST_F32)
		return fail(why, EINVAL, "%s in %s is %s, not F32", name, s->scale->file->path,
			    s->scale->dtype_name);
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
		s->scale_offset +=
			(uint64_t)e * sizeof(float) * s->scale->shape[1] * s->scale->shape[2];
	return 0;
}

size_t source_row_bytes(const struct source *s)
{
	return s->raw_row ? s->raw_row : (size_t)s->cols * st_dtype_size(s->tensor->dtype);
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

int source_read(const struct source *s, int64_t row, int64_t rows, void *buf, float *scales,
		char *why)
{
	const struct st_file *f = s->tensor->file;
	size_t bytes = (size_t)rows * source_row_bytes(s);
	uint64_t from = s->offset + (uint64_t)row * source_row_bytes(s);
	int err;

	/* The whole range is asked for at once: the drive sees a deep queue, not one small request.
	 */
	posix_fadvise(f->fd, (off_t)from, (off_t)bytes, POSIX_FADV_WILLNEED);
	err = text_read_at(f->fd, f->path, buf, bytes, from, why);
	posix_fadvise(f->fd, (off_t)from, (off_t)bytes, POSIX_FADV_DONTNEED);
	if (err || !s->scale)
		return err;
	int64_t width = blocks(s->cols, s->block_cols);
	return text_read_at(
		s->scale->file->fd, s->scale->file->path, scales,
		source_scales(s, row, rows) * sizeof(float),
		s->scale_offset + (uint64_t)(first_block(s, row) * width) * sizeof(float), why);
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

void source_row(const struct source *s, int64_t first, int64_t row, const void *buf,
		const float *scales, float *dst)
{
	const char *from = (const char *)buf + (size_t)(row - first) * source_row_bytes(s);

	switch (s->tensor->dtype) {
	case ST_F32:
		memcpy(dst, from, (size_t)s->cols * sizeof(float));
		break;
	case ST_BF16:
		for (int i = 0; i < s->cols; i++) {
			uint16_t v;
			memcpy(&v, from + 2 * (size_t)i, sizeof(v));
			dst[i] = bf16_to_float(v);
		}
		break;
	case ST_F16:
		for (int i = 0; i < s->cols; i++) {
			uint16_t v;
			memcpy(&v, from + 2 * (size_t)i, sizeof(v));
			dst[i] = half_to_float(v);
		}
		break;
	case ST_F8_E4M3:
		scales += (first_block(s, row) - first_block(s, first)) *
			  blocks(s->cols, s->block_cols);
		row_e4m3(s, (const uint8_t *)from, scales, dst);
		break;
	case ST_OTHER: /* refused when the source was bound */
		break;
	}
}
