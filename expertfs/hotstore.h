/* SPDX-License-Identifier: Apache-2.0
 *
 * The hot store: the experts that are in memory now, and those that are on their way.
 *
 * Each expert of the store has a slot: absent, loading or ready. A ready one is answered at once; a
 * loading one is waited for by all who ask; an absent one is admitted (cachepolicy says who goes
 * for it) and loaded by a loader thread. An expert that a reader holds open is pinned and stays.
 * When everything is held, or the capacity is nothing, an expert is opened unkept: proved once by
 * its checksums, and each read served from the drive. So memory stays inside the capacity whatever
 * the readers do.
 *
 * Thread-safe: one lock around slots and policy, never held while reading, freeing or answering.
 */
#ifndef EXPERTFS_HOTSTORE_H
#define EXPERTFS_HOTSTORE_H

#include <stdbool.h>
#include <stdint.h>

#include "cachepolicy/policy.h"
#include "expertfs/backing.h"
#include "expertfs/loader.h"

struct hotstore;

/* Loads that run side by side. A token's layer asks for 8 experts or so at once; twice that keeps
 * the drives busy over the gaps in which one is checked and another gets its memory. */
#define LOADERS 16

#define HOTSTORE_SPEC 128 /* bytes of a policy's name with its parameters */

/* What an open comes to. */
struct hot_open {
	uint32_t index;     /* of the expert in store->expert */
	int err;            /* 0, or negative errno: then nothing is held */
	bool kept;          /* in memory; else read it with hotstore_read_unkept() */
	unsigned copy;      /* for unkept ones */
	int32_t backing_id; /* of a kept one in passthrough mode */
};

struct hotstore_config {
	const struct loader *loader;
	const char *policy; /* checked with cp_spec_check() */
	const struct backing_source *source;
	uint64_t capacity; /* bytes */
	int fuse_fd;       /* where backings are registered */
	bool passthrough;  /* else each kept expert stays mapped for hotstore_bytes() */
	/* Told once for each hotstore_open(), from the caller's thread or a loader's, no lock held.
	 */
	void (*opened)(void *who, const struct hot_open *result);
};

int hotstore_create(const struct hotstore_config *cfg, struct hotstore **out, char *why);
/* Answers what still waits with -ENODEV, ends the threads, drops everything. NULL is fine. */
void hotstore_destroy(struct hotstore *h);

/* Opens expert `index`; opened(who, ...) is called when it is there. Counts one use. */
void hotstore_open(struct hotstore *h, uint32_t index, void *who);
/* Counts one use of an expert that somebody has mapped since he opened it, as an open would that finds
 * it in memory. 0, or -ENXIO: it is not there, and nothing is counted. */
int hotstore_use(struct hotstore *h, uint32_t index);
/* Gives back what a successful open took. */
void hotstore_release(struct hotstore *h, uint32_t index, bool kept);
/* The bytes of a kept expert that is held open (not in passthrough mode). */
const void *hotstore_bytes(struct hotstore *h, uint32_t index);

/* Tells used() of each open from now on, under the hot store's lock (so it must be quick): a trace is
 * being recorded. NULL: no more; when it returns, no call is under way. */
void hotstore_watch(struct hotstore *h, void (*used)(void *arg, uint64_t now_ns, uint32_t index),
		    void *arg);

/* Another policy, or other parameters for the one that runs: what is resident stays. Takes what
 * cp_create_spec() takes. 0, -EINVAL if there is no such policy or parameter, -ENOMEM. */
int hotstore_set_policy(struct hotstore *h, const char *spec);

/* What is known of one expert. */
enum hot_state { HOT_COLD, HOT_LOADING, HOT_RESIDENT };
struct hot_info {
	enum hot_state state;
	bool pinned;          /* by hotstore_pin() */
	bool held;            /* open by a reader */
	double heat;          /* decayed count of uses, as of now */
	uint64_t uses, loads; /* opens; times it was read from the drives */
	uint64_t last_use;    /* seconds of the epoch, 0: never */
	uint64_t load_ns;     /* the last load took so long, 0: never */
};
void hotstore_info(struct hotstore *h, uint32_t index, struct hot_info *out);
/* The same of all experts, in order of index: info has store->experts of them. The lock is given
 * back now and then, so it is a moving picture, and no open waits long. */
void hotstore_snapshot(struct hotstore *h, struct hot_info *info);
/* How often each expert was loaded: store->experts numbers, likewise. */
void hotstore_loads(struct hotstore *h, uint64_t *loads);
/* What was known before the start: heat, uses, loads, last_use and load_ns of info. Before the
 * first open. */
void hotstore_seed(struct hotstore *h, uint32_t index, const struct hot_info *info);

/* Loads that nobody waits for. They return at once: 0, -EEXIST (in memory, on its way or queued),
 * -EAGAIN (enough are queued already), -ENOSPC (no room: HOT_FILL only takes free memory, and the
 * others evict what the policy lets go). */
enum hot_reason {
	HOT_PREFETCH, /* the engine's guess */
	HOT_WARM,     /* somebody asked for it */
	HOT_FILL,     /* from the usage of last time */
	HOT_REASONS
};
int hotstore_load(struct hotstore *h, uint32_t index, enum hot_reason reason);
/* Keeps an expert: it is loaded if need be, and never evicted. 0; -ENOSPC: pins may take three
 * quarters of the capacity at most, so that there is room to work. */
int hotstore_pin(struct hotstore *h, uint32_t index);
int hotstore_unpin(struct hotstore *h, uint32_t index); /* 0 or -ENOENT: is not pinned */
/* Drops it from memory. 0, -EBUSY: held, loading or pinned; -ENOENT: not in memory. */
int hotstore_evict(struct hotstore *h, uint32_t index);
/* Another capacity: evicts down to it as far as nothing holds it, at once. */
void hotstore_resize(struct hotstore *h, uint64_t capacity);

struct hotstore_stats {
	char spec[HOTSTORE_SPEC]; /* the policy as it was asked for */
	struct cp_stats policy;
	uint64_t resident, held, loading; /* experts */
	uint64_t pinned, pinned_bytes;    /* by hotstore_pin(): experts, and what they take */
	uint64_t capacity, ready_bytes;   /* of the hot store; what of it the pool keeps ready */
	uint64_t mapped; /* experts that should have gone, but a reader has mapped: they stay */
	uint64_t mapped_bytes;      /* of experts that were evicted and that readers map still */
	uint64_t opens_1m, hits_1m; /* of the last minute */
	uint64_t prefetch_asked, prefetch_loaded; /* guesses; those that were loaded */
	uint64_t prefetch_used, prefetch_wasted;  /* opened after that; evicted before it */
	uint64_t recycled;                        /* loads that needed no fresh memory */
	uint64_t opens, hits, misses, unkept;     /* unkept: misses that found no room */
	uint64_t errors;                          /* opens that ended with EIO */
	double load_ms_p50, load_ms_p95,
		load_ms_p99; /* from ask to answer, misses only; 0 if none */
};
void hotstore_stats(struct hotstore *h, struct hotstore_stats *out);

#endif
