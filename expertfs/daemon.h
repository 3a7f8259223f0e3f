/* SPDX-License-Identifier: Apache-2.0
 *
 * A running mount: everything that is started, in order, and ended in the reverse order.
 */
#ifndef EXPERTFS_DAEMON_H
#define EXPERTFS_DAEMON_H

#include "expertfs/options.h"
#include "expertfs/store.h"

struct fs;

/* Is mountpoint a folder that can be mounted on? Says so of a dead mount, of one that is mounted
 * already, and of a place that would hide the store, one of its drives or hot_dir (may be NULL). */
int daemon_check_mountpoint(const char *mountpoint, const struct store *s, const char *hot_dir,
			    char *why);

/* Starts threads, mounts, serves. Takes s and its lock (storelock.h) over, also when it fails.
 * Returns when requests are being served. */
int daemon_start(const struct options *o, struct store *s, int lock, struct fs **out, char *why);

/* Serves until the mount is taken away or a signal of the (blocked) set TERM, INT, HUP comes. After
 * a signal: no new opens; what readers have under way may end for some seconds; a second signal
 * ends it at once. */
void daemon_serve(struct fs *fs);

/* Ends everything and frees fs. NULL is fine. */
void daemon_stop(struct fs *fs);

#endif
