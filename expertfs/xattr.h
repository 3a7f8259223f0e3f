/* SPDX-License-Identifier: Apache-2.0
 *
 * Extended attributes of the experts: what the daemon knows of one, for getfattr and programs.
 *
 *	user.expertfs.state   resident, loading or cold
 *	user.expertfs.drive   where its copies lie: for each copy the numbers of its drives in order
 *	                      of the parts, with commas; a space between copies. "0,1 2,3": two
 *	                      copies, each striped over two drives. "1 hot": whole on drive 1,
 *	                      and copied to --hot-dir. The numbers are those of drives[] in stats.json
 *	user.expertfs.uses    how often it was opened, in all that the daemon remembers
 *
 * Values have no newline or zero byte at the end. To ask for them is no use of the expert. Nothing
 * else in the mount has attributes.
 */
#ifndef EXPERTFS_XATTR_H
#define EXPERTFS_XATTR_H

#include <fuse_lowlevel.h>

/* The operations getxattr and listxattr of fs_ops: answer req; its userdata is the struct fs. */
void xattr_get(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void xattr_list(fuse_req_t req, fuse_ino_t ino, size_t size);

#endif
