/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the re-spreading share: respread.c (thread and queue), respread_task.c (one
 * task from its begin to its end), respread_text.c (what is shown of it).
 */
#ifndef EXPERTFS_RESPREAD_PARTS_H
#define EXPERTFS_RESPREAD_PARTS_H

#include <pthread.h>

#include "expertfs/respread.h"
#include "expertfs/respread_move.h"

struct task {
	struct task *next;
	char *line;   /* as it was written */
	char *folder; /* add: the folder, until there is a drive */
	struct user by;
	bool equal; /* all drives count as equally fast */
	bool begun; /* in the catalog */
	struct spread_job job;
	struct respread_status status; /* under respread.lock */
	uint64_t started_ns;           /* likewise */
};

struct respread {
	struct respread_config cfg;
	pthread_t thread;
	struct catalog *catalog; /* the thread's */
	char **gone;             /* paths of removed drives: somebody may have read the pointer */
	uint32_t gone_n;
	bool lost; /* the store's lock: it is asked for until it is there again */

	pthread_mutex_t lock; /* all below */
	pthread_cond_t wake;
	struct task *last;
	struct task *first; /* oldest first: finished ones, the one at hand, those that wait */
	struct task *now;   /* at hand; NULL: none */
	uint32_t last_id;
	bool stop, cancel, go_on, writable;
	char unwritable[WHY_MAX]; /* what is said if not writable */
};

/* Carries a task out: 0, -ECANCELED, -EINTR (the daemon stops), or another error, and why. *begun
 * of the task tells whether the catalog has it. */
int task_run(struct respread *r, struct task *t, char *why);
/* The task that the catalog has. *t is NULL if there is none. */
int task_load(struct respread *r, struct task **t, char *why);
/* Forgets it. */
int task_forget(struct respread *r, char *why);
void task_free(struct task *t);

/* 0, or -EINTR or -ECANCELED: what the mover asks. */
int respread_ask(void *r);

#endif
