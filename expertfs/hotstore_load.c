/* SPDX-License-Identifier: Apache-2.0
 *
 * The queues of the hot store and the threads that load; see hot_parts.h.
 *
 * Who waits goes first; of the rest a few at a time, so that there is always a thread for who comes
 * next. A load ahead is only an index until a thread takes it: it holds no room while it waits.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expertfs/clock.h"
#include "expertfs/fail.h"
#include "expertfs/hot_parts.h"
#include "expertfs/log.h"

static struct job *pop(struct job_queue *q)
{
	struct job *j = q->head;

	if (j) {
		q->head = j->next;
		q->n--;
		if (!q->head)
			q->tail = &q->head;
	}
	return j;
}

void hot_push(struct hotstore *h, unsigned queue, struct job *j)
{
	struct job_queue *q = &h->queue[queue];

	j->next = NULL;
	pthread_mutex_lock(&h->lock);
	*q->tail = j;
	q->tail = &j->next;
	q->n++;
	pthread_cond_signal(&h->wanted);
	pthread_mutex_unlock(&h->lock);
}

/* The next job for a thread, or NULL. Lock held. */
static struct job *take(struct hotstore *h)
{
	struct job *j = pop(&h->queue[QUEUE_DEMAND]);

	if (j || h->background >= BACKGROUND_LOADERS)
		return j;
	for (int q = QUEUE_AHEAD; !j && q < QUEUES; q++)
		if (q != QUEUE_AHEAD + HOT_FILL || !h->admitting)
			j = pop(&h->queue[q]);
	h->background += j != NULL;
	h->admitting |= j && j->reason == HOT_FILL;
	return j;
}

/* Memory for an expert: that of the one that went for it, or what lies ready, or new. */
static int get_memory(struct hotstore *h, uint32_t index, struct backing *spare, struct backing *b,
		      char *why)
{
	const struct store_expert *e = expert_of(h, index);
	bool fresh = spare->fd < 0 && !pool_take(h->pool, e->bytes, b);
	int err = 0;

	if (spare->fd >= 0) {
		*b = *spare;
		*spare = (struct backing){ .fd = -1 };
	} else if (fresh) {
		err = backing_new(h->cfg.source, e->bytes, b);
	}
	if (err)
		return fail(why, -err, "expert %u/%u: no memory of %llu bytes: %s", e->layer,
			    e->expert, (unsigned long long)e->bytes, strerror(-err));
	if (!fresh) {
		pthread_mutex_lock(&h->lock);
		h->stats.recycled++;
		pthread_mutex_unlock(&h->lock);
	}
	return 0;
}

/* Bytes, proof, registration: everything that a reader needs. b is dropped on an error. */
static int fill(struct hotstore *h, uint32_t index, struct backing *b, char *why)
{
	const struct store_expert *e = expert_of(h, index);
	int err = load_expert(h->cfg.loader, index, &h->slot[index].urgency, b->map, why);

	if (!err) {
		err = backing_freeze(h->cfg.source, b, !h->cfg.passthrough);
		if (!err && h->cfg.passthrough)
			err = backing_register(h->cfg.source, b, h->cfg.fuse_fd);
		if (err)
			fail(why, -err, "expert %u/%u: cannot be handed to the kernel: %s",
			     e->layer, e->expert, strerror(-err));
	}
	if (err)
		backing_drop(b, h->cfg.fuse_fd);
	return err;
}

/* Makes a loading slot resident, or cold again; *o gets what its waiters are told. Lock held. */
static struct waiter *settle(struct hotstore *h, uint32_t index, const struct backing *b,
			     uint64_t load_ns, struct hot_open *o)
{
	struct slot *s = &h->slot[index];
	struct waiter *list = s->waiters;
	cp_key key = key_of(h, index);

	s->waiters = NULL;
	for (struct waiter *w = list; w; w = w->next) {
		histogram_add(&h->latency, clock_ns() - w->since);
		if (o->err)
			h->stats.errors++;
		else
			hot_hold(h, s, true, 1);
	}
	if (o->err) {
		hot_set_state(h, s, HOT_COLD);
		s->guessed = false;
		cp_remove(h->cache, key);
		h->never_came++;
		return list;
	}
	hot_set_state(h, s, HOT_RESIDENT);
	s->backing = *b;
	s->loads++;
	s->load_ns = load_ns;
	o->backing_id = b->id;
	if (s->pinned)
		cp_pin(h->cache, key);
	if (s->handles == 0) { /* the pin of the load becomes that of the handles, or ends */
		cp_unpin(h->cache, key);
		cp_touch(h->cache, clock_ns(), key);
	}
	return list;
}

static void answer(struct hotstore *h, struct waiter *list, const struct hot_open *o)
{
	while (list) {
		struct waiter *next = list->next;
		h->cfg.opened(list->who, o);
		free(list);
		list = next;
	}
}

/* Without memory: proves the expert for those who wait (counted as unkept already). */
static void run_proof(struct hotstore *h, uint32_t index, struct waiter *list)
{
	struct slot *s = &h->slot[index];
	struct hot_open o = { .index = index };
	uint64_t begin = clock_ns();
	char why[WHY_MAX];

	o.err = prove_expert(h->cfg.loader, index, &o.copy, why);
	if (o.err)
		log_line(LOG_ERR, "%s", why);
	pthread_mutex_lock(&h->lock);
	for (const struct waiter *w = list; w; w = w->next) {
		histogram_add(&h->latency, clock_ns() - w->since);
		if (!o.err)
			continue;
		h->stats.errors++;
		hot_hold(h, s, false, -1);
	}
	if (!o.err) { /* read again by each reader, but that is not seen from here */
		s->loads++;
		s->load_ns = clock_ns() - begin;
	}
	pthread_mutex_unlock(&h->lock);
	answer(h, list, &o);
}

/* There is no memory after all: the slot is cold again, and who waits is served without. */
static void give_up(struct hotstore *h, uint32_t index)
{
	struct slot *s = &h->slot[index];
	struct waiter *list;

	pthread_mutex_lock(&h->lock);
	list = s->waiters;
	s->waiters = NULL;
	s->guessed = false;
	hot_set_state(h, s, HOT_COLD);
	cp_remove(h->cache, key_of(h, index));
	h->never_came++;
	for (const struct waiter *w = list; w; w = w->next) {
		hot_hold(h, s, false, 1);
		h->stats.unkept++;
	}
	pthread_mutex_unlock(&h->lock);
	if (list)
		run_proof(h, index, list);
}

static void run_fill(struct hotstore *h, uint32_t index, struct backing *spare)
{
	struct hot_open o = { .index = index, .kept = true };
	struct backing b = { .fd = -1 };
	uint64_t begin = clock_ns();
	struct waiter *list;
	char why[WHY_MAX];

	if (get_memory(h, index, spare, &b, why) != 0) {
		log_line(LOG_WARNING, "%s; it is not kept", why);
		give_up(h, index);
		return;
	}
	o.err = fill(h, index, &b, why);
	if (o.err)
		log_line(LOG_ERR, "%s", why);
	pthread_mutex_lock(&h->lock);
	list = settle(h, index, &b, clock_ns() - begin, &o);
	pthread_mutex_unlock(&h->lock);
	answer(h, list, &o);
}

/* Is a load ahead still wanted, and is there room? Fills take what is free one after the other, so
 * the hottest get it: one waits for memory that the pool is touching at this moment. Lock held,
 * given back while it waits. */
static bool admit_ahead(struct hotstore *h, struct job *j, struct evicted **gone)
{
	enum drive_class class = j->reason == HOT_PREFETCH ? DRIVE_PREFETCH : DRIVE_PROMOTION;
	const struct slot *s = &h->slot[j->index];
	/* A pin is an order: it does not wait for the layer that ran last. */
	enum effort effort = j->reason == HOT_FILL ? TAKE_FREE : s->pinned ? END_EVENT : MAY_EVICT;
	uint64_t cost = backing_cost(h->cfg.source, expert_of(h, j->index)->bytes);

	while (s->state == HOT_COLD && !h->stop) {
		if (hot_admit(h, j->index, class, effort, &j->spare, gone))
			return true;
		if (effort != TAKE_FREE || s->unkept || !hot_has_room(h, cost))
			return false;
		pthread_mutex_unlock(&h->lock);
		usleep(1000);
		pthread_mutex_lock(&h->lock);
	}
	return false;
}

/* A load ahead has its turn. */
static void run_ahead(struct hotstore *h, struct job *j)
{
	uint64_t bytes = expert_of(h, j->index)->bytes;
	struct evicted *gone = NULL;
	bool load;

	pthread_mutex_lock(&h->lock);
	load = admit_ahead(h, j, &gone);
	h->slot[j->index].queued &= (uint8_t) ~(1u << j->reason);
	if (j->reason == HOT_FILL) { /* the next one may look for its room */
		h->admitting = false;
		pthread_cond_signal(&h->wanted);
	}
	if (!load) {
		hot_let_go(h, gone); /* went in vain */
		gone = NULL;
	} else if (j->reason == HOT_PREFETCH) {
		h->slot[j->index].guessed = true;
		h->stats.prefetch_loaded++;
	}
	pthread_mutex_unlock(&h->lock);
	hot_recycle(h, gone, bytes, &j->spare);
	if (load)
		run_fill(h, j->index, &j->spare);
	pthread_mutex_lock(&h->lock);
	h->background--;
	pthread_cond_signal(&h->wanted); /* one that waited because we were too many */
	pthread_mutex_unlock(&h->lock);
}

void *hot_loader_main(void *hotstore)
{
	struct hotstore *h = hotstore;

	for (;;) {
		struct job *j = NULL;
		pthread_mutex_lock(&h->lock);
		while (!h->stop && !(j = take(h)))
			pthread_cond_wait(&h->wanted, &h->lock);
		pthread_mutex_unlock(&h->lock);
		if (!j)
			return NULL;
		if (j->kind == JOB_PROVE)
			run_proof(h, j->index, j->unkept);
		else if (j->kind == JOB_FILL)
			run_fill(h, j->index, &j->spare);
		else
			run_ahead(h, j);
		backing_drop(&j->spare, h->cfg.fuse_fd); /* of a load that failed before it */
		free(j);
	}
}

void hot_drop_jobs(struct hotstore *h)
{
	for (int q = 0; q < QUEUES; q++) {
		struct job *j;
		while ((j = pop(&h->queue[q])) != NULL) {
			struct hot_open o = { .index = j->index, .err = -ENODEV };
			if (j->kind == JOB_PROVE)
				answer(h, j->unkept, &o);
			else if (j->kind == JOB_FILL)
				answer(h, h->slot[j->index].waiters, &o);
			backing_drop(&j->spare, h->cfg.fuse_fd);
			free(j);
		}
	}
}
