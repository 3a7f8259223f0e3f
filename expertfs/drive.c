/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue of one drive and the thread behind it; see drive.h.
 *
 *	read_batch_add() --> queue (mutex) --> drive thread --> io_uring --> piece_done() --> batch
 *	                          |  eventfd wakes the thread
 *	                          +--> or: pread() in DRIVE_THREADS threads
 *
 * A piece is finished by piece_done() only: it checks the length, asks again for what is missing,
 * and tells the batch when the last byte has come.
 */
#include "expertfs/drive.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expertfs/clock.h"
#include "expertfs/fail.h"
#include "expertfs/log.h"
#include "expertfs/shard.h"

#define PIECE_BYTES   (1u << 20)
#define DRIVE_DEPTH   32 /* pieces in flight: 32 MiB covers 7 GB/s at 4 ms under load */
#define DRIVE_THREADS 8  /* without io_uring */

struct read_batch {
	pthread_mutex_t lock;
	pthread_cond_t done;
	const struct urgency *urgency;
	uint32_t pending;
	int err;
};

struct piece {
	struct piece *next;
	struct read_batch *batch;
	char *buf;
	uint64_t offset;
	uint32_t length;
};

struct drive {
	char *path;
	int fd, wake; /* the shard; eventfd that ends the ring's sleep */
	bool uring, direct;
	struct io_uring ring;
	uint64_t wake_value;
	pthread_t thread[DRIVE_THREADS];
	int threads;

	pthread_mutex_t lock;  /* all below */
	pthread_cond_t queued; /* for pread() threads */
	struct piece *head, **tail;
	bool stop;
	struct drive_stats stats;
	uint64_t busy_since;
};

struct read_batch *read_batch_new(const struct urgency *u)
{
	struct read_batch *b = calloc(1, sizeof(*b));

	if (b) {
		b->urgency = u;
		pthread_mutex_init(&b->lock, NULL);
		pthread_cond_init(&b->done, NULL);
	}
	return b;
}

static void batch_tell(struct read_batch *b, int err)
{
	pthread_mutex_lock(&b->lock);
	if (err && !b->err)
		b->err = err;
	if (--b->pending == 0)
		pthread_cond_signal(&b->done);
	pthread_mutex_unlock(&b->lock);
}

int read_batch_wait(struct read_batch *b)
{
	int err;

	pthread_mutex_lock(&b->lock);
	while (b->pending)
		pthread_cond_wait(&b->done, &b->lock);
	err = b->err;
	pthread_mutex_unlock(&b->lock);
	pthread_cond_destroy(&b->done);
	pthread_mutex_destroy(&b->lock);
	free(b);
	return err;
}

static void drive_wake(struct drive *d)
{
	uint64_t one = 1;

	if (d->uring) {
		/* Fails only if the counter is full, and then the thread is awake already. */
		ssize_t n = write(d->wake, &one, sizeof(one));
		(void)n;
	}
}

static void enqueue(struct drive *d, struct piece *p)
{
	p->next = NULL;
	pthread_mutex_lock(&d->lock);
	*d->tail = p;
	d->tail = &p->next;
	pthread_cond_signal(&d->queued);
	pthread_mutex_unlock(&d->lock);
}

void read_batch_add(struct read_batch *b, struct drive *d, uint64_t offset, uint64_t length,
		    void *buf)
{
	for (uint64_t at = 0; at < length; at += PIECE_BYTES) {
		struct piece *p = malloc(sizeof(*p));
		uint64_t left = length - at;

		pthread_mutex_lock(&b->lock);
		b->pending++;
		pthread_mutex_unlock(&b->lock);
		if (!p) {
			batch_tell(b, -ENOMEM);
			continue;
		}
		*p = (struct piece){ .batch = b,
				     .buf = (char *)buf + at,
				     .offset = offset + at,
				     .length = left < PIECE_BYTES ? (uint32_t)left : PIECE_BYTES };
		enqueue(d, p);
	}
	drive_wake(d);
}

/* The next piece, or NULL. Counts it as in flight. Lock held. */
static struct piece *take_locked(struct drive *d)
{
	struct piece *p = d->head;

	if (!p)
		return NULL;
	d->head = p->next;
	if (!d->head)
		d->tail = &d->head;
	if (d->stats.in_flight++ == 0)
		d->busy_since = clock_ns();
	d->stats.reads++;
	return p;
}

/* res: bytes read or negative errno. */
static void piece_done(struct drive *d, struct piece *p, int res)
{
	bool again = res == -EAGAIN || res == -EINTR || (res > 0 && (uint32_t)res < p->length);
	int err = res < 0 ? res : res == 0 ? -EIO : 0; /* 0: the file ends here and should not */

	pthread_mutex_lock(&d->lock);
	if (res > 0)
		d->stats.bytes += (uint64_t)res;
	if (err && !again)
		d->stats.errors++;
	if (--d->stats.in_flight == 0)
		d->stats.busy_ns += clock_ns() - d->busy_since;
	pthread_mutex_unlock(&d->lock);
	if (again) {
		uint32_t got = res > 0 ? (uint32_t)res : 0;
		p->buf += got;
		p->offset += got;
		p->length -= got;
		enqueue(d, p);
		drive_wake(d);
		return;
	}
	if (!d->direct) /* what was read lies in the hot store: the page cache need not keep it */
		posix_fadvise(d->fd, (off_t)p->offset, p->length, POSIX_FADV_DONTNEED);
	batch_tell(p->batch, err);
	free(p);
}

/* Moves queued pieces into the ring while there is room. True when the drive is to stop and idle.
 */
static bool ring_fill(struct drive *d, uint32_t *in_ring)
{
	bool finished;

	pthread_mutex_lock(&d->lock);
	while (*in_ring < DRIVE_DEPTH) {
		struct piece *p = take_locked(d);
		if (!p)
			break;
		struct io_uring_sqe *sqe = io_uring_get_sqe(&d->ring);
		io_uring_prep_read(sqe, d->fd, p->buf, p->length, p->offset);
		io_uring_sqe_set_data(sqe, p);
		(*in_ring)++;
	}
	finished = d->stop && !d->head && *in_ring == 0;
	pthread_mutex_unlock(&d->lock);
	return finished;
}

static void *ring_main(void *arg)
{
	struct drive *d = arg;
	uint32_t in_ring = 0;
	bool armed = false;

	while (!ring_fill(d, &in_ring)) {
		struct io_uring_cqe *cqe;
		if (!armed) {
			/* The ring has room for it: DRIVE_DEPTH is half its size. */
			struct io_uring_sqe *sqe = io_uring_get_sqe(&d->ring);
			io_uring_prep_read(sqe, d->wake, &d->wake_value, sizeof(d->wake_value), 0);
			io_uring_sqe_set_data(sqe, NULL);
			armed = true;
		}
		io_uring_submit_and_wait(&d->ring, 1);
		while (io_uring_peek_cqe(&d->ring, &cqe) == 0) {
			struct piece *p = io_uring_cqe_get_data(cqe);
			int res = cqe->res;
			io_uring_cqe_seen(&d->ring, cqe);
			if (!p) {
				armed = false;
				continue;
			}
			in_ring--;
			piece_done(d, p, res);
		}
	}
	return NULL;
}

static void *pread_main(void *arg)
{
	struct drive *d = arg;

	for (;;) {
		struct piece *p;
		pthread_mutex_lock(&d->lock);
		while (!(p = take_locked(d)) && !d->stop)
			pthread_cond_wait(&d->queued, &d->lock);
		pthread_mutex_unlock(&d->lock);
		if (!p)
			return NULL;
		ssize_t n = pread(d->fd, p->buf, p->length, (off_t)p->offset);
		piece_done(d, p, n < 0 ? -errno : (int)n);
	}
}

/* O_DIRECT if the file system says that 4 KiB will do (statx, 6.1), or does not say. */
static int open_direct(const char *path, bool *direct)
{
	struct statx st = { 0 };
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);

	*direct = fd >= 0;
	if (fd < 0)
		return errno == EINVAL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
#ifdef STATX_DIOALIGN
	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) == 0 &&
	    (st.stx_mask & STATX_DIOALIGN) &&
	    (st.stx_dio_offset_align == 0 || st.stx_dio_offset_align > SHARD_ALIGN ||
	     st.stx_dio_mem_align > SHARD_ALIGN)) {
		close(fd);
		*direct = false;
		fd = open(path, O_RDONLY | O_CLOEXEC);
	}
#else
	(void)st;
#endif
	return fd;
}

static int start_threads(struct drive *d, char *why)
{
	int n = d->uring ? 1 : DRIVE_THREADS;

	for (; d->threads < n; d->threads++) {
		int rc = pthread_create(&d->thread[d->threads], NULL,
					d->uring ? ring_main : pread_main, d);
		if (rc)
			return fail(why, rc, "cannot start a thread for %s: %s", d->path,
				    strerror(rc));
	}
	return 0;
}

static int choose_io(struct drive *d, enum drive_io io, char *why)
{
	int rc;

	if (io == DRIVE_IO_THREADS)
		return 0;
	rc = io_uring_queue_init(2 * DRIVE_DEPTH, &d->ring, 0);
	if (rc == 0) {
		d->wake = eventfd(0, EFD_CLOEXEC);
		if (d->wake < 0) {
			rc = -errno;
			io_uring_queue_exit(&d->ring);
		}
	}
	d->uring = rc == 0;
	if (rc && io == DRIVE_IO_URING)
		return fail(why, -rc, "io_uring is not to be had here: %s", strerror(-rc));
	return 0;
}

int drive_open(const char *path, enum drive_io io, struct drive **out, char *why)
{
	struct drive *d = calloc(1, sizeof(*d));
	int rc;

	if (!d)
		return fail(why, ENOMEM, "out of memory");
	d->fd = d->wake = -1;
	d->tail = &d->head;
	pthread_mutex_init(&d->lock, NULL);
	pthread_cond_init(&d->queued, NULL);
	d->path = strdup(path);
	if (!d->path)
		rc = fail(why, ENOMEM, "out of memory");
	else if ((d->fd = open_direct(path, &d->direct)) < 0)
		rc = fail(why, errno, "%s: %s", path, strerror(errno));
	else
		rc = choose_io(d, io, why);
	rc = rc ? rc : start_threads(d, why);
	if (rc) {
		drive_close(d);
		return rc;
	}
	if (!d->direct)
		log_line(LOG_WARNING, "%s: no direct I/O on this file system, reads are buffered",
			 path);
	*out = d;
	return 0;
}

void drive_close(struct drive *d)
{
	if (!d)
		return;
	pthread_mutex_lock(&d->lock);
	d->stop = true;
	pthread_cond_broadcast(&d->queued);
	pthread_mutex_unlock(&d->lock);
	drive_wake(d);
	for (int i = 0; i < d->threads; i++)
		pthread_join(d->thread[i], NULL);
	if (d->uring)
		io_uring_queue_exit(&d->ring);
	if (d->wake >= 0)
		close(d->wake);
	if (d->fd >= 0)
		close(d->fd);
	pthread_cond_destroy(&d->queued);
	pthread_mutex_destroy(&d->lock);
	free(d->path);
	free(d);
}

void drive_stats(struct drive *d, struct drive_stats *out)
{
	pthread_mutex_lock(&d->lock);
	*out = d->stats;
	if (d->stats.in_flight)
		out->busy_ns += clock_ns() - d->busy_since;
	pthread_mutex_unlock(&d->lock);
}

bool drive_uses_uring(const struct drive *d)
{
	return d->uring;
}

const char *drive_path(const struct drive *d)
{
	return d->path;
}

void drive_raise(struct drive *d, const struct urgency *u)
{
	(void)d;
	(void)u;
}

uint64_t drive_backlog(struct drive *d)
{
	(void)d;
	return 0;
}
