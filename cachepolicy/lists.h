/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of experts in the order of their arrival, for policies that are made of queues.
 *
 * An expert belongs to one of the lists or to none (CP_NONE). Belonging counts its bytes; being
 * linked, besides, gives it a place. What is held belongs but need not be linked: an LRU list
 * unlinks it in hold() and links it at the new end in release().
 *
 * A first-in-first-out queue must not do that, since then a hit would move the entry. It leaves
 * held entries where they are, and only cp_lists_oldest_free() takes those that have come to the
 * old end out of the way: they are linked anew, as if they had just come, in release(). So each
 * pin costs one step at most, and there is no walking past pinned entries.
 *
 * Ghosts are lists as well: an expert that is not resident may belong to one.
 *
 * 25 bytes for each expert of the order with the mark of struct cp_listed. Every call takes
 * constant time.
 */
#ifndef CACHEPOLICY_LISTS_H
#define CACHEPOLICY_LISTS_H

#include "cachepolicy/policies.h"

#define CP_LISTS_MAX 132

struct cp_node {
	uint64_t bytes;      /* what it was counted with in its list */
	uint32_t prev, next; /* towards the old, the new end */
	uint32_t list;       /* it belongs to, or CP_NONE */
	bool linked;
};

struct cp_lists {
	struct cp_node *node; /* n experts, then the ring heads of the lists */
	uint32_t n;
	uint64_t bytes[CP_LISTS_MAX];
	uint32_t members[CP_LISTS_MAX];
};

int cp_lists_create(struct cp_lists *l, const struct cp_order *o, uint32_t lists); /* 0, -ENOMEM */
void cp_lists_destroy(struct cp_lists *l);

/* Makes i, linked or not, an unlinked member of `list` (or of none), counted with these bytes. */
void cp_lists_assign(struct cp_lists *l, uint32_t i, uint32_t list, uint64_t bytes);
/* Links i, not linked, at the new end of its list. */
void cp_lists_link(struct cp_lists *l, uint32_t i);
void cp_lists_unlink(struct cp_lists *l, uint32_t i); /* nothing if it is not linked */
/* Assigns and links. */
void cp_lists_move(struct cp_lists *l, uint32_t i, uint32_t list, uint64_t bytes);

/* CP_NONE at the end. */
uint32_t cp_lists_oldest(const struct cp_lists *l, uint32_t list);
uint32_t cp_lists_newer(const struct cp_lists *l, uint32_t i);
/* The oldest that is not held; see above. */
uint32_t cp_lists_oldest_free(struct cp_lists *l, const struct cp_order *o, uint32_t list);

/* Most policies of queues are one of these: lists, and a byte for each expert that they count hits
 * in. The hooks below are the ones that they share. */
struct cp_listed {
	struct cp_order base;
	struct cp_lists lists;
	uint8_t *mark;
};

int cp_listed_create(struct cp_order *o, uint32_t lists); /* 0, -ENOMEM */
int cp_listed_create_one(struct cp_order *o, const char *inner);
void cp_listed_destroy(struct cp_order *o);
void cp_listed_enter(struct cp_order *o, uint32_t i);  /* admit: into list 0, mark 0 */
void cp_listed_leave(struct cp_order *o, uint32_t i);  /* remove: into none */
void cp_listed_unlink(struct cp_order *o, uint32_t i); /* hold of lists in order of use */
void cp_listed_link(struct cp_order *o, uint32_t i);   /* release: links what is not */
void cp_listed_mark(struct cp_order *o, uint32_t i, uint32_t weight); /* use: mark 1 if resident */

static inline struct cp_listed *cp_listed_of(struct cp_order *o)
{
	return (struct cp_listed *)o;
}

static inline uint32_t cp_lists_of(const struct cp_lists *l, uint32_t i)
{
	return l->node[i].list;
}

#endif
