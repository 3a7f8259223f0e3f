/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of the kernel's FUSE interface that libfuse 3.14 and Debian 12's headers do not know.
 *
 * Source: include/uapi/linux/fuse.h of Linux 6.9 and later (protocol 7.40: passthrough), and
 * Documentation/filesystems/fuse/fuse-passthrough.rst. The numbers are ABI and do not change.
 */
#ifndef EXPERTFS_FUSE_ABI_H
#define EXPERTFS_FUSE_ABI_H

#include <stdint.h>
#include <sys/ioctl.h>

enum { ABI_OP_INIT = 26 };

/* struct fuse_in_header, the start of every request. */
struct abi_in_header {
	uint32_t len, opcode;
	uint64_t unique, nodeid;
	uint32_t uid, gid, pid;
	uint16_t total_extlen, padding;
};

/* struct fuse_out_header, the start of every reply. */
struct abi_out_header {
	uint32_t len;
	int32_t error;
	uint64_t unique;
};

struct abi_init_in {
	uint32_t major, minor, max_readahead, flags, flags2;
	uint32_t unused[11];
};

struct abi_init_out {
	uint32_t major, minor, max_readahead, flags;
	uint16_t max_background, congestion_threshold;
	uint32_t max_write, time_gran;
	uint16_t max_pages, map_alignment;
	uint32_t flags2, max_stack_depth;
	uint16_t request_timeout, unused[11];
};

#define ABI_INIT_EXT           (1u << 30) /* in flags: flags2 counts */
#define ABI2_DIRECT_ALLOW_MMAP (1u << 4)  /* in flags2, bit 36 of the whole */
#define ABI2_PASSTHROUGH       (1u << 5)  /* bit 37 */

/* struct fuse_open_out. */
struct abi_open_out {
	uint64_t fh;
	uint32_t open_flags;
	int32_t backing_id;
};

#define ABI_FOPEN_DIRECT_IO   (1u << 0)
#define ABI_FOPEN_KEEP_CACHE  (1u << 1)
#define ABI_FOPEN_NOFLUSH     (1u << 5)
#define ABI_FOPEN_PASSTHROUGH (1u << 7)

struct abi_backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};

#define ABI_DEV_BACKING_OPEN  _IOW(229, 1, struct abi_backing_map)
#define ABI_DEV_BACKING_CLOSE _IOW(229, 2, uint32_t)

#endif
