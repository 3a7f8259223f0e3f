/* SPDX-License-Identifier: Apache-2.0
 *
 * Inode numbers, names and attributes of the mount; see inode.h.
 */
#include "expertfs/inode.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/control.h"

#define INO_CONTROL 0x100ull
#define INO_FILE    0x1000ull
#define INO_LAYER   0x10000ull
#define INO_EXPERT  0x100000000ull

struct layer {
	uint32_t number, first, count;
};

struct inode_table {
	const struct store *store;
	struct layer *layer; /* ascending */
	uint32_t layers;
	struct stat *file;  /* store->files */
	struct stat folder; /* the store's */
};

static bool stat_files(struct inode_table *t)
{
	char path[PATH_MAX], name[STORE_NAME_ROOM];

	t->file = calloc(t->store->files, sizeof(*t->file));
	for (uint32_t i = 0; t->file && i < t->store->files; i++) {
		if (snprintf(path, sizeof(path), "%s/%s", t->store->dir,
			     store_file_name(i, name)) >= (int)sizeof(path))
			return false;
		if (stat(path, &t->file[i]) != 0)
			return false;
	}
	return t->file && stat(t->store->dir, &t->folder) == 0;
}

struct inode_table *inode_table_new(const struct store *s)
{
	struct inode_table *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->store = s;
	t->layer = calloc(s->layers_end, sizeof(*t->layer));
	if (!t->layer || !stat_files(t)) {
		inode_table_free(t);
		return NULL;
	}
	for (uint32_t i = 0; i < s->experts; i++) {
		uint32_t number = s->expert[i].layer;
		if (t->layers == 0 || t->layer[t->layers - 1].number != number)
			t->layer[t->layers++] = (struct layer){ .number = number, .first = i };
		t->layer[t->layers - 1].count++;
	}
	return t;
}

void inode_table_free(struct inode_table *t)
{
	if (!t)
		return;
	free(t->layer);
	free(t->file);
	free(t);
}

static const struct layer *find_layer(const struct inode_table *t, uint64_t number)
{
	uint32_t lo = 0, hi = t->layers;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		if (t->layer[mid].number == number)
			return &t->layer[mid];
		if (t->layer[mid].number < number)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

bool inode_node(const struct inode_table *t, uint64_t ino, struct node *out)
{
	if (ino >= NODE_ROOT && ino <= NODE_CONTROL) {
		*out = (struct node){ .kind = (enum node_kind)ino };
		if (ino >= NODE_MODEL && ino <= NODE_DENSE)
			out->index = (uint32_t)(ino - NODE_MODEL);
		return true;
	}
	if (ino >= INO_FILE && ino < INO_LAYER) {
		*out = (struct node){ .kind = NODE_FILE, .index = (uint32_t)(ino - INO_FILE) };
		return out->index >= STORE_FILES && out->index < t->store->files;
	}
	if (ino >= INO_CONTROL && ino < INO_FILE) {
		*out = (struct node){ .kind = NODE_CONTROL_FILE,
				      .index = (uint32_t)(ino - INO_CONTROL) };
		return control_file(out->index) != NULL;
	}
	if (ino >= INO_EXPERT) {
		*out = (struct node){ .kind = NODE_EXPERT, .index = (uint32_t)(ino - INO_EXPERT) };
		return ino - INO_EXPERT < t->store->experts;
	}
	if (ino >= INO_LAYER) {
		const struct layer *l = find_layer(t, ino - INO_LAYER);
		if (l)
			*out = (struct node){ .kind = NODE_LAYER,
					      .index = l->first,
					      .count = l->count };
		return l != NULL;
	}
	return false;
}

/* Names are "%03u": one spelling a number. -1 if it is none. */
static int64_t parse_number(const char *name)
{
	unsigned long n;
	char again[32];

	if (strlen(name) > 5 || strspn(name, "0123456789") != strlen(name))
		return -1;
	n = strtoul(name, NULL, 10);
	snprintf(again, sizeof(again), "%03lu", n);
	return strcmp(name, again) == 0 ? (int64_t)n : -1;
}

/* Entry i of the root: its inode, and its name if that must be made in buf. NULL after the last. */
static const char *root_entry(const struct inode_table *t, uint64_t i, uint64_t *ino,
			      char buf[STORE_NAME_ROOM])
{
	static const char *const folders[] = { "experts", ".expertfs" };

	*ino = NODE_MODEL + i;
	if (i < STORE_FILES)
		return store_file_names[i];
	if (i < STORE_FILES + 2)
		return folders[i - STORE_FILES];
	i -= 2;
	*ino = INO_FILE + i;
	return i < t->store->files ? store_file_name((uint32_t)i, buf) : NULL;
}

static uint64_t lookup_root(const struct inode_table *t, const char *name)
{
	char buf[STORE_NAME_ROOM];
	const char *here;
	uint64_t ino;

	for (uint64_t i = 0; (here = root_entry(t, i, &ino, buf)) != NULL; i++)
		if (strcmp(name, here) == 0)
			return ino;
	return 0;
}

static uint64_t lookup_control(const char *name)
{
	const struct control_file *f;

	for (uint32_t i = 0; (f = control_file(i)) != NULL; i++)
		if (strcmp(name, f->name) == 0)
			return INO_CONTROL + i;
	return 0;
}

uint64_t inode_lookup(const struct inode_table *t, const struct node *dir, const char *name)
{
	const struct store *s = t->store;
	int64_t n = parse_number(name);

	switch (dir->kind) {
	case NODE_ROOT:
		return lookup_root(t, name);
	case NODE_CONTROL:
		return lookup_control(name);
	case NODE_EXPERTS:
		return n >= 0 && find_layer(t, (uint64_t)n) ? INO_LAYER + (uint64_t)n : 0;
	case NODE_LAYER: {
		const struct store_expert *e =
			n < 0 ? NULL : store_find(s, s->expert[dir->index].layer, (unsigned)n);
		return e ? INO_EXPERT + (uint64_t)(e - s->expert) : 0;
	}
	default:
		return 0;
	}
}

bool inode_entry(const struct inode_table *t, uint64_t dir_ino, const struct node *dir, uint64_t i,
		 char *name, uint64_t *ino)
{
	char buf[STORE_NAME_ROOM];
	const char *here;

	if (i < 2) {
		bool below = dir->kind == NODE_LAYER;
		snprintf(name, NAME_ROOM, "%s", i ? ".." : ".");
		*ino = i == 0 ? dir_ino : below ? (uint64_t)NODE_EXPERTS : (uint64_t)NODE_ROOT;
		return true;
	}
	i -= 2;
	switch (dir->kind) {
	case NODE_ROOT:
		here = root_entry(t, i, ino, buf);
		if (here)
			snprintf(name, NAME_ROOM, "%s", here);
		return here != NULL;
	case NODE_CONTROL:
		if (!control_file(i))
			return false;
		snprintf(name, NAME_ROOM, "%s", control_file(i)->name);
		*ino = INO_CONTROL + i;
		return true;
	case NODE_EXPERTS:
		if (i >= t->layers)
			return false;
		snprintf(name, NAME_ROOM, "%03u", t->layer[i].number);
		*ino = INO_LAYER + t->layer[i].number;
		return true;
	case NODE_LAYER:
		if (i >= dir->count)
			return false;
		snprintf(name, NAME_ROOM, "%03u", t->store->expert[dir->index + i].expert);
		*ino = INO_EXPERT + dir->index + i;
		return true;
	default:
		return false;
	}
}

void inode_attr(const struct inode_table *t, uint64_t ino, const struct node *n, struct stat *st)
{
	uint64_t bytes = 0;

	*st = (struct stat){ .st_ino = ino,
			     .st_mode = S_IFREG | 0444,
			     .st_nlink = 1,
			     .st_uid = t->folder.st_uid,
			     .st_gid = t->folder.st_gid,
			     .st_blksize = SHARD_ALIGN,
			     .st_mtim = t->folder.st_mtim,
			     .st_ctim = t->folder.st_mtim,
			     .st_atim = t->folder.st_mtim };
	if (node_is_folder(n)) {
		st->st_mode = S_IFDIR | 0555;
		st->st_nlink = 2;
	} else if (n->kind == NODE_EXPERT) {
		bytes = t->store->expert[n->index].bytes;
	} else if (n->kind == NODE_CONTROL_FILE) {
		st->st_mode = S_IFREG | control_file(n->index)->mode;
	} else {
		bytes = (uint64_t)t->file[n->index].st_size;
	}
	st->st_size = (off_t)bytes;
	st->st_blocks = (blkcnt_t)((bytes + 511) / 512);
}
