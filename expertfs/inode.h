/* SPDX-License-Identifier: Apache-2.0
 *
 * The names of the mount: which inode number is what, which name lies where.
 *
 * Numbers are computed, not handed out: an inode needs no table entry and no forget. The tree never
 * changes while it is mounted. All functions are pure look-ups in the store, and thread-safe.
 *
 *	1  /             2  model.json    3  tokenizer.json   4  dense.bin
 *	5  experts/      6  .expertfs/
 *	0x100 + i             .expertfs/: the file number i of control.h
 *	0x1000 + i            file i of the store, from STORE_FILES on
 *	0x10000 + layer       experts/LLL/
 *	0x100000000 + index   experts/LLL/EEE, index into store->expert
 */
#ifndef EXPERTFS_INODE_H
#define EXPERTFS_INODE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "expertfs/store.h"

enum node_kind {
	NODE_ROOT = 1,
	NODE_MODEL,
	NODE_TOKENIZER,
	NODE_DENSE,
	NODE_EXPERTS,
	NODE_CONTROL,
	NODE_CONTROL_FILE,
	NODE_LAYER,
	NODE_EXPERT,
	NODE_FILE
};

struct node {
	enum node_kind kind;
	uint32_t index; /* NODE_EXPERT: into store->expert; NODE_LAYER: of its first expert there;
			   NODE_CONTROL_FILE: of control_file(); a file of the store: which */
	uint32_t count; /* NODE_LAYER: experts in it */
};

struct inode_table;

/* Collects the layers; takes times and owner of the files from the store's folder. NULL: out of
 * memory or files gone. s must outlive it. */
struct inode_table *inode_table_new(const struct store *s);
void inode_table_free(struct inode_table *t);

/* False if ino is nothing here. */
bool inode_node(const struct inode_table *t, uint64_t ino, struct node *out);
/* The inode of name in a folder; 0 if there is none. */
uint64_t inode_lookup(const struct inode_table *t, const struct node *dir, const char *name);
#define NAME_ROOM 32 /* bytes that any name in the mount fits into */
/* Entry number i of a folder ("." is 0, ".." is 1): its name (NAME_ROOM bytes) and inode. False
 * after the last. */
bool inode_entry(const struct inode_table *t, uint64_t dir_ino, const struct node *dir, uint64_t i,
		 char *name, uint64_t *ino);
void inode_attr(const struct inode_table *t, uint64_t ino, const struct node *n, struct stat *st);
/* Made at open, size unknown, as in /proc. */
static inline bool node_is_control_file(const struct node *n)
{
	return n->kind == NODE_CONTROL_FILE;
}

static inline bool node_is_folder(const struct node *n)
{
	return n->kind == NODE_ROOT || n->kind == NODE_EXPERTS || n->kind == NODE_CONTROL ||
	       n->kind == NODE_LAYER;
}

#endif
