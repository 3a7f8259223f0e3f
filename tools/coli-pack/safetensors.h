/* SPDX-License-Identifier: Apache-2.0
 *
 * One .safetensors file: its header read, checked and turned into a table; the data stays on disk.
 *
 *	8 bytes    length N of the header, little-endian
 *	N bytes    JSON: {"name": {"dtype": "BF16", "shape": [r, c], "data_offsets": [from, to]},
 * ...} the rest   the tensors, row-major, at these offsets from the end of the header
 *
 * Source of the format: the README of huggingface/safetensors. As there, the tensors must fill the
 * rest exactly: no overlap, no gap, nothing behind the last. "__metadata__" is kept unchecked.
 */
#ifndef COLI_PACK_SAFETENSORS_H
#define COLI_PACK_SAFETENSORS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define ST_HEADER_MAX 100000000u /* the limit of the reference reader */
#define ST_DIMS_MAX   8

/* Those that can be weights; all others are ST_OTHER, which can only be ignored. */
enum st_dtype { ST_OTHER, ST_F32, ST_F16, ST_BF16, ST_F8_E4M3 };

struct st_file;

struct st_tensor {
	char *name;
	const struct st_file *file;
	enum st_dtype dtype;
	char dtype_name[12]; /* as the file spells it, cut if longer */
	int dims;
	uint64_t shape[ST_DIMS_MAX];
	uint64_t offset; /* from the start of the file */
	uint64_t bytes;
};

struct st_file {
	char *path;
	int fd;
	uint64_t bytes;
	uint64_t header_bytes, header_check; /* N, and XXH3 of these bytes */
	struct timespec mtime;
	json_t *metadata; /* "__metadata__", NULL if there is none */
	size_t tensors;
	struct st_tensor *tensor; /* in order of offset */
};

/* Opens and checks path, and keeps it open for reading. f must stay where it is, since its tensors
 * point to it. 0, or negative errno with the sentence in why; then f needs no st_close(). */
int st_open(const char *path, struct st_file *f, char *why);
void st_close(struct st_file *f);

/* Bytes an element; 0 for ST_OTHER. */
unsigned st_dtype_size(enum st_dtype t);

/* "[256, 6144]" into buf, for sentences. Returns buf. */
const char *st_shape_text(const uint64_t *shape, int dims, char *buf, size_t bytes);

#endif
