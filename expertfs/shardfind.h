/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the shards of a store are, when its catalog cannot say. In this order, and the first one of
 * a drive's number is taken:
 *
 *	what the user names: shards, or folders with shards of this store
 *	STORE/shards, the list of their paths (store_write_shards())
 *	*.shard in the store's folder
 *	what a damaged catalog still gives
 */
#ifndef EXPERTFS_SHARDFIND_H
#define EXPERTFS_SHARDFIND_H

#include <stdbool.h>
#include <stdint.h>

#include "expertfs/salvage.h"
#include "expertfs/shardscan.h"
#include "expertfs/store.h"

struct shard_files {
	uint8_t id[STORE_ID_SIZE];
	uint32_t drives;                           /* one more than the highest number below */
	struct shard_scan *scan[STORE_DRIVES_MAX]; /* by number; NULL: not found */
	char *missing[STORE_DRIVES_MAX];           /* and should be there: its path, or "" */
};

typedef void shard_say(void *arg, const char *line);

/* given: n paths that the user names; one that is no shard of the store, or not there, is an error.
 * All else that is not as it should be is said, and goes into missing. 0 if there is at least one
 * shard. Free it in any case. */
int shard_find(const char *dir, const char *const *given, uint32_t n, struct salvage *old,
	       shard_say *say, void *arg, struct shard_files *out, char *why);
void shard_files_free(struct shard_files *f);

/* Is the catalog, whose store id this is, that of another store? True if the shards in the folder
 * and in its list agree on another id. */
bool shard_catalog_foreign(const char *dir, const uint8_t id[STORE_ID_SIZE]);

#endif
