/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of the hot store, shared by its files and nobody else:
 *
 *	hotstore.c       open and release, room and eviction, start and end
 *	hotstore_load.c  the queues and the loader threads
 *	hotstore_keep.c  pins, loads ahead, evictions and sizes that people ask for
 *	hotstore_info.c  what is counted and shown
 */
#ifndef EXPERTFS_HOT_PARTS_H
#define EXPERTFS_HOT_PARTS_H

#include <pthread.h>

#include "expertfs/hotstore.h"
#include "expertfs/histogram.h"
#include "expertfs/pool.h"
#include "expertfs/rates.h"

/* Of the LOADERS, so many may load what nobody waits for. What they have in flight is bounded by the
 * drive's queue; with half as many it ran dry while they hashed, waiting for a processor. */
#define BACKGROUND_LOADERS 8
/* Loads ahead that may wait in a queue; a guess that comes later than that is stale anyway. */
#define PREFETCH_QUEUE 128

struct waiter {
	struct waiter *next;
	void *who;
	uint64_t since; /* ns */
};

/* One an expert. What keeps it from being evicted has a pin in the policy each: loading or held,
 * pinned, mapped. So a victim is always ready and idle. */
struct slot {
	enum hot_state state;
	bool pinned;      /* hotstore_pin(); has its policy pin while resident */
	bool mapped;      /* was to go, but a reader has it mapped still: on the mapped list */
	bool guessed;     /* came by a prefetch, and nobody has opened it since */
	uint8_t queued;   /* a bit for each hot_reason: its load ahead is not decided yet */
	uint32_t handles; /* opens of the backing that were answered and not released */
	uint32_t unkept;  /* opens without a backing, from the ask to the release */
	struct waiter *waiters; /* while loading */
	struct urgency urgency; /* of the load under way */
	struct backing backing; /* while resident */

	double heat;      /* at heat_at; halves every half_life opens of the store */
	uint64_t heat_at; /* opens of the store by then */
	uint64_t uses, loads;
	uint64_t last_use; /* seconds of the epoch */
	uint64_t load_ns;
};

enum job_kind { JOB_FILL, JOB_PROVE, JOB_AHEAD };

struct job {
	struct job *next;
	enum job_kind kind;
	uint32_t index;
	enum hot_reason reason; /* JOB_AHEAD */
	struct waiter *unkept;  /* JOB_PROVE: the one who waits */
	struct backing spare;   /* JOB_FILL: memory of an expert that went for it, or fd -1 */
};

struct job_queue {
	struct job *head, **tail;
	uint32_t n;
};

/* Demand, and one for each hot_reason: taken in this order. */
enum { QUEUE_DEMAND, QUEUE_AHEAD, QUEUES = QUEUE_AHEAD + HOT_REASONS };

struct hotstore {
	struct hotstore_config cfg;
	pthread_t thread[LOADERS];
	int threads;
	struct pool *pool;
	uint64_t common;  /* bytes of most experts: what the pool has ready */
	double half_life; /* opens of the store in which heat halves */

	pthread_mutex_t lock; /* all below */
	pthread_cond_t wanted;
	struct cp_cache *cache;
	struct slot *slot;
	struct job_queue queue[QUEUES];
	uint32_t background; /* loaders that load what nobody waits for */
	bool admitting;      /* one of them looks for room for a HOT_FILL */
	uint32_t *mapped;    /* experts with slot->mapped: n_mapped of them, room for all */
	uint32_t n_mapped;
	uint64_t capacity; /* for experts and the pool */
	uint64_t leaving;  /* of what is evicted by hand, until it is freed: nobody may have it */
	uint64_t pinned_bytes; /* of experts with slot->pinned, resident or not */
	uint64_t never_came;   /* loads that failed: to the policy each was an eviction */
	bool stop;
	void (*used)(void *arg, uint64_t now_ns, uint32_t index); /* hotstore_watch() */
	void *used_arg;
	struct hotstore_stats stats;
	struct rates rates;
	struct histogram latency;
};

/* Backings that were taken out under the lock and are freed after it. */
struct evicted {
	struct evicted *next;
	struct backing backing;
};

static inline const struct store_expert *expert_of(const struct hotstore *h, uint32_t index)
{
	return &h->cfg.loader->store->expert[index];
}

static inline cp_key key_of(const struct hotstore *h, uint32_t index)
{
	const struct store_expert *e = expert_of(h, index);

	return cp_key_of(e->layer, e->expert);
}

/* Of a key that the policy gave: it is one of the store's. */
static inline uint32_t hot_index_of(const struct hotstore *h, cp_key key)
{
	return store_index(h->cfg.loader->store, key >> 16, key & 0xffff);
}

/* hotstore.c ------------------------------------------------------------------------------------ */

/* Another state, and what is counted of it. Lock held. */
void hot_set_state(struct hotstore *h, struct slot *s, enum hot_state state);
/* n more (or fewer) opens with a backing (kept) or without. Lock held. */
void hot_hold(struct hotstore *h, struct slot *s, bool kept, int n);

/* What may be done to make room. */
enum effort {
	TAKE_FREE, /* only what is free, or lies ready */
	MAY_EVICT, /* what the policy lets go as well */
	END_EVENT  /* and if the running event holds everything, it is ended */
};
/* Makes room for the expert, admits it and makes it loading, at this class. *spare (fd -1): may get
 * memory for it. False: there is no room. Lock held; *gone grows. */
bool hot_admit(struct hotstore *h, uint32_t index, enum drive_class class, enum effort effort,
	       struct backing *spare, struct evicted **gone);
/* Whether that is free, or lies ready. Lock held. */
bool hot_has_room(struct hotstore *h, uint64_t cost);
/* Takes a resident, idle expert out. False: it is mapped (and is marked so), or out of memory. Lock
 * held. */
bool hot_evict(struct hotstore *h, uint32_t index, struct evicted **gone);
/* Frees or keeps ready what was evicted; one that suits an expert of `bytes` goes to *spare (NULL:
 * none is wanted). Lock not held. */
void hot_recycle(struct hotstore *h, struct evicted *gone, uint64_t bytes, struct backing *spare);
/* Frees what was evicted for nobody in particular; only then the room is free. Lock held, and given
 * back meanwhile. */
void hot_let_go(struct hotstore *h, struct evicted *gone);
/* Those that were mapped when they should go: their pins end with the mapping. Lock held. */
void hot_look_at_mapped(struct hotstore *h);
/* The policy may use what the pool leaves of h->capacity. Lock held. */
void hot_set_room(struct hotstore *h);
/* The pool may have what is free now: after the start, another size, an eviction by hand. Lock held
 * (memory is freed under it only if the pool shrinks). */
void hot_set_ready(struct hotstore *h);

/* hotstore_load.c ------------------------------------------------------------------------------- */

void *hot_loader_main(void *hotstore);
/* Lock not held. */
void hot_push(struct hotstore *h, unsigned queue, struct job *j);
/* Answers and frees what no thread has begun. The threads have ended. */
void hot_drop_jobs(struct hotstore *h);

/* hotstore_info.c ------------------------------------------------------------------------------- */

/* A use now: heat, uses, last use. Lock held. */
void hot_count_use(struct hotstore *h, uint32_t index, uint64_t now);

#endif
