/* SPDX-License-Identifier: Apache-2.0
 *
 * Which piece a drive reads next: the order of a drive's queue, without any I/O.
 *
 * One list a class. Demand goes first; the others may not fill the drive, because a piece of demand
 * that arrives must wait for all that is in flight. Not thread-safe: the drive's lock is held.
 */
#ifndef EXPERTFS_DRIVE_QUEUE_H
#define EXPERTFS_DRIVE_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "expertfs/drive.h"

/* A large read is cut into these: one command on most drives, and few enough a second (14,000 at 7
 * GB/s) that what each costs does not matter. */
#define PIECE_BYTES (1u << 19)
/* What keeps a drive busy is bytes in flight, at least bandwidth times latency: 32 MiB are 7 GB/s
 * at 4.5 ms, which is what a loaded drive takes. By bytes and not by number, because small experts
 * come in many small pieces; the number is bounded by the ring only. */
#define IN_FLIGHT_BYTES  (32u << 20)
#define IN_FLIGHT_PIECES 256u
/* In flight below demand, so many at most: for guesses, what the drive reads in LOW_WAIT_NS, which
 * is how long demand then waits behind them, and between these bounds... A drive is busy with what it
 * reads in the time that a request takes, less than that; with four times as much, tokens that wait
 * for two experts a layer were a seventh slower. */
#define PREFETCH_BYTES_MAX (IN_FLIGHT_BYTES / 4)
#define PREFETCH_BYTES_MIN (2 * PIECE_BYTES)
#define LOW_WAIT_NS        1000000u
/* ... and two pieces for promotion: one comes while the other waits. */
#define PROMOTION_BYTES (2 * PIECE_BYTES)
/* While higher classes wait, a lower one gets one piece after so many of their bytes: it does not
 * stop altogether, and costs 1.5 %. */
#define TRICKLE_BYTES (64 * PIECE_BYTES)

struct piece {
	struct piece *next;
	struct read_batch *batch; /* NULL: the drive's own question whether it works again */
	const struct urgency *urgency;
	char *buf;
	uint64_t offset;
	uint64_t started; /* ns, when it was taken */
	uint32_t length;
	uint8_t class, again; /* the list it is in or came from; times it was put back */
	bool came;            /* whole; under the batch's lock */
};

struct drive_queue {
	struct piece *head[DRIVE_CLASSES], **tail[DRIVE_CLASSES];
	uint64_t waiting[DRIVE_CLASSES], flying[DRIVE_CLASSES]; /* bytes */
	uint64_t passed[DRIVE_CLASSES]; /* bytes of others that went while this one waited */
	uint32_t pieces;                /* in flight */
	uint64_t speed;                 /* of the drive, bytes/s; 0: not known */
};

void queue_init(struct drive_queue *q);
/* Takes the class from the piece's urgency, as it is now. */
void queue_push(struct drive_queue *q, struct piece *p);
/* What was in flight and did not come whole goes first in its class. */
void queue_put_back(struct drive_queue *q, struct piece *p);
/* The piece to start now, which is in flight from here on, or NULL: nothing waits or nothing more
 * should be started. */
struct piece *queue_take(struct drive_queue *q);
/* p has ended; p->length is what it was when it was taken. */
void queue_done(struct drive_queue *q, const struct piece *p);
/* The waiting pieces of this urgency go to the end of the class that it has now, in their order. */
void queue_reclass(struct drive_queue *q, const struct urgency *u);
/* Bytes that a new piece of this class would wait for: in flight, or queued before it. */
uint64_t queue_before(const struct drive_queue *q, enum drive_class class);

#endif
