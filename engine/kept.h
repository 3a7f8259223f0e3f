/* SPDX-License-Identifier: Apache-2.0
 *
 * Mappings of experts that are kept from one use to the next.
 *
 * Of the 110 us that opening, mapping and closing an expert of 2.5 MiB costs on a mount, mapping and
 * unmapping take 50 to 85 (Linux 6.18, 2 cores), and the rest are messages to the daemon. A kept one costs
 * neither: the daemon is told of its uses, which count as opens do, in one line for a forward pass
 * (.expertfs/used). Who may not write that file opens and maps each time.
 *
 * A mapped expert cannot be evicted (expertfs/README.md, Memory). So mappings are kept only while all
 * experts of the store fit into the daemon's memory, where nothing has to go; that is asked again now
 * and then, and once the daemon is to give memory back, all are let go of. Of a plain folder they are kept
 * if it lies in memory or all its experts fit there: else the page cache would do without what nobody
 * has mapped.
 *
 * Different experts may be looked up and put by different threads at once; the rest is for one thread,
 * while nobody uses an expert.
 */
#ifndef ENGINE_KEPT_H
#define ENGINE_KEPT_H

#include "engine/modelfile.h"
#include "engine/mount.h"

#define KEPT_LINE 4096

struct kept {
	const struct modelfile *file;
	bool on;
	int asked;  /* since the daemon was asked */
	void **map; /* [layers with MTP][experts]; NULL: none is ever kept */
	int fd;     /* of .expertfs/used; -1: there is no daemon */
	size_t line_bytes;
	char line[KEPT_LINE]; /* names of experts that were used */
};

/* mode: of the mount. 0 or -ENOMEM. */
int kept_init(struct kept *k, const struct modelfile *file, enum serve_mode mode);
void kept_free(struct kept *k); /* a zeroed one is fine */

/* Bytes that kept_init() takes, and what the kernel needs for the mappings if they are kept. */
size_t kept_bytes(const struct modelfile *file, const struct mount_stats *mount);

/* A layer is about to be asked for: sees now and then whether mappings may be kept. */
void kept_look(struct kept *k);

/* Notes a use of the expert for the daemon. False if it is not kept, and has to be opened. */
bool kept_use(struct kept *k, int layer, int expert);
/* Tells the daemon of the uses noted. If it does not take them, all mappings are let go of: the next
 * open says what is wrong. */
void kept_tell(struct kept *k);

/* NULL if it is not kept. */
void *kept_find(const struct kept *k, int layer, int expert);
/* True if the mapping is kept from now on, else it stays the caller's. */
bool kept_put(struct kept *k, int layer, int expert, void *map);

#endif
