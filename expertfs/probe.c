/* SPDX-License-Identifier: Apache-2.0
 *
 * Measuring a drive. See probe.h.
 *
 *	may_measure()   is what a direct read brings the drive's own?
 *	fill()          probe_folder() only: random bytes, since drives and file systems cheat on zeros
 *	run()           the pieces in random order, by io_uring or by threads
 */
#include "expertfs/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <liburing.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "expertfs/clock.h"
#include "expertfs/disk.h"
#include "expertfs/fail.h"
#include "expertfs/size.h"

#define MILLISECOND 1000000ull
#define WRITE_NS    (1000 * MILLISECOND)
#define READ_NS     (1000 * MILLISECOND)
#define MAX_PIECES  65536u /* 64 GiB: more than any drive reads in READ_NS */
#define ALIGN       4096u

/* Not in every linux/magic.h. */
#define CIFS_MAGIC 0xff534d42u
#define SMB2_MAGIC 0xfe534d42u

struct probe {
	int fd;
	const char *path;
	uint32_t pieces; /* in the file */
	uint32_t *order; /* which piece comes when */
	uint64_t *took;  /* nanoseconds a piece, in order of completion */
	char *buf;       /* PROBE_DEPTH pieces */
	uint64_t deadline;
	pthread_mutex_t lock; /* all below, with threads */
	uint32_t started, done;
	uint64_t first_ns, last_ns; /* when the first PROBE_DEPTH pieces had come; when the last */
	int err;
};

static uint64_t splitmix(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static uint64_t seed(void)
{
	uint64_t s;

	if (getrandom(&s, sizeof(s), 0) != (ssize_t)sizeof(s))
		s = clock_ns();
	return s;
}

__attribute__((format(printf, 2, 3))) static bool cannot(struct probe_result *r, const char *fmt,
							 ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->text, sizeof(r->text), fmt, ap);
	va_end(ap);
	r->honest = false;
	return false;
}

/* -- whose answer it is -------------------------------------------------------------------------- */

/* NULL: a file system on a drive of this machine, as far as its type tells. */
static const char *not_a_drive(uint32_t type)
{
	switch (type) {
	case TMPFS_MAGIC:
	case RAMFS_MAGIC:
	case HUGETLBFS_MAGIC:
		return "it lies in memory";
	case FUSE_SUPER_MAGIC:
		return "it is served by another program, whose cache may answer";
	case NFS_SUPER_MAGIC:
	case SMB_SUPER_MAGIC:
	case CIFS_MAGIC:
	case SMB2_MAGIC:
	case V9FS_MAGIC:
		return "it is served by another machine, whose cache may answer";
	default:
		return NULL;
	}
}

/* A loop device without direct I/O of its own reads its file through the page cache. */
static bool is_cached_loop(dev_t dev)
{
	char path[96], c = '1';
	int fd;

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/loop/dio", major(dev), minor(dev));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (read(fd, &c, 1) != 1)
		c = '1';
	close(fd);
	return c == '0';
}

/* False: r says why a figure would not be the drive's. */
static bool may_measure(const struct probe *p, struct probe_result *r)
{
	struct statfs fs;
	struct stat st;

	if (fstatfs(p->fd, &fs) != 0 || fstat(p->fd, &st) != 0)
		return cannot(r, "%s cannot be measured: %s", p->path, strerror(errno));
	const char *reason = not_a_drive((uint32_t)fs.f_type);
	if (reason)
		return cannot(r, "%s cannot be measured: %s", p->path, reason);
	if (!direct_will_do(p->fd, PROBE_PIECE))
		return cannot(r, "%s cannot be measured: its file system has no direct I/O",
			      p->path);
	if (is_cached_loop(st.st_dev))
		return cannot(r,
			      "%s cannot be measured: it lies on a loop device that reads through "
			      "the page cache (losetup --direct-io=on does not)",
			      p->path);
	return true;
}

/* -- reading ------------------------------------------------------------------------------------- */

/* Draws the next piece: a Fisher-Yates shuffle, as far as it is needed. */
static void shuffle(struct probe *p, uint32_t n)
{
	uint64_t state = seed();

	for (uint32_t i = 0; i < n; i++) {
		uint32_t j = i + (uint32_t)(splitmix(&state) % (p->pieces - i)), t = p->order[i];
		p->order[i] = p->order[j];
		p->order[j] = t;
	}
}

static off_t offset_of(const struct probe *p, uint32_t i)
{
	return (off_t)((uint64_t)p->order[i] * PROBE_PIECE);
}

static int read_error(const struct probe *p, int res, off_t at, char *why)
{
	if (res >= 0)
		return fail(why, EIO, "%s ends at %lld, while it is measured", p->path,
			    (long long)at + res);
	return fail(why, -res, "cannot read %s at %lld: %s", p->path, (long long)at,
		    strerror(-res));
}

/* A piece has come. */
static void count(struct probe *p, uint64_t began)
{
	p->last_ns = clock_ns();
	p->took[p->done++] = p->last_ns - began;
	if (p->done == PROBE_DEPTH)
		p->first_ns = p->last_ns;
}

/* All in one thread: slot i of the buffer belongs to one piece in flight. */
static int run_uring(struct probe *p, struct io_uring *ring, uint32_t n, char *why)
{
	uint64_t began[PROBE_DEPTH];
	uint32_t piece[PROBE_DEPTH], idle[PROBE_DEPTH], spare = PROBE_DEPTH;
	int err = 0;

	for (uint32_t i = 0; i < PROBE_DEPTH; i++)
		idle[i] = i;
	for (;;) {
		struct io_uring_cqe *cqe;
		while (spare && !err && p->started < n && clock_ns() < p->deadline) {
			uint32_t slot = idle[--spare];
			struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
			piece[slot] = p->started++;
			io_uring_prep_read(sqe, p->fd, p->buf + (size_t)slot * PROBE_PIECE,
					   PROBE_PIECE, (uint64_t)offset_of(p, piece[slot]));
			io_uring_sqe_set_data64(sqe, slot);
			began[slot] = clock_ns();
		}
		if (spare == PROBE_DEPTH)
			return err;
		int rc = io_uring_submit_and_wait(ring, 1);
		if (rc < 0 && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY)
			return fail(why, -rc, "cannot measure %s: io_uring: %s", p->path,
				    strerror(-rc));
		while (io_uring_peek_cqe(ring, &cqe) == 0) {
			uint32_t slot = (uint32_t)io_uring_cqe_get_data64(cqe);
			int res = cqe->res;
			io_uring_cqe_seen(ring, cqe);
			idle[spare++] = slot;
			if (res == PROBE_PIECE)
				count(p, began[slot]);
			else if (!err)
				err = read_error(p, res, offset_of(p, piece[slot]), why);
		}
	}
}

struct worker {
	struct probe *p;
	pthread_t thread;
	uint32_t slot, n;
	char why[WHY_MAX];
};

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct probe *p = w->p;

	for (;;) {
		pthread_mutex_lock(&p->lock);
		bool more = !p->err && p->started < w->n && clock_ns() < p->deadline;
		uint32_t piece = more ? p->started++ : 0;
		pthread_mutex_unlock(&p->lock);
		if (!more)
			return NULL;
		uint64_t began = clock_ns();
		ssize_t got = pread(p->fd, p->buf + (size_t)w->slot * PROBE_PIECE, PROBE_PIECE,
				    offset_of(p, piece));
		int res = got < 0 ? -errno : (int)got;
		pthread_mutex_lock(&p->lock);
		if (res == PROBE_PIECE)
			count(p, began);
		else if (!p->err)
			p->err = read_error(p, res, offset_of(p, piece), w->why);
		pthread_mutex_unlock(&p->lock);
	}
}

static int run_threads(struct probe *p, uint32_t n, char *why)
{
	struct worker *w = calloc(PROBE_DEPTH, sizeof(*w));
	uint32_t running = 0;
	int rc = 0;

	if (!w)
		return fail(why, ENOMEM, "out of memory");
	for (; running < PROBE_DEPTH; running++) {
		w[running].p = p;
		w[running].slot = running;
		w[running].n = n;
		rc = pthread_create(&w[running].thread, NULL, worker_main, &w[running]);
		if (rc)
			break;
	}
	for (uint32_t i = 0; i < running; i++) {
		pthread_join(w[i].thread, NULL);
		if (p->err && *w[i].why)
			memcpy(why, w[i].why, WHY_MAX);
	}
	free(w);
	/* Fewer threads measure as well, if not as much. */
	return running ? p->err : fail(why, rc, "cannot start a thread: %s", strerror(rc));
}

static int compare_ns(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Bytes a second. The first pieces in flight do not count where there are enough others: drives and
 * throttles begin with a burst, or slowly. */
static uint64_t speed_of(const struct probe *p, uint64_t began)
{
	bool steady = p->done >= 2 * PROBE_DEPTH && p->last_ns > p->first_ns;
	uint32_t pieces = p->done - (steady ? PROBE_DEPTH : 0);
	uint64_t ns = p->last_ns - (steady ? p->first_ns : began);

	return (uint64_t)((double)pieces * PROBE_PIECE * 1e9 / (double)(ns ? ns : 1));
}

static void conclude(const struct probe *p, uint64_t began, struct probe_result *r)
{
	char speed[16], size[16];

	if (p->done == 0) {
		cannot(r, "%s cannot be measured: not one piece of it came in time", p->path);
		return;
	}
	qsort(p->took, p->done, sizeof(*p->took), compare_ns);
	r->bytes = (uint64_t)p->done * PROBE_PIECE;
	r->bytes_per_s = speed_of(p, began);
	r->p50_ns = p->took[p->done / 2];
	r->p99_ns = p->took[(uint32_t)((uint64_t)p->done * 99 / 100)];
	size_text(r->bytes_per_s, speed);
	size_text(r->bytes, size);
	r->honest = p->done >= PROBE_LEAST;
	if (!r->honest)
		cannot(r, "%s is too small to be measured well: %s/s from %s", p->path, speed,
		       size);
	else
		snprintf(r->text, sizeof(r->text),
			 "%s: %s/s, %.2f ms (99 %%: %.2f ms) for 1 MiB, from %s at random", p->path,
			 speed, (double)r->p50_ns / 1e6, (double)r->p99_ns / 1e6, size);
}

static int allocate(struct probe *p, uint32_t n, char *why)
{
	p->order = malloc(p->pieces * sizeof(*p->order));
	p->took = malloc(n * sizeof(*p->took));
	p->buf = aligned_alloc(ALIGN, (size_t)PROBE_DEPTH * PROBE_PIECE);
	if (!p->order || !p->took || !p->buf)
		return fail(why, ENOMEM, "out of memory for measuring %s", p->path);
	for (uint32_t i = 0; i < p->pieces; i++)
		p->order[i] = i;
	/* First touch is not the drive's. */
	memset(p->buf, 0, (size_t)PROBE_DEPTH * PROBE_PIECE);
	shuffle(p, n);
	return 0;
}

/* The file is open with O_DIRECT; it has p->pieces. */
static int run(struct probe *p, enum probe_io io, struct probe_result *r, char *why)
{
	uint32_t n = p->pieces < MAX_PIECES ? p->pieces : MAX_PIECES;
	struct io_uring ring;

	if (n == 0) {
		cannot(r, "%s is too small to be measured: it has less than 1 MiB", p->path);
		return 0;
	}
	int err = allocate(p, n, why);
	int rc = io == PROBE_IO_THREADS ? -ENOSYS : io_uring_queue_init(PROBE_DEPTH, &ring, 0);
	r->uring = rc == 0;
	if (!err && rc && io == PROBE_IO_URING)
		err = fail(why, -rc, "io_uring is not to be had here: %s", strerror(-rc));
	if (!err) {
		uint64_t began = clock_ns();
		p->deadline = began + READ_NS;
		err = r->uring ? run_uring(p, &ring, n, why) : run_threads(p, n, why);
		if (!err)
			conclude(p, began, r);
	}
	if (rc == 0)
		io_uring_queue_exit(&ring);
	free(p->order);
	free(p->took);
	free(p->buf);
	return err;
}

int probe_file(const char *path, enum probe_io io, struct probe_result *r, char *why)
{
	struct probe p = { .path = path, .lock = PTHREAD_MUTEX_INITIALIZER };
	struct stat st;
	int err = 0;

	*r = (struct probe_result){ 0 };
	if (stat(path, &st) != 0)
		return fail(why, errno, "cannot open %s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return fail(why, EINVAL, "%s is not a regular file", path);
	p.fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC | O_NONBLOCK);
	if (p.fd < 0 && errno == EINVAL) {
		cannot(r, "%s cannot be measured: its file system has no direct I/O", path);
		return 0;
	}
	if (p.fd < 0 || fstat(p.fd, &st) != 0)
		err = fail(why, errno, "cannot open %s: %s", path, strerror(errno));
	else if (may_measure(&p, r)) {
		uint64_t pieces = (uint64_t)st.st_size / PROBE_PIECE;
		p.pieces = pieces < UINT32_MAX / 8 ? (uint32_t)pieces : UINT32_MAX / 8;
		err = run(&p, io, r, why);
	}
	if (p.fd >= 0)
		close(p.fd);
	return err;
}

/* -- the temporary file -------------------------------------------------------------------------- */

static int open_nameless(const char *dir)
{
	char path[4096];
	int fd = open(dir, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);

	/* Some file systems have no O_TMPFILE; a file that loses its name at once is the same. */
	if (fd >= 0 || errno != EOPNOTSUPP)
		return fd;
	if (snprintf(path, sizeof(path), "%s/.probe.XXXXXX", dir) >= (int)sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = mkostemp(path, O_DIRECT | O_CLOEXEC);
	if (fd >= 0)
		unlink(path);
	return fd;
}

/* Writes up to p->pieces pieces, for WRITE_NS at most, and leaves their number there. */
static int fill(struct probe *p, char *why)
{
	uint64_t state = seed(), deadline = clock_ns() + WRITE_NS;
	uint64_t *buf = aligned_alloc(ALIGN, PROBE_PIECE);
	uint32_t i = 0;
	int err = 0;

	if (!buf)
		return fail(why, ENOMEM, "out of memory");
	for (; i < p->pieces && (i < PROBE_LEAST || clock_ns() < deadline); i++) {
		for (size_t j = 0; j < PROBE_PIECE / sizeof(*buf); j++)
			buf[j] = splitmix(&state);
		ssize_t n = pwrite(p->fd, buf, PROBE_PIECE, (off_t)i * PROBE_PIECE);
		if (n == (ssize_t)PROBE_PIECE)
			continue;
		if (n < 0 && errno != ENOSPC && errno != EDQUOT)
			err = fail(why, errno, "cannot write a file for measuring %s: %s", p->path,
				   strerror(errno));
		break;
	}
	free(buf);
	p->pieces = i;
	if (!err && fsync(p->fd) != 0)
		err = fail(why, errno, "cannot write a file for measuring %s: %s", p->path,
			   strerror(errno));
	return err;
}

/* Pieces of a file of PROBE_FILE bytes, or less where room is short. */
static uint32_t pieces_for(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) != 0 || fs.f_bsize <= 0)
		return 0;
	uint64_t blocks = fs.f_bavail / 2, whole = PROBE_FILE / (uint64_t)fs.f_bsize;
	return (uint32_t)((blocks < whole ? blocks : whole) * (uint64_t)fs.f_bsize / PROBE_PIECE);
}

int probe_folder(const char *dir, enum probe_io io, struct probe_result *r, char *why)
{
	struct probe p = { .path = dir, .lock = PTHREAD_MUTEX_INITIALIZER };
	int err = 0;

	*r = (struct probe_result){ 0 };
	p.fd = open_nameless(dir);
	if (p.fd < 0 && errno == EINVAL) {
		cannot(r, "%s cannot be measured: its file system has no direct I/O", dir);
		return 0;
	}
	if (p.fd < 0)
		return fail(why, errno, "cannot create a file for measuring %s: %s", dir,
			    strerror(errno));
	if (may_measure(&p, r)) {
		char room[16];
		p.pieces = pieces_for(p.fd);
		if (p.pieces < PROBE_LEAST)
			cannot(r, "%s cannot be measured: it has too little room for a file of %s",
			       dir, size_text(PROBE_LEAST * (uint64_t)PROBE_PIECE, room));
		else
			err = fill(&p, why);
		if (!err && p.pieces >= PROBE_LEAST)
			err = run(&p, io, r, why);
		else if (!err && !*r->text)
			cannot(r, "%s cannot be measured: it became full meanwhile", dir);
	}
	close(p.fd);
	return err;
}
