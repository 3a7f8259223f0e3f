/* SPDX-License-Identifier: Apache-2.0
 *
 * A drive: the order of its queue and its numbers without I/O, then reads of real files through
 * io_uring and through threads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expertfs/clock.h"
#include "expertfs/drive.h"
#include "expertfs/drive_meter.h"
#include "expertfs/drive_queue.h"
#include "expertfs/fail.h"

#include <cmocka.h> /* last: it makes fail() a macro */

#define MIB (1u << 20)

/* -- the queue --------------------------------------------------------------------------------- */

static struct urgency urgent[DRIVE_CLASSES] = { { DRIVE_DEMAND },
						{ DRIVE_PREFETCH },
						{ DRIVE_PROMOTION } };

/* n pieces of this class and size, numbered from `first` by their offset. */
static void push(struct drive_queue *q, struct piece *p, unsigned n, struct urgency *u,
		 uint32_t length, uint64_t first)
{
	for (unsigned i = 0; i < n; i++) {
		p[i] = (struct piece){ .urgency = u, .length = length, .offset = first + i };
		queue_push(q, &p[i]);
	}
}

static void expect_offset(struct drive_queue *q, uint64_t offset)
{
	struct piece *p = queue_take(q);

	assert_non_null(p);
	assert_int_equal(p->offset, offset);
}

static void test_order(void **state)
{
	struct drive_queue q;
	struct piece a[2], b[2], c[2];

	(void)state;
	queue_init(&q);
	assert_null(queue_take(&q));
	push(&q, a, 2, &urgent[DRIVE_PROMOTION], PIECE_BYTES, 300);
	push(&q, b, 2, &urgent[DRIVE_PREFETCH], PIECE_BYTES, 200);
	push(&q, c, 2, &urgent[DRIVE_DEMAND], PIECE_BYTES, 100);
	assert_int_equal(queue_before(&q, DRIVE_DEMAND), 2 * PIECE_BYTES);
	assert_int_equal(queue_before(&q, DRIVE_PREFETCH), 4 * PIECE_BYTES);
	assert_int_equal(queue_before(&q, DRIVE_PROMOTION), 6 * PIECE_BYTES);
	expect_offset(&q, 100);
	assert_int_equal(queue_before(&q, DRIVE_DEMAND), 2 * PIECE_BYTES);
	queue_done(&q, &c[0]);
	assert_int_equal(queue_before(&q, DRIVE_DEMAND), PIECE_BYTES);
	queue_put_back(&q, &c[0]); /* it had come in part: it goes before the others */
	expect_offset(&q, 100);
	expect_offset(&q, 101);
	expect_offset(&q, 200);
	expect_offset(&q, 201);
	expect_offset(&q, 300);
	expect_offset(&q, 301);
	assert_null(queue_take(&q));
	assert_int_equal(q.pieces, 6);
}

/* Takes all that may start; returns the bytes. */
static uint64_t take_all(struct drive_queue *q)
{
	uint64_t n = 0;
	struct piece *p;

	while ((p = queue_take(q)))
		n += p->length;
	return n;
}

static void test_depth(void **state)
{
	static struct piece p[1000];
	struct drive_queue q;

	(void)state;
	/* In bytes for large pieces, in number for small ones. */
	queue_init(&q);
	push(&q, p, 100, &urgent[DRIVE_DEMAND], PIECE_BYTES, 0);
	assert_int_equal(take_all(&q), IN_FLIGHT_BYTES);
	queue_done(&q, &p[0]);
	expect_offset(&q, IN_FLIGHT_BYTES / PIECE_BYTES);
	queue_init(&q);
	push(&q, p, 1000, &urgent[DRIVE_DEMAND], 4096, 0);
	assert_int_equal(take_all(&q), IN_FLIGHT_PIECES * 4096);
	/* A drive of unknown speed, a slow one, one between, a fast one. */
	queue_init(&q);
	push(&q, p, 100, &urgent[DRIVE_PREFETCH], PIECE_BYTES, 0);
	assert_int_equal(take_all(&q), PREFETCH_BYTES_MAX);
	for (unsigned i = 0; i < PREFETCH_BYTES_MAX / PIECE_BYTES; i++)
		queue_done(&q, &p[i]);
	queue_init(&q);
	q.speed = 100000000;
	push(&q, p, 100, &urgent[DRIVE_PREFETCH], PIECE_BYTES, 0);
	assert_int_equal(take_all(&q), PREFETCH_BYTES_MIN);
	queue_init(&q);
	q.speed = 4194304000;
	push(&q, p, 100, &urgent[DRIVE_PREFETCH], PIECE_BYTES, 0);
	assert_int_equal(take_all(&q), 4 * MIB);
	queue_init(&q);
	q.speed = 12000000000;
	push(&q, p, 100, &urgent[DRIVE_PREFETCH], PIECE_BYTES, 0);
	assert_int_equal(take_all(&q), PREFETCH_BYTES_MAX);
	/* Two for promotion, and these count against what prefetch may have. */
	queue_init(&q);
	push(&q, p, 100, &urgent[DRIVE_PROMOTION], PIECE_BYTES, 0);
	assert_int_equal(take_all(&q), PROMOTION_BYTES);
	push(&q, p + 100, 100, &urgent[DRIVE_PREFETCH], PIECE_BYTES, 100);
	assert_int_equal(take_all(&q), PREFETCH_BYTES_MAX - PROMOTION_BYTES);
	push(&q, p + 200, 100, &urgent[DRIVE_DEMAND], PIECE_BYTES, 200);
	assert_int_equal(take_all(&q), IN_FLIGHT_BYTES - PREFETCH_BYTES_MAX);
	/* A piece that is larger than its share goes alone. */
	queue_init(&q);
	push(&q, p, 2, &urgent[DRIVE_PROMOTION], 2 * PROMOTION_BYTES, 0);
	expect_offset(&q, 0);
	assert_null(queue_take(&q));
}

/* A full queue of demand holds up promotion, but not for ever. */
static void test_trickle(void **state)
{
	enum { ROUNDS = 2000 };
	struct drive_queue q;
	struct piece demand[8], low[ROUNDS / 8], *p;
	unsigned counts[DRIVE_CLASSES] = { 0 }, high_in_flight = 0;

	(void)state;
	queue_init(&q);
	push(&q, low, ROUNDS / 8, &urgent[DRIVE_PROMOTION], PIECE_BYTES, 0);
	push(&q, demand, 8, &urgent[DRIVE_DEMAND], PIECE_BYTES, 0);
	for (unsigned i = 0; i < ROUNDS; i++) {
		p = queue_take(&q);
		assert_non_null(p);
		counts[p->class]++;
		if (q.flying[DRIVE_PROMOTION] > high_in_flight)
			high_in_flight = (unsigned)q.flying[DRIVE_PROMOTION];
		queue_done(&q, p);
		if (p->class == DRIVE_DEMAND)
			queue_push(&q, p);
	}
	assert_in_range(counts[DRIVE_PROMOTION], ROUNDS / 66, ROUNDS / 64);
	assert_int_equal(counts[DRIVE_DEMAND] + counts[DRIVE_PROMOTION], ROUNDS);
	assert_int_equal(high_in_flight, PIECE_BYTES);
}

static void test_raise(void **state)
{
	struct urgency mine = { DRIVE_PROMOTION };
	struct drive_queue q;
	struct piece a[3], b[3], c[1];

	(void)state;
	queue_init(&q);
	for (unsigned i = 0; i < 3; i++) { /* interleaved with another load's */
		push(&q, &a[i], 1, &urgent[DRIVE_PROMOTION], PIECE_BYTES, 100 + i);
		push(&q, &b[i], 1, &mine, PIECE_BYTES, 200 + i);
	}
	push(&q, c, 1, &urgent[DRIVE_DEMAND], PIECE_BYTES, 300);
	expect_offset(&q, 300);
	mine.class = DRIVE_DEMAND;
	queue_reclass(&q, &mine);
	assert_int_equal(q.waiting[DRIVE_DEMAND], 3 * PIECE_BYTES);
	assert_int_equal(q.waiting[DRIVE_PROMOTION], 3 * PIECE_BYTES);
	queue_reclass(&q, &mine); /* changes nothing */
	for (unsigned i = 0; i < 3; i++)
		expect_offset(&q, 200 + i);
	expect_offset(&q, 100);
	expect_offset(&q, 101);
	assert_null(queue_take(&q)); /* two of promotion are enough */
	for (unsigned i = 0; i < 3; i++)
		queue_done(&q, &b[i]);
	queue_done(&q, &a[0]);
	expect_offset(&q, 102);
	/* The last of a list may go, and the list goes on. */
	queue_init(&q);
	mine.class = DRIVE_PREFETCH;
	push(&q, a, 1, &mine, PIECE_BYTES, 1);
	mine.class = DRIVE_DEMAND;
	queue_reclass(&q, &mine);
	push(&q, b, 1, &urgent[DRIVE_PREFETCH], PIECE_BYTES, 2);
	expect_offset(&q, 1);
	expect_offset(&q, 2);
}

/* -- the numbers ------------------------------------------------------------------------------- */

static void test_meter(void **state)
{
	struct drive_meter m = { 0 };
	uint64_t now = 1000;

	(void)state;
	/* One piece at a time says nothing about the speed. */
	for (int i = 0; i < 100; i++) {
		meter_start(&m, now, MIB);
		now += 10000000;
		meter_end(&m, now, MIB, MIB, 10000000);
		now += 5000000;
	}
	assert_int_equal(m.speed, 0);
	assert_int_equal(meter_busy_ns(&m, now), 1000000000);
	/* 8 in flight, one a millisecond: 1.05 GB/s. In bursts of 8 it is the same. */
	for (int burst = 1; burst <= 8; burst += 7) {
		for (int i = 0; i < 8; i++)
			meter_start(&m, now, MIB);
		for (int i = 0; i < 400; i++) {
			if (i % burst == 0)
				now += 1000000 * (uint64_t)burst;
			meter_end(&m, now, MIB, MIB, 8000000);
			meter_start(&m, now, MIB);
		}
		assert_in_range(m.speed, 1030000000, 1070000000);
		for (int i = 0; i < 8; i++)
			meter_end(&m, now, MIB, MIB, 8000000);
		now += 1000000000;
		assert_int_equal(m.flying, 0);
	}
	assert_true(histogram_ms(&m.latency, 0.5) >= 7 && histogram_ms(&m.latency, 0.5) <= 10);
	/* A drive that becomes slow is found to be so after some samples. */
	for (int i = 0; i < 4; i++)
		meter_start(&m, now, MIB);
	for (int i = 0; i < 400; i++) {
		now += 10000000;
		meter_end(&m, now, MIB, MIB, 40000000);
		meter_start(&m, now, MIB);
	}
	assert_in_range(m.speed, 100000000, 110000000);
}

static void test_health(void **state)
{
	struct drive_health h = { 0 };
	uint64_t now = 77;

	(void)state;
	for (int i = 1; i < HEALTH_BAD_ROW; i++)
		assert_false(health_bad(&h, now));
	assert_false(health_good(&h));
	for (int i = 1; i < HEALTH_BAD_ROW; i++)
		assert_false(health_bad(&h, now));
	assert_true(health_bad(&h, now));
	assert_true(h.failing);
	assert_false(health_bad(&h, now));
	/* 0.5 s, then 1, 2, 4 ... and never more than a minute. */
	assert_false(health_ask(&h, now + HEALTH_PAUSE_NS - 1));
	now += HEALTH_PAUSE_NS;
	assert_true(health_ask(&h, now));
	for (uint64_t pause = 2 * HEALTH_PAUSE_NS; pause < HEALTH_PAUSE_MAX_NS; pause *= 2) {
		assert_false(health_ask(&h, now + pause - 1));
		now += pause;
		assert_true(health_ask(&h, now));
	}
	for (int i = 0; i < 3; i++) {
		assert_false(health_ask(&h, now + HEALTH_PAUSE_MAX_NS - 1));
		now += HEALTH_PAUSE_MAX_NS;
		assert_true(health_ask(&h, now));
	}
	assert_true(health_good(&h));
	assert_false(h.failing);
}

/* -- real files -------------------------------------------------------------------------------- */

static char path[256];
static char why[WHY_MAX];

/* A file of so many bytes, each word its own offset; with holes if it is large. */
static void make_file(uint64_t bytes)
{
	const char *tmp = getenv("TMPDIR");
	uint64_t words[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/drive.%d", tmp ? tmp : "/tmp", getpid());
	f = fopen(path, "w");
	assert_non_null(f);
	for (uint64_t at = 0; at < bytes && at < 8 * MIB; at += sizeof(words)) {
		for (unsigned i = 0; i < 512; i++)
			words[i] = at + i * 8;
		assert_int_equal(fwrite(words, 1, sizeof(words), f), sizeof(words));
	}
	assert_int_equal(fclose(f), 0);
	assert_int_equal(truncate(path, (off_t)bytes), 0);
}

static struct drive *open_drive(void **state)
{
	struct drive *d = NULL;
	enum drive_io io = *(const enum drive_io *)*state;

	if (drive_open(path, io, &d, why) != 0) {
		unlink(path);
		if (io == DRIVE_IO_URING && strstr(why, "io_uring is not to be had"))
			skip();
		fail_msg("%s", why);
	}
	assert_int_equal(drive_uses_uring(d), io == DRIVE_IO_URING);
	return d;
}

static char *new_buffer(uint64_t bytes)
{
	void *p = NULL;

	assert_int_equal(posix_memalign(&p, 4096, bytes), 0);
	memset(p, 0xff, bytes);
	return p;
}

static int read_once(struct drive *d, uint64_t offset, uint64_t length, char *buf)
{
	struct read_batch *b = read_batch_new(&urgent[DRIVE_DEMAND]);

	assert_non_null(b);
	read_batch_add(b, d, offset, length, buf);
	return read_batch_wait(b, NULL);
}

static void expect_words(const char *buf, uint64_t offset, uint64_t length)
{
	for (uint64_t at = 0; at < length; at += 8) {
		uint64_t word;
		memcpy(&word, buf + at, 8);
		assert_int_equal(word, offset + at);
	}
}

static void test_read(void **state)
{
	static const struct {
		uint64_t offset, length;
	} range[] = { { 0, 4096 },
		      { 4096, PIECE_BYTES },
		      { 3 * 4096, PIECE_BYTES + 4096 },
		      { PIECE_BYTES, 5 * PIECE_BYTES },
		      { 0, 8 * PIECE_BYTES } };
	char *buf = new_buffer(8 * PIECE_BYTES);
	struct drive_stats s;
	uint64_t bytes = 0;
	struct drive *d;

	make_file(8 * PIECE_BYTES);
	d = open_drive(state);
	for (unsigned i = 0; i < sizeof(range) / sizeof(range[0]); i++) {
		assert_int_equal(read_once(d, range[i].offset, range[i].length, buf), 0);
		expect_words(buf, range[i].offset, range[i].length);
		bytes += range[i].length;
	}
	drive_stats(d, &s);
	assert_int_equal(s.bytes, bytes);
	assert_int_equal(s.reads, 1 + 1 + 2 + 5 + 8);
	assert_int_equal(s.errors, 0);
	assert_int_equal(s.in_flight, 0);
	assert_true(s.busy_ns > 0 && s.p50_ms > 0 && s.p99_ms >= s.p50_ms);
	assert_string_equal(drive_path(d), path);
	/* Nothing waits: a new read takes what its own bytes take. */
	assert_in_range(drive_backlog(d, DRIVE_DEMAND, 0), 0, 0);
	assert_true(drive_backlog(d, DRIVE_DEMAND, PIECE_BYTES) > 0);
	drive_close(d);
	unlink(path);
	free(buf);
}

static void test_short_file(void **state)
{
	char *buf = new_buffer(2 * MIB);
	struct read_fault fault;
	struct read_batch *b;
	struct drive_stats s;
	struct drive *d;

	make_file(MIB + 4096 + 904); /* ends in the middle of a block */
	d = open_drive(state);
	assert_int_equal(read_once(d, 0, MIB + 4096, buf), 0);
	expect_words(buf, 0, MIB + 4096);
	assert_int_equal(read_once(d, MIB, 8192, buf), 0); /* what there is of the last block */
	expect_words(buf, MIB, 4096 + 904);
	assert_int_equal(read_once(d, MIB + 8192, 4096, buf), -EIO);
	assert_int_equal(read_once(d, 2 * MIB, 4096, buf), -EIO);
	b = read_batch_new(&urgent[DRIVE_DEMAND]);
	read_batch_add(b, d, 0, 4096, buf);
	read_batch_add(b, d, 3 * MIB, 4096, buf + 4096);
	assert_int_equal(read_batch_wait(b, &fault), -EIO);
	assert_ptr_equal(fault.drive, d);
	assert_int_equal(fault.offset, 3 * MIB);
	drive_stats(d, &s);
	assert_int_equal(s.errors, 3);
	assert_false(s.failing); /* there was always a good one between */
	drive_close(d);
	unlink(path);
	free(buf);
}

/* What has come is there, in order, while the rest is under way; after an error nothing more comes. */
static void test_came(void **state)
{
	const uint64_t length = 3 * MIB + 4096;
	char *buf = new_buffer(2 * length);
	struct read_batch *b;
	struct drive *d;

	make_file(2 * length);
	d = open_drive(state);
	b = read_batch_new(&urgent[DRIVE_DEMAND]);
	read_batch_add(b, d, length, length, buf + length);
	read_batch_add(b, d, 0, length, buf);
	for (uint64_t at = 0, to; at < length; at = to) {
		to = read_batch_came(b, 1, at);
		assert_true(to > at);
		expect_words(buf + at, at, (to < length ? to : length) - at);
	}
	for (uint64_t at = 0; at < length; at = read_batch_came(b, 0, at))
		;
	expect_words(buf + length, length, length);
	assert_int_equal(read_batch_wait(b, NULL), 0);
	b = read_batch_new(&urgent[DRIVE_DEMAND]);
	read_batch_add(b, d, 2 * length - MIB, 4 * MIB, buf);
	assert_in_range(read_batch_came(b, 0, 0), 0, MIB);
	assert_int_equal(read_batch_came(b, 0, MIB), MIB);
	assert_int_equal(read_batch_wait(b, NULL), -EIO);
	drive_close(d);
	unlink(path);
	free(buf);
}

static uint64_t queued_at_most(struct drive *d, enum drive_class class)
{
	struct drive_stats s;

	drive_stats(d, &s);
	return s.queued[class];
}

/* Much promotion is under way: demand does not wait for it, and what is raised neither. */
static void test_urgent_first(void **state)
{
	const uint64_t all = 384 * MIB, piece = 128 << 10;
	char *buf = new_buffer(all + 4 * MIB);
	struct urgency raised = { DRIVE_PROMOTION };
	struct read_batch *low, *later;
	struct drive *d;
	struct drive_stats s;

	make_file(all);
	d = open_drive(state);
	low = read_batch_new(&urgent[DRIVE_PROMOTION]);
	for (uint64_t at = 0; at < all; at += piece)
		read_batch_add(low, d, at, piece, buf + 4 * MIB + at);
	later = read_batch_new(&raised);
	read_batch_add(later, d, 9 * MIB, 2 * MIB, buf + 2 * MIB);
	assert_int_equal(read_once(d, MIB, MIB, buf + MIB), 0);
	expect_words(buf + MIB, MIB, MIB);
	assert_true(queued_at_most(d, DRIVE_PROMOTION) > all / 2);
	drive_stats(d, &s);
	assert_true(s.queued[DRIVE_DEMAND] == 0);
	assert_true(s.in_flight <= PROMOTION_BYTES / piece);
	assert_true(drive_backlog(d, DRIVE_PROMOTION, 0) > drive_backlog(d, DRIVE_DEMAND, 0));
	raised.class = DRIVE_DEMAND;
	drive_raise(d, &raised);
	assert_int_equal(read_batch_wait(later, NULL), 0);
	assert_true(queued_at_most(d, DRIVE_PROMOTION) > all / 2);
	assert_int_equal(read_batch_wait(low, NULL), 0);
	assert_int_equal(queued_at_most(d, DRIVE_PROMOTION), 0);
	drive_stats(d, &s);
	assert_int_equal(s.bytes, all + 3 * MIB);
	drive_close(d);
	unlink(path);
	free(buf);
}

/* Empties the file and reads until the drive is failing: the first error of a batch calls off the
 * rest of it. */
static void lose_file(struct drive *d, char *buf)
{
	assert_int_equal(truncate(path, 0), 0);
	for (int i = 0; i < HEALTH_BAD_ROW && !drive_failing(d); i++)
		assert_int_equal(read_once(d, 0, 64 * MIB, buf), -EIO);
	assert_true(drive_failing(d));
}

/* The file loses its bytes and gets them back. */
static void test_vanish(void **state)
{
	char *buf = new_buffer(64 * MIB);
	struct drive_stats s;
	uint64_t until;
	struct drive *d;

	make_file(64 * MIB);
	d = open_drive(state);
	assert_int_equal(read_once(d, 0, 64 * MIB, buf), 0);
	drive_stats(d, &s);
	assert_true(s.speed > 0);
	assert_false(s.failing);
	lose_file(d, buf);
	drive_stats(d, &s);
	assert_true(s.failing);
	/* What had not been started was not read. */
	assert_in_range(s.errors, HEALTH_BAD_ROW, IN_FLIGHT_BYTES / PIECE_BYTES + 1);
	assert_true(drive_backlog(d, DRIVE_DEMAND, 0) == UINT64_MAX);
	usleep(HEALTH_PAUSE_NS / 1000 * 3 / 2);
	assert_true(drive_failing(d)); /* it was asked, and is still so */
	assert_int_equal(truncate(path, 64 * MIB), 0);
	until = clock_ns() + 20 * HEALTH_PAUSE_NS;
	while (drive_failing(d) && clock_ns() < until)
		usleep(10000);
	assert_false(drive_failing(d));
	assert_int_equal(read_once(d, 0, MIB, buf), 0);
	/* Any read that comes says the same, at once. */
	lose_file(d, buf);
	assert_int_equal(truncate(path, 64 * MIB), 0);
	assert_int_equal(read_once(d, 0, MIB, buf), 0);
	assert_false(drive_failing(d));
	drive_close(d);
	unlink(path);
	free(buf);
}

/* drive_close() waits for what is queued. */
static void test_close(void **state)
{
	char *buf = new_buffer(128 * MIB);
	struct read_batch *b = read_batch_new(&urgent[DRIVE_PREFETCH]);
	struct drive *d;

	make_file(128 * MIB);
	d = open_drive(state);
	for (uint64_t at = 0; at < 128 * MIB; at += MIB)
		read_batch_add(b, d, at, MIB, buf + at);
	drive_close(d);
	assert_int_equal(read_batch_wait(b, NULL), 0);
	unlink(path);
	free(buf);
	drive_close(NULL);
	assert_int_equal(drive_open(path, DRIVE_IO_AUTO, &d, why), -ENOENT);
	assert_non_null(strstr(why, path));
}

/* In a process that the kernel gives no io_uring (as many containers do). Returns 0, or where it
 * went wrong. */
static int without_uring(int err)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { 4, filter };
	char *buf = new_buffer(2 * MIB);
	struct drive *d;
	int rc = 0;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
		return 77;
	if (drive_open(path, DRIVE_IO_URING, &d, why) != -err || !strstr(why, "io_uring"))
		return 1;
	if (drive_open(path, DRIVE_IO_AUTO, &d, why) != 0)
		return 2;
	if (drive_uses_uring(d))
		rc = 3;
	else if (read_once(d, 4096, 2 * MIB - 4096, buf) != 0 ||
		 memcmp(buf + 8, "\x08\x10", 2) != 0)
		rc = 4;
	drive_close(d);
	free(buf);
	return rc;
}

static void test_forbidden(void **state)
{
	static const int errors[] = { EPERM, ENOSYS, EINVAL };

	(void)state;
	make_file(2 * MIB);
	for (unsigned i = 0; i < 3; i++) {
		int status;
		pid_t pid = fork();
		if (pid == 0)
			_exit(without_uring(errors[i]));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFEXITED(status));
		if (WEXITSTATUS(status) == 77)
			skip();
		assert_int_equal(WEXITSTATUS(status), 0);
	}
	unlink(path);
}

/* Reads into registered memory, beside it, and over its edge. */
static void test_registered(void **state)
{
	char *buf = new_buffer(8 * MIB);
	struct drive *d;

	make_file(8 * MIB);
	d = open_drive(state);
	drive_register(d, buf + 2 * MIB, 4 * MIB);
	for (uint64_t at = 0; at < 7 * MIB; at += MIB / 2) {
		memset(buf, 0xff, 8 * MIB);
		assert_int_equal(read_once(d, 8192, MIB, buf + at), 0);
		expect_words(buf + at, 8192, MIB);
		assert_int_equal((unsigned char)buf[at + MIB], 0xff);
	}
	assert_int_equal(read_once(d, 0, 8 * MIB, buf), 0);
	expect_words(buf, 0, 8 * MIB);
	drive_close(d);
	unlink(path);
	free(buf);
}

int main(void)
{
	static enum drive_io uring = DRIVE_IO_URING, threads = DRIVE_IO_THREADS;
	static const struct CMUnitTest pure[] = {
		cmocka_unit_test(test_order),     cmocka_unit_test(test_depth),
		cmocka_unit_test(test_trickle),   cmocka_unit_test(test_raise),
		cmocka_unit_test(test_meter),     cmocka_unit_test(test_health),
		cmocka_unit_test(test_forbidden),
	};
#define BOTH(t)                                                                                    \
	{ #t " (threads)", t, NULL, NULL, &threads },                                              \
	{                                                                                          \
#t " (io_uring)", t, NULL, NULL, &uring                                            \
	}
	static const struct CMUnitTest files[] = {
		BOTH(test_read),  BOTH(test_registered),   BOTH(test_short_file),
		BOTH(test_came),  BOTH(test_urgent_first), BOTH(test_vanish),
		BOTH(test_close),
	};
	int failed = cmocka_run_group_tests(pure, NULL, NULL);

	return failed + cmocka_run_group_tests(files, NULL, NULL) ? 1 : 0;
}
