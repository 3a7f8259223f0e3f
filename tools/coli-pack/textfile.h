/* SPDX-License-Identifier: Apache-2.0
 *
 * Small files whole, and exact reads: what all parts of coli-pack do to files.
 */
#ifndef COLI_PACK_TEXTFILE_H
#define COLI_PACK_TEXTFILE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* Opens a regular file for reading; anything else (a folder, a FIFO) is refused without blocking.
 * Returns the descriptor, or negative errno with the sentence in why. */
int text_open(const char *path, struct stat *st, char *why);

/* Exactly `bytes` at `offset`, or an error: a file that ends early is -EINVAL. */
int text_read_at(int fd, const char *path, void *buf, size_t bytes, uint64_t offset, char *why);
/* All of buf at offset. */
int text_write_at(int fd, const char *path, const void *buf, size_t bytes, uint64_t offset,
		  char *why);

/* The whole file in a buffer of the caller's, with a NUL behind it. -EFBIG beyond max bytes. */
int text_load(const char *path, size_t max, char **text, size_t *bytes, char *why);
/* A JSON object, of the file's text and of the file. */
int object_parse(const char *path, const char *text, size_t bytes, json_t **out, char *why);
int object_load(const char *path, size_t max, json_t **out, char *why);
/* Writes the file anew, on disk when it returns. */
int text_save(const char *path, const char *text, size_t bytes, char *why);

/* snprintf into new memory; NULL if there is none. */
char *text_format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
