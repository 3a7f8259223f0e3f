/* SPDX-License-Identifier: Apache-2.0
 *
 * Who may do what with a store at the same time, over all processes of this machine.
 *
 * flock()s on what is always there, so a lock needs no file of its own, works on a file system that
 * is read-only, and goes with its process however that ends:
 *
 *	on the folder, shared      every daemon that serves the store
 *	on the folder, alone       who makes catalog.db anew, or moves experts
 *	on model.json, alone       the daemon that records usage; others on the same store do not
 */
#ifndef EXPERTFS_STORELOCK_H
#define EXPERTFS_STORELOCK_H

enum store_lock { STORE_SERVED, STORE_ALONE, STORE_RECORDED };

/* *fd holds the lock until it is closed. -EBUSY and a sentence if somebody else has it, for two
 * seconds on end. A file system that knows no locks is not asked for them: then 0 as well. */
int store_lock(const char *dir, enum store_lock lock, int *fd, char *why);
/* STORE_SERVED becomes STORE_ALONE, or the other way round; after -EBUSY it is STORE_SERVED still
 * (or again, unless somebody came between who now has it alone: -ENOLCK). */
int store_lock_change(int fd, const char *dir, enum store_lock lock, char *why);

#endif
