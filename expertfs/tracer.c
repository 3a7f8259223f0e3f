/* SPDX-License-Identifier: Apache-2.0
 *
 * The ring of opens and the thread that writes them as a trace: tracer.h.
 *
 * The last line is kept in the file from the start and written over: each write puts new events in
 * its place and it behind them. So when a drive is full, the room for the last word is there: the
 * line that says why goes where the old one was, in blocks that the file has already.
 */
#include "expertfs/tracer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cachepolicy/trace.h"
#include "expertfs/clock.h"
#include "expertfs/fail.h"
#include "expertfs/log.h"
#include "expertfs/rights.h"

enum {
	RING = 1 << 16,    /* opens; 250 ms of 260,000 a second, several times what FUSE can do */
	PERIOD_MS = 250,   /* between two writes */
	CHUNK = 256 << 10, /* bytes of text that are written at once */
	LAST_LINE = 160,   /* bytes, the same for all, as each is written over another */
	EVENT_TEXT = 64,   /* the time, the layer and the end of an event's line; and the head */
	EXPERT_TEXT = 6,   /* an expert in it: a blank and five digits */
	SIZE_TEXT = 33     /* a line with a layer's size */
};

struct seen {
	uint64_t time; /* ns */
	cp_key key;
};

struct tracer {
	/* The ring. */
	_Atomic uint32_t put, got; /* opens so far, modulo 2^32 */
	_Atomic bool full;         /* it was: nothing is put in any more */
	_Atomic bool broken;       /* the file ended early; err says why */
	struct seen ring[RING];

	char *path;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool stop; /* under the lock */

	/* Of the thread, once it runs; events may be read by others, err once broken. */
	int fd, err;
	off_t end;               /* where the last line begins */
	_Atomic uint64_t events; /* in the file */
	uint64_t opens;
	uint64_t first_time, time; /* ns; time: the latest seen */
	bool begun;                /* there was an open */
	uint64_t event_time;       /* us */
	struct cp_use *event;      /* that which goes on: n of them */
	uint32_t n;
	bool *member; /* each expert of the layer: is it in this event? */
	char *text;   /* events that are not in the file yet */
	size_t text_size, text_used;
	uint64_t text_events, text_opens;
};

/* -- the file ---------------------------------------------------------------------------------- */

static int write_at(int fd, const char *from, size_t n, off_t at)
{
	while (n > 0) {
		ssize_t done = pwrite(fd, from, n, at);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return done < 0 ? -errno : -EIO;
		from += done;
		n -= (size_t)done;
		at += done;
	}
	return 0;
}

/* A comment, filled up with blanks. */
__attribute__((format(printf, 2, 3))) static void make_last_line(char line[LAST_LINE],
								 const char *fmt, ...)
{
	int length;
	va_list ap;

	memset(line, ' ', LAST_LINE);
	line[0] = '#';
	va_start(ap, fmt);
	length = vsnprintf(line + 2, LAST_LINE - 2, fmt, ap);
	va_end(ap);
	if (length >= 0 && length < LAST_LINE - 2)
		line[2 + length] = ' ';
	line[LAST_LINE - 1] = '\n';
}

static const char *reason_of(const struct tracer *t)
{
	return t->err == -EOVERFLOW ? "experts were opened faster than they could be written"
				    : strerror(-t->err);
}

/* No more events; those that are not in the file are lost. */
static void break_off(struct tracer *t, int err)
{
	char line[LAST_LINE];

	t->err = err;
	make_last_line(line, "cut short after %" PRIu64 " events, %" PRIu64 " opens: %s", t->events,
		       t->opens, reason_of(t));
	if (write_at(t->fd, line, LAST_LINE, t->end) != 0 ||
	    ftruncate(t->fd, t->end + LAST_LINE) != 0)
		log_line(LOG_ERR, "%s: the trace may end within a line", t->path);
	log_line(LOG_WARNING, "%s: the trace was cut short after %" PRIu64 " events: %s", t->path,
		 t->events, reason_of(t));
	atomic_store(&t->broken, true);
}

static void write_text(struct tracer *t)
{
	uint64_t events = t->events + t->text_events, opens = t->opens + t->text_opens;
	int err;

	if (t->text_events == 0 || t->broken)
		return;
	make_last_line(t->text + t->text_used,
		       "not ended: recording went on after %" PRIu64 " events, %" PRIu64 " opens",
		       events, opens);
	err = write_at(t->fd, t->text, t->text_used + LAST_LINE, t->end);
	if (err) {
		break_off(t, err);
		return;
	}
	t->end += (off_t)t->text_used;
	t->opens = opens;
	t->events = events;
	t->text_used = 0;
	t->text_events = t->text_opens = 0;
}

/* -- events ------------------------------------------------------------------------------------ */

static void end_event(struct tracer *t)
{
	int length;

	if (t->n == 0)
		return;
	length = cp_trace_event(t->text + t->text_used, t->text_size - t->text_used, t->event_time,
				t->event, t->n);
	t->text_used += (size_t)length; /* there is room: text_size */
	t->text_events++;
	t->text_opens += t->n;
	for (uint32_t k = 0; k < t->n; k++)
		t->member[t->event[k].key & 0xffff] = false;
	t->n = 0;
	if (t->text_used >= CHUNK)
		write_text(t);
}

static void take(struct tracer *t, const struct seen *s)
{
	uint32_t expert = s->key & 0xffff;

	if (t->n && (t->event[0].key >> 16 != s->key >> 16 || t->member[expert]))
		end_event(t);
	if (!t->begun)
		t->first_time = t->time = s->time;
	t->begun = true;
	if (s->time > t->time)
		t->time = s->time;
	if (t->n == 0)
		t->event_time = (t->time - t->first_time) / 1000;
	t->member[expert] = true;
	t->event[t->n++] = (struct cp_use){ s->key, 1 };
}

/* -- the thread -------------------------------------------------------------------------------- */

void tracer_open(struct tracer *t, uint64_t now, unsigned layer, unsigned expert)
{
	uint32_t put = atomic_load_explicit(&t->put, memory_order_relaxed);

	if (atomic_load_explicit(&t->full, memory_order_relaxed))
		return;
	if (put - atomic_load_explicit(&t->got, memory_order_acquire) == RING) {
		atomic_store(&t->full, true);
		return;
	}
	t->ring[put % RING] = (struct seen){ now, cp_key_of(layer, expert) };
	atomic_store_explicit(&t->put, put + 1, memory_order_release);
}

/* Everything that was put in before the call goes into the file, but for the event that goes on. */
static void drain(struct tracer *t)
{
	bool full = atomic_load(&t->full);
	uint32_t put = atomic_load_explicit(&t->put, memory_order_acquire);

	for (uint32_t got = t->got; got != put; got++) {
		if (!t->broken)
			take(t, &t->ring[got % RING]);
		atomic_store_explicit(&t->got, got + 1, memory_order_release);
	}
	if (full && !t->broken)
		end_event(t);
	write_text(t);
	if (full && !t->broken)
		break_off(t, -EOVERFLOW);
}

static void *tracer_main(void *arg)
{
	struct tracer *t = arg;
	bool stop = false;

	while (!stop) {
		uint64_t until = clock_ns() + PERIOD_MS * UINT64_C(1000000);
		struct timespec ts = { (time_t)(until / 1000000000), (long)(until % 1000000000) };

		pthread_mutex_lock(&t->lock);
		while (!t->stop && pthread_cond_timedwait(&t->wake, &t->lock, &ts) == 0)
			;
		stop = t->stop;
		pthread_mutex_unlock(&t->lock);
		drain(t);
	}
	return NULL;
}

/* -- start and stop ---------------------------------------------------------------------------- */

/* The head and the sizes as the first text. Experts of one layer have one size in all models; if
 * they have not, the largest stands for them. */
static int make_head(struct tracer *t, const struct store *s, char *why)
{
	int n = cp_trace_head(t->text, t->text_size, s->layers_end, s->experts_per_layer);
	uint32_t next;

	for (uint32_t i = 0; n >= 0 && i < s->experts; i = next) {
		uint64_t bytes = 0;

		t->text_used += (size_t)n;
		for (next = i; next < s->experts && s->expert[next].layer == s->expert[i].layer;
		     next++)
			if (s->expert[next].bytes > bytes)
				bytes = s->expert[next].bytes;
		n = cp_trace_size(t->text + t->text_used, t->text_size - t->text_used,
				  s->expert[i].layer, bytes);
	}
	if (n < 0)
		return fail(why, -n, "%s: the head of the trace does not fit", t->path);
	t->text_used += (size_t)n;
	return 0;
}

static int create_file(struct tracer *t, const struct user *user, char *why)
{
	struct user before;
	int err = EPERM;

	if (rights_take(user, &before)) {
		t->fd = open(t->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
		err = errno;
	}
	rights_give_back(&before);
	errno = err;
	if (t->fd < 0 && errno == EEXIST)
		return fail(why, EEXIST, "%s: exists, and no trace is written over another file",
			    t->path);
	if (t->fd < 0)
		return fail(why, errno, "%s: cannot be created: %s", t->path, strerror(errno));
	make_last_line(t->text + t->text_used, "not ended: recording began and wrote no event");
	err = write_at(t->fd, t->text, t->text_used + LAST_LINE, 0);
	t->end = (off_t)t->text_used;
	t->text_used = 0;
	return err ? fail(why, -err, "%s: cannot be written: %s", t->path, strerror(-err)) : 0;
}

static void destroy(struct tracer *t)
{
	if (t->fd >= 0)
		close(t->fd);
	pthread_cond_destroy(&t->wake);
	pthread_mutex_destroy(&t->lock);
	free(t->text);
	free(t->member);
	free(t->event);
	free(t->path);
	free(t);
}

static void unlink_file(const char *path, const struct user *user)
{
	struct user before;

	if (rights_take(user, &before))
		unlink(path);
	rights_give_back(&before);
}

static int make(const char *path, const struct user *user, const struct store *s, struct tracer *t,
		char *why)
{
	int err;

	t->path = strdup(path);
	t->event = calloc(s->experts_per_layer, sizeof(t->event[0]));
	t->member = calloc(s->experts_per_layer, sizeof(t->member[0]));
	t->text_size = CHUNK + EVENT_TEXT + (size_t)EXPERT_TEXT * s->experts_per_layer +
		       (size_t)SIZE_TEXT * s->layers_end + LAST_LINE;
	t->text = malloc(t->text_size);
	if (!t->path || !t->event || !t->member || !t->text)
		return fail(why, ENOMEM, "out of memory for a trace of %u experts a layer",
			    s->experts_per_layer);
	err = make_head(t, s, why);
	if (!err)
		err = create_file(t, user, why);
	if (err)
		return err;
	err = pthread_create(&t->thread, NULL, tracer_main, t);
	return err ? fail(why, err, "%s: cannot start the thread that writes the trace: %s", path,
			  strerror(err))
		   : 0;
}

int tracer_start(const char *path, uid_t uid, gid_t gid, const struct store *s, struct tracer **out,
		 char *why)
{
	struct user user = { uid, gid };
	pthread_condattr_t attr;
	struct tracer *t;
	int err;

	if (path[0] != '/')
		return fail(why, EINVAL, "%s: a trace needs an absolute path", path);
	t = calloc(1, sizeof(*t));
	if (!t)
		return fail(why, ENOMEM, "out of memory for a trace");
	t->fd = -1;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* that of clock_ns() */
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->wake, &attr);
	pthread_condattr_destroy(&attr);
	err = make(path, &user, s, t, why);
	if (err) {
		if (t->fd >= 0)
			unlink_file(path, &user);
		destroy(t);
		return err;
	}
	*out = t;
	return 0;
}

void tracer_status(const struct tracer *t, char *line, size_t size)
{
	bool broken = atomic_load(&t->broken);

	snprintf(line, size, "%s %s %" PRIu64 " events%s%s", broken ? "broken off" : "on", t->path,
		 atomic_load(&t->events), broken ? ": " : "", broken ? reason_of(t) : "");
}

/* The thread has ended. */
static int finish(struct tracer *t, char *why)
{
	char line[LAST_LINE];
	int err;

	if (!t->broken)
		end_event(t);
	write_text(t);
	if (t->broken)
		return fail(why, -t->err,
			    "%s: the trace was cut short after %" PRIu64 " events: %s", t->path,
			    t->events, reason_of(t));
	make_last_line(line, "complete: %" PRIu64 " events, %" PRIu64 " opens", t->events,
		       t->opens);
	err = write_at(t->fd, line, LAST_LINE, t->end);
	if (!err && fsync(t->fd) != 0)
		err = -errno;
	if (err)
		return fail(why, -err, "%s: the trace could not be ended: %s", t->path,
			    strerror(-err));
	log_line(LOG_INFO, "%s: a trace of %" PRIu64 " events", t->path, t->events);
	return 0;
}

int tracer_stop(struct tracer *t, char *why)
{
	int err;

	if (!t)
		return 0;
	pthread_mutex_lock(&t->lock);
	t->stop = true;
	pthread_cond_signal(&t->wake);
	pthread_mutex_unlock(&t->lock);
	pthread_join(t->thread, NULL);
	err = finish(t, why);
	destroy(t);
	return err;
}
