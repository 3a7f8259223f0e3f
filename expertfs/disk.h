/* SPDX-License-Identifier: Apache-2.0
 *
 * Files as the drive has them: past the page cache, and durably.
 */
#ifndef EXPERTFS_DISK_H
#define EXPERTFS_DISK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Whether the file system says (statx, Linux 6.1) that direct I/O at multiples of `offset` bytes,
 * with memory on 4 KiB, will do. One that does not say is to be tried. */
bool direct_will_do(int fd, uint32_t offset);
/* Opens past the page cache where the file system has that for 4 KiB, else buffered. flags: O_RDONLY
 * or O_RDWR, and further ones (O_CREAT). The descriptor or negative errno. */
int direct_open(const char *path, int flags, bool *direct);

/* Asked between pieces of 1 MiB that are written; may sleep. Other than 0 ends the writing with
 * that error. */
struct writer_pause {
	int (*ask)(void *arg);
	void *arg;
};

/* All n bytes, in pieces; buf, n and offset on 4 KiB. 0 or negative errno. pause may be NULL. */
int direct_write(int fd, const void *buf, uint64_t n, uint64_t offset,
		 const struct writer_pause *pause);

/* What was made, renamed or removed in a folder is on the drive when it returns 0, else negative
 * errno. */
int sync_folder(const char *dir);

/* A small file that takes the place of another one in a single step: what is printed to *f has path
 * as its name, and both are on the drive, once replace_end() returns 0. Until then it is PATH.new, and
 * after an error that is gone and path is as it was, unless only the folder could not be synced.
 * Negative errno and the sentence. */
int replace_begin(const char *path, FILE **f, char *why);
int replace_end(FILE *f, const char *path, char *why);

#endif
