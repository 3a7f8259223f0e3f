/* SPDX-License-Identifier: Apache-2.0
 *
 * What came after sets like this one? The past of each layer, and the echo that `expert` hears in
 * it: among the earlier visits that chose much the same set as the last one did, the share of those
 * after which an expert came next. It finds repetition, and that one expert follows another. It is
 * to sets what the match model is to text in context mixing (expert_guess.h).
 *
 * 24 bytes for each expert, 1,050 for each layer. No locks: the caller's.
 */
#ifndef CACHEPOLICY_EXPERT_PAST_H
#define CACHEPOLICY_EXPERT_PAST_H

#include <stdbool.h>
#include <stdint.h>

#define PAST_VISITS 64 /* that are remembered of each layer */

struct past_visit {
	uint64_t start;    /* of its members, counted in places of the ring since the start */
	uint32_t at, size; /* in the ring they begin here, and are so many */
};

struct past_layer {
	uint64_t visits;
	uint64_t end;                         /* places of the ring that were used so far */
	uint32_t at;                          /* where it goes on */
	bool overwriting;                     /* the members of visits that are remembered */
	struct past_visit visit[PAST_VISITS]; /* visit v at v % 64 */
};

struct past {
	uint32_t layers, experts, stride;
	uint64_t *seen; /* by layer and expert, stride apart: bit v % 64: visit v chose it */
	uint16_t *ring; /* for each layer the members of its visits, one after the other */
	struct past_layer *layer;
};

/* stride: experts, up to a multiple of LANES. 0 or -ENOMEM; past_destroy() in any case. */
int past_create(struct past *p, uint32_t layers, uint32_t experts, uint32_t stride);
void past_destroy(struct past *p);

/* For a visit of these n members, which is not yet added: for each expert the logarithm of the share
 * of the visits after ones like it which chose it. echo has p->stride places. One pass over the
 * experts of the layer, and some steps for each member, and for each of a visit that is alike. */
void past_listen(const struct past *p, uint32_t layer, const uint32_t *members, uint32_t n,
		 float *echo);
void past_add(struct past *p, uint32_t layer, const uint32_t *members, uint32_t n);

/* Members of the last visit that was added; 0 if there was none. */
uint32_t past_last_size(const struct past *p, uint32_t layer);

#endif
