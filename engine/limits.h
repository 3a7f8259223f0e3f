/* SPDX-License-Identifier: Apache-2.0
 *
 * What limits a run: drive, memory or processor, and how near to it the run came.
 *
 *	drive       bytes that the daemon read, against the speed at which its drives read when they
 *	            have enough to do, as it has seen it
 *	memory      bytes of weights that were used, against a plain sum over dense.bin by all threads
 *	processor   multiply-adds with weights, against products on data that stays in a core's own
 *	            cache, by all threads; attention over the keys is not counted
 *
 * The last two are measured here, in some tenths of a second, after the run.
 */
#ifndef ENGINE_LIMITS_H
#define ENGINE_LIMITS_H

#include "engine/compute.h"
#include "engine/dense.h"
#include "engine/profile.h"

enum limit { LIMIT_DRIVE, LIMIT_MEMORY, LIMIT_PROCESSOR, LIMITS };

/* "drive", ... */
const char *limit_name(enum limit l);

struct limits {
	/* Bytes, bytes and multiply-adds a second; 0: not known. */
	double most[LIMITS];
	double used[PROFILE_PHASES][LIMITS];
};

/* The plain sum that tells how fast memory is: of n bytes, a multiple of 256, 8-byte aligned. */
uint64_t limits_sum(const void *bytes, size_t n);

/* used / most; 0: not known. */
double limit_share(const struct limits *l, enum profile_phase phase, enum limit which);
/* The one that the phase came nearest to. */
enum limit limit_nearest(const struct limits *l, enum profile_phase phase);

/* Bytes of memory that limits_find() takes meanwhile. */
size_t limits_bytes(const struct modelfile *m, int threads);
/* drive_speed: bytes a second, 0: not known. 0 or negative errno. */
int limits_find(const struct dense *dense, const struct compute *cp, const struct profile *p,
		double drive_speed, struct limits *out);

#endif
