/* SPDX-License-Identifier: Apache-2.0
 *
 * Decayed counts of use: popularity.h.
 */
#include "cachepolicy/popularity.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

int cp_popularity_create(struct cp_popularity *p, const struct cp_order *o)
{
	p->of = calloc(o->n, sizeof(p->of[0]));
	return p->of ? 0 : -ENOMEM;
}

void cp_popularity_destroy(struct cp_popularity *p)
{
	free(p->of);
}

void cp_popularity_tick(struct cp_popularity *p, const struct cp_order *o, double half_life)
{
	p->now += 1 / (half_life * o->layers);
}

double cp_popularity_uses(const struct cp_popularity *p, uint32_t i)
{
	return p->of[i].uses * exp2(p->of[i].when - p->now);
}

void cp_popularity_add(struct cp_popularity *p, uint32_t i, double uses)
{
	p->of[i].uses = cp_popularity_uses(p, i) + uses;
	p->of[i].when = p->now;
}

double cp_popularity_log2(const struct cp_popularity *p, uint32_t i)
{
	return log2(p->of[i].uses) + p->of[i].when;
}

double cp_popularity_of_weight(uint32_t weight)
{
	return sqrt(weight);
}

int cp_counting_create(struct cp_order *o)
{
	o->popularity = calloc(1, sizeof(*o->popularity));
	return o->popularity ? cp_popularity_create(o->popularity, o) : -ENOMEM;
}

void cp_counting_destroy(struct cp_order *o)
{
	if (o->popularity)
		cp_popularity_destroy(o->popularity);
	free(o->popularity);
}

void cp_counting_begin(struct cp_order *o, uint64_t now)
{
	(void)now;
	cp_popularity_tick(o->popularity, o, o->param[CP_HALF_LIFE]);
}

void cp_counting_use(struct cp_order *o, uint32_t i, uint32_t weight)
{
	cp_popularity_add(o->popularity, i, cp_popularity_of_weight(weight));
}

void cp_counting_seed(struct cp_order *o, uint32_t i, double heat)
{
	cp_popularity_add(o->popularity, i, heat);
}
