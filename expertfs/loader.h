/* SPDX-License-Identifier: Apache-2.0
 *
 * From extents to bytes: one expert read from its drives and proved by its checksums.
 *
 * The functions block; they are called from loader and request threads and may run side by side. A
 * read that fails or whose checksum does not hold is tried once more, then the next copy is taken;
 * when none is left the answer is -EIO and a sentence. A wrong byte is never handed on.
 */
#ifndef EXPERTFS_LOADER_H
#define EXPERTFS_LOADER_H

#include <semaphore.h>
#include <stdint.h>
#include <sys/types.h>

#include "expertfs/drive.h"
#include "expertfs/store.h"

/* How many buffers prove_expert() and read_expert() have at the same time; more callers wait. Keeps
 * their memory small and known (budget.h), and four reads of a buffer each still fill a drive. */
#define READ_BUFFERS     4
#define READ_BUFFER_SIZE ((1u << 20) + SHARD_ALIGN) /* the largest FUSE read, in whole blocks */

struct loader {
	const struct store *store;
	struct drive **drive; /* store->drives of them */
	sem_t *buffers;       /* initialised to READ_BUFFERS */
};

/* Reads all of e into dst: 4 KiB-aligned, e->bytes rounded up to 4 KiB. The bytes behind the
 * expert's end are zero afterwards. */
int load_expert(const struct loader *l, const struct store_expert *e, void *dst, char *why);

/* Proves the expert with little memory: through a small buffer, keeping nothing. *copy: the copy
 * that was found good. */
int prove_expert(const struct loader *l, const struct store_expert *e, unsigned *copy, char *why);

/* Reads size (at most 1 MiB) bytes at offset of one copy into a buffer and calls use() while it
 * exists: n bytes of data, 0 at the end of the expert, or negative errno and no data. No checksum
 * is checked: the expert was proved at open. */
typedef void read_use(void *arg, const char *data, ssize_t n);
void read_expert(const struct loader *l, const struct store_expert *e, unsigned copy,
		 uint64_t offset, size_t size, read_use *use, void *arg);

#endif
