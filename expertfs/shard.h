/* SPDX-License-Identifier: Apache-2.0
 *
 * The shard file: how experts lie on a drive. Little-endian; everything on 4 KiB boundaries.
 *
 *	block 0        struct shard_head, zero-filled to 4 KiB
 *	then records   struct record_head, zero-filled to 4 KiB; its payload; zeros to 4 KiB
 *
 * Records follow each other without gaps until the end of the file. One record holds one part of
 * one expert (the whole expert, unless it is striped). A record describes itself, so that a lost
 * catalog.db can be made anew from the shards, and an interrupted pack can go on after the last
 * whole one. Nothing in a shard is ever rewritten in place. An expert that moves is appended where
 * it goes to, under a higher generation, and its old records become holes (zeros).
 *
 * Checksums are XXH3-64 (seed 0, canonical value stored as a little-endian integer).
 */
#ifndef EXPERTFS_SHARD_H
#define EXPERTFS_SHARD_H

#include <stdbool.h>
#include <stdint.h>

#define SHARD_ALIGN   4096u
#define SHARD_MAGIC   "EXFSHRD1"
#define RECORD_MAGIC  "EXFSREC1"
#define STORE_ID_SIZE 16

struct shard_head {
	char magic[8];
	uint32_t version; /* 1 */
	uint32_t drive;   /* index of this shard in the store, from 0 */
	uint32_t drives;  /* shards in the store */
	uint32_t pad;
	uint8_t store_id[STORE_ID_SIZE]; /* random, the same in all shards and the catalog of a
					    store */
	uint64_t check;                  /* XXH3 of the bytes before */
};

struct record_head {
	char magic[8];
	uint32_t layer, expert;
	uint32_t part, parts;   /* this part of how many; 0 of 1 for a whole expert */
	uint32_t copy;          /* 0, or 1.. for a replica */
	uint32_t generation;    /* 0 as packed; 1.. each time the expert was moved (respread.h) */
	uint64_t expert_bytes;  /* the whole expert */
	uint64_t part_offset;   /* of this part within the expert */
	uint64_t part_bytes;    /* payload, without the zeros behind it */
	uint64_t payload_check; /* XXH3 of the payload */
	uint8_t store_id[STORE_ID_SIZE];
	uint64_t check; /* XXH3 of the bytes before */
};

static inline uint64_t shard_round_up(uint64_t n)
{
	return (n + SHARD_ALIGN - 1) & ~(uint64_t)(SHARD_ALIGN - 1);
}

/* Bytes a record takes in the file: head block and padded payload. */
static inline uint64_t record_bytes(uint64_t part_bytes)
{
	return SHARD_ALIGN + shard_round_up(part_bytes);
}

/* Fill in magic, version and check. The caller has set the other fields. */
void shard_head_seal(struct shard_head *h);
void record_head_seal(struct record_head *h);
/* True if magic, check and the plain bounds hold (part < parts, part within the expert). */
bool shard_head_valid(const struct shard_head *h);
bool record_head_valid(const struct record_head *h);
/* Valid, and of this store; a shard's also of this drive. */
bool shard_head_is(const struct shard_head *h, const uint8_t id[STORE_ID_SIZE], uint32_t drive);
bool record_head_is(const struct record_head *h, const uint8_t id[STORE_ID_SIZE]);

uint64_t payload_check(const void *data, uint64_t bytes);

#endif
