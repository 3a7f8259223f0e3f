/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the checkpoint ahead of the quantisers: one thread, two buffers, in the order of writing.
 *
 * A chunk is some rows of one matrix, at most CHUNK_BYTES of them, so that memory stays bounded
 * whatever the size of a tensor. While one chunk is quantised the next is read: drive and cores are
 * both busy.
 */
#ifndef COLI_PACK_READER_H
#define COLI_PACK_READER_H

#include "tools/coli-pack/plan.h"

#define CHUNK_BYTES (64u << 20) /* as read, as floats, and as written */

/* Columns of the widest matrix that can be packed: a block of its rows fits a chunk. */
#define CHUNK_COLS ((int)(CHUNK_BYTES / sizeof(float) / WBLOCK))

struct chunk {
	bool dense;
	uint32_t item; /* index of the dense tensor, or number of the expert */
	int matrix;    /* of the expert */
	int64_t row, rows;
	bool first, last; /* of the item */
	struct source src;
	struct wfmt fmt;
	void *data;
	float *scales;
	size_t scales_room;
};

struct reader;

/* Starts with the dense tensor dense_from, then takes the experts e with !written[e]. Plan and
 * written must outlive the reader; written is read by its thread, so entries may be set only for
 * experts whose last chunk has come. */
int reader_start(const struct plan *p, size_t dense_from, const bool *written, struct reader **out,
		 char *why);
/* 1 and the next chunk, 0 at the end, or negative errno with the sentence in why. The chunk is the
 * caller's until reader_release(). */
int reader_next(struct reader *r, const struct chunk **c, char *why);
void reader_release(struct reader *r);
/* Stops at once, also in the middle. NULL is fine. */
void reader_stop(struct reader *r);

#endif
