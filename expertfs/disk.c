/* SPDX-License-Identifier: Apache-2.0
 *
 * Direct I/O and durability; see disk.h.
 */
#include "expertfs/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expertfs/fail.h"
#include "expertfs/shard.h"

#define PIECE (1u << 20)

bool direct_will_do(int fd, uint32_t offset)
{
#ifdef STATX_DIOALIGN
	struct statx st = { 0 };

	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) == 0 &&
	    (st.stx_mask & STATX_DIOALIGN))
		return st.stx_dio_offset_align > 0 && st.stx_dio_offset_align <= offset &&
		       st.stx_dio_mem_align <= SHARD_ALIGN;
#else
	(void)fd;
	(void)offset;
#endif
	return true;
}

int direct_open(const char *path, int flags, bool *direct)
{
	int how = flags | O_CLOEXEC, fd = open(path, how | O_DIRECT, 0666);

	*direct = fd >= 0;
	if (fd < 0 && errno == EINVAL)
		fd = open(path, how, 0666);
	if (fd < 0)
		return -errno;
	if (*direct && !direct_will_do(fd, SHARD_ALIGN)) {
		*direct = false;
		if (fcntl(fd, F_SETFL, 0) != 0) {
			int err = -errno;
			close(fd);
			return err;
		}
	}
	return fd;
}

int direct_write(int fd, const void *buf, uint64_t n, uint64_t offset,
		 const struct writer_pause *pause)
{
	const char *from = buf;

	while (n > 0) {
		uint64_t piece = n < PIECE ? n : PIECE;
		int err = pause ? pause->ask(pause->arg) : 0;
		if (err)
			return err;
		ssize_t put = pwrite(fd, from, piece, (off_t)offset);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return -errno;
		/* What is left of a short write need not lie on 4 KiB: begin at the block again. */
		put -= put % SHARD_ALIGN;
		if (put == 0)
			return -ENOSPC;
		from += put;
		offset += (uint64_t)put;
		n -= (uint64_t)put;
	}
	return 0;
}

int sync_folder(const char *dir)
{
	int err, fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	err = fsync(fd) == 0 ? 0 : -errno;
	close(fd);
	return err;
}

static int name_fresh(const char *path, char fresh[PATH_MAX], char *why)
{
	if (snprintf(fresh, PATH_MAX, "%s.new", path) >= PATH_MAX)
		return fail(why, ENAMETOOLONG, "%s: the path is too long", path);
	return 0;
}

int replace_begin(const char *path, FILE **f, char *why)
{
	char fresh[PATH_MAX];
	int err = name_fresh(path, fresh, why);

	*f = err ? NULL : fopen(fresh, "we");
	return err || *f ? err : fail(why, errno, "%s: %s", fresh, strerror(errno));
}

static int sync_parent(const char *path, char *why)
{
	char copy[PATH_MAX], *folder;
	int err;

	snprintf(copy, sizeof(copy), "%s", path); /* it fits: PATH.new was made of it */
	folder = dirname(copy);
	err = sync_folder(folder);
	return err ? fail(why, -err, "%s: %s", folder, strerror(-err)) : 0;
}

int replace_end(FILE *f, const char *path, char *why)
{
	char fresh[PATH_MAX];
	int err = name_fresh(path, fresh, why);

	if (!err && (ferror(f) || fflush(f) != 0 || fsync(fileno(f)) != 0))
		err = fail(why, errno ? errno : EIO, "%s: %s", fresh, strerror(errno));
	if (fclose(f) != 0 && !err)
		err = fail(why, errno, "%s: %s", fresh, strerror(errno));
	if (!err && rename(fresh, path) != 0)
		err = fail(why, errno, "%s: %s", path, strerror(errno));
	if (err)
		unlink(fresh);
	return err ? err : sync_parent(path, why);
}
