/* SPDX-License-Identifier: Apache-2.0
 *
 * catalog.db: the store's SQLite database. Experts and their extents, drives, and later the usage
 * that the daemon learns. coli-pack writes it once; store.h reads it whole at mount.
 *
 *	meta(key TEXT PRIMARY KEY, value)           format 1, store_id (hex)
 *	drives(id INTEGER PRIMARY KEY, path TEXT, bytes)
 *	                                            path of the shard: relative to the store's folder
 *	                                            if it lies in there, else absolute
 *	extents(layer, expert, copy, part, expert_bytes, drive, offset, length, expert_offset, xxh3,
 *	        PRIMARY KEY(layer, expert, copy, part)) WITHOUT ROWID
 *	usage(layer, expert, heat REAL, uses, loads, last_use, load_ns, PRIMARY KEY(layer, expert))
 *
 * WAL mode, synchronous=NORMAL. xxh3 is stored as a signed 64-bit integer of the same bits.
 */
#ifndef EXPERTFS_CATALOG_H
#define EXPERTFS_CATALOG_H

#include <stdint.h>

#include "expertfs/store.h"

struct catalog;

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

/* Fills drives, experts, extents and id of s (s->dir is set) from s->dir/catalog.db. Checks every
 * number against the others: extents cover each expert exactly once per copy, lie on known drives,
 * on 4 KiB. */
int catalog_load(struct store *s, char *why);

#endif
