/* SPDX-License-Identifier: Apache-2.0
 *
 * What drive.c (queue, batches, read threads) and drive_ring.c (io_uring) share.
 */
#ifndef EXPERTFS_DRIVE_PARTS_H
#define EXPERTFS_DRIVE_PARTS_H

#include <liburing.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "expertfs/drive.h"
#include "expertfs/drive_meter.h"
#include "expertfs/drive_queue.h"

#define DRIVE_THREADS 8 /* without io_uring */

struct drive {
	char *path;
	uint64_t size; /* of the file at the start */
	pthread_t thread[DRIVE_THREADS];
	int threads, fd;

	/* The ring and what belongs to it is used by its thread alone once that runs. */
	struct io_uring ring;
	uint64_t fixed_known; /* bytes at `fixed` that are registered */
	uint64_t wake_value;
	int wake;               /* eventfd that ends the thread's sleep */
	bool defer, fixed_file; /* the ring was made disabled; the file is registered */
	bool uring, direct;     /* how the file is read; never change */

	pthread_mutex_t lock;  /* all below */
	pthread_cond_t queued; /* for read threads; CLOCK_MONOTONIC */
	struct drive_queue queue;
	struct drive_meter meter;
	struct drive_health health;
	uint64_t bytes, reads, errors;
	char *fixed; /* drive_register() */
	uint64_t fixed_bytes;
	struct piece ask; /* of a failing drive: one block, anywhere */
	char *block;      /* for it */
	uint32_t seed;
	bool asking, asleep, stop;
};

/* The piece is no longer waited for. err and the drive that it came from, or 0. Its batch, and with it the
 * piece, may be gone afterwards. */
void batch_tell(struct piece *p, int err, struct drive *d);
/* Nobody can use what has not been read yet. */
bool batch_failed(struct read_batch *b);

/* Puts n pieces into the queue and sees to it that they are read. */
void drive_enqueue(struct drive *d, struct piece *p, uint64_t n);
/* The next piece to read, or NULL. Lock held. Pieces of batches that have failed already come into
 * *dropped: drive_drop() them without the lock. */
struct piece *drive_take(struct drive *d, struct piece **dropped);
void drive_drop(struct piece *dropped);
/* True when the thread may end. Lock held. */
bool drive_finished(const struct drive *d);
/* A piece has ended; res: bytes read or negative errno. */
void drive_piece_done(struct drive *d, struct piece *p, int res);

/* Makes the ring and the eventfd of d. 0 or negative errno. */
int ring_make(struct drive *d);
void ring_free(struct drive *d);
void ring_wake(struct drive *d);
void *ring_main(void *drive);

#endif
