/* SPDX-License-Identifier: Apache-2.0
 *
 * Expert files: opened, brought into reach, and closed after use.
 *
 * Opening a cold expert on a mount takes until the daemon has read it from its drive, so the opens
 * of a layer must overlap: a pool of threads opens them, at most EXPERTS_OPEN of them open at a
 * time, while the caller computes. They are handed out as they arrive.
 *
 *	experts_ask(x, layer, ids, n);
 *	n times:
 *		experts_next(x, &e, why);  waits
 *		... use e->gate, e->up, e->down ...
 *		experts_done(x, e);        closes it, so that the next can open
 *
 * Where more are asked for than may be open, the daemon is asked which ones lie in memory
 * (residency.h). The missing ones are opened first and keep the drive busy; those in memory fill the
 * gaps, EXPERTS_READY of them open at most, so that there is something to compute from the start.
 *
 * One caller at a time. Bytes come by mapping the file, which costs no copy where the daemon
 * serves by passthrough; or by reading where files cannot be mapped.
 */
#ifndef ENGINE_EXPERTS_H
#define ENGINE_EXPERTS_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/modelfile.h"
#include "engine/mount.h"

#define EXPERTS_OPEN  16
#define EXPERTS_BATCH 8 /* that are computed together at most: meanwhile the others can open */
#define EXPERTS_READY 4

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

/* Bytes it takes: buffers of the mode that reads; what mappings that are kept take (kept.h). */
size_t experts_bytes(const struct modelfile *file, const struct mount_stats *mount);

/* Begins to open ids[0..n) of a layer that has experts, each named once; n >= 1, and no more than
 * the model has. All of an earlier layer must have been handed out and done. */
void experts_ask(struct experts *x, int layer, const int32_t *ids, int n);

/* The next one that is there. On an error (negative errno, and the sentence) all that was asked for
 * is let go of. */
int experts_next(struct experts *x, struct expert **out, char *why);
/* Another one that is there, or will be in next to no time; NULL if one would have to be waited for,
 * or all have been handed out. */
struct expert *experts_another(struct experts *x);
void experts_done(struct experts *x, struct expert *e);

/* At the end of a pass over the layers: tells the daemon of uses for which nothing was opened (kept.h). */
void experts_tell(struct experts *x);

/* True if nothing is on its way any more: all that was asked for has arrived. */
bool experts_all_here(struct experts *x);

/* Lets go of everything asked for and not yet done; waits for opens that are under way. */
void experts_cancel(struct experts *x);

void experts_get_stats(struct experts *x, struct experts_stats *out);

#endif
