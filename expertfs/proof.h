/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a range of a shard from the drive, and proving it by its checksum: for what goes through a
 * whole store (verify, rebuild) beside or without a daemon.
 */
#ifndef EXPERTFS_PROOF_H
#define EXPERTFS_PROOF_H

#include <stdbool.h>
#include <stdint.h>

/* One read: large, since there is one at a time, and the kernel cuts it for the drive. */
#define PROOF_BYTES (4u << 20)

/* A descriptor of a shard, past the page cache where the file system can: what is proved is what
 * lies on the drive. Negative errno. */
int proof_open(const char *path);

/* Told of bytes that came; false ends the proof with -ECANCELED. */
typedef bool proof_tick(void *arg, uint64_t bytes);

/* Reads length bytes at offset (on 4 KiB; the file has them rounded up to 4 KiB) through buf, which
 * has PROOF_BYTES on a 4 KiB boundary. 0; -EBADMSG: the checksum is another; -ENODATA: the file ends
 * before; -ECANCELED; or the errno of the read. */
int proof_range(int fd, uint64_t offset, uint64_t length, uint64_t check, void *buf,
		proof_tick *tick, void *arg);

/* What such an error is to people: "its checksum is wrong". */
const char *proof_text(int err);

#endif
