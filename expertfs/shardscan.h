/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading the records of a shard without a catalog: a shard describes itself (shard.h).
 */
#ifndef EXPERTFS_SHARDSCAN_H
#define EXPERTFS_SHARDSCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "expertfs/proof.h"
#include "expertfs/shard.h"

struct shard_record {
	uint16_t layer, expert, copy, drive;
	uint32_t part, parts, generation;
	uint64_t expert_bytes, part_offset, part_bytes;
	uint64_t check;
	uint64_t offset; /* of the payload, in the file */
	bool bad;        /* shard_prove(): the payload does not hold */
};

struct shard_scan {
	char *path;
	int fd;
	struct shard_head head;
	uint64_t bytes; /* of the file */
	uint64_t end;   /* of the last record, with its padding */
	struct shard_record *record;
	uint32_t n, room;
	uint64_t damaged; /* bytes that are neither a record nor a hole */
	uint64_t damaged_at;
};

/* Opens a shard and reads its head. -EBADMSG: it is none. Close it also after an error. */
int shard_scan_open(struct shard_scan *s, const char *path, char *why);
void shard_scan_close(struct shard_scan *s);

/* Finds the records: heads that hold, of this store, whose payload lies within the file. Zeros are
 * holes (moved experts) and no fault. What else is no head is skipped, up to the next one, and
 * counted in damaged: a lost head costs its record and no other. */
int shard_scan_records(struct shard_scan *s, char *why);

/* Told of each record that does not hold, with proof_range()'s error. */
typedef void shard_bad(void *arg, const struct shard_scan *s, const struct shard_record *r,
		       int err);
/* Reads and proves all payloads; those that do not hold become bad. 0, -ECANCELED (tick), -ENOMEM. */
int shard_prove(struct shard_scan *s, proof_tick *tick, shard_bad *bad, void *arg, char *why);

#endif
