/* SPDX-License-Identifier: Apache-2.0
 *
 * Making a lost, torn or foreign catalog.db anew from the shards, which describe themselves.
 *
 *	shardfind.h   where the shards are
 *	shardscan.h   the records in them, and the proof of their payloads
 *	shardsets.h   which records make whole copies
 *	salvage.h     what the old catalog still gives: usage
 *
 * The new one is written beside (catalog.db.new) and takes the place of the old one, which stays as
 * catalog.db.damaged, when it is whole and on the drive. STORE/shards is written again as well.
 * Refused while anybody else has the store (storelock.h).
 */
#ifndef EXPERTFS_REBUILD_H
#define EXPERTFS_REBUILD_H

#include <stdbool.h>
#include <stdint.h>

#include "expertfs/store.h"

struct rebuild_options {
	const char *const *drive; /* shards, or folders of them, that the user names */
	uint32_t drives;
	bool prove; /* read all payloads; else the heads are believed, but of copies that are there
			 twice: each is proved when it is loaded */
	bool partial; /* go on without drives and experts that are not there */
	/* One line of what was found, and the bytes that were proved; false ends it with -EINTR.
	 * Called from several threads, one at a time. progress may be NULL. */
	void (*say)(void *arg, const char *line);
	bool (*progress)(void *arg, uint64_t done, uint64_t total);
	void *arg;
};

struct rebuild_report {
	uint32_t drives, experts; /* in the new catalog */
	uint32_t missing;         /* experts that are not */
	uint64_t records, bad;    /* found; of them those that did not hold */
	uint64_t usage;           /* experts whose usage was kept */
};

/* 0, or negative errno and why: then the old catalog is as it was. */
int rebuild_catalog(const char *dir, const struct rebuild_options *o, struct rebuild_report *r,
		    char *why);

/* The same for a caller who has STORE_ALONE. */
int rebuild_alone(const char *dir, const struct rebuild_options *o, struct rebuild_report *r,
		  char *why);

/* What a daemon does at its start: store_open(), and if catalog.db is not there, damaged, or that
 * of another store, makes it anew and opens it then. Says so in the log. *lock holds STORE_SERVED
 * until it is closed: by whoever serves the store, at the end. */
int store_open_or_rebuild(const char *dir, struct store **out, int *lock, char *why);

#endif
