/* SPDX-License-Identifier: Apache-2.0
 *
 * Weight formats: how a matrix lies in dense.bin and in an expert file, and how it got there.
 *
 * coli-pack quantises with this file, the engine's kernels read what it wrote.
 *
 *	f32   4 bytes an element
 *	bf16  2 bytes an element
 *	q8    signed 8-bit codes in groups of 32, 64 or 128 along the input dimension (the columns),
 *	      one fp16 scale a group:         w = scale * code,        code in -127..127
 *	q4    4-bit codes, the same groups:   w = scale * (code - 8),  code in 0..15
 *
 * and, from GGUF files, f16 and the block formats of ggml.h; coli-pack makes MXFP4 of gpt-oss's, too.
 *
 * A matrix [rows, cols] (rows = output, as Hugging Face has it) of f32 or bf16 is its rows one after
 * the other, then zeros up to a multiple of 64 bytes. One of q8 or q4 is
 *
 *	codes   rows, rounded up to whole blocks of 16, * wfmt_row_bytes()
 *	scales  the same rows * groups * 2 bytes, fp16, little-endian, zeros up to a multiple of 64
 *
 * where the rows of a block are interleaved, so that a mapped page is what the kernels want to read:
 *
 *	q8      [block][cols / 4][16 rows][4]    byte j of a row's 4: column 4k + j
 *	q4      [block][cols / 8][16 rows][4]    byte j of a row's 4: column 8k + j in the low nibble,
 *	                                         column 8k + 4 + j in the high one
 *	scales  [block][group][16 rows]
 *
 * cols is rounded up to whole groups and filled with the code of 0. Rows beyond the last are zero
 * bytes throughout, hence of scale 0. Why so: 64 bytes are 16 rows times 4 (or 8) columns, that is
 * 16 sums of 32 bits for the instructions that multiply 4 bytes with 4 bytes and add (VPDPBUSD,
 * SDOT), whose other operand is 4 activations repeated: no shuffle, no sum across lanes, and a
 * thread that takes blocks in turn reads memory from front to back. Half the width or a quarter
 * (AVX2, NEON) reads the same bytes in the same order.
 */
#ifndef ENGINE_QUANT_H
#define ENGINE_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WBLOCK 16 /* rows of a block of q8 or q4 */

/* From W_F16 on: the formats of GGUF files (ggml.h), whose rows are whole blocks one after the other;
 * nothing is quantised to them here. */
enum wtype {
	W_F32,
	W_BF16,
	W_Q8,
	W_Q4,
	W_F16,
	W_Q8_0,
	W_Q4_0,
	W_Q4_1,
	W_Q5_0,
	W_Q5_1,
	W_Q2_K,
	W_Q3_K,
	W_Q4_K,
	W_Q5_K,
	W_Q6_K,
	W_IQ4_NL,
	W_IQ4_XS,
	W_MXFP4,
	W_IQ1_S,
	W_IQ1_M,
	W_IQ2_XXS,
	W_IQ2_XS,
	W_IQ2_S,
	W_IQ3_XXS,
	W_IQ3_S,
	W_TQ1_0,
	W_TQ2_0
};
#define WTYPES (W_TQ2_0 + 1)

struct wfmt {
	enum wtype type;
	int group; /* 32, 64 or 128 for q8 and q4, else 0 */
};

/* A matrix where it lies. Owns nothing. */
struct wmat {
	struct wfmt fmt;
	int rows, cols;
	const void *codes;
	const uint16_t *scales; /* q8 and q4; else NULL */
};

/* "f32", "bf16", "q8", "q4", "f16", "q4_k" and so on. */
const char *wtype_name(enum wtype t);
/* 0 or -EINVAL for an unknown name. */
int wtype_parse(const char *name, enum wtype *t);

/* Elements of a block of a GGUF format, of which rows have a whole number; 1 of all others. */
int wtype_block(enum wtype t);
/* Scales a row: ceil(cols / group); 0 unless q8 or q4. */
int wfmt_groups(struct wfmt f, int cols);
/* Bytes of one row of codes, wherever they lie. cols: whole blocks. */
size_t wfmt_row_bytes(struct wfmt f, int cols);
/* Offset of the scales from the start of the matrix, and the size of the whole. rows, cols >= 1. */
size_t wfmt_scales_offset(struct wfmt f, int64_t rows, int cols);
size_t wfmt_bytes(struct wfmt f, int64_t rows, int cols);
/* Whether `bytes` is the size of such a matrix: wfmt_bytes(), or without the zeros behind the last
 * row, as f32 and bf16 lie in GGUF files. False if cols are no whole blocks. */
bool wfmt_bytes_fit(struct wfmt f, int64_t rows, int cols, uint64_t bytes);
/* What a matrix must be aligned to: 64 for q8 and q4, else its elements, 1 if those are blocks. */
size_t wfmt_align(struct wfmt f);

/* Points *m into base, which must be aligned and of a size as the two functions above say; else
 * -EINVAL. */
int wmat_bind(struct wmat *m, struct wfmt f, int64_t rows, int cols, const void *base,
	      size_t bytes);

/* Rows that are stored: rows, for q8 and q4 rounded up to whole blocks. */
int64_t wfmt_stored_rows(struct wfmt f, int64_t rows);

/* Row `row` of a matrix or of a part of one: cols floats become wfmt_row_bytes() of codes and
 * wfmt_groups() scales at their places. codes and scales belong to the part's first row, which must
 * be a multiple of WBLOCK in its matrix; scales may be NULL if there are none. Rows touch no byte of
 * each other. Whoever gives the buffers zeroes them first, for the rows that fill up the last block.
 * q4 searches the scale with the least squared error among candidates; q8 takes max/127. Codes are
 * made with the scale as rounded to fp16. -EDOM if a weight is not finite or its group's scale
 * leaves the range of fp16. -EINVAL:
 * one of GGUF's formats. */
int quant_row(struct wfmt f, const float *src, int cols, int64_t row, void *codes,
	      uint16_t *scales);

/* The same for a row that is quantised already: weight i is scale[i / every] * src[i]. The integers
 * stay as they are and become q8 or q4; of the scales, which are rounded to fp16, every group gets
 * its own copy. every: a multiple of f.group, or cols and more. -EDOM if f cannot hold an integer,
 * or a scale is not finite or leaves the range of fp16. */
int quant_row_coded(struct wfmt f, const int8_t *src, const float *scale, int every, int cols,
		    int64_t row, void *codes, uint16_t *scales);

/* The inverse, exactly: cols floats. Plain C; the engine's kernels must give the same bits. */
void dequant_row(const struct wmat *m, int row, float *dst);

/* IEEE half and bfloat16. float_to_* round to nearest even. */
float half_to_float(uint16_t h);
uint16_t float_to_half(float f);
static inline float bf16_to_float(uint16_t b)
{
	union {
		uint32_t u;
		float f;
	} x = { .u = (uint32_t)b << 16 };
	return x.f;
}
uint16_t float_to_bf16(float f);

#endif
