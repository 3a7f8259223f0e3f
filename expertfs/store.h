/* SPDX-License-Identifier: Apache-2.0
 *
 * A store as the daemon and the tools see it: drives, and for each expert a list of extents.
 *
 * Built from catalog.db (catalog.h) by store_open(). Read-only after that, so it needs no lock.
 * Every source of experts (a packed shard, a striped one, a replica, later the slices of a GGUF
 * file) is this same list, which is why the reading path has one shape.
 */
#ifndef EXPERTFS_STORE_H
#define EXPERTFS_STORE_H

#include <stdint.h>

#include "expertfs/shard.h"

/* The files that a store holds as a mount shows them; catalog.db and shards come beside. */
#define STORE_FILES 3
extern const char *const store_file_names[STORE_FILES];

struct store_drive {
	char *path;     /* the shard file, absolute */
	uint64_t bytes; /* size it must have */
};

/* A range of bytes on a drive that becomes a range of an expert. */
struct extent {
	uint64_t offset;        /* in the shard file, of the payload (not of the record's head) */
	uint64_t length;        /* bytes of the expert; what is read is this rounded up to 4 KiB */
	uint64_t expert_offset; /* where the range lies in the expert */
	uint64_t check;         /* XXH3 of these bytes */
	uint16_t drive;
	uint16_t copy; /* 0, or 1.. for replicas */
};

struct store_expert {
	uint16_t layer, expert;
	uint32_t extents; /* number of them; in order of copy, then expert_offset */
	const struct extent *extent;
	uint64_t bytes;
};

struct store {
	char *dir; /* absolute */
	uint8_t id[STORE_ID_SIZE];
	uint32_t drives, experts;
	uint32_t layers_end;        /* one more than the highest layer that has experts */
	uint32_t experts_per_layer; /* one more than the highest expert number */
	struct store_drive *drive;
	struct store_expert *expert; /* sorted by layer, then expert */
	struct extent *extent;       /* all of them, owned here */
	uint64_t max_expert_bytes, total_bytes;
};

/* Opens DIR: it must hold model.json, tokenizer.json, dense.bin and catalog.db, and every shard
 * must be there with the size the catalog says and the right store id. 0 or negative errno with the
 * sentence in why. */
int store_open(const char *dir, struct store **out, char *why);
void store_close(struct store *s); /* NULL is fine */

/* NULL if there is no such expert. */
const struct store_expert *store_find(const struct store *s, unsigned layer, unsigned expert);

#endif
