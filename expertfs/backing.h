/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that holds one expert and that a reader can map: a file in shared memory.
 *
 * Written once, then frozen. A reader's mapping outlives its close(), and RELEASE says nothing about
 * mappings, so frozen memory is written again only after the proof that nobody has it open or mapped
 * (backing_idle()). Without that proof our references are dropped, and the kernel frees the pages
 * when the last mapping goes.
 *
 * The files lie on a private tmpfs that is mounted nowhere (needs CAP_SYS_ADMIN), else they are
 * memfds. An expert lies in as large pieces of memory as there are, huge pages where it has so many
 * bytes: that makes a hit up to twenty times cheaper, and a read up to twice as fast.
 */
#ifndef EXPERTFS_BACKING_H
#define EXPERTFS_BACKING_H

#include <stdbool.h>
#include <stdint.h>

struct backing {
	int fd;     /* -1: none, or the backing id or the map holds the memory alone */
	int32_t id; /* FUSE backing id; 0: none */
	void *map;  /* of `mapped` bytes while it is filled, and as long as direct mode needs it */
	uint64_t mapped; /* size rounded up to 4 KiB */
	uint64_t bytes;  /* what a reader sees */
};

/* Where backings come from. Made once at start. */
struct backing_source;
/* largest: bytes of the largest expert; a smaller one than a huge page lies in none. files: how many may
 * be open at the same time at most; the limit of descriptors is raised for them. */
struct backing_source *backing_source_open(uint64_t largest, uint32_t files);
void backing_source_close(struct backing_source *s);
bool backing_source_huge(const struct backing_source *s);
/* True if backing_idle() can prove anything here. */
bool backing_source_proves(const struct backing_source *s);
/* Makes the kernel hold the bound: more than this is not to be had (no-op for memfd). */
void backing_source_limit(const struct backing_source *s, uint64_t bytes);
/* Bytes of the memory that are in use, by whomever: also of what was dropped and is mapped still.
 * 0 if that cannot be known (memfd). */
uint64_t backing_source_used(const struct backing_source *s);
/* Memory that a backing of this size takes: whole pages, small or huge. */
uint64_t backing_cost(const struct backing_source *s, uint64_t bytes);

/* New memory, mapped for writing, all pages present. -ENOMEM or another errno. */
int backing_new(const struct backing_source *s, uint64_t bytes, struct backing *out);
/* The bytes are complete: nobody can write them any more. keep_map: map stays, read-only. */
int backing_freeze(const struct backing_source *s, struct backing *b, bool keep_map);
/* Registers it with the FUSE device for passthrough. */
int backing_register(const struct backing_source *s, struct backing *b, int fuse_fd);
/* True if it is proved that nobody but us has it open or mapped: a write lease on our descriptor
 * is granted only then (fcntl(2), F_SETLEASE). The caller sees to it that nobody can open it
 * meanwhile: no FUSE handle of it is open, and no reply with its id is on its way. */
bool backing_idle(const struct backing_source *s, const struct backing *b);
/* A frozen one that is idle becomes writable again, with another size of the same whole pages. On
 * an error it is as it was. */
int backing_thaw(struct backing *b, uint64_t bytes, int fuse_fd);
/* Drops everything that is held. fuse_fd is used if there is an id. */
void backing_drop(struct backing *b, int fuse_fd);

/* Registers any open file. Returns the id (> 0) or negative errno. */
int32_t backing_id_open(int fuse_fd, int fd);
void backing_id_close(int fuse_fd, int32_t id);

#endif
