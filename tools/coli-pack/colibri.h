/* SPDX-License-Identifier: Apache-2.0
 *
 * Colibri's containers: a checkpoint folder (checkpoint.h) in which matrices are quantised. Beside a
 * matrix X [rows, cols], bytes (U8) of whatever shape, lies X.qs, its scales (F32), row by row:
 *
 *	int8-row       1 byte a weight, signed                       a scale for each row
 *	int4-row       4 bits, with 8 added, the first of two in     a scale for each row
 *	               the low half; rows begin on whole bytes
 *	int4-grouped   the same                                      for each 16, 32, ... of a row
 *	fp8-e4m3-b128  1 byte, E4M3                                  for each 128 x 128 weights
 *
 * and a weight is the number times its scale. Tensors without scales are as in any checkpoint.
 *
 * Which of these a matrix is follows from the lengths of the two tensors. Where they allow more than
 * one, "colibri.fmt" in a file's metadata says it, JSON text {"X": "name of the format", ...}, about
 * any tensor of any of the files; without it int8-row comes before fp8-e4m3-b128, but in a container
 * that says that it has the latter (GLM-5.2's o_proj could be either), this is refused. There are more
 * formats (2 and 3 bits, lattices, UE8M0 scales), which are refused by their names.
 *
 * Source: docs/FORMATS.md and the converters of JustVugg/colibri, which call these formats 1, 2, 4
 * and 8.
 */
#ifndef COLI_PACK_COLIBRI_H
#define COLI_PACK_COLIBRI_H

#include "tools/coli-pack/source.h"

/* For ckpt_open(), when all tensors are known: sets ck->colibri if any has scales, then what the
 * metadata says.
 * 0, or negative errno with the sentence in why: stamps that contradict each other, and a model with
 * an indexer whose container has none (Colibri goes on without, and computes another model). */
int colibri_look(struct checkpoint *ck, char *why);

/* X.qs, or NULL if the matrix has none. */
const struct st_tensor *colibri_scales(const struct checkpoint *ck, const char *name);

/* The matrix t, which has scales. 0, or negative errno with the sentence in why. */
int colibri_source(const struct checkpoint *ck, const struct st_tensor *t, const uint64_t *shape,
		   int dims, struct source *s, char *why);

struct colibri_format {
	const char *name;
	enum source_form form; /* SOURCE_NUMBERS: known, but not read here */
	uint64_t weight_bytes, scale_bytes;
	int block_rows, block_cols;
};

/* The format of a matrix [rows, cols] (both below 2^31) with tensors of these lengths; stamp: what
 * colibri.fmt says, or NULL. 0, or -EINVAL with the sentence in why, which begins with `name`. */
int colibri_format_of(const char *name, uint64_t rows, uint64_t cols, uint64_t weight_bytes,
		      uint64_t scale_bytes, const char *stamp, struct colibri_format *out,
		      char *why);

#endif
