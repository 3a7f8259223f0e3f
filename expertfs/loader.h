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

/* When checksums are checked: at each load, at the first load of a copy since the start, or not at
 * all. */
enum verify { VERIFY_FIRST, VERIFY_ALWAYS, VERIFY_NEVER };

struct loader {
	struct store *store;
	struct drive **drive; /* STORE_DRIVES_MAX + 1; NULL: none, or missing */
	sem_t *buffers;       /* initialised to READ_BUFFERS */
	enum verify verify;
	_Atomic uint8_t *proved; /* one an expert: bit c for copy c, bit 7 for the hot one; NULL:
				    verify always */
};

/* Experts are named by their index in store->expert. Where an expert lies is taken at the start
 * and held until the end, so a move may go on meanwhile. */

/* Reads all of an expert into dst: 4 KiB-aligned, its bytes rounded up to 4 KiB. The bytes behind
 * the expert's end are zero afterwards. Of several copies the one whose drives have least to do is
 * taken, the hot one if there is one. */
int load_expert(const struct loader *l, uint32_t index, const struct urgency *u, void *dst,
		char *why);
/* Loads of this urgency that wait on any drive go on at the class it has now. */
void loader_raise(const struct loader *l, const struct urgency *u);

/* Proves the expert with little memory: through a small buffer, keeping nothing. *copy: the copy
 * that was found good. */
int prove_expert(const struct loader *l, uint32_t index, unsigned *copy, char *why);

/* Reads size (at most 1 MiB) bytes at offset of one copy (of the first one if that has gone) into a
 * buffer and calls use() while it exists: n bytes of data, 0 at the end of the expert, or negative
 * errno and no data. No checksum is checked: the expert was proved at open. */
typedef void read_use(void *arg, const char *data, ssize_t n);
void read_expert(const struct loader *l, uint32_t index, unsigned copy, uint64_t offset,
		 size_t size, read_use *use, void *arg);

#endif
