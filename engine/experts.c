/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool that opens expert files.
 *
 * A slot is one open expert. Free slots, the position in the list asked for, and the queue of
 * arrived slots are under the one lock; a slot being opened belongs to its thread, one handed out
 * to the caller.
 */
#include "engine/experts.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/clock.h"
#include "engine/fail.h"

#define STACK_SIZE ((size_t)256 << 10)

enum slot_state { SLOT_FREE, SLOT_OPENING, SLOT_ARRIVED, SLOT_OUT };

struct slot {
	struct expert expert; /* first: the caller's pointer is the slot's */
	enum slot_state state;
	int index;     /* in the list asked for */
	uint64_t turn; /* arrived slots are handed out in this order */
	int fd, err;
	void *map; /* NULL: the bytes are in buffer */
	size_t bytes;
	void *buffer; /* kept from one use to the next; NULL until needed */
	char why[WHY_MAX];
};

struct experts {
	const struct modelfile *file;
	bool may_map;
	pthread_mutex_t lock;
	pthread_cond_t work, arrived; /* for the openers; for the caller */
	bool stop;
	int layer, asked, begun; /* ids[begun .. asked) are still to be opened */
	int opening;
	const int32_t *ids;
	uint64_t turn;
	struct experts_stats stats;
	struct slot slot[EXPERTS_OPEN];
	int threads;
	pthread_t thread[EXPERTS_OPEN];
};

static int read_in(struct slot *s, size_t room)
{
	if (!s->buffer && posix_memalign(&s->buffer, 4096, room)) {
		s->buffer = NULL;
		return -ENOMEM;
	}
	for (size_t at = 0; at < s->bytes;) {
		ssize_t got = pread(s->fd, (char *)s->buffer + at, s->bytes - at, (off_t)at);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -EIO;
		at += (size_t)got;
	}
	return 0;
}

static int bring(const struct experts *x, struct slot *s)
{
	if (x->may_map) {
		s->map = mmap(NULL, s->bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, s->fd, 0);
		if (s->map != MAP_FAILED)
			return 0;
		s->map = NULL;
	}
	return read_in(s, x->file->largest_expert);
}

static int bind_matrix(const struct tensor *t, int id, const void *base, struct wmat *out)
{
	return wmat_bind(out, t->fmt, t->rows, t->cols,
			 (const char *)base + expert_matrix_offset(t, id), t->bytes);
}

static int open_expert(const struct experts *x, int layer, struct slot *s)
{
	const struct expert_layout *l = x->file->layer_layout[layer];
	char path[4096];
	struct stat st;
	int r;

	s->map = NULL;
	s->bytes = l->bytes;
	snprintf(path, sizeof(path), "%s/experts/%03d/%03d", x->file->dir, layer, s->expert.id);
	s->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (s->fd < 0 || fstat(s->fd, &st) != 0)
		return mount_fail(s->why, errno, x->file->dir, "expert", path);
	if ((uint64_t)st.st_size != l->bytes)
		return fail(s->why, EINVAL, "expert %s has %lld bytes, model.json says %llu", path,
			    (long long)st.st_size, (unsigned long long)l->bytes);
	r = bring(x, s);
	if (r == -ENOMEM)
		return fail(s->why, ENOMEM, "no memory for the %zu bytes of expert %s", s->bytes,
			    path);
	if (r)
		return mount_fail(s->why, -r, x->file->dir, "expert", path);
	const void *base = s->map ? s->map : s->buffer;
	r = bind_matrix(&l->matrix[EXPERT_GATE], s->expert.id, base, &s->expert.gate);
	if (!r)
		r = bind_matrix(&l->matrix[EXPERT_UP], s->expert.id, base, &s->expert.up);
	if (!r)
		r = bind_matrix(&l->matrix[EXPERT_DOWN], s->expert.id, base, &s->expert.down);
	return r ? fail(s->why, -r, "expert %s cannot be used as model.json describes it", path)
		 : 0;
}

static void close_expert(struct slot *s)
{
	if (s->map)
		munmap(s->map, s->bytes);
	if (s->fd >= 0)
		close(s->fd);
	s->map = NULL;
	s->fd = -1;
}

static struct slot *free_slot(struct experts *x)
{
	for (int i = 0; i < EXPERTS_OPEN; i++)
		if (x->slot[i].state == SLOT_FREE)
			return &x->slot[i];
	return NULL;
}

static void *opener(void *arg)
{
	struct experts *x = arg;
	struct slot *s;

	pthread_mutex_lock(&x->lock);
	for (;;) {
		while (!x->stop && (x->begun == x->asked || !free_slot(x)))
			pthread_cond_wait(&x->work, &x->lock);
		if (x->stop)
			break;
		s = free_slot(x);
		s->state = SLOT_OPENING;
		s->index = x->begun++;
		s->expert.id = x->ids[s->index];
		x->opening++;
		int layer = x->layer;
		pthread_mutex_unlock(&x->lock);
		s->err = open_expert(x, layer, s);
		pthread_mutex_lock(&x->lock);
		x->opening--;
		s->state = SLOT_ARRIVED;
		s->turn = x->turn++;
		pthread_cond_signal(&x->arrived);
	}
	pthread_mutex_unlock(&x->lock);
	return NULL;
}

static int start_threads(struct experts *x)
{
	pthread_attr_t attr;
	int r = pthread_attr_init(&attr);

	if (r)
		return r;
	r = pthread_attr_setstacksize(&attr, STACK_SIZE);
	while (!r && x->threads < EXPERTS_OPEN) {
		r = pthread_create(&x->thread[x->threads], &attr, opener, x);
		x->threads += r == 0;
	}
	pthread_attr_destroy(&attr);
	return r;
}

int experts_start(const struct modelfile *file, enum serve_mode mode, struct experts **out,
		  char *why)
{
	struct experts *x = calloc(1, sizeof(*x));

	*out = NULL;
	if (!x)
		return fail(why, ENOMEM, "no memory for the table of open experts");
	x->file = file;
	x->may_map = mode != SERVE_DIRECT;
	for (int i = 0; i < EXPERTS_OPEN; i++)
		x->slot[i].fd = -1;
	pthread_mutex_init(&x->lock, NULL);
	pthread_cond_init(&x->work, NULL);
	pthread_cond_init(&x->arrived, NULL);
	int r = start_threads(x);
	if (r) {
		experts_stop(x);
		return fail(why, r, "cannot start the threads that open experts: %s", strerror(r));
	}
	*out = x;
	return 0;
}

void experts_stop(struct experts *x)
{
	if (!x)
		return;
	experts_cancel(x);
	pthread_mutex_lock(&x->lock);
	x->stop = true;
	pthread_cond_broadcast(&x->work);
	pthread_mutex_unlock(&x->lock);
	for (int i = 0; i < x->threads; i++)
		pthread_join(x->thread[i], NULL);
	for (int i = 0; i < EXPERTS_OPEN; i++)
		free(x->slot[i].buffer);
	pthread_cond_destroy(&x->arrived);
	pthread_cond_destroy(&x->work);
	pthread_mutex_destroy(&x->lock);
	free(x);
}

size_t experts_bytes(const struct modelfile *file, enum serve_mode mode)
{
	return mode == SERVE_DIRECT ? EXPERTS_OPEN * (size_t)file->largest_expert : 0;
}

void experts_ask(struct experts *x, int layer, const int32_t *ids, int n)
{
	pthread_mutex_lock(&x->lock);
	x->layer = layer;
	x->ids = ids;
	x->asked = n;
	x->begun = 0;
	for (int i = 0; i < n && i < EXPERTS_OPEN; i++)
		pthread_cond_signal(&x->work);
	pthread_mutex_unlock(&x->lock);
}

/* The arrived slot of ids[0..end) whose turn it is, or NULL. */
static struct slot *first_arrived(struct experts *x, int end)
{
	struct slot *first = NULL;

	for (int i = 0; i < EXPERTS_OPEN; i++)
		if (x->slot[i].state == SLOT_ARRIVED && x->slot[i].index < end &&
		    (!first || x->slot[i].turn < first->turn))
			first = &x->slot[i];
	return first;
}

int experts_next(struct experts *x, int end, struct expert **out, char *why)
{
	struct slot *s;

	pthread_mutex_lock(&x->lock);
	s = first_arrived(x, end);
	if (!s) {
		double begin = clock_seconds();
		while (!(s = first_arrived(x, end)))
			pthread_cond_wait(&x->arrived, &x->lock);
		x->stats.waited_s += clock_seconds() - begin;
	}
	s->state = SLOT_OUT;
	x->stats.opened += s->err == 0;
	x->stats.bytes += s->err ? 0 : s->bytes;
	pthread_mutex_unlock(&x->lock);
	*out = &s->expert;
	if (!s->err)
		return 0;
	int err = s->err;
	fail(why, -err, "%s", s->why);
	experts_cancel(x);
	return err;
}

void experts_done(struct experts *x, struct expert *e)
{
	struct slot *s = (struct slot *)e;

	close_expert(s);
	pthread_mutex_lock(&x->lock);
	s->state = SLOT_FREE;
	if (x->begun < x->asked)
		pthread_cond_signal(&x->work);
	pthread_mutex_unlock(&x->lock);
}

void experts_cancel(struct experts *x)
{
	pthread_mutex_lock(&x->lock);
	x->begun = x->asked;
	while (x->opening)
		pthread_cond_wait(&x->arrived, &x->lock);
	for (int i = 0; i < EXPERTS_OPEN; i++) {
		if (x->slot[i].state != SLOT_FREE)
			close_expert(&x->slot[i]);
		x->slot[i].state = SLOT_FREE;
	}
	pthread_mutex_unlock(&x->lock);
}

void experts_get_stats(struct experts *x, struct experts_stats *out)
{
	pthread_mutex_lock(&x->lock);
	*out = x->stats;
	pthread_mutex_unlock(&x->lock);
}
