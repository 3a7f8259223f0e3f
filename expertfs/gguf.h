/* SPDX-License-Identifier: Apache-2.0
 *
 * GGUF files: metadata and the table of tensors, read once and checked; the data stays on disk.
 *
 *	"GGUF", u32 version, u64 tensors, u64 keys
 *	keys      string, u32 type, value
 *	tensors   string, u32 dims, u64 dim each (fastest first), u32 type, u64 offset
 *	padding to general.alignment, then the data, which the offsets are relative to
 *
 * Little-endian; a string is its length as u64 and its bytes. A model may be split into several
 * files, PREFIX-00001-of-00003.gguf and so on, each with tensors of its own; the first has the
 * metadata. Source: docs/gguf.md of ggml.
 *
 * Whoever wrote the file is not trusted: every count, length, dimension and offset is compared with
 * the size of the file before it is used, so what is allocated is bounded by what is there. After
 * gguf_open() each tensor lies within its file, overlaps no other, and has a known type.
 *
 * A struct gguf never changes once it is open: any number of threads may read it.
 */
#ifndef EXPERTFS_GGUF_H
#define EXPERTFS_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "expertfs/gguf_type.h"

#define GGUF_PARTS_MAX  256 /* as many as a store has drives */
#define GGUF_DIMS_MAX   4
#define GGUF_NAME_MAX   127        /* bytes of a key's or tensor's name */
#define GGUF_HEADER_MAX (1u << 28) /* bytes of one file's header */

/* The types of values; the numbers are the format's. */
enum gguf_kind {
	GGUF_U8,
	GGUF_I8,
	GGUF_U16,
	GGUF_I16,
	GGUF_U32,
	GGUF_I32,
	GGUF_F32,
	GGUF_BOOL,
	GGUF_STRING,
	GGUF_ARRAY,
	GGUF_U64,
	GGUF_I64,
	GGUF_F64,
	GGUF_KINDS
};

/* A key with its value, which lies unparsed in the header. */
struct gguf_key {
	char *name;
	enum gguf_kind kind; /* of the value; of an array's elements if it is one */
	bool array;
	uint64_t count; /* elements; 1 if it is no array */
	size_t at;      /* where the first one begins in the header */
};

struct gguf_tensor {
	char *name;
	const struct gguf_type *type;
	int dims;
	uint64_t dim[GGUF_DIMS_MAX]; /* fastest first; 1 beyond dims */
	uint32_t part;               /* which file, from 0 */
	uint64_t offset, bytes;      /* from the start of that file */
};

struct gguf_part {
	char *path;
	int fd;
	uint64_t bytes;        /* of the file */
	uint64_t header_bytes; /* what comes before the data, without padding */
	uint64_t header_check; /* XXH3 of these */
	uint64_t align;        /* of the data */
	struct timespec mtime;
};

struct gguf {
	uint32_t parts;
	struct gguf_part *part;
	uint8_t *header; /* of the first part, header_bytes */
	size_t keys, tensors;
	struct gguf_key *key;       /* sorted by name */
	struct gguf_tensor *tensor; /* sorted by name */
	const char *arch;           /* general.architecture */
};

/* Whether path names a GGUF file: by its ending, or by its first bytes if it is a regular file. */
bool gguf_is(const char *path);

/* Opens the file and, if its name and metadata say that it is the first of several, the others. 0,
 * or negative errno with the sentence in why: -EINVAL what is there is wrong. */
int gguf_open(const char *path, struct gguf **out, char *why);
void gguf_close(struct gguf *g); /* NULL is fine */

/* NULL if there is none of this name. */
const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name);
/* Bytes of one of the slices along the last dimension: of one expert in a stacked tensor. */
uint64_t gguf_slice_bytes(const struct gguf_tensor *t);

/* -- values (gguf_value.c) ------------------------------------------------------------------------
 *
 * `key` may begin with "%s", which stands for the architecture: "%s.block_count". 0, -ENOENT (and
 * why as it was) if there is no such key, -EINVAL with a sentence if it is of another kind or out
 * of range. Integers of any width and sign are one kind; so are both floats.
 */
int gguf_int(const struct gguf *g, const char *key, int64_t lo, int64_t hi, int64_t *out,
	     char *why);
int gguf_float(const struct gguf *g, const char *key, double *out, char *why);
int gguf_bool(const struct gguf *g, const char *key, bool *out, char *why);
/* A string as it stands, not ended by a NUL, perhaps with NULs in it. */
struct gguf_text {
	const char *at;
	size_t bytes;
};
/* In new memory, with a NUL behind it. NULL: out of memory. */
char *gguf_text_copy(struct gguf_text t);
int gguf_string(const struct gguf *g, const char *key, struct gguf_text *out, char *why);
/* The array of this key, which must be of `kind` (GGUF_I64: of any integers or bools). */
int gguf_array(const struct gguf *g, const char *key, enum gguf_kind kind,
	       const struct gguf_key **out, char *why);
/* Element i < count of an array of numbers or bools. */
int64_t gguf_array_int(const struct gguf *g, const struct gguf_key *k, uint64_t i);
double gguf_array_float(const struct gguf *g, const struct gguf_key *k, uint64_t i);
/* Strings one after the other: *at is 0 at first and is moved on. */
struct gguf_text gguf_array_next(const struct gguf *g, const struct gguf_key *k, size_t *at);

#endif
