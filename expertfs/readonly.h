/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations that would change the tree: all answer EROFS. Unset ones would be ENOSYS, which
 * says "Function not implemented" to people. (The mount itself is not read-only: files in .expertfs
 * can be written.)
 */
#ifndef EXPERTFS_READONLY_H
#define EXPERTFS_READONLY_H

#include <fuse_lowlevel.h>

void readonly_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t dev);
void readonly_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void readonly_remove(fuse_req_t req, fuse_ino_t parent, const char *name); /* unlink, rmdir */
void readonly_symlink(fuse_req_t req, const char *link, fuse_ino_t parent, const char *name);
void readonly_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
		     const char *newname, unsigned int flags);
void readonly_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname);
void readonly_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		     struct fuse_file_info *fi);

#endif
