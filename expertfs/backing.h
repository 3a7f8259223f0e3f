/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that holds one expert and that a reader can map: a file in shared memory.
 *
 * Written once, then frozen, and never written again: a reader's mapping outlives its close(), and
 * RELEASE says nothing about mappings. Evicting means dropping our references; the kernel frees the
 * pages when the last mapping goes.
 *
 * An expert of half a huge page or more lies in huge pages where they are to be had, which makes a
 * hit twenty times cheaper: memfd where shmem huge pages are switched on, else files on a private
 * tmpfs with huge=always that is mounted nowhere (needs CAP_SYS_ADMIN).
 */
#ifndef EXPERTFS_BACKING_H
#define EXPERTFS_BACKING_H

#include <stdbool.h>
#include <stdint.h>

struct backing {
	int fd;     /* -1: none, or given to the kernel as backing id */
	int32_t id; /* FUSE backing id; 0: none */
	void *map;  /* of `mapped` bytes while it is filled, and as long as direct mode needs it */
	uint64_t mapped; /* size rounded up to 4 KiB */
	uint64_t bytes;  /* what a reader sees */
};

/* Where backings come from. Made once at start. */
struct backing_source;
/* largest: bytes of the largest expert; small ones make huge pages pointless. */
struct backing_source *backing_source_open(uint64_t largest);
void backing_source_close(struct backing_source *s);
bool backing_source_huge(const struct backing_source *s);
/* Memory that a backing of this size takes: whole pages, small or huge. */
uint64_t backing_cost(const struct backing_source *s, uint64_t bytes);

/* New memory, mapped for writing, all pages present. -ENOMEM or another errno. */
int backing_new(const struct backing_source *s, uint64_t bytes, struct backing *out);
/* The bytes are complete: nobody can write them any more. keep_map: map stays, read-only. */
int backing_freeze(struct backing *b, bool keep_map);
/* Registers it with the FUSE device for passthrough and closes our own descriptor. */
int backing_register(struct backing *b, int fuse_fd);
/* Drops everything that is held. fuse_fd is used if there is an id. */
void backing_drop(struct backing *b, int fuse_fd);

/* Registers any open file. Returns the id (> 0) or negative errno. */
int32_t backing_id_open(int fuse_fd, int fd);
void backing_id_close(int fuse_fd, int32_t id);

#endif
