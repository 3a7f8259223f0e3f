/* SPDX-License-Identifier: Apache-2.0
 *
 * Many queries of one head, a block of keys at a time.
 */
#include "engine/attention_blocks.h"

#include <math.h>
#include <string.h>

#include "engine/min.h"

/* Of one query so far: the largest score, and the sum of the exponentials above it. */
struct softmax_state {
	float max;
	double sum;
};

void blocks_lay_out(struct block_work *w, int dim, int threads, struct arena *a)
{
	size_t n = (size_t)threads;

	w->keys = arena_take(a, n * (size_t)dim * BLOCK_KEYS, sizeof(float));
	w->score = arena_take(a, n * BLOCK_QUERIES * BLOCK_KEYS, sizeof(float));
	w->state = arena_take(a, n * BLOCK_QUERIES, sizeof(*w->state));
}

int blocks_first_key(int position, int window)
{
	return window && position >= window ? position - window + 1 : 0;
}

void blocks_begin(struct block_queries *q, const struct block_work *w, int thread,
		  const float *sinks)
{
	size_t t = (size_t)thread;

	q->keys = w->keys + t * (size_t)q->dim * BLOCK_KEYS;
	q->score = w->score + t * BLOCK_QUERIES * BLOCK_KEYS;
	q->state = w->state + t * BLOCK_QUERIES;
	for (int i = 0; i < q->n; i++) {
		q->state[i] = sinks ? (struct softmax_state){ sinks[i % q->group], 1 }
				    : (struct softmax_state){ -INFINITY, 0 };
		memset(q->out + (size_t)i * q->ldo, 0, (size_t)q->v_dim * sizeof(float));
	}
}

/* Sixteen rows at a time, so that what is written stays in the nearest cache. Columns that no key has
 * are 0. */
void blocks_turn_keys(const struct block_queries *q, int first, int rows, const float *from,
		      size_t ld, int m, float scale)
{
	float *to = q->keys + (size_t)first * BLOCK_KEYS;

	if (m < BLOCK_KEYS)
		memset(to, 0, (size_t)rows * BLOCK_KEYS * sizeof(float));
	for (int d = 0, n; d < rows; d += n) {
		n = min_int(rows - d, 16);
		for (size_t s = 0; s < (size_t)m; s++)
			for (int i = d; i < d + n; i++)
				to[(size_t)i * BLOCK_KEYS + s] = from[s * ld + (size_t)i] * scale;
	}
}

/* The scores of query i with a block's keys, of which it sees first .. end - 1, become their shares,
 * as far as they are known; what the query has of earlier blocks is brought to the same measure. */
static void share_out(const struct block_queries *q, int i, float *score, int first, int end)
{
	struct softmax_state *state = &q->state[i];
	float *out = q->out + (size_t)i * q->ldo, shrink;
	double sum = kernel()->softmax_part(score + first, end - first, &state->max, &shrink);

	memset(score, 0, (size_t)first * sizeof(float));
	memset(score + end, 0, (size_t)(BLOCK_KEYS - end) * sizeof(float));
	state->sum = state->sum * (double)shrink + sum;
	for (int d = 0; shrink != 1 && d < q->v_dim; d++)
		out[d] *= shrink;
}

void blocks_add(const struct block_queries *q, int s, int m, const float *values, size_t ldv)
{
	/* The first query that sees the first key, and behind the last one that sees the last key. */
	int from = s > q->position ? (s - q->position) * q->group : 0, to = q->n;

	int64_t seen = ((int64_t)s + m - 1 + q->window - q->position) * q->group;
	if (q->window && seen < to)
		to = (int)seen;
	if (from >= to)
		return;
	int count = to - from;
	float *out = q->out + (size_t)from * q->ldo;
	memset(q->score, 0, (size_t)count * BLOCK_KEYS * sizeof(float));
	q->mix(q->q + (size_t)from * q->ldq, q->ldq, count, q->keys, BLOCK_KEYS, q->dim, BLOCK_KEYS,
	       q->score, BLOCK_KEYS);
	for (int i = from; i < to; i++) {
		int position = q->position + i / q->group;
		int first = blocks_first_key(position, q->window) - s;
		share_out(q, i, q->score + (size_t)(i - from) * BLOCK_KEYS, first < 0 ? 0 : first,
			  min_int(m, position + 1 - s));
	}
	q->mix(q->score, BLOCK_KEYS, count, values, ldv, m, q->v_dim, out, q->ldo);
}

void blocks_end(const struct block_queries *q)
{
	for (int i = 0; i < q->n; i++) {
		float *out = q->out + (size_t)i * q->ldo, f = (float)(1 / q->state[i].sum);
		for (int d = 0; d < q->v_dim; d++)
			out[d] *= f;
	}
}
