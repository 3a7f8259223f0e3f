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
 *	on tokenizer.json, alone   for a moment, who changes its lock on the folder
 */
#ifndef EXPERTFS_STORELOCK_H
#define EXPERTFS_STORELOCK_H

enum store_lock { STORE_SERVED, STORE_ALONE, STORE_RECORDED };

/* *fd holds the lock until it is closed. -EBUSY and a sentence if somebody else has it, for two
 * seconds on end. A file system that knows no locks is not asked for them: then 0 as well. */
int store_lock(const char *dir, enum store_lock lock, int *fd, char *why);
/* A daemon that was killed keeps its locks until its memory has been taken back, and who starts the
 * next one does not wait for that. */
#define STORE_DYING_MS 2000
/* STORE_SERVED becomes STORE_ALONE, or the other way round; it is tried for wait_ms. After -EBUSY it
 * is STORE_SERVED still. -ENOLCK: the old lock is lost, since somebody came between who has the store
 * alone; STORE_SERVED may be asked for again. */
int store_lock_change(int fd, const char *dir, enum store_lock lock, int wait_ms, char *why);

#endif
