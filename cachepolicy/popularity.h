/* SPDX-License-Identifier: Apache-2.0
 *
 * How often each expert has been used of late: a count that halves every half-life. It is kept for
 * all experts, resident or not.
 *
 * The half-life is in passes over the layers (tokens, while an engine decodes), so that a
 * parameter means the same for a model of 16 layers and one of 78. A count is kept as of its last
 * change; all of them shrink by the same factor, so their order only changes when one is used, and
 * the logarithm on a scale that rises by one each half-life, which cp_popularity_log2() gives,
 * stays true as time goes on: a heap of such values needs no repair.
 *
 * 16 bytes for each expert of the order.
 */
#ifndef CACHEPOLICY_POPULARITY_H
#define CACHEPOLICY_POPULARITY_H

#include "cachepolicy/policies.h"

struct cp_popularity {
	struct {
		double uses; /* as of `when` */
		double when;
	} * of;
	double now; /* in half-lives */
};

int cp_popularity_create(struct cp_popularity *p, const struct cp_order *o); /* 0, -ENOMEM */
void cp_popularity_destroy(struct cp_popularity *p);
/* An event of the order has begun. half_life: in passes. */
void cp_popularity_tick(struct cp_popularity *p, const struct cp_order *o, double half_life);
void cp_popularity_add(struct cp_popularity *p, uint32_t i, double uses);
double cp_popularity_log2(const struct cp_popularity *p, uint32_t i); /* -HUGE_VAL: never used */
double cp_popularity_uses(const struct cp_popularity *p, uint32_t i); /* decayed until now */

/* What a use counts that stands for many tokens of a prompt: the square root of their number. An
 * expert that a hundred tokens chose is likelier in the next one than one that a single token
 * chose, but they chose it for one subject. Of 1, 1 + log2, the root and the number itself the
 * root gave most hits on the first halves of the traces with the prompt as one event a layer, and
 * on the second. */
double cp_popularity_of_weight(uint32_t weight);

/* What the policies that count share: o->popularity, made and freed by the two, and the hooks begin,
 * use and seed. half_life is their first parameter. */
enum { CP_HALF_LIFE };

#define CP_HALF_LIFE_PARAM(passes)                                                                 \
	[CP_HALF_LIFE] = { "half_life", "passes over the layers after which a use counts half",    \
			   0.1, 1e6, passes }

int cp_counting_create(struct cp_order *o); /* 0, -ENOMEM */
void cp_counting_destroy(struct cp_order *o);
void cp_counting_begin(struct cp_order *o, uint64_t now);
void cp_counting_use(struct cp_order *o, uint32_t i, uint32_t weight);
void cp_counting_seed(struct cp_order *o, uint32_t i, double heat);

#endif
