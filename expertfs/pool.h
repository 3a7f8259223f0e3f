/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that is ready ahead of need.
 *
 * The first touch of shared memory is slower than a fast drive: a miss that had to wait for it would
 * leave the drive idle. So some backings of the most common size lie ready, touched by a thread of
 * the pool. What they take is part of the hot store's capacity, and set aside for them as long as the
 * store is not full. Once it is, each expert that comes takes the memory of one that goes
 * (backing_thaw()), and the pool yields what it has.
 *
 * Thread-safe.
 */
#ifndef EXPERTFS_POOL_H
#define EXPERTFS_POOL_H

#include "expertfs/backing.h"

struct pool;

/* count backings for experts of `bytes` bytes. NULL: out of memory, or no thread. */
struct pool *pool_new(const struct backing_source *source, uint64_t bytes, uint32_t count);
void pool_free(struct pool *p); /* NULL is fine */
/* What is set aside for it, ready or not. Bytes. */
uint64_t pool_bytes(struct pool *p);
/* A ready one for an expert of this size, with b->bytes set. False: none ready, or another size. */
bool pool_take(struct pool *p, uint64_t bytes, struct backing *out);
/* One less is set aside, for an expert of this size. True: it is; and if out->fd >= 0, here is its
 * memory (else there is room for new memory). False: there is none, or all that is left is being
 * touched at this moment, or what is ready has another size. */
bool pool_yield(struct pool *p, uint64_t bytes, struct backing *out);
/* Takes back what pool_yield() gave and was not needed. */
void pool_return(struct pool *p, struct backing *b);
/* Whether it would take memory of so many bytes over; may be otherwise a moment later. */
bool pool_wants(struct pool *p, uint64_t mapped);
/* Takes a thawed backing over. False: not needed, the caller drops it. */
bool pool_give(struct pool *p, struct backing *b);
/* Another count; what is ready beyond it is dropped. */
void pool_resize(struct pool *p, uint32_t count);

#endif
