/* SPDX-License-Identifier: Apache-2.0
 *
 * A second hot store on a faster drive (--hot-dir): experts that are loaded again and again from
 * slower drives are copied to it, one at a time in the background, and read from there.
 *
 * One file DIR/NAME.hot, little-endian, on 4 KiB boundaries:
 *
 *	block 0        struct hot_head, zero-filled to 4 KiB
 *	then slots     of slot_bytes each: struct slot_head, zero-filled to 4 KiB, and the expert
 *
 * It is a cache. A slot is emptied before it is written (head zeroed, durably), and its head comes
 * after its bytes (durably), so that whatever is interrupted a valid head has a whole expert behind
 * it; what a drive damages is found by the checksum on load, and the slot is forgotten. After a
 * restart what the heads say is used at once.
 *
 * Popular is what is loaded often, not what is opened often: an expert that stays in memory needs
 * no faster drive. Loads are counted with a half-life of HOTDIR_HALF_LIFE loads an expert of the
 * store, so that a pause changes nothing.
 */
#ifndef EXPERTFS_HOTDIR_H
#define EXPERTFS_HOTDIR_H

#include <stdbool.h>
#include <stdint.h>

#include "expertfs/hotstore.h"
#include "expertfs/loader.h"
#include "expertfs/store.h"

#define HOT_MAGIC  "EXFSHOT1"
#define SLOT_MAGIC "EXFSSLT1"

struct hot_head {
	char magic[8];
	uint32_t version, pad; /* 1, 0 */
	uint64_t slot_bytes;
	uint8_t store_id[STORE_ID_SIZE];
	uint64_t check; /* XXH3 of the bytes before */
};

struct slot_head {
	char magic[8];
	uint32_t layer, expert;
	uint64_t expert_bytes;
	uint64_t payload_check; /* XXH3 of the expert */
	uint8_t store_id[STORE_ID_SIZE];
	uint64_t check; /* XXH3 of the bytes before */
};

/* Loads of the store after which a load counts half, per expert. */
#define HOTDIR_HALF_LIFE 4

struct hotdir;

struct hotdir_config {
	struct store *store;
	const struct loader *loader; /* its drive[STORE_HOT_DRIVE] is set and unset here */
	struct hotstore *hot;        /* whose loads are counted, from now on: seed it before */
	const char *folder;          /* --hot-dir */
	uint64_t bytes;              /* --hot-dir-size */
	enum drive_io io;
	unsigned period_ms; /* between two looks at what is popular; 0: a second */
	/* How often each expert was loaded from the drives so far, instead of asking `hot`: for
	 * tests. NULL: ask. */
	void (*loads)(void *arg, uint64_t *loads);
	void *arg;
};

/* Memory that it takes: for the budget. */
uint64_t hotdir_memory(const struct store *s);

/* Opens or makes the file, makes what it holds readable, starts the thread. -EINVAL: smaller than
 * one expert, or no drive of the store lies elsewhere (there is nothing to win); -EBUSY: another
 * daemon uses the file; and the sentence in why. */
int hotdir_open(const struct hotdir_config *cfg, struct hotdir **out, char *why);
/* Ends the thread: `hot` is not asked any more. What is there is still read. NULL is fine. */
void hotdir_stop(struct hotdir *h);
/* Stops and closes; the experts stay in the file for the next time. No load may be under
 * way. NULL is fine. */
void hotdir_close(struct hotdir *h);

/* loader.hot_bad: this copy could not be read or was wrong. It is not read again. */
void hotdir_bad(void *h, uint32_t index);

struct hotdir_stats {
	uint64_t slots, experts, bytes; /* of room; that are there now */
	uint64_t promotions, demotions; /* since the start; copied in; forgotten or displaced */
	uint64_t errors;                /* damaged copies, and copies that could not be written */
};
void hotdir_stats(struct hotdir *h, struct hotdir_stats *out);

#endif
