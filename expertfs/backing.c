/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared memory for experts, and its registration with the kernel; see backing.h.
 */
#include "expertfs/backing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <unistd.h>

#include "expertfs/fuse_abi.h"
#include "expertfs/shard.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

#define HUGE_PAGE (2ull << 20)

struct backing_source {
	bool huge;
	int tmpfs; /* root of the private tmpfs, or -1: memfd */
};

/* Whether memfd gets huge pages when it asks for them (MADV_HUGEPAGE). */
static bool memfd_can_be_huge(void)
{
	char line[128] = "";
	FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "re");

	if (!f)
		return false;
	if (!fgets(line, sizeof(line), f))
		line[0] = 0;
	fclose(f);
	return strstr(line, "[advise]") || strstr(line, "[always]") || strstr(line, "[force]") ||
	       strstr(line, "[within_size]");
}

static int private_tmpfs(void)
{
	int root = -1, fs = fsopen("tmpfs", FSOPEN_CLOEXEC);

	if (fs < 0)
		return -1;
	if (fsconfig(fs, FSCONFIG_SET_STRING, "huge", "always", 0) == 0 &&
	    fsconfig(fs, FSCONFIG_SET_STRING, "size", "100%", 0) == 0 &&
	    fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0700", 0) == 0 &&
	    fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
		root = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	close(fs);
	return root;
}

struct backing_source *backing_source_open(uint64_t largest)
{
	struct backing_source *s = malloc(sizeof(*s));

	if (!s)
		return NULL;
	*s = (struct backing_source){ .huge = false, .tmpfs = -1 };
	if (largest < HUGE_PAGE / 2)
		return s;
	s->huge = memfd_can_be_huge();
	if (!s->huge) {
		s->tmpfs = private_tmpfs();
		s->huge = s->tmpfs >= 0;
	}
	return s;
}

void backing_source_close(struct backing_source *s)
{
	if (s && s->tmpfs >= 0)
		close(s->tmpfs);
	free(s);
}

bool backing_source_huge(const struct backing_source *s)
{
	return s->huge;
}

uint64_t backing_cost(const struct backing_source *s, uint64_t bytes)
{
	uint64_t page = s->huge ? HUGE_PAGE : SHARD_ALIGN;

	return (bytes + page - 1) / page * page;
}

static int make_file(const struct backing_source *s)
{
	if (s->tmpfs >= 0)
		return openat(s->tmpfs, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0400);
	return memfd_create("expert", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

/* Brings every page in before the drive writes to it: in the ring's thread the faults would hold up
 * the other reads. */
static int populate(void *map, uint64_t n)
{
	if (madvise(map, n, MADV_POPULATE_WRITE) == 0)
		return 0;
	if (errno != EINVAL)
		return errno == EFAULT ? -ENOMEM : -errno;
	for (uint64_t at = 0; at < n; at += SHARD_ALIGN)
		((volatile char *)map)[at] = 0;
	return 0;
}

int backing_new(const struct backing_source *s, uint64_t bytes, struct backing *out)
{
	struct backing b = { .fd = make_file(s), .bytes = bytes, .mapped = shard_round_up(bytes) };
	int err = 0;

	if (b.fd < 0)
		return -errno;
	if (ftruncate(b.fd, (off_t)b.mapped) != 0) {
		err = -errno;
	} else {
		b.map = mmap(NULL, b.mapped, PROT_READ | PROT_WRITE, MAP_SHARED, b.fd, 0);
		if (b.map == MAP_FAILED) {
			b.map = NULL;
			err = -errno;
		}
	}
	if (!err && s->huge)
		madvise(b.map, b.mapped, MADV_HUGEPAGE); /* a wish; small pages are right, too */
	err = err ? err : populate(b.map, b.mapped);
	if (err) {
		backing_drop(&b, -1);
		return err;
	}
	*out = b;
	return 0;
}

int backing_freeze(struct backing *b, bool keep_map)
{
	munmap(b->map, b->mapped);
	b->map = NULL;
	if (b->bytes != b->mapped && ftruncate(b->fd, (off_t)b->bytes) != 0)
		return -errno;
	/* tmpfs files cannot be sealed (EPERM); nobody but us can reach them for writing. */
	if (fcntl(b->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) !=
		    0 &&
	    errno != EPERM)
		return -errno;
	if (keep_map) {
		void *map = mmap(NULL, b->mapped, PROT_READ, MAP_SHARED | MAP_POPULATE, b->fd, 0);
		if (map == MAP_FAILED)
			return -errno;
		b->map = map;
	}
	return 0;
}

int32_t backing_id_open(int fuse_fd, int fd)
{
	struct abi_backing_map map = { .fd = fd };
	int id = ioctl(fuse_fd, ABI_DEV_BACKING_OPEN, &map);

	return id > 0 ? id : id == 0 ? -EIO : -errno;
}

void backing_id_close(int fuse_fd, int32_t id)
{
	uint32_t arg = (uint32_t)id;

	ioctl(fuse_fd, ABI_DEV_BACKING_CLOSE, &arg);
}

int backing_register(struct backing *b, int fuse_fd)
{
	int32_t id = backing_id_open(fuse_fd, b->fd);

	if (id < 0)
		return id;
	b->id = id;
	close(b->fd);
	b->fd = -1;
	return 0;
}

void backing_drop(struct backing *b, int fuse_fd)
{
	if (b->map)
		munmap(b->map, b->mapped);
	if (b->fd >= 0)
		close(b->fd);
	if (b->id)
		backing_id_close(fuse_fd, b->id);
	*b = (struct backing){ .fd = -1 };
}
