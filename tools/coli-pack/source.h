/* SPDX-License-Identifier: Apache-2.0
 *
 * A matrix where it lies in the checkpoint: a whole tensor, some rows of one expert in a tensor that
 * holds all experts of a layer, or a part of a tensor in which it is interleaved or transposed. Its
 * rows come out as floats, whatever they are stored as.
 *
 * F8_E4M3 weights have a second tensor, NAME_scale_inv, with one number for each block of (usually)
 * 128 x 128 weights, F32 or BF16; the weight is the product (DeepSeek-V3's fp8 checkpoints; glm-5.2
 * the same).
 *
 * MXFP4 matrices (gpt-oss) are two tensors of bytes: NAME_blocks [..., cols / 32, 16], of two 4-bit
 * numbers (E2M1) a byte, the first in the low nibble; and NAME_scales [..., cols / 32], of which
 * each scales 32 numbers by 2^(scale - 127). (OCP Microscaling Formats 1.0, 5.2.) W_MXFP4 has the
 * same numbers in another order, so they can be kept to the bit: source_blocks().
 *
 * Colibri's containers have matrices of 8- and 4-bit integers, of E4M3 too: see colibri.h.
 */
#ifndef COLI_PACK_SOURCE_H
#define COLI_PACK_SOURCE_H

#include "engine/quant.h"
#include "tools/coli-pack/checkpoint.h"

#define SOURCE_MAX_COLS (1 << 24) /* of a row, so that one fits a chunk of reader.h */

/* What a row is made of. All but the first have scales: a weight is the number times the scale of
 * its block. */
enum source_form {
	SOURCE_NUMBERS, /* of the tensor's type */
	SOURCE_E4M3,
	SOURCE_MXFP4,
	SOURCE_INT8, /* signed */
	SOURCE_INT4  /* two a byte, the first in the low half, each with 8 added */
};

struct source {
	const struct st_tensor *tensor;
	enum source_form form;
	uint64_t offset; /* of the first row, in tensor->file */
	int64_t rows;
	int cols;
	const struct st_tensor *scale; /* NULL if there are none */
	uint64_t scale_offset; /* of the first scale of this matrix or expert, in scale->file */
	int skipped; /* rows of the scaled matrix before the first of ours (a fused up matrix) */
	int block_rows, block_cols; /* of a scale */
	/* Distances in the file, in bytes: from one row to the next, and from one stored unit of a
	 * row (a number; of MXFP4 a byte) to the next. row_step 0: rows lie one after the other. */
	uint64_t row_step, unit_step;
	bool again; /* what lies between will be read as well: the kernel should not forget it */
	size_t raw_row; /* not 0: bytes of a row of a GGUF tensor, to be copied as they are */
};

/* The tensor `name`, which must have the shape [rows, cols], or [cols] if dims is 1. 0 or negative
 * errno with the sentence in why: absent, another shape, a type that is no weight. */
int source_whole(const struct checkpoint *ck, const char *name, int dims, int64_t rows, int cols,
		 struct source *s, char *why);

/* Rows from..from+rows-1 of expert e in the tensor `name` of shape [experts, all_rows, cols]. */
int source_slice(const struct checkpoint *ck, const char *name, int experts, int e, int all_rows,
		 int from, int rows, int cols, struct source *s, char *why);

/* A part of the tensor `name` of this shape: `rows` rows of cols numbers, of which the first is
 * number `first` of the tensor; row_step and col_step: from one to the next, in numbers. */
struct source_part {
	uint64_t first, row_step, col_step;
	int64_t rows;
	int cols;
	bool again;
};
int source_part(const struct checkpoint *ck, const char *name, const uint64_t *shape, int dims,
		const struct source_part *part, struct source *s, char *why);

/* Rows from, from + row_step, ... of expert e in the MXFP4 tensors NAME_blocks and NAME_scales of
 * shape [experts, all_rows, ...]. */
int source_mxfp4(const struct checkpoint *ck, const char *name, int experts, int e, int all_rows,
		 int from, int row_step, int rows, int cols, struct source *s, char *why);

/* Bytes of one row as source_read() brings it. */
size_t source_row_bytes(const struct source *s);
/* Scales that `rows` rows from `row` on need: the size of source_read()'s scales. 0 without. */
size_t source_scales(const struct source *s, int64_t row, int64_t rows);

/* Reads rows row..row+rows-1 into buf, their scales into scales. Lets the kernel forget the file's
 * pages, so that a checkpoint of a terabyte does not push everything else out of memory. */
int source_read(const struct source *s, int64_t row, int64_t rows, void *buf, float *scales,
		char *why);

/* Row `row` of what source_read(s, first, ...) has read, as floats. Not finite where the checkpoint
 * is not. May run in any number of threads. */
void source_row(const struct source *s, int64_t first, int64_t row, const void *buf,
		const float *scales, float *dst);

/* Whether the matrix is of integers that the format f can hold as they are: q8 or q4 with a group
 * that does not reach over two scales. Then quant_row_coded() takes what the next two give: the
 * integers of row `row`, and its scales, one for each block_cols of them. */
bool source_keeps_codes(const struct source *s, struct wfmt f);
void source_codes(const struct source *s, int64_t first, int64_t row, const void *buf, int8_t *dst);
const float *source_row_scales(const struct source *s, int64_t first, int64_t row,
			       const float *scales);

/* Row `row` of an MXFP4 matrix as a row of W_MXFP4 (engine/ggml.h), every number the same. -EDOM if
 * a scale is so large that a number may not be a finite float32. */
int source_blocks(const struct source *s, int64_t first, int64_t row, const void *buf,
		  const float *scales, uint8_t *dst);

#endif
