/* SPDX-License-Identifier: Apache-2.0
 *
 * Sampling.
 */
#include "engine/sampler.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "engine/fail.h"
#include "engine/topk.h"

struct candidate {
	int32_t id;
	double p; /* exp((logit - largest) / temperature) */
};

struct sampler {
	struct sampler_options o;
	struct rng rng;
	int vocab, allowed_count;
	bool *allowed;
	float *logits; /* with -inf where not allowed */
	int32_t *ids;
	struct candidate *candidates;
};

static uint64_t rotate(uint64_t x, int k)
{
	return x << k | x >> (64 - k);
}

void rng_seed(struct rng *r, uint64_t seed)
{
	for (int i = 0; i < 4; i++) { /* splitmix64 */
		uint64_t z = seed += 0x9e3779b97f4a7c15u;
		z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
		z = (z ^ z >> 27) * 0x94d049bb133111ebu;
		r->s[i] = z ^ z >> 31;
	}
}

uint64_t rng_next(struct rng *r)
{
	uint64_t *s = r->s, out = rotate(s[1] * 5, 7) * 9, t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotate(s[3], 45);
	return out;
}

double rng_unit(struct rng *r)
{
	return (double)(rng_next(r) >> 11) * 0x1p-53;
}

size_t sampler_bytes(int vocab)
{
	const struct sampler *s; /* for its types */

	return sizeof(*s) + (size_t)vocab * (sizeof(*s->allowed) + sizeof(*s->logits) +
					     sizeof(*s->ids) + sizeof(*s->candidates));
}

int sampler_new(const struct sampler_options *o, const bool *allowed, int vocab,
		struct sampler **out, char *why)
{
	struct sampler *s = calloc(1, sizeof(*s));
	size_t n = (size_t)vocab;

	*out = NULL;
	if (s) {
		s->o = *o;
		s->vocab = vocab;
		s->allowed = malloc(n * sizeof(*s->allowed));
		s->logits = malloc(n * sizeof(*s->logits));
		s->ids = malloc(n * sizeof(*s->ids));
		s->candidates = malloc(n * sizeof(*s->candidates));
	}
	if (!s || !s->allowed || !s->logits || !s->ids || !s->candidates) {
		sampler_free(s);
		return fail(why, ENOMEM, "no memory to sample from %d tokens", vocab);
	}
	for (int i = 0; i < vocab; i++) {
		s->allowed[i] = allowed[i];
		s->allowed_count += allowed[i];
	}
	rng_seed(&s->rng, o->seed);
	*out = s;
	return 0;
}

void sampler_free(struct sampler *s)
{
	if (!s)
		return;
	free(s->candidates);
	free(s->ids);
	free(s->logits);
	free(s->allowed);
	free(s);
}

int sampler_likeliest(const struct sampler *s, const float *logits)
{
	int best = -1;

	for (int i = 0; i < s->vocab; i++)
		if (s->allowed[i] && (best < 0 || logits[i] > logits[best]))
			best = i;
	return best;
}

static int by_probability(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	if (x->p != y->p)
		return x->p > y->p ? -1 : 1;
	return x->id < y->id ? -1 : 1;
}

/* The k most likely into s->candidates, in descending order if sorted. Returns their sum. */
static double gather(struct sampler *s, float largest, int k, bool sorted)
{
	double sum = 0;

	topk_select(s->logits, s->vocab, s->vocab, k, TIES_LOWER_INDEX, NULL, s->ids);
	for (int i = 0; i < k; i++) {
		double x = ((double)s->logits[s->ids[i]] - (double)largest) / s->o.temperature;
		s->candidates[i] = (struct candidate){ s->ids[i], exp(x) };
	}
	if (sorted)
		qsort(s->candidates, (size_t)k, sizeof(*s->candidates), by_probability);
	for (int i = 0; i < k; i++)
		sum += s->candidates[i].p;
	return sum;
}

/* Cuts the candidates to the fewest that reach `wanted`. Returns how many; *sum is theirs. Returns
 * 0 if all of them do not reach it. */
static int cut(const struct sampler *s, int n, double wanted, double *sum)
{
	double reached = 0;

	for (int i = 0; i < n; i++) {
		reached += s->candidates[i].p;
		if (reached >= wanted) {
			*sum = reached;
			return i + 1;
		}
	}
	return 0;
}

/* top-p of n candidates whose sum is *sum. Few tokens usually hold nearly all probability, so the
 * likeliest are sorted alone, more only if they do not reach far enough. */
static int keep_top_p(struct sampler *s, float largest, int n, double *sum)
{
	double wanted = *sum * s->o.top_p, all = *sum;

	for (int k = n < 64 ? n : 64;; k = k < n / 4 ? 4 * k : n) {
		gather(s, largest, k, true);
		int kept = cut(s, k, wanted, sum);
		if (kept)
			return kept;
		if (k == n) { /* rounding kept the sum below the mark */
			*sum = all;
			return n;
		}
	}
}

int sampler_pick(struct sampler *s, const float *logits)
{
	int best = sampler_likeliest(s, logits), n = s->allowed_count;

	if (s->o.temperature <= 0)
		return best;
	for (int i = 0; i < s->vocab; i++)
		s->logits[i] = s->allowed[i] ? logits[i] : -INFINITY;
	if (s->o.top_k > 0 && s->o.top_k < n)
		n = s->o.top_k;
	double sum = gather(s, logits[best], n, false);
	if (s->o.top_p < 1)
		n = keep_top_p(s, logits[best], n, &sum);
	double mark = rng_unit(&s->rng) * sum;
	for (int i = 0; i < n; i++) {
		mark -= s->candidates[i].p;
		if (mark < 0)
			return s->candidates[i].id;
	}
	return best; /* rounding: the mark lay at the very end */
}
