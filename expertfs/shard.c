/* SPDX-License-Identifier: Apache-2.0
 *
 * Sealing and checking the blocks of a shard file. The layout is in shard.h.
 */
#include "expertfs/shard.h"
#include "expertfs/xxh3.h"

#include <stddef.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "stores are little-endian and read as they lie"
#endif

_Static_assert(sizeof(struct shard_head) == 48, "shard_head has no hidden padding");
_Static_assert(sizeof(struct record_head) == 88, "record_head has no hidden padding");

uint64_t payload_check(const void *data, uint64_t bytes)
{
	return XXH3_64bits(data, bytes);
}

void shard_head_seal(struct shard_head *h)
{
	memcpy(h->magic, SHARD_MAGIC, sizeof(h->magic));
	h->version = 1;
	h->pad = 0;
	h->check = XXH3_64bits(h, offsetof(struct shard_head, check));
}

void record_head_seal(struct record_head *h)
{
	memcpy(h->magic, RECORD_MAGIC, sizeof(h->magic));
	h->check = XXH3_64bits(h, offsetof(struct record_head, check));
}

bool shard_head_valid(const struct shard_head *h)
{
	return memcmp(h->magic, SHARD_MAGIC, sizeof(h->magic)) == 0 && h->version == 1 &&
	       h->check == XXH3_64bits(h, offsetof(struct shard_head, check)) &&
	       h->drive < h->drives;
}

bool record_head_valid(const struct record_head *h)
{
	return memcmp(h->magic, RECORD_MAGIC, sizeof(h->magic)) == 0 &&
	       h->check == XXH3_64bits(h, offsetof(struct record_head, check)) &&
	       h->part < h->parts && h->part_bytes > 0 && h->part_bytes <= h->expert_bytes &&
	       h->part_offset <= h->expert_bytes - h->part_bytes;
}

bool shard_head_is(const struct shard_head *h, const uint8_t id[STORE_ID_SIZE], uint32_t drive)
{
	return shard_head_valid(h) && h->drive == drive &&
	       memcmp(h->store_id, id, STORE_ID_SIZE) == 0;
}

bool record_head_is(const struct record_head *h, const uint8_t id[STORE_ID_SIZE])
{
	return record_head_valid(h) && memcmp(h->store_id, id, STORE_ID_SIZE) == 0;
}
