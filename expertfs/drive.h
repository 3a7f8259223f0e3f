/* SPDX-License-Identifier: Apache-2.0
 *
 * A drive: one shard file, its queue, and the thread that keeps the queue busy.
 *
 * Reads are asked for from any thread and complete on the drive's own. Each drive has its own
 * io_uring with O_DIRECT, so that the drives do not wait for each other; where io_uring is
 * forbidden a few threads with pread() do the same behind the same queue. Large reads are cut into
 * pieces (drive_queue.h).
 */
#ifndef EXPERTFS_DRIVE_H
#define EXPERTFS_DRIVE_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct drive;

enum drive_io { DRIVE_IO_AUTO, DRIVE_IO_URING, DRIVE_IO_THREADS };

/* What goes first when a drive has a choice: somebody waits; a guess of what will be asked for;
 * experts on their way to another place. */
enum drive_class { DRIVE_DEMAND, DRIVE_PREFETCH, DRIVE_PROMOTION, DRIVE_CLASSES };

/* How urgent the reads of one load are. Whoever started them at a lower class may raise them while
 * they wait (drive_raise()), because somebody asks for the expert by now. */
struct urgency {
	_Atomic int class; /* enum drive_class */
};

/* A set of reads that somebody waits for together. */
struct read_batch;
/* u must live until the wait is over. NULL: out of memory */
struct read_batch *read_batch_new(const struct urgency *u);
/* Adds a read of length bytes at offset into buf; offset, length and buf on 4 KiB. May be called
 * for several drives; returns at once. Failures to queue are reported by the wait. */
void read_batch_add(struct read_batch *b, struct drive *d, uint64_t offset, uint64_t length,
		    void *buf);
/* Waits until more than the first `have` bytes of one of its reads have come, in order; reads are
 * numbered from 0 as they were added, and have is below the read's length. Returns how many there
 * are; have: no more will come. For who looks at them while the rest is under way. One thread at a
 * time. */
uint64_t read_batch_came(struct read_batch *b, unsigned read, uint64_t have);
/* Where the first error was. */
struct read_fault {
	struct drive *drive; /* NULL: there was none */
	uint64_t offset;
};
/* Waits for all of them and frees b. 0, or the first error: -EIO also for a file that ends early.
 * What still waits when another read of the batch fails is not read any more. fault may be NULL. */
int read_batch_wait(struct read_batch *b, struct read_fault *fault);

struct drive_stats {
	uint64_t bytes, reads, errors;  /* bytes that came; pieces started; those that failed, and
					   wrong checksums */
	uint64_t busy_ns;               /* time with at least one piece in flight */
	uint32_t in_flight;             /* pieces, now */
	uint64_t queued[DRIVE_CLASSES]; /* bytes that wait or are in flight, now */
	uint64_t speed;        /* bytes/s as measured while it had enough to do; 0: not known yet */
	double p50_ms, p99_ms; /* of a piece, from the drive's start on it to its end; 0 if none */
	bool failing;          /* its last reads failed: other copies are taken first */
};

/* Opens path and starts the thread. DRIVE_IO_AUTO takes io_uring where it works. Direct I/O where
 * the file system has it, else buffered (said in the log). */
int drive_open(const char *path, enum drive_io io, struct drive **out, char *why);
/* Waits for what is queued, ends the thread, closes. NULL is fine. */
void drive_close(struct drive *d);
/* Reads into this memory are cheaper from now on: for buffers that are used again and again. It
 * must stay as long as the drive. Once a drive. */
void drive_register(struct drive *d, void *base, uint64_t bytes);
void drive_stats(struct drive *d, struct drive_stats *out);
/* The pieces of this urgency that still wait go to the class it has now. */
void drive_raise(struct drive *d, const struct urgency *u);
/* Nanoseconds until so many bytes more of this class would have come, after all that goes before
 * them: for the choice between copies. A failing drive's is longer than any other's. */
uint64_t drive_backlog(struct drive *d, enum drive_class class, uint64_t bytes);
/* Its last reads failed. It is asked again now and then, and is trusted again when one of these
 * questions, or any read that was tried all the same, is answered. */
bool drive_failing(struct drive *d);
/* Something came from it that was wrong: counts as an error. */
void drive_blame(struct drive *d);
/* Whether its file has so many bytes still and was written last at that time: for files without
 * checksums, which others may write. */
bool drive_is_as_it_was(const struct drive *d, uint64_t bytes, const struct timespec *written);
bool drive_uses_uring(const struct drive *d);
const char *drive_path(const struct drive *d);

#endif
