/* SPDX-License-Identifier: Apache-2.0
 *
 * A drive: life and end of a piece, read threads; see drive.h. Batches: drive_batch.c.
 *
 *	read_batch_add() --> drive_queue.c --> drive_ring.c: the ring's thread --> drive_piece_done()
 *	                                   \-> here: DRIVE_THREADS threads, pread() -/        |
 *	                                                              batch_tell() <----------+
 *
 * A piece is finished by drive_piece_done() only: it checks the length, asks again for what is
 * missing, keeps the numbers (drive_meter.c), and tells the batch when the last byte has come.
 */
#include "expertfs/drive.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expertfs/clock.h"
#include "expertfs/disk.h"
#include "expertfs/drive_parts.h"
#include "expertfs/fail.h"
#include "expertfs/log.h"
#include "expertfs/shard.h"

/* A piece that the kernel puts off is asked for again so many times. */
#define AGAIN_MAX 100
/* A drive whose speed is not known yet counts as a fast one, so that it is used and becomes known.
 */
#define SPEED_GUESS 4e9

/* Wakes a thread that sleeps. Lock held; true if ring_wake() is to be called without it. */
static bool wake_locked(struct drive *d)
{
	bool ring = d->uring && d->asleep;

	d->asleep = d->asleep && !ring;
	if (!d->uring)
		pthread_cond_broadcast(&d->queued);
	return ring;
}

void drive_enqueue(struct drive *d, struct piece *p, uint64_t n)
{
	bool wake;

	pthread_mutex_lock(&d->lock);
	for (uint64_t i = 0; i < n; i++)
		queue_push(&d->queue, &p[i]);
	wake = wake_locked(d);
	pthread_mutex_unlock(&d->lock);
	if (wake)
		ring_wake(d);
}

/* One block anywhere in the file, if it is time to ask a failing drive again. Lock held. */
static struct piece *take_ask(struct drive *d, uint64_t now)
{
	static const struct urgency demand = { DRIVE_DEMAND };

	if (d->asking || d->stop || !health_ask(&d->health, now))
		return NULL;
	d->asking = true;
	d->seed = d->seed * 1664525u + 1013904223u;
	d->ask = (struct piece){ .urgency = &demand, .buf = d->block, .length = SHARD_ALIGN };
	if (d->size >= SHARD_ALIGN)
		d->ask.offset = (d->seed >> 4) % (d->size / SHARD_ALIGN) * SHARD_ALIGN;
	return &d->ask;
}

struct piece *drive_take(struct drive *d, struct piece **dropped)
{
	uint64_t now = clock_ns();
	struct piece *p = take_ask(d, now);

	while (!p && (p = queue_take(&d->queue)) && batch_failed(p->batch)) {
		queue_done(&d->queue, p); /* nobody can use it any more */
		p->next = *dropped;
		*dropped = p;
		p = NULL;
	}
	if (!p)
		return NULL;
	if (p->batch)
		d->reads++;
	p->started = now;
	meter_start(&d->meter, now, p->length);
	return p;
}

void drive_drop(struct piece *dropped)
{
	while (dropped) {
		struct piece *next = dropped->next;
		batch_tell(dropped, -ECANCELED, NULL);
		dropped = next;
	}
}

bool drive_finished(const struct drive *d)
{
	if (!d->stop || d->queue.pieces || d->asking)
		return false;
	for (int c = 0; c < DRIVE_CLASSES; c++)
		if (d->queue.head[c])
			return false;
	return true;
}

/* Says it once when a drive begins to fail, and once when it works again. */
static void say_health(const struct drive *d, bool failing, int err)
{
	if (failing)
		log_line(LOG_ERR, "%s: reads fail (%s): other copies are taken first", d->path,
			 strerror(-err));
	else
		log_line(LOG_WARNING, "%s: reads work again", d->path);
}

/* True if this says something about the drive, and not about us or the kernel's memory. */
static bool drives_fault(int err)
{
	return err != -ENOMEM && err != -EAGAIN && err != -EINTR && err != -ECANCELED;
}

/* The piece is over with 0 or an error. Lock held; true if the drive's health changed. */
static bool count_end(struct drive *d, const struct piece *p, int err)
{
	if (p == &d->ask)
		d->asking = false;
	else if (err)
		d->errors++;
	if (!err)
		return health_good(&d->health);
	return drives_fault(err) && health_bad(&d->health, clock_ns());
}

/* A read of whole blocks at the end of a file that has no whole number of them is done when the
 * file's last byte has come: that very byte, as a file may have grown since its size was asked for,
 * and a read may come in part anywhere. */
static bool at_end(const struct drive *d, const struct piece *p, uint32_t came)
{
	return p->offset + came == d->size && p->length - came < SHARD_ALIGN;
}

void drive_piece_done(struct drive *d, struct piece *p, int res)
{
	uint64_t now = clock_ns();
	/* What follows a piece that came in part is asked for from a block's start, as O_DIRECT
	 * needs it. Not a block: the file ends here and should not. */
	uint32_t came = res < 0 ? 0 : (uint32_t)res;
	uint32_t got =
		came >= p->length || at_end(d, p, came) ? p->length : came & ~(SHARD_ALIGN - 1);
	int err = res < 0 ? res : got == 0 ? -EIO : 0;
	bool again = (err == 0 && got < p->length) ||
		     ((err == -EAGAIN || err == -EINTR) && ++p->again < AGAIN_MAX);
	bool failing, changed = false, wake = false;

	pthread_mutex_lock(&d->lock);
	meter_end(&d->meter, now, p->length, got, now - p->started);
	d->queue.speed = d->meter.speed;
	if (p != &d->ask) {
		d->bytes += got;
		queue_done(&d->queue, p);
	}
	if (again && p != &d->ask) {
		p->buf += got;
		p->offset += got;
		p->length -= got;
		queue_put_back(&d->queue, p);
		wake = wake_locked(d);
	} else {
		again = false;
		changed = count_end(d, p, err);
		if (!d->uring && drive_finished(d))
			pthread_cond_broadcast(&d->queued);
	}
	failing = d->health.failing;
	pthread_mutex_unlock(&d->lock);
	if (wake)
		ring_wake(d);
	if (changed)
		say_health(d, failing, err);
	if (again || !p->batch)
		return;
	if (!d->direct) /* what was read lies in the hot store: the page cache need not keep it */
		posix_fadvise(d->fd, (off_t)p->offset, p->length, POSIX_FADV_DONTNEED);
	batch_tell(p, err, d);
}

/* Sleeps until there may be something to take. Lock held. */
static void pread_sleep(struct drive *d)
{
	struct timespec until;

	if (!d->health.failing || d->asking) {
		pthread_cond_wait(&d->queued, &d->lock);
		return;
	}
	until.tv_sec = (time_t)(d->health.ask_at / 1000000000u);
	until.tv_nsec = (long)(d->health.ask_at % 1000000000u);
	pthread_cond_timedwait(&d->queued, &d->lock, &until);
}

static void *pread_main(void *drive)
{
	struct drive *d = drive;

	for (;;) {
		struct piece *p, *dropped = NULL;
		pthread_mutex_lock(&d->lock);
		while (!(p = drive_take(d, &dropped)) && !dropped && !drive_finished(d))
			pread_sleep(d);
		if (!p && !dropped) {
			pthread_cond_broadcast(&d->queued); /* the others may end, too */
			pthread_mutex_unlock(&d->lock);
			return NULL;
		}
		pthread_mutex_unlock(&d->lock);
		drive_drop(dropped);
		if (p) {
			ssize_t n = pread(d->fd, p->buf, p->length, (off_t)p->offset);
			drive_piece_done(d, p, n < 0 ? -errno : (int)n);
		}
	}
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
	rc = ring_make(d);
	d->uring = rc == 0;
	if (rc && io == DRIVE_IO_URING)
		return fail(why, -rc, "io_uring is not to be had here: %s", strerror(-rc));
	return 0;
}

static struct drive *drive_alloc(const char *path)
{
	struct drive *d = calloc(1, sizeof(*d));
	pthread_condattr_t clock;

	if (!d)
		return NULL;
	d->fd = d->wake = -1;
	queue_init(&d->queue);
	pthread_mutex_init(&d->lock, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&d->queued, &clock);
	pthread_condattr_destroy(&clock);
	d->seed = (uint32_t)clock_ns();
	d->path = strdup(path);
	if (!d->path || posix_memalign((void **)&d->block, SHARD_ALIGN, SHARD_ALIGN) != 0) {
		d->block = NULL;
		drive_close(d);
		return NULL;
	}
	return d;
}

int drive_open(const char *path, enum drive_io io, struct drive **out, char *why)
{
	struct drive *d = drive_alloc(path);
	struct stat st;
	int rc = 0;

	if (!d)
		return fail(why, ENOMEM, "out of memory");
	d->fd = direct_open(path, O_RDONLY, &d->direct);
	if (d->fd < 0)
		rc = fail(why, -d->fd, "%s: %s", path, strerror(-d->fd));
	else if (fstat(d->fd, &st) != 0)
		rc = fail(why, errno, "%s: %s", path, strerror(errno));
	else
		d->size = (uint64_t)st.st_size;
	rc = rc ? rc : choose_io(d, io, why);
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
	if (d->uring)
		ring_wake(d);
	for (int i = 0; i < d->threads; i++)
		pthread_join(d->thread[i], NULL);
	if (d->uring)
		ring_free(d);
	if (d->fd >= 0)
		close(d->fd);
	pthread_cond_destroy(&d->queued);
	pthread_mutex_destroy(&d->lock);
	free(d->block);
	free(d->path);
	free(d);
}

void drive_register(struct drive *d, void *base, uint64_t bytes)
{
	bool wake;

	pthread_mutex_lock(&d->lock);
	d->fixed = base;
	d->fixed_bytes = bytes;
	wake = wake_locked(d);
	pthread_mutex_unlock(&d->lock);
	if (wake)
		ring_wake(d);
}

void drive_stats(struct drive *d, struct drive_stats *out)
{
	pthread_mutex_lock(&d->lock);
	*out = (struct drive_stats){ .bytes = d->bytes,
				     .reads = d->reads,
				     .errors = d->errors,
				     .busy_ns = meter_busy_ns(&d->meter, clock_ns()),
				     .in_flight = d->queue.pieces,
				     .speed = d->meter.speed,
				     .p50_ms = histogram_ms(&d->meter.latency, 0.50),
				     .p99_ms = histogram_ms(&d->meter.latency, 0.99),
				     .failing = d->health.failing };
	for (int c = 0; c < DRIVE_CLASSES; c++)
		out->queued[c] = d->queue.waiting[c] + d->queue.flying[c];
	pthread_mutex_unlock(&d->lock);
}

void drive_raise(struct drive *d, const struct urgency *u)
{
	bool wake;

	pthread_mutex_lock(&d->lock);
	queue_reclass(&d->queue, u);
	wake = wake_locked(d);
	pthread_mutex_unlock(&d->lock);
	if (wake)
		ring_wake(d);
}

uint64_t drive_backlog(struct drive *d, enum drive_class class, uint64_t bytes)
{
	uint64_t ns = UINT64_MAX;
	double speed;

	pthread_mutex_lock(&d->lock);
	speed = d->meter.speed ? (double)d->meter.speed : SPEED_GUESS;
	if (!d->health.failing)
		ns = (uint64_t)((double)(queue_before(&d->queue, class) + bytes) * 1e9 / speed);
	pthread_mutex_unlock(&d->lock);
	return ns;
}

bool drive_failing(struct drive *d)
{
	bool failing;

	pthread_mutex_lock(&d->lock);
	failing = d->health.failing;
	pthread_mutex_unlock(&d->lock);
	return failing;
}

void drive_blame(struct drive *d)
{
	pthread_mutex_lock(&d->lock);
	d->errors++;
	pthread_mutex_unlock(&d->lock);
}

bool drive_is_as_it_was(const struct drive *d, uint64_t bytes, const struct timespec *written)
{
	struct stat st;

	return fstat(d->fd, &st) == 0 && (uint64_t)st.st_size == bytes &&
	       st.st_mtim.tv_sec == written->tv_sec && st.st_mtim.tv_nsec == written->tv_nsec;
}

bool drive_uses_uring(const struct drive *d)
{
	return d->uring;
}

const char *drive_path(const struct drive *d)
{
	return d->path;
}
