/* SPDX-License-Identifier: Apache-2.0
 *
 * Usage that outlives the daemon: what the hot store counts goes to catalog.db every few seconds,
 * and after a restart comes back from there and fills the memory, hottest first.
 *
 * One thread does both, never on the path of a read. It writes what changed since the last time in
 * one transaction; a heat that only faded is written again once it is 5 % off, so that the heats in
 * the catalog are comparable. A kill loses the last seconds, a power failure perhaps some more: they
 * are statistics. One daemon of a store records (storelock.h); the others, and one on a read-only
 * file system, only read what is there.
 */
#ifndef EXPERTFS_USAGE_H
#define EXPERTFS_USAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "expertfs/hotstore.h"
#include "expertfs/store.h"

struct usage;

struct usage_config {
	struct store *store;
	struct hotstore *hot;
	unsigned flush_ms;  /* between two flushes; 0: USAGE_FLUSH_MS */
	double floor;       /* experts of less heat are not loaded ahead; 0: USAGE_FLOOR */
	bool no_warm_start; /* leave the memory empty at the start */
};

#define USAGE_FLUSH_MS 5000
/* Half an open: it has not been asked for in the last 16 opens of every expert there is. */
#define USAGE_FLOOR 0.5

/* Seeds the hot store, before its first open, and starts the thread. A catalog that cannot be read
 * or written is said in the log and is no error. */
int usage_start(const struct usage_config *cfg, struct usage **out, char *why);
/* Writes what is left and ends the thread, quickly also in the middle of a fill. Before the hot
 * store goes, after the last open. NULL is fine. */
void usage_stop(struct usage *u);
/* Writes now what changed, and returns when it is written: 0, -EROFS if nothing is recorded here, or
 * the error. */
int usage_flush(struct usage *u, char *why);
/* Fills the free memory of the hot store once more, hottest first: after it has grown. */
void usage_fill(struct usage *u);

enum usage_filling { USAGE_IDLE, USAGE_FILLING, USAGE_FILLED };

struct usage_stats {
	bool recording;
	uint64_t flushes, rows;     /* transactions, and rows in them, since the start */
	uint64_t errors;            /* flushes that failed; what they had to write is not lost */
	uint64_t known;             /* experts that had usage at the start */
	enum usage_filling filling; /* the fill: never, now, done */
	uint64_t warm, asked; /* experts worth it at its begin; sent for, or at its end there */
};
void usage_stats(struct usage *u, struct usage_stats *out);

/* Bytes that a store of so many experts needs here, for the budget. */
uint64_t usage_memory(uint64_t experts);

#endif
