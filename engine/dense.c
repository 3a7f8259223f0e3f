/* SPDX-License-Identifier: Apache-2.0
 *
 * dense.bin in memory, and its tensors by name.
 *
 * Where it can be mapped it is used as it lies in the page cache, and not copied into huge pages.
 * Measured (2 cores, Linux 6.18, ext4, other work beside; 1 GiB of 4-bit weights times one row, see
 * tests/bench/kernels, medians of 31 in each of 3 runs): in 4 KiB pages of the mapped file it takes
 * 0.95, 0.97 and 1.01 times as long as in anonymous huge pages, in huge pages of the file 0.97, 1.00
 * and 1.03: weights are read from front to back, so what a missing translation costs is hidden by
 * the reads ahead. Loading 1 GiB (medians of 5): cold 1.18 GB/s populated, 1.29 by four readers with
 * O_DIRECT, which is the drive; warm 167 GB/s against 0.6 for a copy. And the page cache is shared
 * with other engines and gives way where it must, while a copy does not.
 */
#include "engine/dense.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/fail.h"

/* In sentences. */
#define WHAT "the file of dense tensors"

#define STEP ((size_t)64 << 20) /* between two reports of progress */

/* Brings the pages of a mapping into memory. An error of the drive comes back as a value from
 * MADV_POPULATE_READ (Linux 5.14); older kernels raise it as SIGBUS when a page is touched. */
static int populate(const struct dense *d, const struct progress *progress)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	for (size_t at = 0; at < d->bytes; at += STEP) {
		size_t n = d->bytes - at < STEP ? d->bytes - at : STEP;
		int r = -1;
		errno = EINVAL;
#ifdef MADV_POPULATE_READ
		r = madvise((char *)d->base + at, n, MADV_POPULATE_READ);
#endif
		if (r && errno == EFAULT)
			return -EIO;
		for (size_t i = 0; r && i < n; i += page)
			(void)*((volatile char *)d->base + at + i);
		progress_report(progress, "loading", (double)(at + n), (double)d->bytes);
	}
	return 0;
}

static int read_in(struct dense *d, int fd, const struct progress *progress)
{
	if (posix_memalign(&d->base, (size_t)2 << 20, d->bytes))
		return -ENOMEM;
	for (size_t at = 0; at < d->bytes;) {
		size_t n = d->bytes - at < STEP ? d->bytes - at : STEP;
		ssize_t got = pread(fd, (char *)d->base + at, n, (off_t)at);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -EIO;
		at += (size_t)got;
		progress_report(progress, "loading", (double)at, (double)d->bytes);
	}
	return 0;
}

static int fill(struct dense *d, int fd, enum serve_mode mode, const struct progress *progress)
{
	if (mode != SERVE_DIRECT) {
		d->base = mmap(NULL, d->bytes, PROT_READ, MAP_SHARED, fd, 0);
		d->mapped = d->base != MAP_FAILED;
		if (d->mapped)
			return populate(d, progress);
		d->base = NULL;
	}
	return read_in(d, fd, progress);
}

static int path_of(const struct modelfile *file, char *path, size_t room, char *why)
{
	if (snprintf(path, room, "%s/%s", file->dir, file->dense_file) >= (int)room)
		return fail(why, ENAMETOOLONG, "the name of the mount is too long");
	return 0;
}

static int check_size(const struct modelfile *file, const char *path, const struct stat *st,
		      char *why)
{
	if ((uint64_t)st->st_size == file->dense_bytes)
		return 0;
	return fail(why, EINVAL, "%s has %lld bytes, model.json says %llu", path,
		    (long long)st->st_size, (unsigned long long)file->dense_bytes);
}

int dense_check(const struct modelfile *file, char *why)
{
	char path[4096];
	struct stat st;
	int r = path_of(file, path, sizeof(path), why);

	if (r)
		return r;
	if (stat(path, &st) != 0)
		return mount_fail(why, errno, file->dir, WHAT, path);
	return check_size(file, path, &st, why);
}

int dense_open(struct dense *d, const struct modelfile *file, enum serve_mode mode,
	       const struct progress *progress, char *why)
{
	char path[4096];
	struct stat st;
	int r = path_of(file, path, sizeof(path), why);

	*d = (struct dense){ .file = file, .bytes = file->dense_bytes };
	if (r)
		return r;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) != 0)
		r = mount_fail(why, errno, file->dir, WHAT, path);
	else
		r = check_size(file, path, &st, why);
	if (!r && d->bytes) {
		r = fill(d, fd, mode, progress);
		if (r == -ENOMEM)
			fail(why, ENOMEM, "no memory for the %zu bytes of %s", d->bytes, path);
		else if (r)
			mount_fail(why, -r, file->dir, WHAT, path);
	}
	if (fd >= 0)
		close(fd);
	if (r)
		dense_close(d);
	return r;
}

void dense_close(struct dense *d)
{
	if (d->mapped)
		munmap(d->base, d->bytes);
	else
		free(d->base);
	d->base = NULL;
	d->mapped = false;
}

static int find(const struct dense *d, const char *name, const struct tensor **out, char *why)
{
	*out = modelfile_tensor(d->file, name);
	if (!*out)
		return fail(why, EINVAL, "%s/model.json: dense tensor %s is missing", d->file->dir,
			    name);
	return 0;
}

int dense_matrix(const struct dense *d, const char *name, int rows, int cols, struct wmat *out,
		 char *why)
{
	const struct tensor *t;
	int r = find(d, name, &t, why);

	if (r)
		return r;
	if (t->dims != 2 || t->rows != rows || t->cols != cols)
		return fail(why, EINVAL,
			    "%s/model.json: %s is %d x %d, the configuration says %d x %d",
			    d->file->dir, name, t->rows, t->cols, rows, cols);
	r = wmat_bind(out, t->fmt, rows, cols, (const char *)d->base + t->offset, t->bytes);
	return r ? fail(why, -r, "%s/model.json: %s cannot be used", d->file->dir, name) : 0;
}

int dense_vector(const struct dense *d, const char *name, int n, const float **out, char *why)
{
	const struct tensor *t;
	int r = find(d, name, &t, why);

	if (r)
		return r;
	if (t->rows != 1 || t->cols != n || t->fmt.type != W_F32)
		return fail(why, EINVAL,
			    "%s/model.json: %s is not a vector of %d numbers of type f32",
			    d->file->dir, name, n);
	*out = (const float *)(const void *)((const char *)d->base + t->offset);
	return 0;
}
