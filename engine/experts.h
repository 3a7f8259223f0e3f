/* SPDX-License-Identifier: Apache-2.0
 *
 * Expert files: opened, brought into reach, and closed after use.
 *
 * Opening a cold expert on a mount takes until the daemon has read it from its drive, so the opens
 * of a layer must overlap: a pool of threads opens them in the order asked for, at most
 * EXPERTS_OPEN of them open at a time, while the caller computes. They are handed out as they
 * arrive.
 *
 *	experts_ask(x, layer, ids, n);
 *	n times:
 *		experts_next(x, n, &e, why);  waits
 *		... use e->gate, e->up, e->down ...
 *		experts_done(x, e);           closes it, so that the next can open
 *
 * One caller at a time. Bytes come by mapping the file, which costs no copy where the daemon
 * serves by passthrough; or by reading where files cannot be mapped.
 */
#ifndef ENGINE_EXPERTS_H
#define ENGINE_EXPERTS_H

#include <stdint.h>

#include "engine/modelfile.h"
#include "engine/mount.h"

#define EXPERTS_OPEN 16

struct expert {
	int id;
	struct wmat gate, up, down;
};

struct experts_stats {
	uint64_t opened, bytes;
	double waited_s; /* how long experts_next() had nothing to hand out */
};

struct experts;

/* file must outlive it. 0 or negative errno with the sentence. */
int experts_start(const struct modelfile *file, enum serve_mode mode, struct experts **out,
		  char *why);
void experts_stop(struct experts *x); /* NULL is fine */

/* Bytes it takes: buffers of the mode that reads, else nothing worth counting. */
size_t experts_bytes(const struct modelfile *file, enum serve_mode mode);

/* Begins to open ids[0..n) of a layer that has experts, n >= 1. ids must stay until the last one
 * has been handed out. All of an earlier layer must have been handed out and done. */
void experts_ask(struct experts *x, int layer, const int32_t *ids, int n);

/* The first that is there of ids[0..end); those behind stay open until end reaches them. On an
 * error (negative errno, and the sentence) all that was asked for is let go of. */
int experts_next(struct experts *x, int end, struct expert **out, char *why);
void experts_done(struct experts *x, struct expert *e);

/* Lets go of everything asked for and not yet done; waits for opens that are under way. */
void experts_cancel(struct experts *x);

void experts_get_stats(struct experts *x, struct experts_stats *out);

#endif
