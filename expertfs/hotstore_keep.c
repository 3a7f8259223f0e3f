/* SPDX-License-Identifier: Apache-2.0
 *
 * What is asked of the hot store besides opening: loads ahead, pins, evictions, another size,
 * another policy. See hotstore.h.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/clock.h"
#include "expertfs/hot_parts.h"

int hotstore_load(struct hotstore *h, uint32_t index, enum hot_reason reason)
{
	static const uint32_t most[HOT_REASONS] = { [HOT_PREFETCH] = PREFETCH_QUEUE,
						    [HOT_WARM] = UINT32_MAX,
						    [HOT_FILL] = BACKGROUND_LOADERS };
	uint64_t cost = backing_cost(h->cfg.source, expert_of(h, index)->bytes);
	struct job *j = malloc(sizeof(*j));
	int err = 0;

	if (!j)
		return -ENOMEM;
	*j = (struct job){ .index = index, .kind = JOB_AHEAD, .reason = reason, .spare.fd = -1 };
	pthread_mutex_lock(&h->lock);
	h->stats.prefetch_asked += reason == HOT_PREFETCH;
	if (h->slot[index].state != HOT_COLD || h->slot[index].queued & 1u << reason)
		err = -EEXIST;
	else if (cost > h->capacity || (reason == HOT_FILL && !hot_has_room(h, cost)))
		err = -ENOSPC;
	else if (h->queue[QUEUE_AHEAD + reason].n >= most[reason])
		err = -EAGAIN;
	else
		h->slot[index].queued |= (uint8_t)(1u << reason);
	pthread_mutex_unlock(&h->lock);
	if (err)
		free(j);
	else
		hot_push(h, QUEUE_AHEAD + reason, j);
	return err;
}

int hotstore_pin(struct hotstore *h, uint32_t index)
{
	struct slot *s = &h->slot[index];
	uint64_t cost = backing_cost(h->cfg.source, expert_of(h, index)->bytes);
	int err = 0;

	pthread_mutex_lock(&h->lock);
	if (s->pinned) {
		err = -EEXIST;
	} else if (h->pinned_bytes + cost > h->capacity / 4 * 3) {
		err = -ENOSPC;
	} else {
		s->pinned = true;
		h->pinned_bytes += cost;
		h->stats.pinned++;
		if (s->state == HOT_RESIDENT)
			cp_pin(h->cache, key_of(h, index));
	}
	pthread_mutex_unlock(&h->lock);
	if (err == -ENOSPC)
		return err;
	/* If it is not there; one that found no room the first time may now. */
	hotstore_load(h, index, HOT_WARM);
	return 0;
}

int hotstore_unpin(struct hotstore *h, uint32_t index)
{
	struct slot *s = &h->slot[index];
	bool was;

	pthread_mutex_lock(&h->lock);
	was = s->pinned;
	if (was) {
		s->pinned = false;
		h->pinned_bytes -= backing_cost(h->cfg.source, expert_of(h, index)->bytes);
		h->stats.pinned--;
		if (s->state == HOT_RESIDENT)
			cp_unpin(h->cache, key_of(h, index));
	}
	pthread_mutex_unlock(&h->lock);
	return was ? 0 : -ENOENT;
}

int hotstore_evict(struct hotstore *h, uint32_t index)
{
	struct slot *s = &h->slot[index];
	struct evicted *gone = NULL;
	int err = 0;

	pthread_mutex_lock(&h->lock);
	if (s->mapped)
		hot_look_at_mapped(h); /* it may have ended meanwhile */
	if (s->state == HOT_COLD)
		err = -ENOENT;
	else if (s->state == HOT_LOADING || s->handles || s->pinned || s->mapped ||
		 !hot_evict(h, index, &gone))
		err = -EBUSY;
	hot_let_go(h, gone);
	pthread_mutex_unlock(&h->lock);
	return err;
}

/* The next to go when the store is to shrink. Lock held. */
static bool evict_one(struct hotstore *h, struct evicted **gone)
{
	cp_key key;
	uint32_t index;

	if (!cp_victim(h->cache, &key)) {
		cp_event(h->cache, clock_ns(), NULL, 0); /* nor does the running event keep any */
		if (!cp_victim(h->cache, &key))
			return false;
	}
	index = hot_index_of(h, key);
	return hot_evict(h, index, gone) || h->slot[index].mapped;
}

void hotstore_resize(struct hotstore *h, uint64_t capacity)
{
	struct evicted *gone = NULL;

	pthread_mutex_lock(&h->lock);
	h->capacity = capacity;
	hot_look_at_mapped(h);
	hot_set_ready(h);
	while (!cp_fits(h->cache, 0) && evict_one(h, &gone))
		;
	hot_let_go(h, gone);
	pthread_mutex_unlock(&h->lock);
}

int hotstore_set_policy(struct hotstore *h, const char *spec)
{
	int err;

	if (strlen(spec) >= HOTSTORE_SPEC)
		return -EINVAL;
	pthread_mutex_lock(&h->lock);
	err = cp_switch(h->cache, spec);
	if (!err)
		snprintf(h->stats.spec, sizeof(h->stats.spec), "%s", spec);
	pthread_mutex_unlock(&h->lock);
	return err == -ENOENT ? -EINVAL : err;
}
