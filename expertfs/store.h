/* SPDX-License-Identifier: Apache-2.0
 *
 * A store as the daemon and the tools see it: drives, and for each expert where it lies.
 *
 * Built from catalog.db (catalog.h) by store_open(). An expert lies in one or more whole copies,
 * each a list of extents: a packed shard, a striped one, a replica, the slices of a GGUF file
 * are all that same list, which is why the reading path has one shape. Bytes of an expert that no
 * extent covers are zero.
 *
 * Names, sizes and the order of experts never change. Where one lies may (an expert is moved, a
 * drive is added, a copy appears on the hot drive): a reader takes the place of an expert, reads,
 * and gives it back; whoever changed it meanwhile waits for that before the old bytes may go.
 */
#ifndef EXPERTFS_STORE_H
#define EXPERTFS_STORE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "expertfs/shard.h"

/* The files that a store holds as a mount shows them; catalog.db and shards come beside. A mounted
 * GGUF model of several files has one more for each further one: store_file_name(). */
#define STORE_FILES 3
extern const char *const store_file_names[STORE_FILES];

#define STORE_DRIVES_MAX 256
/* Far more than any model has, and little enough that no sum over all experts overflows. */
#define STORE_EXPERTS_MAX      (1u << 20)
#define STORE_EXPERT_BYTES_MAX ((uint64_t)64 << 30)
/* Copies on the hot drive (--hot-dir) are on this drive, which is in no catalog. Arrays of drives
 * have STORE_DRIVES_MAX + 1 entries. */
#define STORE_HOT_DRIVE STORE_DRIVES_MAX

struct store_drive {
	char *path;              /* the shard file, absolute; NULL: no drive has this number */
	uint64_t bytes;          /* that the catalog knows; the file may have more (store_open()) */
	bool missing;            /* not there, or not ours: see store_open() */
	struct timespec written; /* of a GGUF file: when, as it was when its header was read */
};

/* A range of bytes on a drive that becomes a range of an expert. In a shard both offsets are
 * multiples of 4 KiB. In a file that others wrote (struct gguf) they need not be, but differ by a
 * multiple of it, and no two extents touch the same 4 KiB of an expert: so blocks are read whole
 * into the place where they belong, past the page cache and without a copy, and what came along at
 * both ends is overwritten with zeros. */
struct extent {
	uint64_t offset; /* in the shard file, of the payload (not of the record's head) */
	uint64_t length; /* bytes of the expert; what is read are the 4 KiB blocks they lie in */
	uint64_t expert_offset; /* where the range lies in the expert */
	uint64_t check;         /* XXH3 of these bytes */
	uint16_t drive;
	uint16_t copy; /* 0, or 1.. for replicas */
};

/* One or more copies of an expert; never changed once made. Counted: readers hold a reference. */
struct extent_list {
	uint32_t refs; /* under store.lock */
	uint32_t n;
	bool unchecked; /* there are no checksums: check of its extents means nothing */
	/* Bit c for copy c, bit 0 of a hot list: its checksums held once since the start; the last
	 * try to read it came to nothing. The loader's. */
	_Atomic uint64_t proved, bad;
	struct extent x[]; /* in order of copy, then expert_offset */
};

struct store_expert {
	uint16_t layer, expert;
	uint64_t bytes;
	struct extent_list *packed; /* in the shards; under store.lock once the store is in use */
	struct extent_list *hot;    /* one extent on STORE_HOT_DRIVE, or NULL; likewise */
};

struct store {
	char *dir; /* absolute */
	/* NULL, or the GGUF file that this is a mount of, absolute: then the drives are that model's
	 * files, which are never written to, and dir has only what is shown and what is learned. */
	char *gguf;
	uint32_t files; /* STORE_FILES or more */
	uint8_t id[STORE_ID_SIZE];
	uint32_t drives; /* one more than the highest number; grows only, under lock */
	uint32_t experts;
	uint32_t layers_end;         /* one more than the highest layer that has experts */
	uint32_t experts_per_layer;  /* one more than the highest expert number */
	struct store_drive *drive;   /* STORE_DRIVES_MAX + 1 */
	struct store_expert *expert; /* sorted by layer, then expert */
	uint64_t max_expert_bytes, total_bytes;
	uint32_t lost; /* experts without a whole copy on drives that are there */
	/* Somebody else may have moved experts, so that what was proved in a place says nothing any
	 * more: each load is checked. */
	_Atomic bool doubtful;
	pthread_mutex_t lock;
};

/* Opens DIR: it must hold model.json, tokenizer.json, dense.bin and catalog.db. A shard that is
 * not there, is too short, or has another store's id makes its drive missing, and the sentence of
 * the first such is left in why (empty if there is none). Whether the rest is enough is for the
 * caller, who looks at s->lost. A shard may be longer than the catalog says: what a move appended
 * before it was killed. 0 or negative errno with the sentence in why. */
int store_open(const char *dir, struct store **out, char *why);
/* An empty one to be filled; NULL: out of memory. */
struct store *store_new(void);
/* Fills in what follows from the experts and from which drives are missing. */
void store_measure(struct store *s);
void store_close(struct store *s); /* NULL is fine */

/* The name of file i < s->files, in dir and in the mount; buf is used if it has to be made. */
#define STORE_NAME_ROOM 32
const char *store_file_name(uint32_t i, char buf[STORE_NAME_ROOM]);
/* What people call it: the file or folder that they gave. */
static inline const char *store_name(const struct store *s)
{
	return s->gguf ? s->gguf : s->dir;
}

/* NULL if there is no such expert. */
const struct store_expert *store_find(const struct store *s, unsigned layer, unsigned expert);
/* Its index in store->expert; STORE_NO_EXPERT if there is none. */
#define STORE_NO_EXPERT UINT32_MAX
uint32_t store_index(const struct store *s, unsigned layer, unsigned expert);
/* The same search in any array of n structs of `size` bytes that begin with uint16_t layer, expert
 * and are sorted by them. */
const void *find_by_name(const void *array, uint32_t n, size_t size, unsigned layer,
			 unsigned expert);

/* A list with room for n extents and one reference, the caller's. NULL: out of memory. */
struct extent_list *extent_list_new(uint32_t n);
/* How many copies it has: they are numbered from 0. */
static inline unsigned extent_list_copies(const struct extent_list *l)
{
	return l->x[l->n - 1].copy + 1u;
}
/* The extents of one copy, which lie side by side, and their number; NULL and 0: there is none. */
const struct extent *extent_list_copy(const struct extent_list *l, unsigned copy, uint32_t *n);

/* Whether all drives of that copy are there. */
bool store_copy_is_there(const struct store *s, const struct extent_list *l, unsigned copy);

/* Where an expert lies at this moment. Both lists are held until store_give(). */
struct place {
	struct extent_list *packed, *hot; /* hot may be NULL */
};
void store_take(struct store *s, uint32_t index, struct place *p);
void store_give(struct store *s, struct place *p);

/* Puts another list (with the caller's reference) into the place of the present one, which the
 * caller then owns a reference of. Readers that took it earlier still read there: its bytes may go
 * only when store_unread() says so. Then store_drop(). hot may become NULL. */
struct extent_list *store_set_packed(struct store *s, uint32_t index, struct extent_list *now);
struct extent_list *store_set_hot(struct store *s, uint32_t index, struct extent_list *now);
bool store_unread(struct store *s,
		  const struct extent_list *old);          /* the caller's is the only one */
void store_drop(struct store *s, struct extent_list *old); /* NULL is fine */

/* STORE/shards: the paths of the shards, one a line in order of drive, as catalog.db has them ("-"
 * for a number without drive). Only for the day when catalog.db is lost. Written to a new file that
 * takes the old one's place. paths[i] may be NULL. */
int store_write_shards(const char *dir, const char *const *paths, uint32_t n, char *why);

#endif
