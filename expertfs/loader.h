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

#include <stdint.h>
#include <sys/types.h>

#include "expertfs/drive.h"
#include "expertfs/read_buffers.h"
#include "expertfs/store.h"

/* When checksums are checked: at each load, at the first load of a copy since the start, or not at
 * all. */
enum verify { VERIFY_FIRST, VERIFY_ALWAYS, VERIFY_NEVER };

struct loader {
	struct store *store;
	/* STORE_DRIVES_MAX + 1; NULL: none, or missing. Entries come and go under store->lock; a
	 * drive goes when no place names it any more. */
	struct drive **drive;
	struct read_buffers *buffers; /* for prove_expert() and read_expert() */
	enum verify verify;
	/* Told that the hot copy of an expert could not be read or was wrong: to be forgotten. From
	 * the loading thread, nothing held. NULL: nobody is told. */
	void (*hot_bad)(void *arg, uint32_t index);
	void *hot_arg;
};

/* A copy is known by its number in the packed list; this is the one on the hot drive. The loader
 * looks at the first COPIES_MAX copies only. */
#define COPY_HOT   0xffffu
#define COPIES_MAX 64u

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
 * that was found good, now or (if verify says so) before. */
int prove_expert(const struct loader *l, uint32_t index, unsigned *copy, char *why);

/* Reads size bytes at offset (READ_MAX at most), of this copy if it can be had, into a buffer and calls
 * use() while it exists: n bytes of data, 0 at the end of the expert, or negative errno and no
 * data. No checksum is checked, since the expert was proved at open; another copy, or one that has
 * moved since, is proved first. */
typedef void read_use(void *arg, const char *data, ssize_t n);
void read_expert(const struct loader *l, uint32_t index, unsigned copy, uint64_t offset,
		 size_t size, read_use *use, void *arg);

#endif
