/* SPDX-License-Identifier: Apache-2.0
 *
 * Values and list of the experts' extended attributes; see xattr.h.
 */
#include "expertfs/xattr.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/fs.h"

static const char prefix[] = "user.expertfs.";
/* As listxattr(2) has them: each with its zero byte. The last one is that of the string. */
static const char names[] = "user.expertfs.state\0user.expertfs.drive\0user.expertfs.uses";

/* The protocol of both calls: with size 0 the length is asked for. */
static void reply_bytes(fuse_req_t req, const char *bytes, size_t n, size_t size)
{
	if (size == 0)
		fuse_reply_xattr(req, n);
	else if (n > size)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, bytes, n);
}

static void print_extents(FILE *out, const struct extent_list *l)
{
	for (uint32_t i = 0; i < l->n; i++) {
		if (i > 0)
			fputc(l->x[i].copy == l->x[i - 1].copy ? ',' : ' ', out);
		fprintf(out, "%u", l->x[i].drive);
	}
}

static void print_drives(FILE *out, struct store *s, uint32_t index)
{
	struct place p;

	store_take(s, index, &p);
	print_extents(out, p.packed);
	if (p.hot)
		fputs(" hot", out);
	store_give(s, &p);
}

/* False: there is no such attribute. */
static bool print_value(FILE *out, struct fs *fs, uint32_t index, const char *name)
{
	static const char *const states[] = {
		[HOT_COLD] = "cold", [HOT_LOADING] = "loading", [HOT_RESIDENT] = "resident"
	};
	struct hot_info info;

	if (strcmp(name, "drive") == 0) {
		print_drives(out, fs->store, index);
		return true;
	}
	if (strcmp(name, "state") != 0 && strcmp(name, "uses") != 0)
		return false;
	hotstore_info(fs->hot, index, &info);
	if (name[0] == 's')
		fputs(states[info.state], out);
	else
		fprintf(out, "%" PRIu64, info.uses);
	return true;
}

void xattr_get(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	struct fs *fs = fuse_req_userdata(req);
	char *value = NULL;
	size_t n = 0;
	struct node node;
	bool known;
	FILE *out;

	if (!inode_node(fs->inodes, ino, &node)) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	if (node.kind != NODE_EXPERT || strncmp(name, prefix, sizeof(prefix) - 1) != 0) {
		fuse_reply_err(req, ENODATA);
		return;
	}
	out = open_memstream(&value, &n);
	known = out && print_value(out, fs, node.index, name + sizeof(prefix) - 1);
	if (!out || fclose(out) != 0)
		fuse_reply_err(req, ENOMEM);
	else if (!known)
		fuse_reply_err(req, ENODATA);
	else
		reply_bytes(req, value, n, size);
	free(value);
}

void xattr_list(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct fs *fs = fuse_req_userdata(req);
	struct node node;

	if (!inode_node(fs->inodes, ino, &node))
		fuse_reply_err(req, ENOENT);
	else if (node.kind != NODE_EXPERT)
		reply_bytes(req, NULL, 0, size);
	else
		reply_bytes(req, names, sizeof(names), size);
}
