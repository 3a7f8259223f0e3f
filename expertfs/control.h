/* SPDX-License-Identifier: Apache-2.0
 *
 * The files below .expertfs/: the daemon as text to read, and lines to write to it.
 *
 * What is read is made at open. What is written is lines, obeyed one after the other; the first that
 * fails ends the write with its errno, and the sentence can be read from the same open file (as long
 * as it was opened for both). The end of the last line may be missing, unless a buffer seems to have
 * been full: then the line waits for what comes next. README.md lists the files.
 */
#ifndef EXPERTFS_CONTROL_H
#define EXPERTFS_CONTROL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

struct fs;
struct hotstore;

/* Who writes. */
struct control_caller {
	uid_t uid;
	gid_t gid;
};

struct control_file {
	const char *name;
	mode_t mode; /* permission bits */
	/* The text of one open; free() it. NULL: out of memory. */
	char *(*read)(struct fs *fs);
	/* Obeys a line (no newline). 0, or negative errno and the sentence. */
	int (*write)(struct fs *fs, const struct control_caller *who, const char *line, char *why);
	/* Or its lines name experts, and this is done to each. NULL both: read-only. */
	int (*order)(struct hotstore *h, uint32_t index);
	const char *cannot; /* what the sentence says if it fails: "cannot be pinned" */
};

static inline bool control_file_takes_lines(const struct control_file *f)
{
	return f->write || f->order;
}

/* In the order of listing; NULL after the last. */
const struct control_file *control_file(uint64_t i);

/* An open control file. Thread-safe. */
struct control;
struct control *control_open(const struct control_file *f, struct fs *fs); /* NULL: no memory */
/* A line that still waits for its end is obeyed; what is wrong with it can only be logged. */
void control_close(struct control *c, struct fs *fs);
/* size bytes at off into buf; how many there are. */
size_t control_read(struct control *c, char *buf, size_t size, uint64_t off);
/* 0, or negative errno: the sentence is now what is to be read. */
int control_write(struct control *c, struct fs *fs, const struct control_caller *who,
		  const char *text, size_t size);

/* Ends the recording of a trace, if there is one: at the end of the daemon. */
void control_stop_trace(struct fs *fs);

#endif
