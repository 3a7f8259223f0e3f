/* SPDX-License-Identifier: Apache-2.0
 *
 * The reading side of verify; see verify_read.h.
 */
#include "tools/expertctl/verify_read.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "expertfs/fail.h"
#include "expertfs/proof.h"
#include "expertfs/yield.h"

/* ioprio_set(2) has no header: the calling thread, class idle. */
#define WHO_THREAD 1
#define PRIO_IDLE  (3 << 13)

#define WAIT_MS 50 /* between two looks at a drive that is busy, and calls of wait() */
/* After so many, one read is made all the same: 20 MB/s a drive that is never idle, so that even there
 * it comes to an end, and hardly any of what the drive gives. */
#define STARVE_LOOKS 4

static int by_place(const void *a, const void *b)
{
	const struct extent *x = &((const struct verify_item *)a)->x,
			    *y = &((const struct verify_item *)b)->x;

	if (x->drive != y->drive)
		return x->drive < y->drive ? -1 : 1;
	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	return x->length < y->length ? -1 : x->length > y->length;
}

static bool same_range(const struct extent *a, const struct extent *b)
{
	return a->drive == b->drive && a->offset == b->offset && a->length == b->length &&
	       a->check == b->check;
}

static uint64_t count_items(const struct store *s, int64_t index)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < s->experts; i++)
		if (index < 0 || i == index)
			n += s->expert[i].packed->n;
	return n;
}

int verify_begin(struct verify *v, const struct store *s, int64_t index, char *why)
{
	uint64_t n = 0;

	*v = (struct verify){ .store = s, .n = count_items(s, index) };
	v->item = calloc(v->n + 1, sizeof(*v->item));
	v->busy = calloc(STORE_DRIVES_MAX, sizeof(*v->busy));
	if (!v->item || !v->busy)
		return fail(why, ENOMEM, "out of memory for %llu extents",
			    (unsigned long long)v->n);
	for (uint32_t i = 0; i < s->experts; i++) {
		const struct extent_list *l = s->expert[i].packed;
		for (uint32_t j = 0; (index < 0 || i == index) && j < l->n; j++)
			v->item[n++] = (struct verify_item){ .index = i,
							     .x = l->x[j],
							     .err = -EINPROGRESS };
	}
	qsort(v->item, v->n, sizeof(*v->item), by_place);
	for (uint64_t i = 0; i < v->n; i++)
		if (i == 0 || !same_range(&v->item[i].x, &v->item[i - 1].x))
			v->total += v->item[i].x.length;
	return 0;
}

void verify_end(struct verify *v)
{
	free(v->item);
	free(v->busy);
	v->item = NULL;
	v->busy = NULL;
}

/* One drive's items: first to end. */
struct reader {
	struct verify *v;
	struct verify_item *first, *end;
	pthread_t thread;
	_Atomic bool done;
	bool started;
};

/* Between two reads: the daemon's turn. */
static bool tick(void *arg, uint64_t bytes)
{
	struct reader *r = arg;

	r->v->done += bytes;
	for (int i = 0; i < STARVE_LOOKS && r->v->busy[r->first->x.drive] && !r->v->stop; i++)
		sleep_ms(WAIT_MS);
	return !r->v->stop;
}

/* The block before the payload. What it says beside the store's id is not compared: extents may be
 * shared. */
static bool head_holds(int fd, const struct store *s, const struct extent *x, void *buf)
{
	struct record_head h;

	if (x->offset < 2ul * SHARD_ALIGN ||
	    pread(fd, buf, SHARD_ALIGN, (off_t)(x->offset - SHARD_ALIGN)) != SHARD_ALIGN)
		return false;
	memcpy(&h, buf, sizeof(h));
	return record_head_is(&h, s->id) && h.part_bytes == x->length &&
	       h.payload_check == x->check;
}

static void read_items(struct reader *r, int fd, void *buf)
{
	for (struct verify_item *i = r->first; i < r->end && !r->v->stop; i++) {
		if (i > r->first && same_range(&i->x, &i[-1].x)) {
			i->err = i[-1].err;
			i->bad_head = i[-1].bad_head;
			continue;
		}
		i->err = proof_range(fd, i->x.offset, i->x.length, i->x.check, buf, tick, r);
		if (i->err == -ECANCELED)
			i->err = -EINPROGRESS;
		else
			i->bad_head = !head_holds(fd, r->v->store, &i->x, buf);
	}
}

static void *reader_main(void *arg)
{
	struct reader *r = arg;
	const struct store_drive *d = &r->v->store->drive[r->first->x.drive];
	int err, fd;
	void *buf = NULL;

	if (!r->v->fast) {
		syscall(SYS_ioprio_set, WHO_THREAD, 0, PRIO_IDLE);
		setpriority(PRIO_PROCESS, 0, 19); /* of this thread */
	}
	fd = d->missing ? -ENODEV : proof_open(d->path);
	err = fd < 0 ? fd : posix_memalign(&buf, SHARD_ALIGN, PROOF_BYTES) ? -ENOMEM : 0;
	if (err == 0)
		read_items(r, fd, buf);
	for (struct verify_item *i = r->first; err && i < r->end; i++)
		i->err = err;
	free(buf);
	if (fd >= 0)
		close(fd);
	r->done = true;
	return NULL;
}

static bool all_done(const struct reader *r, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (r[i].started && !r[i].done)
			return false;
	return true;
}

int verify_run(struct verify *v, void (*wait)(void *arg, struct verify *v), void *arg, char *why)
{
	struct reader *r = calloc(STORE_DRIVES_MAX, sizeof(*r));
	uint32_t n = 0;
	int err = 0;

	if (!r)
		return fail(why, ENOMEM, "out of memory");
	for (uint64_t i = 0, end; i < v->n && !err; i = end, n++) {
		for (end = i + 1; end < v->n && v->item[end].x.drive == v->item[i].x.drive;)
			end++;
		r[n].v = v;
		r[n].first = v->item + i;
		r[n].end = v->item + end;
		err = pthread_create(&r[n].thread, NULL, reader_main, &r[n]);
		r[n].started = err == 0;
	}
	if (err) {
		v->stop = true;
		err = fail(why, err, "cannot start a thread: %s", strerror(err));
	}
	while (!all_done(r, n)) {
		wait(arg, v);
		sleep_ms(WAIT_MS);
	}
	for (uint32_t i = 0; i < n; i++)
		if (r[i].started)
			pthread_join(r[i].thread, NULL);
	free(r);
	return err;
}
