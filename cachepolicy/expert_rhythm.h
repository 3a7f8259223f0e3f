/* SPDX-License-Identifier: Apache-2.0
 *
 * When is a layer visited next? For the policy `expert`, learned while it runs.
 *
 * Time is counted in changes of the layer. One reader that makes token after token comes back to a
 * layer after as many steps as there are layers. But a prompt may visit one layer once for each
 * token, two readers come by turns after few steps and after many, and a prompt may come in between
 * the tokens of another reader. So what is learned is which gap follows which: how often came each
 * of the gaps after the gap that was before the last visit of a layer? Gaps are told apart by half
 * octaves, and of each such class the mean is kept.
 *
 * 10 bytes for each layer, and two tables of some 20 KiB for 80 layers. No locks: the caller's.
 */
#ifndef CACHEPOLICY_EXPERT_RHYTHM_H
#define CACHEPOLICY_EXPERT_RHYTHM_H

#include <stdbool.h>
#include <stdint.h>

#define RHYTHM_CLASSES 28 /* no gap, and half octaves up to 4,096 steps */

/* Of gaps. */
struct rhythm_class {
	float mean, made_of_mean;
	float after[RHYTHM_CLASSES];   /* decayed counts of the gaps that came after it, */
	float sum;                     /* and of all of them */
	float made_of[RHYTHM_CLASSES]; /* the shares that its row of worth was made of, */
	float share[RHYTHM_CLASSES];   /* and what is added to be never sure */
};

struct rhythm {
	uint32_t round;        /* steps, as it is at the start: layers, if they are not too many */
	uint32_t ages, stride; /* of rows: steps up to which a layer may come, and whole lanes */
	uint32_t classes;
	uint32_t last; /* layer of the last visit, or UINT32_MAX */
	int64_t step;
	int64_t *visit; /* of each layer: step of its last visit */
	uint8_t *gap;   /* class of the gap before that; r->classes: it was never visited */
	bool *visited;
	struct rhythm_class *class;
	uint64_t changed; /* bit c: class c has learned something since its row was made */
	float nearness;
	float *power; /* of distances in half steps: to the -nearness */
	float *reach; /* by class and age: worth if the next gap is of this class; 0 if it is not */
	float *worth; /* by class of the gap before and age */
	uint32_t *end; /* of each class: one more than its longest gap */
};

int rhythm_create(struct rhythm *r, uint32_t layers, float nearness); /* 0 or -ENOMEM */
void rhythm_destroy(struct rhythm *r);                                /* also after an error */
void rhythm_tune(struct rhythm *r, float nearness);

void rhythm_visit(struct rhythm *r, uint32_t layer);

/* Brings the worths up to what was learned; before rhythm_worth(). */
void rhythm_update(struct rhythm *r);

/* What a certain use at this layer's next visit is worth: the mean of its distance to the
 * -nearness. For a layer that was never visited that is half a round. */
static inline float rhythm_worth(const struct rhythm *r, uint32_t layer)
{
	uint64_t age = (uint64_t)(r->step - r->visit[layer]);

	return r->worth[r->gap[layer] * r->stride + (age < r->ages ? age : r->ages - 1)];
}

#endif
