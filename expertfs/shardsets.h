/* SPDX-License-Identifier: Apache-2.0
 *
 * From loose records to experts: which of them make whole copies.
 *
 * An expert may be there in several copies, and each of them in several generations: it was moved,
 * and the old records are not punched out yet, or the move did not come to its end, perhaps more
 * than once. All whole ones hold the same bytes. Of each copy the highest generation is taken that
 * is whole.
 */
#ifndef EXPERTFS_SHARDSETS_H
#define EXPERTFS_SHARDSETS_H

#include <stdbool.h>
#include <stdint.h>

#include "expertfs/shardscan.h"
#include "expertfs/store.h"

struct found_expert {
	uint16_t layer, expert;
	uint64_t bytes;
	struct extent_list *list; /* NULL: its records make no whole copy */
};

struct found {
	struct found_expert *expert; /* sorted by layer, then expert */
	uint32_t n, whole;
};

/* Sorts the n records and calls each() for those of copies that are there more than once: a move that
 * was killed, or whose old records are not gone. Of these the heads alone do not tell which one is
 * whole. */
void shard_contested(struct shard_record *record, uint32_t n,
		     void (*each)(void *arg, struct shard_record *r), void *arg);

/* Sorts the n records (bad ones are not looked at) and makes the lists. 0 or -ENOMEM. */
int shard_sets(struct shard_record *record, uint32_t n, struct found *out);
void shard_sets_free(struct found *f);
/* NULL if no record is of it. */
const struct found_expert *shard_sets_find(const struct found *f, unsigned layer, unsigned expert);

#endif
