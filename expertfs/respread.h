/* SPDX-License-Identifier: Apache-2.0
 *
 * Drives that come and go while the store is served, and experts that are moved between them: one
 * thread, one task at a time, written to as lines and watched as JSON.
 *
 *	add DIR           makes DIR/NAME.shard (NAME as the other shards have) and gives the drive
 *	                  its share of the experts
 *	remove N|PATH     copies all that lies on drive N elsewhere, then the drive leaves the store
 *	                  and its shard is deleted; a drive that is missing may go if what it held
 *	                  has another copy
 *	move N EXPERTS... experts go to drive N: "3/17", "4/0-15", "top 4G" (select.h)
 *	add equal DIR, remove equal N|PATH
 *	                  the same without measuring: all drives count as equally fast
 *	continue          a task that stopped goes on
 *	cancel            ends the task at hand and those that wait; what has been moved stays moved
 *
 * What is done is planned by respread_plan.h and carried out by respread_move.h: nothing is
 * overwritten, and at no moment is an expert without the copies it had. The task at hand is kept in
 * the catalog and goes on when the daemon starts again; those that wait are forgotten with it. An
 * error (a full drive, a broken one) stops the task until "continue" or "cancel".
 *
 * Reads of the mover have the lowest class, and it writes a MiB at a time while nobody waits for
 * the drive, so readers go first.
 */
#ifndef EXPERTFS_RESPREAD_H
#define EXPERTFS_RESPREAD_H

#include <stdint.h>

#include "expertfs/fail.h"
#include "expertfs/loader.h"
#include "expertfs/rights.h"

struct respread;
struct hotdir;

struct respread_config {
	struct store *store;
	const struct loader *loader; /* its drive[] gets and loses entries, under store->lock */
	enum drive_io io;            /* for drives that come */
	int lock; /* of storelock.h, held as STORE_SERVED; -1: none. Alone while a task runs */
	/* Calls each() for the experts that words name (select.h); negative errno and why. */
	int (*select)(void *arg, const char *words, void (*each)(void *each_arg, uint32_t index),
		      void *each_arg, char *why);
	void *select_arg;
	/* How fast the drive of a shard, or of a folder, reads: bytes/s, 0: not known. NULL: it is
	 * measured (probe.h). */
	uint64_t (*speed)(const char *path);
	uint32_t batch; /* experts that are moved for good together; 0: as is best */
};

/* Memory that it takes while a task runs: for the budget. */
uint64_t respread_memory(const struct store *s);

/* Starts the thread; goes on with a task that was interrupted. A catalog that cannot be written is
 * no error: commands are refused then. */
int respread_start(const struct respread_config *cfg, struct respread **out, char *why);
/* Interrupts what runs, at once; the next start goes on with it. NULL is fine. */
void respread_stop(struct respread *r);

/* One of the lines above; without a newline. It is checked as far as that is quick, and queued: 0;
 * else -EINVAL, -ENOENT (no such drive), -EBUSY (too many wait, or a stopped task must be continued
 * or cancelled first), -EROFS, and the sentence in why. */
int respread_command(struct respread *r, const char *line, char *why);
/* The same for somebody who asks for it: a shard is made with his rights. */
int respread_command_by(struct respread *r, const char *line, const struct user *by, char *why);

enum respread_state {
	RESPREAD_QUEUED,
	RESPREAD_RUNNING,
	RESPREAD_STOPPED, /* by an error, in the middle */
	RESPREAD_DONE,
	RESPREAD_CANCELLED,
	RESPREAD_REFUSED /* by an error, before anything was changed */
};

struct respread_status {
	uint32_t id; /* counts tasks since the start, from 1; 0: there was none */
	enum respread_state state;
	uint32_t experts_done, experts_total;
	uint64_t bytes_done, bytes_total;
	double bytes_per_s, seconds_left; /* 0: not known */
	char error[WHY_MAX];              /* empty: none */
};
/* Of the task at hand, else of the next one, else of the last. */
void respread_status(struct respread *r, struct respread_status *out);

/* The tasks (newest last) and the drives as JSON; free() it. h may be NULL. NULL: out of memory.
 *
 *	tasks[]   id, command, state (queued, running, stopped, done, cancelled, refused),
 *	          experts_done, experts_total, bytes_done, bytes_total, bytes_per_s, seconds_left,
 *	          error (if there is one)
 *	drives[]  number, path, state (ok, missing, failing, leaving, hot), speed, experts, bytes
 *	          (of experts that lie there), bytes_read, reads, errors, in_flight, queued
 */
char *respread_text(struct respread *r, struct hotdir *h);

#endif
