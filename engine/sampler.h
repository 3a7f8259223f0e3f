/* SPDX-License-Identifier: Apache-2.0
 *
 * From logits to a token: temperature, then top-k, then top-p, then a draw.
 *
 * The generator is xoshiro256** (Blackman and Vigna, "Scrambled linear pseudorandom number
 * generators", 2021) seeded by splitmix64: a seed gives the same stream of draws everywhere.
 */
#ifndef ENGINE_SAMPLER_H
#define ENGINE_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rng {
	uint64_t s[4];
};

void rng_seed(struct rng *r, uint64_t seed);
uint64_t rng_next(struct rng *r);
double rng_unit(struct rng *r); /* [0, 1), 53 bits */

struct sampler_options {
	double temperature; /* 0: always the most likely token; nothing is drawn */
	int top_k;          /* the k most likely only; 0: all */
	double top_p; /* the fewest of the most likely that together have this probability; 1: all
		       */
	uint64_t seed;
};

struct sampler;

/* Bytes that sampler_new() takes. */
size_t sampler_bytes(int vocab);
/* allowed [vocab]: which tokens may come out, at least one; copied. 0 or -ENOMEM. */
int sampler_new(const struct sampler_options *o, const bool *allowed, int vocab,
		struct sampler **out, char *why);
void sampler_free(struct sampler *s); /* NULL is fine */

/* The token that a temperature of 0 takes; draws nothing. */
int sampler_likeliest(const struct sampler *s, const float *logits);

/* logits [vocab], all finite. Of equal ones the lowest id counts as the likelier. */
int sampler_pick(struct sampler *s, const float *logits);

#endif
