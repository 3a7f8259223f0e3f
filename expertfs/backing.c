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
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "expertfs/fuse_abi.h"
#include "expertfs/shard.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

#define HUGE_PAGE (2ull << 20)

struct backing_source {
	bool huge;
	bool proves; /* leases work on its files */
	int tmpfs;   /* root of the private tmpfs, or -1: memfd */
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

/* Folios as large as lie within a file, no larger: an expert takes its own bytes. A kernel without
 * huge pages knows no such option. */
static int private_tmpfs(bool *huge)
{
	int root = -1, fs = fsopen("tmpfs", FSOPEN_CLOEXEC);

	if (fs < 0)
		return -1;
	*huge = fsconfig(fs, FSCONFIG_SET_STRING, "huge", "within_size", 0) == 0;
	if (fsconfig(fs, FSCONFIG_SET_STRING, "size", "100%", 0) == 0 &&
	    fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0700", 0) == 0 &&
	    fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
		root = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	close(fs);
	return root;
}

/* Whether a lease on a file of the tmpfs tells if somebody else has it open. */
static bool leases_prove(const struct backing_source *s)
{
	struct backing b = { .fd = openat(s->tmpfs, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0400) };
	char path[64];
	int other;
	bool alone, shared;

	if (b.fd < 0)
		return false;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", b.fd);
	other = open(path, O_RDONLY | O_CLOEXEC);
	shared = other >= 0 && !backing_idle(s, &b);
	if (other >= 0)
		close(other);
	alone = backing_idle(s, &b);
	close(b.fd);
	return shared && alone;
}

/* The proof needs our own descriptor of each expert in memory. Root may raise the hard limit, too. */
static bool descriptors_for(uint32_t files)
{
	struct rlimit r;
	rlim_t want = (rlim_t)files + 1024;

	if (getrlimit(RLIMIT_NOFILE, &r) != 0)
		return false;
	if (r.rlim_cur >= want)
		return true;
	r.rlim_cur = want;
	if (r.rlim_max < want)
		r.rlim_max = want;
	return setrlimit(RLIMIT_NOFILE, &r) == 0;
}

struct backing_source *backing_source_open(uint64_t largest, uint32_t files)
{
	struct backing_source *s = malloc(sizeof(*s));
	bool huge = false;

	if (!s)
		return NULL;
	*s = (struct backing_source){ .tmpfs = private_tmpfs(&huge), .proves = true };
	s->huge = largest >= HUGE_PAGE && (s->tmpfs >= 0 ? huge : memfd_can_be_huge());
	s->proves = s->tmpfs >= 0 && leases_prove(s) && descriptors_for(files);
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

bool backing_source_proves(const struct backing_source *s)
{
	return s->proves;
}

void backing_source_limit(const struct backing_source *s, uint64_t bytes)
{
	char text[32];
	int fs;

	if (s->tmpfs < 0)
		return;
	fs = fspick(s->tmpfs, "", FSPICK_EMPTY_PATH | FSPICK_CLOEXEC);
	if (fs < 0)
		return;
	/* 0 would mean no limit. */
	snprintf(text, sizeof(text), "%llu", (unsigned long long)(bytes ? bytes : 1));
	if (fsconfig(fs, FSCONFIG_SET_STRING, "size", text, 0) == 0)
		fsconfig(fs, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0);
	close(fs);
}

uint64_t backing_source_used(const struct backing_source *s)
{
	struct statfs st;

	if (s->tmpfs < 0 || fstatfs(s->tmpfs, &st) != 0)
		return 0;
	return (uint64_t)(st.f_blocks - st.f_bfree) * (uint64_t)st.f_bsize;
}

uint64_t backing_cost(const struct backing_source *s, uint64_t bytes)
{
	/* Some kernels give the end of a memfd a whole huge page. */
	uint64_t page = s->huge && s->tmpfs < 0 ? HUGE_PAGE : SHARD_ALIGN;

	return (bytes + page - 1) / page * page;
}

static int make_file(const struct backing_source *s)
{
	if (s->tmpfs >= 0)
		return openat(s->tmpfs, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0400);
	return memfd_create("expert", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

/* Takes the memory in as few pieces as there are. Faults take what is no whole huge page by single
 * pages, and each is a segment of the drive's request: with the last 0.4 MiB of 2.4 in single pages
 * a read took a tenth longer, with all of them twice as long.
 *
 * Written with zeros they are made under no lock but this file's, and a whole one is not cleared before.
 * Cleared by faults, loads wait for each other, as each has mappings to make that wait for the faults of the
 * others: a store filled no faster than one thread clears, with processors idle beside it. Written with a
 * byte each, small pages are cleared one by one, and that takes three times as long, twelve times where an
 * expert is many huge pages. */
static int take(const struct backing_source *s, int fd, uint64_t n)
{
	static char zeros[HUGE_PAGE]; /* never written: takes no memory */
	int err = s->tmpfs >= 0 && fallocate(fd, 0, 0, (off_t)n) != 0 ? errno : 0;
	ssize_t put;

	if (err == EOPNOTSUPP)
		err = 0;
	for (uint64_t at = 0; !err && at < n; at += (uint64_t)put) {
		put = pwrite(fd, zeros, n - at < sizeof(zeros) ? n - at : sizeof(zeros), (off_t)at);
		if (put <= 0)
			err = put == 0 ? EIO : errno;
	}
	return err == ENOSPC ? -ENOMEM : -err;
}

/* Maps every page before the drive writes to it: in the ring's thread the faults would hold up the
 * other reads. */
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
	void *map = MAP_FAILED;
	int err = 0;

	if (b.fd < 0)
		return -errno;
	err = ftruncate(b.fd, (off_t)b.mapped) == 0 ? take(s, b.fd, b.mapped) : -errno;
	if (!err) {
		map = mmap(NULL, b.mapped, PROT_READ | PROT_WRITE, MAP_SHARED, b.fd, 0);
		err = map == MAP_FAILED ? -errno : 0;
	}
	if (!err) {
		b.map = map;
		if (s->huge) /* a wish; small pages are right, too */
			madvise(map, b.mapped, MADV_HUGEPAGE);
		err = populate(map, b.mapped);
	}
	if (err) {
		backing_drop(&b, -1);
		return err;
	}
	*out = b;
	return 0;
}

/* The map or the backing id holds the memory. A user may have 1,024 descriptors, and a store has more experts. */
static void drop_descriptor(const struct backing_source *s, struct backing *b)
{
	if (s->proves) /* which takes it */
		return;
	close(b->fd);
	b->fd = -1;
}

int backing_freeze(const struct backing_source *s, struct backing *b, bool keep_map)
{
	munmap(b->map, b->mapped);
	b->map = NULL;
	if (b->bytes != b->mapped && ftruncate(b->fd, (off_t)b->bytes) != 0)
		return -errno;
	/* Files of the tmpfs cannot be sealed; nobody but us can reach them for writing. */
	if (s->tmpfs < 0 && fcntl(b->fd, F_ADD_SEALS,
				  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0)
		return -errno;
	if (keep_map) {
		void *map = mmap(NULL, b->mapped, PROT_READ, MAP_SHARED | MAP_POPULATE, b->fd, 0);
		if (map == MAP_FAILED)
			return -errno;
		b->map = map;
		drop_descriptor(s, b);
	}
	return 0;
}

bool backing_idle(const struct backing_source *s, const struct backing *b)
{
	if (!s->proves || b->fd < 0 || fcntl(b->fd, F_SETLEASE, F_WRLCK) != 0)
		return false;
	fcntl(b->fd, F_SETLEASE, F_UNLCK);
	return true;
}

int backing_thaw(struct backing *b, uint64_t bytes, int fuse_fd)
{
	void *map;

	/* What a reader sees ends before the last page does: that page is whole again. */
	if (b->bytes != b->mapped && ftruncate(b->fd, (off_t)b->mapped) != 0)
		return -errno;
	map = mmap(NULL, b->mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, b->fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	if (b->map)
		munmap(b->map, b->mapped);
	if (b->id)
		backing_id_close(fuse_fd, b->id);
	b->id = 0;
	b->map = map;
	b->bytes = bytes;
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

int backing_register(const struct backing_source *s, struct backing *b, int fuse_fd)
{
	int32_t id = backing_id_open(fuse_fd, b->fd);

	if (id < 0)
		return id;
	b->id = id;
	drop_descriptor(s, b);
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
