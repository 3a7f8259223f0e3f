/* SPDX-License-Identifier: Apache-2.0
 *
 * How a policy is written. Included by the files in this folder only.
 *
 * policy.c keeps, for every policy alike, the entries: who is resident and with how many bytes,
 * who is pinned, who is a member of the running event, and the counts. A policy keeps nothing but
 * an order over them: the answer to "who goes next".
 *
 * An entry is *held* while it is pinned or a member of the running event; then it must not be
 * named as the victim. The policy is told: release() hands it an entry that may go, hold() takes
 * it back. Between the two nothing about the entry changes: use() and remove() come while it is
 * held or not resident. So a policy that sorts takes an entry out of its order in hold() and puts
 * it in again in release(), by its new rank, and never has to look past held entries.
 *
 *	event  1. release() the members of the last one, if resident and not pinned, in order
 *	       2. begin()
 *	       3. for each new member: hold() if it is resident and not held, then use()
 *	join   3. only
 *	touch  hold(), use(), release() if it was not held; else use() only
 *	admit  admit(), then release() if it is not held
 *	remove hold() if it was not held, then remove()
 *
 * An order is over a range of the experts, which it numbers from 0: all of them, or one layer's
 * under the policy quota. It is created with room for all it will ever need.
 */
#ifndef CACHEPOLICY_POLICIES_H
#define CACHEPOLICY_POLICIES_H

#include "cachepolicy/policy.h"

#define CP_NONE       UINT32_MAX
#define CP_PARAMS_MAX 8

/* 24 bytes for each expert of the model, whatever the policy. */
struct cp_entry {
	uint64_t bytes; /* as admitted; stays after the eviction, for what ghosts weigh */
	uint32_t pins;
	uint32_t next_member; /* of the running event, or CP_NONE */
	bool resident, member;
};

struct cp_popularity;

/* The first member of each policy's own struct. */
struct cp_order {
	const struct cp_policy *policy;
	const struct cp_entry *entry;     /* those of this order: entry[0] to entry[n - 1] */
	uint32_t layers, experts, n;      /* n = layers * experts */
	uint64_t capacity;                /* bytes for them */
	double param[CP_PARAMS_MAX];      /* in the order of policy->params */
	struct cp_popularity *popularity; /* of the policies that count: popularity.h */
};

struct cp_policy {
	const char *name;
	const char *about;             /* a few words for a list */
	const struct cp_param *params; /* NULL: none */
	size_t size;                   /* of the policy's own struct */

	/* The struct is zeroed but for its cp_order. inner: what follows the name in a spec if the
	 * policy takes_inner, else NULL. 0, -ENOMEM, -EINVAL or -ENOENT; destroy() follows in any
	 * case. Both may be NULL. */
	int (*create)(struct cp_order *o, const char *inner);
	void (*destroy)(struct cp_order *o);
	bool takes_inner; /* "quota:lru": the rest is a spec, not parameters */

	/* All below may be NULL, but for release() and victim(). i: an expert, 0 to n - 1. */
	void (*begin)(struct cp_order *o, uint64_t now);              /* an event begins */
	void (*use)(struct cp_order *o, uint32_t i, uint32_t weight); /* resident or not */
	void (*admit)(struct cp_order *o, uint32_t i);
	void (*remove)(struct cp_order *o, uint32_t i);
	void (*hold)(struct cp_order *o, uint32_t i);
	void (*release)(struct cp_order *o, uint32_t i);
	/* CP_NONE if there is none. want: who shall have the room, or CP_NONE if unknown. May move
	 * its hands; policy.c repeats the answer until anything else happens. */
	uint32_t (*victim)(struct cp_order *o, uint32_t want);
	void (*resize)(struct cp_order *o); /* o->capacity is new */
	void (*tuned)(struct cp_order *o);  /* o->param is new */
	/* Parameters that are not in params: those of an inner policy. Errors: cp_set(). */
	int (*set)(struct cp_order *o, const char *name, double value);
	int (*get)(const struct cp_order *o, const char *name, double *value);
	bool (*retune)(struct cp_order *o, const char *inner); /* cp_order_retune() of those */
	void (*seed)(struct cp_order *o, uint32_t i, double heat);
};

static inline bool cp_held(const struct cp_order *o, uint32_t i)
{
	return o->entry[i].pins || o->entry[i].member;
}

/* An order with its parameters as in args (NULL: as they start). Errors: cp_create_spec(). */
int cp_order_create(const struct cp_policy *policy, const char *args, const struct cp_order *shape,
		    struct cp_order **out);
int cp_order_create_spec(const char *spec, const struct cp_order *shape, struct cp_order **out);
/* If the order is of this spec's policy: its parameters as the spec has them. The spec has been
 * checked. */
bool cp_order_retune(struct cp_order *o, const char *spec);
void cp_order_destroy(struct cp_order *o); /* NULL is fine */
int cp_order_set(struct cp_order *o, const char *name, double value);
int cp_order_get(const struct cp_order *o, const char *name, double *value);

/* The order inside a cache, for a policy that needs more to start with than its parameters. */
struct cp_order *cp_order_of(struct cp_cache *c);

extern const struct cp_policy cp_lru, cp_lfu, cp_lfru, cp_clock, cp_2q, cp_arc, cp_s3fifo, cp_sieve,
	cp_wtinylfu, cp_lruk, cp_hotset, cp_quota, cp_expert;

#endif
