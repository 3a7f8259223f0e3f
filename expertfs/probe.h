/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast a drive reads: random pieces of 1 MiB with O_DIRECT, PROBE_DEPTH of them in flight.
 *
 * The figure is the drive's or there is none. Where the file system has no direct I/O, where it
 * lies in memory, or where somebody else's cache may answer (another machine, a FUSE server, a loop
 * device that reads through the page cache), the result says so and is not `honest`. No piece is
 * read twice, since caches further down (of a hypervisor, of the drive) would answer the second
 * time. What cannot be kept out is a drive that holds fresh data in a faster part of its flash
 * (colibri issue 65: 13-20 GB/s of fresh, 8.7 of cold data): probe_folder() may flatter such a
 * drive, probe_file() of a shard written long ago does not.
 *
 * Both functions block for 1 to 2 seconds and share nothing, so they need no lock. Several drives
 * are to be measured one after the other: they may share a bus.
 */
#ifndef EXPERTFS_PROBE_H
#define EXPERTFS_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#define PROBE_PIECE    (1u << 20)
#define PROBE_DEPTH    16 /* 16 MiB in flight: enough for 7 GB/s at 2 ms (research: 3.3) */
#define PROBE_FILE     (256u << 20) /* that probe_folder() writes, at most */
#define PROBE_LEAST    8            /* pieces without which a figure is not worth much */
#define PROBE_SENTENCE 512

enum probe_io { PROBE_IO_AUTO, PROBE_IO_URING, PROBE_IO_THREADS };

struct probe_result {
	uint64_t bytes_per_s; /* 0: could not be measured */
	uint64_t p50_ns,
		p99_ns; /* of one piece, from its start to its end, with the others in flight */
	uint64_t bytes; /* that were read */
	bool honest;    /* bytes_per_s is the drive's own */
	bool uring;     /* else threads with pread() */
	char text[PROBE_SENTENCE]; /* the outcome for people; if not honest, why */
};

/* Measures with the file at path, which is only read; it may be in use. 0, also if it could not be
 * measured (r->honest is false, r->text says why), or negative errno with the sentence in why: the
 * file cannot be opened or read. io: AUTO takes io_uring where it works. */
int probe_file(const char *path, enum probe_io io, struct probe_result *r, char *why);

/* The same with a temporary file in dir, of PROBE_FILE bytes or of half of what is free. It
 * has no name, so that nothing is left of it whatever happens. */
int probe_folder(const char *dir, enum probe_io io, struct probe_result *r, char *why);

#endif
