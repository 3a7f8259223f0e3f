/* SPDX-License-Identifier: Apache-2.0
 *
 * A drive's io_uring and the thread that feeds it; see drive.h.
 *
 * The thread sleeps in the kernel until a piece has come, or until the eventfd, which is read
 * through the ring as well, says that there is something new in the queue.
 *
 * Measured here (16 MiB loads in pieces of 1 MiB then, 16 in flight, O_DIRECT, Linux 6.18, virtio):
 * a piece into huge pages costs 6.5 us of processor time; into a buffer that is registered with the
 * ring 4.1 us. But registering and unregistering costs 65-107 us a load, in which the ring stands
 * still, and saves 37. Each expert comes into memory of its own, so only the buffers that are used
 * again and again (drive_register()) are registered: they have small pages, where it saves 33 us of
 * 55. SINGLE_ISSUER, DEFER_TASKRUN and COOP_TASKRUN made no difference that could be told from
 * noise; they keep completions from interrupting the thread. No polling by the kernel (SQPOLL):
 * it takes a processor, and there are a few thousand submissions a second at most.
 */
#include "expertfs/drive_parts.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "expertfs/clock.h"

#define RING_ENTRIES (2 * IN_FLIGHT_PIECES) /* the pieces, and room for the eventfd's read */

int ring_make(struct drive *d)
{
	/* The first that the kernel takes: 6.1, 5.19, 5.1. A ring with one issuer belongs to the
	 * thread that enables it. */
	static const unsigned flags[] = { IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
						  IORING_SETUP_COOP_TASKRUN |
						  IORING_SETUP_R_DISABLED,
					  IORING_SETUP_COOP_TASKRUN, 0 };
	int rc = -EINVAL;

	for (unsigned i = 0; rc == -EINVAL && i < sizeof(flags) / sizeof(flags[0]); i++) {
		rc = io_uring_queue_init(RING_ENTRIES, &d->ring, flags[i]);
		d->defer = flags[i] & IORING_SETUP_R_DISABLED;
	}
	if (rc)
		return rc;
	d->wake = eventfd(0, EFD_CLOEXEC);
	if (d->wake < 0) {
		rc = -errno;
		io_uring_queue_exit(&d->ring);
		return rc;
	}
	d->fixed_file = io_uring_register_files(&d->ring, &d->fd, 1) == 0;
	return 0;
}

void ring_free(struct drive *d)
{
	io_uring_queue_exit(&d->ring);
	close(d->wake);
}

void ring_wake(struct drive *d)
{
	uint64_t one = 1;
	/* Fails only if the counter is full, and then the thread is awake already. */
	ssize_t n = write(d->wake, &one, sizeof(one));

	(void)n;
}

/* There is always an entry: as many as can be in flight, and one more. */
static void prepare(struct drive *d, struct piece *p)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&d->ring);

	if (p->length <= d->fixed_known &&
	    (uintptr_t)p->buf - (uintptr_t)d->fixed <= d->fixed_known - p->length)
		io_uring_prep_read_fixed(sqe, d->fixed_file ? 0 : d->fd, p->buf, p->length,
					 p->offset, 0);
	else
		io_uring_prep_read(sqe, d->fixed_file ? 0 : d->fd, p->buf, p->length, p->offset);
	if (d->fixed_file)
		sqe->flags |= IOSQE_FIXED_FILE;
	io_uring_sqe_set_data(sqe, p);
}

/* The kernel may refuse it (RLIMIT_MEMLOCK): then these buffers are like all others. Lock held,
 * since the first pieces for the buffers may come at once. */
static void know_buffers(struct drive *d)
{
	struct iovec v = { d->fixed, d->fixed_bytes };

	if (io_uring_register_buffers(&d->ring, &v, 1) == 0)
		d->fixed_known = d->fixed_bytes;
	else
		d->fixed_bytes = 0;
}

/* Moves queued pieces into the ring while there is room. False when the drive is to stop and idle.
 * *wait: nanoseconds until a failing drive is asked again, 0: no limit. */
static bool fill(struct drive *d, uint64_t *wait)
{
	struct piece *dropped = NULL, *p;
	bool goes_on;

	pthread_mutex_lock(&d->lock);
	if (d->fixed_known != d->fixed_bytes)
		know_buffers(d);
	while ((p = drive_take(d, &dropped)))
		prepare(d, p);
	goes_on = !drive_finished(d);
	d->asleep = goes_on;
	*wait = 0;
	if (d->health.failing && !d->asking) {
		uint64_t now = clock_ns();
		*wait = d->health.ask_at > now ? d->health.ask_at - now : 1;
	}
	pthread_mutex_unlock(&d->lock);
	drive_drop(dropped);
	return goes_on;
}

static void wait_for_one(struct drive *d, uint64_t wait)
{
	struct __kernel_timespec ts = { .tv_sec = (int64_t)(wait / 1000000000u),
					.tv_nsec = (int64_t)(wait % 1000000000u) };
	struct io_uring_cqe *cqe;
	int rc = wait ? io_uring_submit_and_wait_timeout(&d->ring, &cqe, 1, &ts, NULL)
		      : io_uring_submit_and_wait(&d->ring, 1);

	if (rc < 0 && rc != -ETIME && rc != -EINTR)
		usleep(1000); /* the kernel is out of something: what is prepared is tried again */
	pthread_mutex_lock(&d->lock);
	d->asleep = false;
	pthread_mutex_unlock(&d->lock);
}

void *ring_main(void *drive)
{
	struct drive *d = drive;
	struct io_uring_cqe *cqe;
	bool armed = false;
	uint64_t wait;

	if (d->defer) /* liburing 2.3 forgets to export its function for this */
		syscall(__NR_io_uring_register, d->ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL,
			0);
	while (fill(d, &wait)) {
		if (!armed) {
			struct io_uring_sqe *sqe = io_uring_get_sqe(&d->ring);
			io_uring_prep_read(sqe, d->wake, &d->wake_value, sizeof(d->wake_value), 0);
			io_uring_sqe_set_data(sqe, NULL);
			armed = true;
		}
		wait_for_one(d, wait);
		while (io_uring_peek_cqe(&d->ring, &cqe) == 0) {
			struct piece *p = io_uring_cqe_get_data(cqe);
			int res = cqe->res;
			io_uring_cqe_seen(&d->ring, cqe);
			if (p)
				drive_piece_done(d, p, res);
			else
				armed = false;
		}
	}
	/* The kernel takes a ring apart some time after it is closed; what is registered would keep
	 * the drive from being unmounted until then. */
	if (d->fixed_file)
		io_uring_unregister_files(&d->ring);
	if (d->fixed_known)
		io_uring_unregister_buffers(&d->ring);
	return NULL;
}
