/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a store is written, and how it appears complete or not at all.
 *
 *	STORE.partial/          becomes STORE/ by a rename, which is the very last step
 *	  pack.state            what this pack is of and how far it has come (state.h); then removed
 *	  dense.bin, model.json, tokenizer.json, catalog.db, shards
 *	  NAME.shard            without --drive; NAME is the last part of STORE
 *	DRIVE/NAME.shard.partial    with --drive; renamed to DRIVE/NAME.shard just before
 *
 * A lock on STORE.partial keeps a second coli-pack out.
 */
#ifndef COLI_PACK_OUTPUT_H
#define COLI_PACK_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "expertfs/shard.h"
#include "tools/coli-pack/plan.h"

struct shard_out {
	char *dir;      /* the --drive folder, absolute; STORE.partial without */
	char *path;     /* the name it will have in the end, absolute */
	char *writing;  /* the name it has until then */
	int fd;         /* -1: not open */
	bool published; /* an earlier run was killed after it had renamed this one */
};

/* The name it has now. */
static inline const char *shard_out_name(const struct shard_out *s)
{
	return s->published ? s->path : s->writing;
}

struct output {
	char *store, *parent, *partial; /* absolute */
	const char *name;
	bool inside; /* the only shard lies in the store itself */
	uint32_t drives;
	struct shard_out *shard;
	char *dense_path; /* in STORE.partial */
	int dense_fd;     /* -1: not open */
	int dir_fd;       /* STORE.partial, locked; -1: not open */
	uint8_t store_id[STORE_ID_SIZE];
	bool fresh; /* STORE.partial was made by this run */
};

/* Resolves the names; looks only whether the folders are there. drive: n folders, or n == 0. */
int output_name(const char *store, char *const *drive, uint32_t n, struct output **out, char *why);
void output_close(struct output *o); /* also unlocks. NULL is fine */

/* Whether the folders of two shards are on one file system, as far as can be seen. */
bool output_same_device(const struct output *o, uint32_t a, uint32_t b);

/* Whether every file system has the room that the plan asks for beyond what is there already. */
int output_check_room(const struct output *o, const struct plan *p, uint64_t other_bytes,
		      char *why);

/* Makes STORE.partial and locks it, with a new store id. */
int output_create(struct output *o, char *why);
/* Locks the STORE.partial that is there. */
int output_lock(struct output *o, char *why);
/* Opens dense.bin and the shards, made where they are not there, and writes missing shard heads. */
int output_open_files(struct output *o, uint64_t dense_bytes, char *why);

/* Removes everything that a pack has written: our files in STORE.partial, the folder, the shards of
 * this store id (under both names). Files that are not ours are left, and said. */
int output_remove(struct output *o, char *why);

/* Syncs all, renames the shards, then STORE.partial to STORE, and removes pack.state. */
int output_publish(struct output *o, char *why);

/* True if the file at path begins with the head of a shard with this store id, or is no more than
 * the beginning of one (a run killed at once leaves that). */
bool output_owns_shard(const char *path, const uint8_t store_id[STORE_ID_SIZE], bool even_empty);

#endif
