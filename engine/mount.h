/* SPDX-License-Identifier: Apache-2.0
 *
 * What the engine reads of a mount beside the model: how it is served, what the daemon counts, and
 * what an error of a system call means there. A plain directory with the same files is a mount
 * without a daemon.
 */
#ifndef ENGINE_MOUNT_H
#define ENGINE_MOUNT_H

#include <stddef.h>
#include <stdint.h>

enum serve_mode {
	SERVE_PLAIN,       /* no daemon: files of a directory */
	SERVE_PASSTHROUGH, /* files are the daemon's memory: map them */
	SERVE_DIRECT       /* the daemon answers reads; files cannot be mapped */
};

/* Counts are since the daemon started; -1: nobody counts. */
struct mount_stats {
	enum serve_mode mode;
	int64_t hits, misses;
	uint64_t
		memory_to_come; /* bytes that the daemon may yet take, by its budget and the store */
	int64_t experts;        /* in the store */
	int64_t slots;          /* experts of mean size that its memory holds */
	int64_t hot_store, capacity; /* bytes for experts; how many it may use at the moment */
	int64_t bytes_read;          /* from drives */
	int64_t prefetch_loaded, prefetch_used, prefetch_wasted;
	double drive_speed; /* bytes a second, all drives together; 0: not known */
};

/* Reads DIR/.expertfs/stats.json; if there is none, the mode is SERVE_PLAIN. */
int mount_stats(const char *dir, struct mount_stats *out, char *why);

/* "plain", "passthrough", "direct". */
const char *serve_mode_name(enum serve_mode mode);

/* Writes what err (positive errno), met at path below dir, means to a person. Returns -err. `what`
 * names the file's part in it: "expert", "the dense tensors", ... */
int mount_fail(char *why, int err, const char *dir, const char *what, const char *path);

/* The whole file as malloc'd bytes and a zero behind; more than max bytes is -EFBIG. Without a
 * sentence: the caller knows what the file is for. Files without a size (those of a daemon) too. */
int read_whole(const char *path, size_t max, char **data, size_t *bytes);
/* The same from an open file that may be a pipe; does not close it. */
int read_descriptor(int fd, size_t max, char **data, size_t *bytes);
/* pread() of all n bytes. 0 or negative errno, -EIO for a file that ends before. */
int read_at(int fd, void *to, size_t n, uint64_t at);

#endif
