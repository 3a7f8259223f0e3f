/* SPDX-License-Identifier: Apache-2.0
 *
 * The router.
 */
#include "engine/router.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

/* Not to be chosen (any more). Below every score, as those are kept finite from below. */
#define CLOSED (-INFINITY)

/* The first of the largest. */
static int largest(const float *score, int n)
{
	int best = 0;

	for (int i = 1; i < n; i++)
		if (score[i] > score[best])
			best = i;
	return best;
}

static float sum_of_two_largest(const float *score, int n)
{
	float first = -INFINITY, second = -INFINITY;

	for (int i = 0; i < n; i++) {
		if (score[i] > first) {
			second = first;
			first = score[i];
		} else if (score[i] > second) {
			second = score[i];
		}
	}
	return first + second;
}

/* Closes all groups but the groups_kept best. */
static void keep_groups(const struct model_config *c, float *score)
{
	int n = c->experts / c->groups;

	for (int drop = c->groups - c->groups_kept; drop > 0; drop--) {
		float *worst = NULL, least = 0;
		for (float *group = score; group < score + c->experts; group += n) {
			float counts = c->group_score == GROUP_TWO_LARGEST
					       ? sum_of_two_largest(group, n)
					       : group[largest(group, n)];
			if (group[0] == CLOSED)
				continue;
			if (!worst || counts <= least) { /* of equal ones the last goes */
				worst = group;
				least = counts;
			}
		}
		for (int i = 0; worst && i < n; i++)
			worst[i] = CLOSED;
	}
}

/* The divisor of a softmax over all n logits, and the logit that is taken off each. */
static float softmax_sum(const float *logits, int n, float *max)
{
	float sum = 0;

	*max = logits[largest(logits, n)];
	for (int i = 0; i < n; i++)
		sum += expf(logits[i] - *max);
	return sum;
}

void router_weigh(const struct model_config *c, const float *logits, struct choice *out)
{
	float sum = 0, max = 0, all = 1;

	if (c->scoring == SCORE_SOFTMAX)
		all = softmax_sum(logits, c->experts, &max);
	if (c->scoring == SCORE_SOFTMAX_CHOSEN) {
		max = logits[out[0].expert];
		for (int i = 1; i < c->topk; i++)
			max = fmaxf(max, logits[out[i].expert]);
	}
	for (int i = 0; i < c->topk; i++) {
		float l = logits[out[i].expert];
		out[i].weight = c->scoring == SCORE_SIGMOID ? sigmoid(l) : expf(l - max) / all;
		sum += out[i].weight;
	}
	for (int i = 0; i < c->topk; i++) {
		if (c->norm_topk || c->scoring == SCORE_SOFTMAX_CHOSEN)
			out[i].weight /= sum + 1e-20f;
		out[i].weight *= c->routed_scale;
	}
}

static int by_expert(const void *a, const void *b)
{
	return ((const struct choice *)a)->expert - ((const struct choice *)b)->expert;
}

void router_choose(const struct model_config *c, const float *logits, const float *bias,
		   float *score, struct choice *out)
{
	for (int i = 0; i < c->experts; i++) {
		/* A softmax keeps the order, so that the logits serve for it. */
		float s = c->scoring == SCORE_SIGMOID ? sigmoid(logits[i]) : logits[i];
		s += bias ? bias[i] : 0;
		score[i] = s > -FLT_MAX ? s : -FLT_MAX; /* what is not a number loses */
	}
	if (c->groups > 1)
		keep_groups(c, score);
	for (int i = 0; i < c->topk; i++) {
		out[i].expert = largest(score, c->experts);
		score[out[i].expert] = CLOSED;
	}
	qsort(out, (size_t)c->topk, sizeof(*out), by_expert);
	router_weigh(c, logits, out);
}
