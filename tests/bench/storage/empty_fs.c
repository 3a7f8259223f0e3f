/* SPDX-License-Identifier: Apache-2.0
 *
 * The least that a libfuse file system can do: empty files 0 to 63, whose open is answered at once.
 * What it reaches in opens a second is what libfuse and the kernel allow on a machine.
 *
 *	empty_fs MOUNTPOINT		in the foreground, until it is unmounted
 */
#include <errno.h>
#include <fuse_lowlevel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILES   64
#define FOREVER 1e6

static void attributes(fuse_ino_t ino, struct stat *st)
{
	*st = (struct stat){ .st_ino = ino,
			     .st_mode = ino == FUSE_ROOT_ID ? S_IFDIR | 0555 : S_IFREG | 0444,
			     .st_nlink = 1 };
}

static void empty_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = { .attr_timeout = FOREVER, .entry_timeout = FOREVER };
	char *end;
	unsigned long n = strtoul(name, &end, 10);

	if (parent != FUSE_ROOT_ID || end == name || *end || n >= FILES) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	e.ino = n + 2;
	attributes(e.ino, &e.attr);
	fuse_reply_entry(req, &e);
}

static void empty_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;

	(void)fi;
	attributes(ino, &st);
	fuse_reply_attr(req, &st, FOREVER);
}

static void empty_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	fi->keep_cache = 1;
	fuse_reply_open(req, fi);
}

int main(int argc, char **argv)
{
	static const struct fuse_lowlevel_ops ops = { .lookup = empty_lookup,
						      .getattr = empty_getattr,
						      .open = empty_open };
	char *args[] = { argv[0], "-ofsname=empty", NULL };
	struct fuse_args a = FUSE_ARGS_INIT(2, args);
	struct fuse_loop_config *loop = fuse_loop_cfg_create();
	struct fuse_session *s = fuse_session_new(&a, &ops, sizeof(ops), NULL);
	int err = 1;

	if (argc == 2 && s && loop && fuse_session_mount(s, argv[1]) == 0) {
		err = fuse_session_loop_mt(s, loop);
		fuse_session_unmount(s);
	}
	if (s)
		fuse_session_destroy(s);
	if (loop)
		fuse_loop_cfg_destroy(loop);
	fuse_opt_free_args(&a);
	return err != 0;
}
