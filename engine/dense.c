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
#define PAGE ((uint64_t)4096)

/* Pages of a file that hold dense tensors. */
struct span {
	int part;
	uint64_t begin, end;
};

/* What fill() has come to. */
struct filling {
	const struct progress *progress;
	double done, total;
};

static void report(struct filling *f, size_t bytes)
{
	f->done += (double)bytes;
	progress_report(f->progress, "loading", f->done, f->total);
}

static int by_place(const void *a, const void *b)
{
	const struct span *x = a, *y = b;

	if (x->part != y->part)
		return x->part < y->part ? -1 : 1;
	return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* The spans in order, none touching another; their number. out has room for one a tensor. */
static size_t find_spans(const struct modelfile *m, bool extra, struct span *out)
{
	size_t n = 0, all = 0;

	for (size_t i = 0; i < m->tensors; i++) {
		const struct tensor *t = &m->tensor[i];
		uint64_t end = (t->offset + t->bytes + PAGE - 1) / PAGE * PAGE,
			 file_end = m->dense_file[t->part].bytes;
		if (t->extra && !extra)
			continue;
		out[all++] = (struct span){ t->part, t->offset / PAGE * PAGE,
					    end < file_end ? end : file_end };
	}
	qsort(out, all, sizeof(*out), by_place);
	for (size_t i = 0; i < all; i++) {
		if (n && out[n - 1].part == out[i].part && out[n - 1].end >= out[i].begin)
			out[n - 1].end = out[i].end > out[n - 1].end ? out[i].end : out[n - 1].end;
		else
			out[n++] = out[i];
	}
	return n;
}

/* Brings pages of a mapping into memory. An error of the drive comes back as a value from
 * MADV_POPULATE_READ (Linux 5.14); older kernels raise it as SIGBUS when a page is touched. */
static int populate(char *base, const struct span *s, struct filling *f)
{
	for (uint64_t at = s->begin; at < s->end; at += STEP) {
		size_t n = s->end - at < STEP ? s->end - at : STEP;
		int r = -1;
		errno = EINVAL;
#ifdef MADV_POPULATE_READ
		r = madvise(base + at, n, MADV_POPULATE_READ);
#endif
		if (r && errno == EFAULT)
			return -EIO;
		for (size_t i = 0; r && i < n; i += PAGE)
			(void)*((volatile char *)base + at + i);
		report(f, n);
	}
	return 0;
}

static int read_in(char *base, const struct span *s, int fd, struct filling *f)
{
	for (uint64_t at = s->begin; at < s->end; at += STEP) {
		size_t n = s->end - at < STEP ? s->end - at : STEP;
		int r = read_at(fd, base + at, n, at);
		if (r)
			return r;
		report(f, n);
	}
	return 0;
}

/* Between the spans of a GGUF file lie experts. Where huge pages are the system's habit (transparent_hugepage
 * "always") each span would take up to two that are mostly gap, 4 MB for some kB of norms, which nobody
 * has counted: so in the gaps there are none, and none reaches into one. */
static void keep_gaps_empty(char *base, uint64_t bytes, int part, const struct span *s,
			    const struct span *end)
{
	uint64_t at = 0;

	for (; at < bytes; s++) {
		bool more = s < end && s->part == part;
		uint64_t next = more ? s->begin : bytes;
		if (next > at)
			madvise(base + at, next - at, MADV_NOHUGEPAGE);
		at = more ? s->end : bytes;
	}
}

/* The spans of one file into memory: those that *s begins with. */
static int fill(struct dense *d, int part, int fd, enum serve_mode mode, const struct span **s,
		const struct span *end, struct filling *f)
{
	size_t bytes = d->file->dense_file[part].bytes;
	void *base = MAP_FAILED;
	bool mapped = false;
	int r = 0;

	if (mode != SERVE_DIRECT) {
		base = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
		mapped = base != MAP_FAILED;
	}
	/* Of the whole file's size, but only what is read into takes memory. */
	if (!mapped)
		base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return -ENOMEM;
	d->base[part] = base;
	if (!mapped)
		keep_gaps_empty(base, bytes, part, *s, end);
	for (; *s < end && (*s)->part == part && !r; ++*s)
		r = mapped ? populate(base, *s, f) : read_in(base, *s, fd, f);
	return r;
}

static int path_of(const struct modelfile *file, int part, char *path, size_t room, char *why)
{
	if (snprintf(path, room, "%s/%s", file->dir, file->dense_file[part].name) >= (int)room)
		return fail(why, ENAMETOOLONG, "the name of the mount is too long");
	return 0;
}

static int check_size(const struct modelfile *file, int part, const char *path,
		      const struct stat *st, char *why)
{
	uint64_t want = file->dense_file[part].bytes;

	if ((uint64_t)st->st_size == want)
		return 0;
	return fail(why, EINVAL, "%s has %lld bytes, model.json says %llu", path,
		    (long long)st->st_size, (unsigned long long)want);
}

int dense_check(const struct modelfile *file, char *why)
{
	char path[4096];
	struct stat st;
	int r = 0;

	for (int i = 0; i < file->dense_files && !r; i++) {
		r = path_of(file, i, path, sizeof(path), why);
		if (!r && stat(path, &st) != 0)
			r = mount_fail(why, errno, file->dir, WHAT, path);
		else if (!r)
			r = check_size(file, i, path, &st, why);
	}
	return r;
}

static int open_part(struct dense *d, int part, enum serve_mode mode, const struct span **s,
		     const struct span *end, struct filling *f, char *why)
{
	const struct modelfile *file = d->file;
	char path[4096];
	struct stat st;
	int r = path_of(file, part, path, sizeof(path), why);

	if (r)
		return r;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) != 0)
		r = mount_fail(why, errno, file->dir, WHAT, path);
	else
		r = check_size(file, part, path, &st, why);
	if (!r && *s < end && (*s)->part == part) {
		r = fill(d, part, fd, mode, s, end, f);
		if (r == -ENOMEM)
			fail(why, ENOMEM, "no memory for the dense tensors in %s", path);
		else if (r)
			mount_fail(why, -r, file->dir, WHAT, path);
	}
	if (fd >= 0)
		close(fd);
	return r;
}

int dense_open(struct dense *d, const struct modelfile *file, enum serve_mode mode, bool extra,
	       const struct progress *progress, char *why)
{
	struct filling f = { .progress = progress };
	struct span *spans = calloc(file->tensors + 1, sizeof(*spans));
	const struct span *s = spans, *end;
	int r = 0;

	*d = (struct dense){ .file = file };
	d->base = calloc((size_t)file->dense_files, sizeof(*d->base));
	if (!spans || !d->base) {
		free(spans);
		dense_close(d);
		return fail(why, ENOMEM, "no memory for the table of dense tensors");
	}
	end = spans + find_spans(file, extra, spans);
	for (; s < end; s++)
		f.total += (double)(s->end - s->begin);
	s = spans;
	for (int i = 0; i < file->dense_files && !r; i++)
		r = open_part(d, i, mode, &s, end, &f, why);
	free(spans);
	if (r)
		dense_close(d);
	return r;
}

void dense_close(struct dense *d)
{
	for (int i = 0; d->base && i < d->file->dense_files; i++)
		if (d->base[i])
			munmap(d->base[i], d->file->dense_file[i].bytes);
	free(d->base);
	d->base = NULL;
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
	/* GGUF files have a matrix of one row as a vector. */
	if ((t->dims != 2 && rows != 1) || t->rows != rows || t->cols != cols)
		return fail(why, EINVAL,
			    "%s/model.json: %s is %d x %d, the configuration says %d x %d",
			    d->file->dir, name, t->rows, t->cols, rows, cols);
	r = wmat_bind(out, t->fmt, rows, cols, (const char *)d->base[t->part] + t->offset,
		      t->bytes);
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
	*out = (const float *)(const void *)((const char *)d->base[t->part] + t->offset);
	return 0;
}
