/* SPDX-License-Identifier: Apache-2.0
 *
 * Records which experts are opened as a trace (cachepolicy/trace.h), for cachesim to replay.
 *
 * Opens become layer events by the rule of cp_open(), so that a replay sees the events that the
 * daemon's policy saw: an open joins the event before it if it is of the same layer and the event
 * does not have the expert yet. (Where the daemon ended one early, as its members left no room for
 * each other, the trace has it whole.) Each weighs 1, as the daemon cannot know how many tokens chose an
 * expert. Times are microseconds since the first open.
 *
 * Who opens must not wait for a drive: tracer_open() puts 16 bytes into a ring, and a thread writes
 * them a few times a second. A trace with holes would be worse than a short one. So when the ring
 * is full or the drive does not take more, recording ends there, and the file says so: its last
 * line is always a comment that tells how it ended, at any time the one for a daemon that was
 * killed. A trace takes 1.3 MiB while it records, which the budget (budget.h) does not know of.
 *
 *	# complete: 3018 events, 24144 opens
 *	# cut short after 3018 events, 24144 opens: No space left on device
 *	# not ended: recording went on after 3018 events, 24144 opens
 */
#ifndef EXPERTFS_TRACER_H
#define EXPERTFS_TRACER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "expertfs/store.h"

struct tracer;

/* Creates the file, which must not exist (-EEXIST), with the geometry and sizes of s, and starts the
 * thread. It is created with the rights of this user and group, who asked for it: a daemon of root
 * makes no files for others where they could not. path is absolute (-EINVAL), as the daemon's
 * working directory is nobody's. Blocks. 0 or negative errno. s may go afterwards. */
int tracer_start(const char *path, uid_t uid, gid_t gid, const struct store *s, struct tracer **out,
		 char *why);

/* An expert below the geometry of the store is opened. now: clock_ns(), may go back a little from
 * call to call. Never blocks. The caller sees to it that only one thread at a time is in here; the
 * other calls may come meanwhile, but for tracer_stop(). */
void tracer_open(struct tracer *t, uint64_t now, unsigned layer, unsigned expert);

/* One line for people, without newline: "on FILE 3018 events", or "broken off FILE 3018 events:
 * REASON" until it is stopped. As written so far; size: PATH_MAX and some more. */
void tracer_status(const struct tracer *t, char *line, size_t size);

/* Writes what is left, waits until the drive has it, frees t. NULL is fine. Blocks. 0, or negative
 * errno if the trace was cut short: the file says so as well. */
int tracer_stop(struct tracer *t, char *why);

#endif
