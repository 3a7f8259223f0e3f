/* SPDX-License-Identifier: Apache-2.0
 *
 * catalog.db: the store's SQLite database. Experts and their extents, drives, and the usage that
 * the daemon learns. coli-pack writes it; store.h reads it whole at mount; the daemon changes where
 * an expert lies (respread.h) and what was used (usage.h).
 *
 *	meta(key TEXT PRIMARY KEY, value)           format 1, store_id (hex), clock: opens of the
 *	                                            store so far; more keys are their users'
 *	drives(id INTEGER PRIMARY KEY, path TEXT, bytes)
 *	                                            path of the shard: relative to the store's folder
 *	                                            if it lies in there, else absolute
 *	extents(layer, expert, copy, part, expert_bytes, drive, offset, length, expert_offset, xxh3,
 *	        PRIMARY KEY(layer, expert, copy, part)) WITHOUT ROWID
 *	usage(layer, expert, heat REAL, uses, loads, last_use, load_ns, PRIMARY KEY(layer, expert))
 *	                                            heat as of the clock in meta; last_use: seconds
 *	                                            of the epoch; load_ns: of the last load
 *
 * WAL mode. xxh3 is stored as a signed 64-bit integer of the same bits. One struct catalog is one
 * connection: for one thread at a time. Several connections of one or several processes get on with
 * each other; a writer waits up to 10 s for another one, then fails with -EBUSY.
 */
#ifndef EXPERTFS_CATALOG_H
#define EXPERTFS_CATALOG_H

#include <stdint.h>

#include "expertfs/store.h"

struct catalog;

/* The value of store_id in meta. id_from_hex(): -EINVAL if it is none. */
void id_to_hex(const uint8_t id[STORE_ID_SIZE], char hex[2 * STORE_ID_SIZE + 1]);
int id_from_hex(const char *hex, uint8_t id[STORE_ID_SIZE]);

/* -- making one (catalog.c) ----------------------------------------------------------------------
 */

/* Makes path anew (it must not exist) with an empty schema. All writes until catalog_finish() are
 * one transaction. 0 or negative errno and why. */
int catalog_create(const char *path, const uint8_t store_id[STORE_ID_SIZE], struct catalog **out,
		   char *why);
int catalog_add_drive(struct catalog *c, uint32_t id, const char *path, uint64_t bytes, char *why);
int catalog_add_extent(struct catalog *c, unsigned layer, unsigned expert, uint64_t expert_bytes,
		       unsigned part, const struct extent *x, char *why);
/* Commits, checkpoints the WAL into the file and closes: one plain file remains. Frees c always. */
int catalog_finish(struct catalog *c, char *why);
/* Rolls back, closes and frees; the file is the caller's to remove. NULL is fine. */
void catalog_abandon(struct catalog *c);

/* -- reading where everything lies (catalog_load.c) ----------------------------------------------
 */

/* Fills drives, experts, extents and id of s (s->dir is set) from s->dir/catalog.db. Checks every
 * number against the others: extents cover each expert exactly once per copy, lie on known drives,
 * on 4 KiB. */
int catalog_load(struct store *s, char *why);

/* Looks at the whole file, usage too, for damage that catalog_load() would not meet. -EBADMSG. */
int catalog_check(const char *dir, char *why);

/* -- changing it (catalog_write.c) ---------------------------------------------------------------
 */

/* Opens DIR/catalog.db, which must be there. Commits are durable: when one returns 0 it is on the
 * drive. -EROFS: it cannot be written here. */
int catalog_open(const char *dir, struct catalog **out, char *why);
/* The same for reading only: catalog_meta_get() and catalog_usage_each(). */
int catalog_open_read(const char *dir, struct catalog **out, char *why);
/* From now on a commit survives a killed process, but perhaps not a power failure, and costs no
 * sync of the drive. */
int catalog_lazy(struct catalog *c, char *why);
/* Rolls back what is not committed, closes and frees. NULL is fine. */
void catalog_close(struct catalog *c);

/* Several changes as one. Without these each of the functions below is a transaction of its own. */
int catalog_begin(struct catalog *c, char *why);
int catalog_commit(struct catalog *c, char *why); /* after an error everything is rolled back */
void catalog_rollback(struct catalog *c);

/* All extents of one expert become those of l: in order of copy, then of expert_offset, copies
 * numbered from 0 without gaps, each from the expert's first byte to its last. -EINVAL if they are
 * not. All or nothing, also within a transaction. */
int catalog_replace_extents(struct catalog *c, unsigned layer, unsigned expert,
			    uint64_t expert_bytes, const struct extent_list *l, char *why);

/* A drive as the catalog has it, new or not. path: as the schema above says. bytes: of its shard;
 * at least the end of the last record that an extent names, or the store does not open. */
int catalog_put_drive(struct catalog *c, uint32_t id, const char *path, uint64_t bytes, char *why);
int catalog_set_drive_bytes(struct catalog *c, uint32_t id, uint64_t bytes, char *why);
/* -EBUSY: extents still lie on it. -ENOENT: there is none of this number. */
int catalog_drop_drive(struct catalog *c, uint32_t id, char *why);

/* *value is the caller's to free. -ENOENT: there is no such key (and why is as it was). */
int catalog_meta_get(struct catalog *c, const char *key, char **value, char *why);
/* value NULL: the key goes. Not for format and store_id. */
int catalog_meta_put(struct catalog *c, const char *key, const char *value, char *why);

struct usage_row {
	uint16_t layer, expert;
	double heat;
	uint64_t uses, loads;
	uint64_t last_use; /* seconds of the epoch, 0: never */
	uint64_t load_ns;  /* the last load took so long, 0: never */
};

/* Calls each() for every row, in order of layer and expert, until it returns other than 0, which is
 * returned. Rows that make no sense (a negative count, a heat that is no number) are left out. */
int catalog_usage_each(struct catalog *c, int (*each)(void *arg, const struct usage_row *row),
		       void *arg, char *why);
int catalog_usage_put(struct catalog *c, const struct usage_row *row, char *why);
int catalog_usage_clear(struct catalog *c, char *why); /* all of it, and the clock */

#endif
