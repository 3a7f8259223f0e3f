/* SPDX-License-Identifier: Apache-2.0
 *
 * Carrying out the steps of a plan (respread_plan.h), a batch of experts at a time:
 *
 *	load and prove -> append payloads -> sync -> heads -> sync -> read back and prove
 *	-> catalog, durably -> readers take the new place -> old place unread -> its space is freed
 *
 * Up to the catalog's commit the old place is what counts, from then on the new one: whatever is
 * cut off, and wherever, each expert has the copies that it had. Memory: one expert.
 */
#ifndef EXPERTFS_RESPREAD_MOVE_H
#define EXPERTFS_RESPREAD_MOVE_H

#include "expertfs/catalog.h"
#include "expertfs/loader.h"
#include "expertfs/respread_plan.h"

/* Keys in the catalog's meta. */
#define META_OLD "respread_old" /* places that the last batch left: their space is to be freed */

struct mover;

struct mover_config {
	struct store *store;
	const struct loader *loader;
	struct catalog *catalog; /* a connection of the caller's thread */
	uint32_t generation;     /* of the records that are written: higher than any before */
	uint32_t batch;          /* experts, at most; 0: as is best */
	/* Asked before each expert and each MiB that is written: 0, or an error that ends it. */
	int (*ask)(void *arg);
	/* So much is moved for good. */
	void (*moved)(void *arg, uint32_t experts, uint64_t bytes);
	void *arg;
};

/* Memory that a mover takes while it is open. */
uint64_t mover_memory(const struct store *s);

int mover_open(const struct mover_config *cfg, struct mover **out, char *why);
/* Withdraws what is not in the catalog yet. NULL is fine. */
void mover_close(struct mover *m);

/* One step more; ends the batch if it is full. After an error only mover_close(). An expert that no
 * copy of can be read is left where it is, and is no error here: see mover_unread(). */
int mover_step(struct mover *m, const struct spread_job *job, const struct spread_step *step,
	       char *why);
/* Ends the batch: all steps so far are carried out when it returns 0. */
int mover_flush(struct mover *m, char *why);

/* How many experts were left, and why the first of them was. */
uint32_t mover_unread(const struct mover *m, char *why);

/* The highest generation of the records that the catalog names; one read of 4 KiB each. */
uint32_t mover_newest(struct store *s);

/* At start: frees what the META_OLD of an interrupted run names, and cuts records off that it wrote
 * and no catalog names. */
void mover_tidy(struct store *s, const struct loader *l, struct catalog *c);

#endif
