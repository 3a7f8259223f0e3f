/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the GGUF reader share: one file's header, parsed. Private to gguf*.c.
 */
#ifndef EXPERTFS_GGUF_PARTS_H
#define EXPERTFS_GGUF_PARTS_H

#include "expertfs/gguf.h"

struct gguf_header {
	uint8_t *bytes; /* used of them are the header; all is the caller's to free */
	size_t used;
	uint64_t check; /* XXH3 of them */
	uint64_t align; /* of the data */
	size_t keys, tensors;
	struct gguf_key *key;       /* sorted by name, none twice */
	struct gguf_tensor *tensor; /* in order of the file; offsets are the file's, part is 0 */
};

/* Reads the header of a file of file_bytes bytes; path is for the sentences. align: what the first file
 * of a set has, 0 for that one itself. After an error there is nothing to free. */
int gguf_header_read(int fd, uint64_t file_bytes, const char *path, uint64_t align,
		     struct gguf_header *h, char *why);
void gguf_header_free(struct gguf_header *h);

/* The key of this name; NULL: there is none. */
const struct gguf_key *gguf_key_find(const struct gguf_key *key, size_t keys, const char *name);
/* Element i of numbers at `at`. */
int64_t gguf_number(const uint8_t *at, enum gguf_kind kind);
/* Bytes of a number or bool; 0 of others. */
unsigned gguf_kind_bytes(enum gguf_kind kind);

#endif
