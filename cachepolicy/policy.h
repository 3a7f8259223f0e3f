/* SPDX-License-Identifier: Apache-2.0
 *
 * cachepolicy: who stays in the hot store and who goes.
 *
 * Pure data structures: no I/O, no threads, no clock of their own (time is handed in). The daemon
 * and the simulator run the very same code. One cache = one policy instance; the caller locks.
 *
 * The unit of use is the layer event: the experts that one layer asks for together. A member of the
 * running event (the last one given to event()) is never a victim, and counts once however often it
 * is named (arXiv 2608.07911). Entries have sizes in bytes, and so has the capacity.
 *
 * How a caller uses it, for a layer event:
 *
 *	cp_event(c, now, uses, n);            tells who is asked for; touches the residents
 *	for each member that is not resident:
 *		while (!cp_fits(c, bytes)) {
 *			if (!cp_victim(c, &key))
 *				break;        all that is left is pinned or in the event
 *			cp_remove(c, key);    and the caller frees the memory
 *		}
 *		if (cp_admit(c, key, bytes) == 0)
 *			it is resident now
 */
#ifndef CACHEPOLICY_POLICY_H
#define CACHEPOLICY_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint32_t cp_key; /* layer << 16 | expert */

static inline cp_key cp_key_of(unsigned layer, unsigned expert)
{
	return (cp_key)layer << 16 | expert;
}

struct cp_use {
	cp_key key;
	uint32_t weight; /* how many tokens chose it, at least 1 */
};

struct cp_config {
	uint64_t capacity;        /* bytes; 0 is legal: then nothing is ever admitted */
	uint32_t layers, experts; /* geometry of the model: keys lie below it */
};

struct cp_stats {
	uint64_t capacity, used;     /* bytes */
	uint64_t entries, pinned;    /* resident entries, and those of them that are pinned now */
	uint64_t events, uses, hits; /* uses after duplicates are taken out; hits among them */
	uint64_t admissions, evictions; /* cp_admit that succeeded; cp_remove of a resident entry */
};

struct cp_cache; /* opaque; its first member is the policy's method table */

/* The method table. Every function may be called with the caller's lock held only; none blocks,
 * none allocates after create() except admit(). Keys outside the geometry are refused (-EINVAL,
 * false).
 */
struct cp_policy {
	const char *name;
	/* 0, -ENOMEM or -EINVAL. */
	int (*create)(const struct cp_config *cfg, struct cp_cache **out);
	void (*destroy)(struct cp_cache *c);
	/* A layer asks for these n experts now. now: any monotonic unit, the same all the time. */
	void (*event)(struct cp_cache *c, uint64_t now, const struct cp_use *uses, size_t n);
	/* Makes key resident with this size. -ENOSPC if it does not fit (evict first), -EEXIST if
	 * resident, -EPERM if the policy declines (the caller then serves it without keeping it).
	 */
	int (*admit)(struct cp_cache *c, cp_key key, uint64_t bytes);
	/* The entry to evict next: resident, not pinned, no member of the running event. False if
	 * none. Changes nothing: the caller evicts with remove(). */
	bool (*victim)(struct cp_cache *c, cp_key *key);
	/* A use outside any event (a prefetch came, say). Unknown keys are ignored. */
	void (*touch)(struct cp_cache *c, uint64_t now, cp_key key);
	/* Pins nest: an entry is evictable again after as many unpins. False if key is not
	 * resident. */
	bool (*pin)(struct cp_cache *c, cp_key key);
	bool (*unpin)(struct cp_cache *c, cp_key key);
	/* Takes a resident entry out, pinned or not. False if it is not resident. */
	bool (*remove)(struct cp_cache *c, cp_key key);
	bool (*resident)(const struct cp_cache *c, cp_key key);
	/* A smaller capacity evicts nothing by itself: the caller evicts until cp_fits(c, 0). */
	void (*resize)(struct cp_cache *c, uint64_t capacity);
	void (*stats)(const struct cp_cache *c, struct cp_stats *out);
};

/* Policies by name ("lru"); NULL if unknown. cp_policy_names(): NULL-terminated, in order of
 * listing. */
const struct cp_policy *cp_policy_find(const char *name);
const char *const *cp_policy_names(void);

/* Calls through the table. */
int cp_create(const struct cp_policy *policy, const struct cp_config *cfg, struct cp_cache **out);
void cp_destroy(struct cp_cache *c); /* NULL is fine */
void cp_event(struct cp_cache *c, uint64_t now, const struct cp_use *uses, size_t n);
int cp_admit(struct cp_cache *c, cp_key key, uint64_t bytes);
bool cp_fits(const struct cp_cache *c, uint64_t bytes); /* used + bytes <= capacity */
bool cp_victim(struct cp_cache *c, cp_key *key);
void cp_touch(struct cp_cache *c, uint64_t now, cp_key key);
bool cp_pin(struct cp_cache *c, cp_key key);
bool cp_unpin(struct cp_cache *c, cp_key key);
bool cp_remove(struct cp_cache *c, cp_key key);
bool cp_resident(const struct cp_cache *c, cp_key key);
void cp_resize(struct cp_cache *c, uint64_t capacity);
void cp_stats(const struct cp_cache *c, struct cp_stats *out);

#endif
