/* SPDX-License-Identifier: Apache-2.0
 *
 * What a damaged catalog.db still gives: usage, meta values and the paths of drives, as far as
 * SQLite can read them. Nothing here fails: what cannot be read is not there.
 */
#ifndef EXPERTFS_SALVAGE_H
#define EXPERTFS_SALVAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "expertfs/catalog.h"

struct salvage;

/* DIR/catalog.db, or what a rebuild that was killed has put aside (catalog.db.damaged). NULL: there
 * is nothing to read. */
struct salvage *salvage_open(const char *dir);
void salvage_close(struct salvage *s); /* NULL is fine, here and below */

/* True if the catalog still says that it is that of another store. */
bool salvage_foreign(struct salvage *s, const uint8_t id[STORE_ID_SIZE]);

/* The usage of one expert: looked up alone, so that a bad page costs the experts on it and no
 * others. */
bool salvage_usage(struct salvage *s, unsigned layer, unsigned expert, struct usage_row *row);
/* Calls each() for what is found; drive paths as the catalog has them. */
void salvage_meta(struct salvage *s, void (*each)(void *arg, const char *key, const char *value),
		  void *arg);
void salvage_drives(struct salvage *s, void (*each)(void *arg, int64_t id, const char *path),
		    void *arg);

#endif
