/* SPDX-License-Identifier: Apache-2.0
 *
 * Many queries of a long prompt with the keys and values of one head, a block of keys at a time: what
 * the expanded form of latent attention and grouped attention have in common.
 *
 *	o[i] = sum_s softmax_s(q[i] . k[s], sink) v[s]      over the keys s that query i sees
 *
 * Blocks are of BLOCK_KEYS keys, counted from position 0; the softmax is that of Milakov and
 * Gimelshein (arXiv 1805.02867): its largest number so far and the sum of the exponentials are
 * carried from block to block. So what a query gives depends neither on which others come with it
 * nor on how many threads there are; but it is not the bits of attention key by key.
 *
 * The keys of a block lie as columns, so that scores are sums of rows, which need no adding up of
 * lanes: both products are a kernel_mix.
 */
#ifndef ENGINE_ATTENTION_BLOCKS_H
#define ENGINE_ATTENTION_BLOCKS_H

#include "engine/arena.h"
#include "engine/compute.h"

#define BLOCK_KEYS    64
#define BLOCK_QUERIES 256 /* at most: their vectors of one head lie in a second-level cache */

struct softmax_state;

struct block_work {
	float *keys;                 /* [threads][dim][BLOCK_KEYS] */
	float *score;                /* [threads][BLOCK_QUERIES][BLOCK_KEYS] */
	struct softmax_state *state; /* [threads][BLOCK_QUERIES] */
};

/* Takes the arrays; dim: numbers of a key. */
void blocks_lay_out(struct block_work *w, int dim, int threads, struct arena *a);

/* n queries, BLOCK_QUERIES at most, and what comes of them. Query i is at position + i / group, and
 * sees the keys up to there, with a window (0: none) only the last `window` of them. */
struct block_queries {
	int n, dim, v_dim;
	int position, group, window;
	const float *q; /* [n][dim], ldq apart */
	size_t ldq;
	float *out; /* [n][v_dim], ldo apart */
	size_t ldo;
	kernel_mix *mix;
	/* Of the thread at work. */
	float *keys, *score;
	struct softmax_state *state;
};

/* How to mix where keys and values come of products with w: what 8-bit ones cost is more than what the
 * fastest saves. */
static inline kernel_mix *blocks_mix(const struct compute *c, const struct wmat *w)
{
	return compute_in_int8(c, w) ? kernel()->mix_many : kernel()->mix_block;
}

/* The position of the lowest key that a query at this one sees. */
int blocks_first_key(int position, int window);

/* sinks: one score more for each of the group, whose share is dropped; or NULL. */
void blocks_begin(struct block_queries *q, const struct block_work *w, int thread,
		  const float *sinks);
/* Numbers first .. first + rows - 1 of m keys, which lie ld apart, become columns, scaled. */
void blocks_turn_keys(const struct block_queries *q, int first, int rows, const float *from,
		      size_t ld, int m, float scale);
/* What the keys s .. s + m - 1, which have been turned, give to all queries that see any of them; s a
 * multiple of BLOCK_KEYS, in ascending order. */
void blocks_add(const struct block_queries *q, int s, int m, const float *values, size_t ldv);
void blocks_end(const struct block_queries *q);

#endif
