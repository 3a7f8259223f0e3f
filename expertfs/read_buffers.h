/* SPDX-License-Identifier: Apache-2.0
 *
 * The few buffers through which experts are proved and read that find no room in the hot store.
 *
 * Made once, so that no read pays for fresh pages, in huge pages where there are any, and
 * registered with the drives' rings. Callers wait while all are taken: that keeps their memory
 * small and known (budget.h), and four reads of a buffer each still fill a drive.
 */
#ifndef EXPERTFS_READ_BUFFERS_H
#define EXPERTFS_READ_BUFFERS_H

#include <stdint.h>

#include "expertfs/drive.h"
#include "expertfs/shard.h"

#define READ_BUFFERS     4
#define READ_MAX         (1u << 20)               /* the largest FUSE read: op_init() sees to it */
#define READ_BUFFER_SIZE (READ_MAX + SHARD_ALIGN) /* that, in whole blocks */

struct read_buffers;

/* For experts of at most `largest` bytes: READ_BUFFERS of that, or of READ_BUFFER_SIZE. NULL: out
 * of memory. */
struct read_buffers *read_buffers_new(uint64_t largest);
/* After the drives that know them are closed, and with none taken. NULL is fine. */
void read_buffers_free(struct read_buffers *b);
/* Makes reads of d into the buffers cheaper (drive_register()). */
void read_buffers_register(const struct read_buffers *b, struct drive *d);

uint64_t read_buffers_size(const struct read_buffers *b); /* of one, whole blocks, two at least */
char *read_buffers_take(struct read_buffers *b);          /* waits; on 4 KiB */
void read_buffers_give(struct read_buffers *b, char *buf);

#endif
