/* SPDX-License-Identifier: Apache-2.0
 *
 * The FUSE operations of the mount: names, attributes, and what open and read do with each kind.
 *
 *	model.json, tokenizer.json, dense.bin   passthrough onto the file itself, or the page cache
 *	experts/LLL/EEE   kept:   passthrough onto its backing, or answered from it (direct mode)
 *	                  unkept: direct I/O, each read goes to the drive
 *	.expertfs/NAME    direct I/O from a text that is made at open, lines to write; see control.h
 *
 * One inode must not mix page-cache and passthrough handles (the kernel answers EIO): the store's
 * files have one kind for life, and experts never use the page cache. hotstore.c sees to it that an
 * expert never has a direct and a passthrough handle at the same time.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/control.h"
#include "expertfs/fs.h"
#include "expertfs/fuse_abi.h"
#include "expertfs/log.h"
#include "expertfs/readonly.h"
#include "expertfs/xattr.h"

/* The tree never changes while it is mounted. */
#define FOREVER (86400.0 * 365)

/* File handle of an expert: what release and read need to know. */
static uint64_t handle_of(const struct hot_open *o)
{
	return (uint64_t)o->index | (uint64_t)o->kept << 32 | (uint64_t)o->copy << 40;
}

static uint32_t handle_index(uint64_t fh)
{
	return (uint32_t)fh;
}

static bool handle_kept(uint64_t fh)
{
	return fh >> 32 & 1;
}

static unsigned handle_copy(uint64_t fh)
{
	return (unsigned)(fh >> 40);
}

static struct fs *fs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	(void)userdata;
	/* Our own read and write have no splice; the copy it saves is not on the path of a hit. */
	conn->want &=
		~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
	/* libfuse tells the kernel so many pages a request, for reads as well. Left alone that is 256,
	 * which are 16 MiB where a page has 64 KiB, or fs.fuse.max_pages_limit. */
	if (conn->max_write > READ_MAX)
		conn->max_write = READ_MAX;
}

static void fill_entry(const struct fs *fs, uint64_t ino, const struct node *n,
		       struct fuse_entry_param *e)
{
	*e = (struct fuse_entry_param){ .ino = ino, .generation = 1, .entry_timeout = FOREVER };
	e->attr_timeout = node_is_control_file(n) ? 0 : FOREVER;
	inode_attr(fs->inodes, ino, n, &e->attr);
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fs *fs = fs_of(req);
	struct fuse_entry_param e = { .entry_timeout =
					      FOREVER }; /* ino 0: a name that is not there */
	struct node dir, n;
	uint64_t ino;

	if (!inode_node(fs->inodes, parent, &dir)) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	ino = inode_lookup(fs->inodes, &dir, name);
	if (ino && inode_node(fs->inodes, ino, &n))
		fill_entry(fs, ino, &n, &e);
	fuse_reply_entry(req, &e);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
	(void)ino;
	(void)nlookup; /* inode numbers are computed: nothing to forget */
	fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	(void)count;
	(void)forgets;
	fuse_reply_none(req);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = fs_of(req);
	struct node n;
	struct stat st;

	(void)fi;
	if (!inode_node(fs->inodes, ino, &n)) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	inode_attr(fs->inodes, ino, &n, &st);
	fuse_reply_attr(req, &st, node_is_control_file(&n) ? 0 : FOREVER);
}

static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	fi->cache_readdir = 1;
	fi->keep_cache = 1;
	fuse_reply_open(req, fi);
}

/* Both forms of readdir: entries from number off on, as many as fit into size. */
static void list_folder(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, bool plus)
{
	struct fs *fs = fs_of(req);
	struct node dir, n;
	char name[NAME_ROOM], *buf = malloc(size);
	size_t used = 0;
	uint64_t child;

	if (!buf || !inode_node(fs->inodes, ino, &dir)) {
		free(buf);
		fuse_reply_err(req, buf ? ENOENT : ENOMEM);
		return;
	}
	for (uint64_t i = (uint64_t)off; inode_entry(fs->inodes, ino, &dir, i, name, &child); i++) {
		struct fuse_entry_param e;
		size_t need;
		if (!inode_node(fs->inodes, child, &n))
			break;
		fill_entry(fs, child, &n, &e);
		need = plus ? fuse_add_direntry_plus(req, buf + used, size - used, name, &e,
						     (off_t)i + 1)
			    : fuse_add_direntry(req, buf + used, size - used, name, &e.attr,
						(off_t)i + 1);
		if (need > size - used)
			break;
		used += need;
	}
	fuse_reply_buf(req, buf, used);
	free(buf);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	(void)fi;
	list_folder(req, ino, size, off, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			   struct fuse_file_info *fi)
{
	(void)fi;
	list_folder(req, ino, size, off, true);
}

/* The reply to OPEN by hand: libfuse 3.14 has no field for the backing id. Negative if the kernel
 * did not take it (the opener was killed): then there will be no RELEASE. */
static int reply_open(fuse_req_t req, uint64_t fh, uint32_t flags, int32_t backing_id)
{
	struct abi_open_out out = { .fh = fh, .open_flags = flags, .backing_id = backing_id };

	return fuse_reply_buf(req, (const char *)&out, sizeof(out));
}

void fs_expert_opened(void *who, const struct hot_open *o)
{
	fuse_req_t req = who;
	struct fs *fs = fs_of(req);
	uint32_t flags = ABI_FOPEN_NOFLUSH;

	if (o->err) {
		fuse_reply_err(req, -o->err);
		return;
	}
	flags |= fs->passthrough && o->kept ? ABI_FOPEN_PASSTHROUGH : ABI_FOPEN_DIRECT_IO;
	if (reply_open(req, handle_of(o), flags, o->backing_id) != 0)
		hotstore_release(fs->hot, o->index, o->kept);
}

static void open_control(fuse_req_t req, const struct node *n, int access)
{
	const struct control_file *f = control_file(n->index);
	struct control *c;

	if (access != O_RDONLY && !control_file_takes_lines(f)) {
		fuse_reply_err(req, EROFS);
		return;
	}
	c = control_open(f, fs_of(req));
	if (!c)
		fuse_reply_err(req, ENOMEM);
	else if (reply_open(req, (uint64_t)(uintptr_t)c, ABI_FOPEN_DIRECT_IO | ABI_FOPEN_NOFLUSH,
			    0) != 0)
		control_close(c, fs_of(req));
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = fs_of(req);
	struct node n;

	if (!inode_node(fs->inodes, ino, &n)) {
		fuse_reply_err(req, ENOENT);
	} else if (node_is_control_file(&n)) {
		open_control(req, &n, fi->flags & O_ACCMODE);
	} else if ((fi->flags & O_ACCMODE) != O_RDONLY) {
		fuse_reply_err(req, EROFS);
	} else if (n.kind == NODE_EXPERT) {
		hotstore_open(fs->hot, n.index, req);
	} else {
		int32_t id = fs->file[n.index].backing_id;
		uint32_t how = id ? ABI_FOPEN_PASSTHROUGH : ABI_FOPEN_KEEP_CACHE;
		reply_open(req, 0, how | ABI_FOPEN_NOFLUSH, id);
	}
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = fs_of(req);
	struct node n;

	if (inode_node(fs->inodes, ino, &n)) {
		if (n.kind == NODE_EXPERT)
			hotstore_release(fs->hot, handle_index(fi->fh), handle_kept(fi->fh));
		else if (node_is_control_file(&n))
			control_close((struct control *)(uintptr_t)fi->fh, fs);
	}
	fuse_reply_err(req, 0);
}

/* size bytes at off of a text or mapping of `total` bytes. */
static void reply_range(fuse_req_t req, const char *bytes, uint64_t total, size_t size, off_t off)
{
	uint64_t at = (uint64_t)off;

	if (at >= total)
		fuse_reply_buf(req, NULL, 0);
	else
		fuse_reply_buf(req, bytes + at, size < total - at ? size : (size_t)(total - at));
}

static void reply_read(void *arg, const char *data, ssize_t n)
{
	fuse_req_t req = arg;

	if (n < 0)
		fuse_reply_err(req, (int)-n);
	else
		fuse_reply_buf(req, data, (size_t)n);
}

static void read_file(fuse_req_t req, int fd, size_t size, off_t off)
{
	struct fuse_bufvec v = FUSE_BUFVEC_INIT(size);

	v.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
	v.buf[0].fd = fd;
	v.buf[0].pos = off;
	fuse_reply_data(req, &v, FUSE_BUF_NO_SPLICE);
}

static void read_control(fuse_req_t req, uint64_t fh, size_t size, off_t off)
{
	char *buf = malloc(size);

	if (buf)
		fuse_reply_buf(
			req, buf,
			control_read((struct control *)(uintptr_t)fh, buf, size, (uint64_t)off));
	else
		fuse_reply_err(req, ENOMEM);
	free(buf);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	struct fs *fs = fs_of(req);
	struct node n;

	if (!inode_node(fs->inodes, ino, &n)) {
		fuse_reply_err(req, ENOENT);
	} else if (node_is_control_file(&n)) {
		read_control(req, fi->fh, size, off);
	} else if (n.kind == NODE_EXPERT && handle_kept(fi->fh)) {
		const char *bytes = hotstore_bytes(fs->hot, n.index);
		if (bytes)
			reply_range(req, bytes, fs->store->expert[n.index].bytes, size, off);
		else
			fuse_reply_err(req, EIO); /* passthrough handles are read by the kernel */
	} else if (n.kind == NODE_EXPERT) {
		read_expert(&fs->loader, n.index, handle_copy(fi->fh), (uint64_t)off, size,
			    reply_read, req);
	} else {
		read_file(req, fs->file[n.index].fd, size, off);
	}
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
		     struct fuse_file_info *fi)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct control_caller who = { ctx->uid, ctx->gid };
	struct fs *fs = fs_of(req);
	struct node n;
	int err = -EROFS;

	(void)off; /* a line is a line wherever it is written */
	if (inode_node(fs->inodes, ino, &n) && node_is_control_file(&n))
		err = control_write((struct control *)(uintptr_t)fi->fh, fs, &who, buf, size);
	if (err)
		fuse_reply_err(req, -err);
	else
		fuse_reply_write(req, size);
}

/* The shell empties a file before it writes to it. */
static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		       struct fuse_file_info *fi)
{
	struct node n;

	(void)attr;
	if (inode_node(fs_of(req)->inodes, ino, &n) && node_is_control_file(&n) &&
	    control_file_takes_lines(control_file(n.index)) && to_set == FUSE_SET_ATTR_SIZE)
		op_getattr(req, ino, fi);
	else
		fuse_reply_err(req, EROFS);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct fs *fs = fs_of(req);
	struct statvfs st = { .f_bsize = SHARD_ALIGN,
			      .f_frsize = SHARD_ALIGN,
			      .f_blocks = fs->store->total_bytes / SHARD_ALIGN,
			      .f_files = fs->store->experts,
			      .f_namemax = 31 };

	(void)ino;
	fuse_reply_statfs(req, &st);
}

const struct fuse_lowlevel_ops fs_ops = {
	.init = op_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.getattr = op_getattr,
	.open = op_open,
	.read = op_read,
	.release = op_release,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.statfs = op_statfs,
	.getxattr = xattr_get,
	.listxattr = xattr_list,
	.write = op_write,
	.setattr = op_setattr,
	.mknod = readonly_mknod,
	.mkdir = readonly_mkdir,
	.unlink = readonly_remove,
	.rmdir = readonly_remove,
	.symlink = readonly_symlink,
	.rename = readonly_rename,
	.link = readonly_link,
	.create = readonly_create,
};
