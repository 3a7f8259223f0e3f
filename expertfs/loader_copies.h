/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice between an expert's copies, for the functions of loader.h: a job tries them one after
 * the other until one is good.
 */
#ifndef EXPERTFS_LOADER_COPIES_H
#define EXPERTFS_LOADER_COPIES_H

#include <stdbool.h>
#include <stdint.h>

#include "expertfs/loader.h"

/* One copy of an expert: extents that lie side by side in its list. */
struct copy {
	struct extent_list *list;
	const struct extent *x; /* NULL: there is none */
	uint32_t n;
	unsigned number; /* in the packed list, or COPY_HOT */
};

/* The expert that is read, and what has been tried. Its place is held meanwhile. */
struct job {
	const struct loader *l;
	const struct store_expert *e;
	struct place place;
	enum drive_class class;
	uint64_t tried; /* packed copies */
	bool hot_tried, hot_bad;
	const struct extent *missing; /* of a copy that cannot be tried: its drive is not there */
};

void job_begin(struct job *j, const struct loader *l, uint32_t index, enum drive_class class);
/* Gives the place back, then tells who has to know of a bad hot copy. */
void job_end(struct job *j);

/* Tries the copies one after the other, each twice, with one(), until one is good: 0 and its number
 * in *copy, or the error and the sentence of the first fault. Those on failing drives and those
 * that were no good before come last. */
typedef int try_copy(struct job *j, const struct copy *c, void *arg, char *why);
int job_try_copies(struct job *j, try_copy *one, void *arg, unsigned *copy, char *why);

/* The sentence for a failed read (err and where it was, or -ENOMEM) or a wrong checksum (err is 0
 * and x). Returns -EIO or -ENOMEM. */
int job_fault(const struct job *j, const struct extent *x, int err, const struct read_fault *f,
	      char *why);

struct copy copy_numbered(const struct job *j, unsigned number);
bool copy_there(struct job *j, const struct copy *c); /* all of its drives are */
bool copy_last_resort(const struct loader *l, const struct copy *c);
bool copy_must_prove(const struct loader *l, const struct copy *c);
/* For a copy without checksums: -EIO and the sentence if somebody has written to its files since they
 * were mounted, so that what lies there may be no expert any more. */
int copy_check_files(const struct job *j, const struct copy *c, char *why);
uint64_t copy_bit(const struct copy *c); /* in proved and bad of its list */
struct drive *copy_drive(const struct loader *l, const struct extent *x);

#endif
