/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool that opens expert files.
 *
 * A slot is one open expert. Free slots, what is still to be opened, and the queue of arrived slots
 * are under the one lock; a slot being opened belongs to its thread, one handed out to the caller.
 *
 * Two lists are to be opened: experts that have to be waited for, and experts known to lie in
 * memory. The first one goes first, but leaves EXPERTS_READY slots to the second.
 *
 * Waking a thread and switching to it costs as much as opening an expert that lies in memory. As
 * long as one open after the other is quick, few threads are woken, and a caller that has nothing
 * to compute opens the next one itself. The first slow one ends that: then a thread each.
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
#include "engine/kept.h"
#include "engine/machine.h"
#include "engine/residency.h"

#define STACK_SIZE ((size_t)256 << 10)

/* An open that takes longer has waited for a drive. One that does not takes 0.05 to 0.2 ms. */
#define SLOW_S 1e-3
/* So many quick ones in a row, some layers of a token, are taken for a sign that the next are, too. */
#define STREAK 64

enum slot_state { SLOT_FREE, SLOT_OPENING, SLOT_ARRIVED, SLOT_OUT };

struct slot {
	struct expert expert; /* first: the caller's pointer is the slot's */
	enum slot_state state;
	bool ready;    /* of the list of those in memory */
	uint64_t turn; /* arrived slots are handed out in this order */
	int fd, err;
	void *map; /* NULL: the bytes are in buffer */
	bool kept; /* the mapping stays when the expert is closed */
	size_t bytes;
	void *buffer; /* kept from one use to the next; NULL until needed */
	char why[WHY_MAX];
};

/* Of an x->order: ids[begun .. n) are still to be opened. */
struct list {
	const int32_t *ids;
	int n, begun;
	int open; /* slots that its experts have */
};

struct experts {
	const struct modelfile *file;
	struct kept kept;
	bool may_map, may_ask; /* files can be mapped; there is a daemon */
	int few;               /* threads that are woken while opens are quick */
	pthread_mutex_t lock;
	pthread_cond_t work, arrived; /* for the openers; for the caller */
	bool stop;
	int layer, opening;
	bool at_hand; /* all that was asked for is kept: nothing to wake a thread for */
	int quick;    /* opens in a row that were not slow */
	struct list missing, ready;
	int32_t *order;  /* [experts] */
	bool *in_memory; /* [experts] */
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
	return read_at(s->fd, s->buffer, s->bytes, 0);
}

static int bring(struct experts *x, int layer, struct slot *s)
{
	/* What a daemon serves lies in memory: the threads that compute take few faults, as the kernel maps the
	 * neighbours at once, where to populate walks page by page (decode in little memory: 1.03 times as
	 * fast). A plain folder's file may have to be read. */
	int flags = x->may_ask ? MAP_SHARED : MAP_SHARED | MAP_POPULATE;

	if (x->may_map) {
		s->map = mmap(NULL, s->bytes, PROT_READ, flags, s->fd, 0);
		if (s->map != MAP_FAILED) {
			s->kept = kept_put(&x->kept, layer, s->expert.id, s->map);
			return 0;
		}
		s->map = NULL;
	}
	return read_in(s, x->file->largest_expert);
}

static int bind_matrix(const struct tensor *t, int id, const void *base, struct wmat *out)
{
	return wmat_bind(out, t->fmt, t->rows, t->cols,
			 (const char *)base + expert_matrix_offset(t, id), t->bytes);
}

static int open_expert(struct experts *x, int layer, struct slot *s)
{
	char path[4096];
	struct statx st;
	int r;

	snprintf(path, sizeof(path), "%s/experts/%03d/%03d", x->file->dir, layer, s->expert.id);
	s->fd = open(path, O_RDONLY | O_CLOEXEC);
	/* fstat() wants the time of access as well, for which the kernel asks the daemon: 10 us. */
	if (s->fd < 0 || statx(s->fd, "", AT_EMPTY_PATH, STATX_SIZE, &st) != 0)
		return mount_fail(s->why, errno, x->file->dir, "expert", path);
	if (st.stx_size != s->bytes)
		return fail(s->why, EINVAL, "expert %s has %llu bytes, model.json says %zu", path,
			    (unsigned long long)st.stx_size, s->bytes);
	r = bring(x, layer, s);
	if (r == -ENOMEM)
		return fail(s->why, ENOMEM, "no memory for the %zu bytes of expert %s", s->bytes,
			    path);
	return r ? mount_fail(s->why, -r, x->file->dir, "expert", path) : 0;
}

static int bind(const struct experts *x, int layer, struct slot *s)
{
	const struct expert_layout *l = x->file->layer_layout[layer];
	const void *base = s->map ? s->map : s->buffer;
	int r = bind_matrix(&l->matrix[EXPERT_GATE], s->expert.id, base, &s->expert.gate);

	if (!r)
		r = bind_matrix(&l->matrix[EXPERT_UP], s->expert.id, base, &s->expert.up);
	if (!r)
		r = bind_matrix(&l->matrix[EXPERT_DOWN], s->expert.id, base, &s->expert.down);
	return r ? fail(s->why, -r,
			"expert %d of layer %d cannot be used as model.json describes it",
			s->expert.id, layer)
		 : 0;
}

/* One that is kept is there already. */
static int fetch(struct experts *x, int layer, struct slot *s)
{
	s->map = kept_find(&x->kept, layer, s->expert.id);
	s->kept = s->map != NULL;
	s->bytes = x->file->layer_layout[layer]->bytes;
	int r = s->map ? 0 : open_expert(x, layer, s);
	return r ? r : bind(x, layer, s);
}

static void close_expert(struct slot *s)
{
	if (s->map && !s->kept)
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

static int left(const struct list *l)
{
	return l->n - l->begun;
}

/* The list whose next expert may be opened now, or NULL. */
static struct list *openable(struct experts *x)
{
	int room = EXPERTS_OPEN - (left(&x->ready) || x->ready.open ? EXPERTS_READY : 0);

	if (left(&x->missing) && x->missing.open < room)
		return &x->missing;
	if (left(&x->ready) && x->ready.open < EXPERTS_READY)
		return &x->ready;
	return NULL;
}

/* A thread each for what has to be waited for; few where nothing has. */
static void wake_openers(struct experts *x)
{
	int slow = x->quick < STREAK ? left(&x->missing) : 0, n = slow > x->few ? slow : x->few;
	int all = x->at_hand ? 0 : left(&x->missing) + left(&x->ready);

	for (int i = 0; i < n && i < all && i < EXPERTS_OPEN; i++)
		pthread_cond_signal(&x->work);
}

static void open_next(struct experts *x, struct list *l)
{
	struct slot *s = free_slot(x);
	int layer = x->layer;

	s->state = SLOT_OPENING;
	s->ready = l == &x->ready;
	s->expert.id = l->ids[l->begun++];
	l->open++;
	x->opening++;
	pthread_mutex_unlock(&x->lock);
	double begin = clock_seconds();
	s->err = fetch(x, layer, s);
	bool slow = clock_seconds() - begin > SLOW_S;
	pthread_mutex_lock(&x->lock);
	x->quick = slow ? 0 : x->quick + (x->quick < STREAK);
	x->opening--;
	s->state = SLOT_ARRIVED;
	s->turn = x->turn++;
	pthread_cond_signal(&x->arrived);
	if (slow)
		wake_openers(x);
}

static void *opener(void *arg)
{
	struct experts *x = arg;

	pthread_mutex_lock(&x->lock);
	while (!x->stop) {
		struct list *l = openable(x);
		if (l)
			open_next(x, l);
		else
			pthread_cond_wait(&x->work, &x->lock);
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
	x->may_ask = mode != SERVE_PLAIN;
	/* The caller opens as well. */
	x->few = machine_cores() > 2 ? machine_cores() - 1 : 1;
	x->order = calloc((size_t)file->config.experts, sizeof(*x->order));
	x->in_memory = calloc((size_t)file->config.experts, sizeof(*x->in_memory));
	for (int i = 0; i < EXPERTS_OPEN; i++)
		x->slot[i].fd = -1;
	pthread_mutex_init(&x->lock, NULL);
	pthread_cond_init(&x->work, NULL);
	pthread_cond_init(&x->arrived, NULL);
	int r = x->order && x->in_memory ? -kept_init(&x->kept, file, mode) : ENOMEM;
	r = r ? r : start_threads(x);
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
	kept_free(&x->kept);
	free(x->in_memory);
	free(x->order);
	free(x);
}

size_t experts_bytes(const struct modelfile *file, const struct mount_stats *mount)
{
	return mount->mode == SERVE_DIRECT ? EXPERTS_OPEN * (size_t)file->largest_expert
					   : kept_bytes(file, mount);
}

/* Puts those that have to be waited for first; returns how many these are. All of them unless it is
 * known better, which is worth asking only if not all can be opened at once anyway. */
static int sort_by_residency(struct experts *x, int layer, const int32_t *ids, int n, bool at_hand)
{
	int missing = 0, at = n;

	if (n > EXPERTS_OPEN && x->may_ask && !at_hand &&
	    residency_read(x->file->dir, layer, x->in_memory, x->file->config.experts)) {
		for (int i = 0; i < n; i++)
			if (!x->in_memory[ids[i]])
				x->order[missing++] = ids[i];
		at = missing;
		for (int i = 0; i < n; i++)
			if (x->in_memory[ids[i]])
				x->order[at++] = ids[i];
		return missing;
	}
	memcpy(x->order, ids, (size_t)n * sizeof(*ids));
	return at;
}

void experts_ask(struct experts *x, int layer, const int32_t *ids, int n)
{
	int kept = 0;

	kept_look(&x->kept);
	for (int i = 0; i < n; i++)
		kept += kept_use(&x->kept, layer, ids[i]);
	int missing = sort_by_residency(x, layer, ids, n, kept == n);
	pthread_mutex_lock(&x->lock);
	x->at_hand = kept == n;
	x->layer = layer;
	x->missing = (struct list){ .ids = x->order, .n = missing };
	x->ready = (struct list){ .ids = x->order + missing, .n = n - missing };
	wake_openers(x);
	pthread_mutex_unlock(&x->lock);
}

/* The arrived slot whose turn it is, or NULL. Those that were waited for go first: what they free
 * keeps the drive busy. */
static struct slot *first_arrived(struct experts *x)
{
	struct slot *first = NULL;

	for (int i = 0; i < EXPERTS_OPEN; i++) {
		struct slot *s = &x->slot[i];
		if (s->state == SLOT_ARRIVED &&
		    (!first || (s->ready != first->ready ? first->ready : s->turn < first->turn)))
			first = s;
	}
	return first;
}

/* Whether the caller opens what comes next. */
static bool opens_itself(const struct experts *x)
{
	return x->at_hand || x->quick == STREAK;
}

/* Lock held; given back meanwhile. */
static struct slot *wait_for_one(struct experts *x)
{
	double begin = clock_seconds();
	struct slot *s;

	while (!(s = first_arrived(x))) {
		struct list *l = openable(x);
		if (l && (l == &x->ready || opens_itself(x))) {
			open_next(x, l);
			continue;
		}
		if (l)
			wake_openers(x);
		pthread_cond_wait(&x->arrived, &x->lock);
	}
	x->stats.waited_s += clock_seconds() - begin;
	return s;
}

/* Lock held. */
static void hand_out(struct experts *x, struct slot *s)
{
	s->state = SLOT_OUT;
	x->stats.opened += s->err == 0;
	x->stats.bytes += s->err ? 0 : s->bytes;
}

struct expert *experts_another(struct experts *x)
{
	struct slot *s;

	pthread_mutex_lock(&x->lock);
	while (!(s = first_arrived(x)) && opens_itself(x)) {
		struct list *l = openable(x);
		if (l)
			open_next(x, l);
		else if (x->opening)
			pthread_cond_wait(&x->arrived, &x->lock);
		else
			break;
	}
	if (s && s->err) /* experts_next() tells */
		s = NULL;
	if (s)
		hand_out(x, s);
	pthread_mutex_unlock(&x->lock);
	return s ? &s->expert : NULL;
}

int experts_next(struct experts *x, struct expert **out, char *why)
{
	struct slot *s;

	pthread_mutex_lock(&x->lock);
	s = first_arrived(x);
	if (!s)
		s = wait_for_one(x);
	hand_out(x, s);
	pthread_mutex_unlock(&x->lock);
	*out = &s->expert;
	if (!s->err)
		return 0;
	int err = s->err;
	fail(why, -err, "%s", s->why);
	experts_cancel(x);
	return err;
}

static void free_slot_of(struct experts *x, struct slot *s)
{
	s->state = SLOT_FREE;
	if (s->ready)
		x->ready.open--;
	else
		x->missing.open--;
}

void experts_done(struct experts *x, struct expert *e)
{
	struct slot *s = (struct slot *)e;

	close_expert(s);
	pthread_mutex_lock(&x->lock);
	free_slot_of(x, s);
	/* A thread that is at work looks for more when it is done; a slow one not soon enough. */
	const struct list *l = openable(x);
	if (l && !x->at_hand && (!x->opening || (l == &x->missing && x->quick < STREAK)))
		pthread_cond_signal(&x->work);
	pthread_mutex_unlock(&x->lock);
}

void experts_tell(struct experts *x)
{
	kept_tell(&x->kept);
}

bool experts_all_here(struct experts *x)
{
	pthread_mutex_lock(&x->lock);
	bool here = !left(&x->missing) && !left(&x->ready) && !x->opening;
	pthread_mutex_unlock(&x->lock);
	return here;
}

void experts_cancel(struct experts *x)
{
	pthread_mutex_lock(&x->lock);
	x->missing.begun = x->missing.n;
	x->ready.begun = x->ready.n;
	while (x->opening)
		pthread_cond_wait(&x->arrived, &x->lock);
	for (int i = 0; i < EXPERTS_OPEN; i++) {
		if (x->slot[i].state == SLOT_FREE)
			continue;
		close_expert(&x->slot[i]);
		free_slot_of(x, &x->slot[i]);
	}
	pthread_mutex_unlock(&x->lock);
}

void experts_get_stats(struct experts *x, struct experts_stats *out)
{
	pthread_mutex_lock(&x->lock);
	*out = x->stats;
	pthread_mutex_unlock(&x->lock);
}
