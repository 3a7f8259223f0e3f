/* SPDX-License-Identifier: Apache-2.0
 *
 * The file of a hot drive: slots of one expert each; the format is in hotdir.h. Not thread-safe:
 * one writer. Who reads does so through the drive.
 */
#ifndef EXPERTFS_HOTFILE_H
#define EXPERTFS_HOTFILE_H

#include "expertfs/hotdir.h"
#include "expertfs/record.h"

struct hot_file;

/* Opens or makes FOLDER/NAME.hot for a store, NAME as its shards have. Locked: -EBUSY if another
 * daemon has it. What belongs to another store, or has slots of another size, is emptied; another
 * kind of file is not touched (-EEXIST). -EINVAL: bytes is less than one slot; -ENOSPC: less is
 * free. */
int hot_file_open(const struct store *s, const char *folder, uint64_t bytes, struct hot_file **out,
		  char *why);
void hot_file_close(struct hot_file *f); /* NULL is fine */

const char *hot_file_path(const struct hot_file *f);
uint32_t hot_file_slots(const struct hot_file *f);
/* Where the bytes of a slot's expert begin. */
uint64_t hot_file_offset(const struct hot_file *f, uint32_t slot);

/* True if the slot has a whole expert of this store; its head into *h. */
bool hot_file_head(struct hot_file *f, uint32_t slot, struct slot_head *h);
/* Empties a slot, durably. */
int hot_file_empty(struct hot_file *f, uint32_t slot);
/* Fills it, durably: h has layer, expert, expert_bytes and payload_check; data is on 4 KiB, zeros
 * behind it to 4 KiB. After an error the slot is empty, if that can still be written. */
int hot_file_fill(struct hot_file *f, uint32_t slot, const struct slot_head *h, const void *data,
		  const struct writer_pause *pause);

#endif
