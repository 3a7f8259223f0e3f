/* SPDX-License-Identifier: Apache-2.0
 *
 * cachepolicy: who stays in the hot store and who goes.
 *
 * Pure data structures: no I/O, no threads, no clock of their own (time is handed in). The daemon
 * and the simulator run the very same code. One cache = one policy instance; the caller locks.
 *
 * The unit of use is the layer event: the experts that one layer asks for together. A member of
 * the running event (the last one given to event()) is never a victim, and counts once however
 * often it is named (arXiv 2608.07911). Entries have sizes in bytes, and so has the capacity.
 *
 * How a caller uses it, for a layer event:
 *
 *	cp_event(c, now, uses, n);            tells who is asked for; touches the residents
 *	for each member that is not resident:
 *		while (!cp_fits(c, bytes)) {
 *			if (!cp_victim_for(c, member, &key))
 *				break;        nothing may go, or nothing should go for this one
 *			cp_remove(c, key);    and the caller frees the memory
 *		}
 *		if (cp_admit(c, key, bytes) == 0)
 *			it is resident now
 *
 * A caller that hears of the members one at a time says cp_open() for each, or cp_event() for the
 * first and cp_join() for the others.
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

/* A number that tunes a policy, at creation and while it runs. The list of a policy ends with a
 * NULL name. */
struct cp_param {
	const char *name, *about;
	double low, high, start;
};

struct cp_cache;  /* opaque */
struct cp_policy; /* the method table: policies.h */

/* Policies by name ("lru"); NULL if unknown. cp_policy_names(): NULL-terminated, in order of
 * listing. The parameters are never NULL. */
const struct cp_policy *cp_policy_find(const char *name);
const char *const *cp_policy_names(void);
const char *cp_policy_about(const struct cp_policy *policy);
const struct cp_param *cp_policy_params(const struct cp_policy *policy);

/* A policy with its parameters as one word, for command lines and configuration:
 *
 *	lru    lfru:weight=0.3    lfru:weight=0.3,half_life=16    quota:lru    quota:lfru:weight=0.3
 *
 * cp_spec_check(): 0, -ENOENT (no such policy), -EINVAL (unknown parameter, or a value that is no
 * number or out of its range). cp_create_spec() returns these or what cp_create() returns. */
int cp_spec_check(const char *spec);
int cp_create_spec(const char *spec, const struct cp_config *cfg, struct cp_cache **out);

/* With the parameters as they start. 0, -ENOMEM, or -EINVAL: a geometry without layers or experts,
 * with more than 65,536 of either or 2^32 - 16 of both multiplied. */
int cp_create(const struct cp_policy *policy, const struct cp_config *cfg, struct cp_cache **out);
void cp_destroy(struct cp_cache *c); /* NULL is fine */

/* The name of the policy in use. */
const char *cp_name(const struct cp_cache *c);

/* Another policy from now on: what is resident stays, with its pins, and goes in the order in
 * which the old policy would have let it go until the new one knows better. The policy that is in
 * use already keeps what it knows, and has the spec's parameters from now on, those that it does
 * not name as they start. On an error (those of cp_create_spec()) nothing has changed. O(n log n)
 * for n resident entries. */
int cp_switch(struct cp_cache *c, const char *spec);

/* Tunes a parameter. -ENOENT: the policy has no such; -EINVAL: out of its range (or no number). */
int cp_set(struct cp_cache *c, const char *name, double value);
int cp_get(const struct cp_cache *c, const char *name, double *value); /* 0 or -ENOENT */

/* What is known from before (from the catalog, after a restart): heat is a decayed count of uses.
 * Policies that keep no frequencies ignore it, unknown keys are ignored. */
void cp_seed(struct cp_cache *c, cp_key key, double heat);

/* A layer asks for these n experts now. now: any monotonic unit, the same all the time. Keys
 * outside the geometry are ignored. */
void cp_event(struct cp_cache *c, uint64_t now, const struct cp_use *uses, size_t n);
/* More members of the running event; those that are members already are ignored. */
void cp_join(struct cp_cache *c, uint64_t now, const struct cp_use *uses, size_t n);
/* One member at a time, as a daemon sees them: of the running event if that is of the same layer
 * and does not have this expert yet, else the first one of a new event. */
void cp_open(struct cp_cache *c, uint64_t now, struct cp_use use);

/* Makes key resident with this size. -ENOSPC if it does not fit (evict first), -EEXIST if
 * resident, -EINVAL for a key outside the geometry or no bytes. */
int cp_admit(struct cp_cache *c, cp_key key, uint64_t bytes);
bool cp_fits(const struct cp_cache *c, uint64_t bytes); /* used + bytes <= capacity */

/* The entry to evict next: resident, not pinned, no member of the running event. False if there is
 * none. It evicts nothing (the caller does, with cp_remove()), and asked again it names the same.
 */
bool cp_victim(struct cp_cache *c, cp_key *key);
/* The same to make room for `want`: may name another one, or none at all if the policy would
 * rather serve `want` without keeping it. */
bool cp_victim_for(struct cp_cache *c, cp_key want, cp_key *key);

/* A use outside any event (a prefetch came, say). What is not resident is ignored. */
void cp_touch(struct cp_cache *c, uint64_t now, cp_key key);
/* Pins nest: an entry is evictable again after as many unpins. False if key is not resident. */
bool cp_pin(struct cp_cache *c, cp_key key);
bool cp_unpin(struct cp_cache *c, cp_key key);
/* Takes a resident entry out, pinned or not. False if it is not resident. */
bool cp_remove(struct cp_cache *c, cp_key key);
bool cp_resident(const struct cp_cache *c, cp_key key);
/* A smaller capacity evicts nothing by itself: the caller evicts until cp_fits(c, 0). */
void cp_resize(struct cp_cache *c, uint64_t capacity);
void cp_stats(const struct cp_cache *c, struct cp_stats *out);

#endif
