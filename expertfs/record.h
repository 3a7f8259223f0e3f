/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing records to a shard of a store that is in use: behind its end, durably, and away again.
 *
 * A record becomes a record in two steps. record_append() writes the payloads of a batch behind
 * holes; record_seal() brings them to the drive, and only then writes the heads into the holes. So
 * whatever is interrupted, a valid head has its payload behind it. Until the catalog names the
 * batch (record_keep()) it may be withdrawn (record_withdraw()).
 *
 * Not thread-safe: one writer a shard. Readers of other records are not disturbed.
 */
#ifndef EXPERTFS_RECORD_H
#define EXPERTFS_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "expertfs/disk.h"
#include "expertfs/shard.h"

/* Records between two seals, at most. */
#define RECORD_BATCH 64

struct shard_out;

/* Makes a shard with nothing in it; path must not be there, or be just that already: what is left
 * of a call that was killed. Durable, with its name. 0 or negative errno and why. */
int shard_create(const char *path, const uint8_t store_id[STORE_ID_SIZE], uint32_t drive,
		 char *why);

/* Opens the shard of this drive for writing. known: its bytes in the catalog; what lies behind them
 * stays, and new records go behind that. */
int shard_out_open(const char *path, const uint8_t store_id[STORE_ID_SIZE], uint32_t drive,
		   uint64_t known, struct shard_out **out, char *why);
void shard_out_close(struct shard_out *o); /* NULL is fine */
/* Where the next record goes. */
uint64_t shard_out_end(const struct shard_out *o);

/* Writes the payload of a record: part_bytes of h, and zeros to 4 KiB, at payload (on 4 KiB).
 * *offset: where it lies. The caller has set all of h but store_id, magic and check. At most
 * RECORD_BATCH between two seals. pause may be NULL. */
int record_append(struct shard_out *o, const struct record_head *h, const void *payload,
		  const struct writer_pause *pause, uint64_t *offset, char *why);
/* All that was appended is durable, heads too, when it returns 0. */
int record_seal(struct shard_out *o, char *why);
/* The catalog names what was sealed. */
void record_keep(struct shard_out *o);
/* All records since the last record_keep() (or the open) go. */
void record_withdraw(struct shard_out *o);

/* True if a record of this store begins at `at`; its head into *h. */
bool record_at(struct shard_out *o, uint64_t at, struct record_head *h);
/* Ends the file there: what lies behind is lost. 0 or negative errno. */
int shard_out_cut(struct shard_out *o, uint64_t end);

/* Gives the space of a record back that no catalog and no reader names any more: head and payload
 * become a hole. It must be the record of this expert and these bytes, else -EBADMSG and nothing is
 * done. -EOPNOTSUPP: not on this file system. */
int record_punch(struct shard_out *o, unsigned layer, unsigned expert, uint64_t offset,
		 uint64_t length, char *why);

#endif
