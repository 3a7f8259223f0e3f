/* SPDX-License-Identifier: Apache-2.0
 *
 * What has to move when a drive comes, goes, or is to hold certain experts: only the arithmetic.
 *
 * A plan follows from the job and from where everything lies now. Nothing is remembered beside
 * that: a job that was interrupted is planned anew, and what has been moved needs no step any more.
 *
 * Rules:
 * - add, experts that are whole: experts go to the new drive until it has its share in proportion
 *   to speed, layer after layer, so that each layer is spread like the whole. They come from the
 *   drive that is fullest for its speed. Nothing else moves.
 * - add, a striped store: each expert is cut anew over all drives. Where it has several copies, the
 *   one whose drives are slowest together gets the new drive.
 * - remove: each copy that has a part on the drive is written elsewhere: whole ones to the drive
 *   that is least full for its speed, striped ones cut anew over the rest.
 * - move: one copy of each expert becomes whole on the drive.
 * - Copies of one expert never share a drive. Where there are too few drives for that, a copy is
 *   dropped.
 * - A part is at least SPREAD_PART_MIN long, or the whole expert.
 */
#ifndef EXPERTFS_RESPREAD_PLAN_H
#define EXPERTFS_RESPREAD_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "expertfs/store.h"

/* As coli-pack cuts: a shorter part costs a drive more than it brings. */
#define SPREAD_PART_MIN (64u << 10)

enum spread_kind { SPREAD_ADD, SPREAD_REMOVE, SPREAD_MOVE };

struct spread_job {
	enum spread_kind kind;
	uint32_t drive;                   /* that comes, goes, or is moved to */
	bool striped;                     /* experts are cut over drives, see spread_is_striped() */
	uint64_t speed[STORE_DRIVES_MAX]; /* bytes/s, only ratios count; 0: takes no experts */
	uint32_t *expert, experts;        /* SPREAD_MOVE: indices, owned; else NULL */
};
void spread_job_free(struct spread_job *j);

/* The value of spread_step.to that is no drive. */
#define SPREAD_STRIPE 0xfffe /* cut anew */
#define SPREAD_DROP   0xffff /* the copy goes */

struct spread_step {
	uint32_t index;
	uint16_t copy;
	uint16_t to; /* whole onto this drive, or one of the above */
};

struct spread_plan {
	struct spread_step *step;
	uint32_t n, dropped;               /* steps; those of them that drop a copy */
	uint64_t bytes;                    /* of experts that are written */
	uint64_t needed[STORE_DRIVES_MAX]; /* bytes that a shard grows by, at its most */
};

/* Whether most experts lie in parts on several drives. */
bool spread_is_striped(const struct store *s);

/* Nobody else changes places meanwhile. 0; -ENODATA: experts have no copy but on a drive that is to
 * go and is missing; -EINVAL: experts share records, or there is no drive to take them; -ENOMEM;
 * and the sentence in why. */
int spread_plan_make(struct store *s, const struct spread_job *job, struct spread_plan *p,
		     char *why);
void spread_plan_free(struct spread_plan *p);

/* What the expert's list becomes by a step: extents with offset 0 are still to be written. A
 * reference for the caller. NULL: out of memory. */
struct extent_list *spread_step_list(struct store *s, const struct spread_job *job,
				     const struct spread_step *step);

#endif
