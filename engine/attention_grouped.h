/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention whose heads of keys and values are each shared by a group of query heads (GQA, arXiv
 * 2305.13245), with what families add to it: biases, norms of queries and keys, clipping, a window,
 * sinks.
 *
 *	score[s] = q_h . k_g[s] * score_scale            g: the head that query head h shares
 *	p        = softmax(score, sink_h), the sink's share dropped
 *	o_h      = sum_s p[s] v_g[s]
 *
 * Queries are taken together with others of their group, so that a key is read once for them; each
 * number is still summed in the one fixed order, of which keys that a query does not see are no part
 * (their share is 0). The many of a long prompt go by blocks of keys (attention_blocks.h), which is
 * several times faster and not the same bits.
 */
#ifndef ENGINE_ATTENTION_GROUPED_H
#define ENGINE_ATTENTION_GROUPED_H

#include "engine/arena.h"
#include "engine/attention.h"

/* Query heads that a thread takes together at most, but for those: a row of scores each, 64 KiB of them for a
 * thousand keys. */
#define GROUPED_TILE 16

/* Takes the arrays of w for up to `rows` rows and contexts of ctx tokens. */
void attention_grouped_lay_out(struct attention_work *w, const struct model_config *c, int ctx,
			       int rows, int threads, struct arena *a);

/* h [m][hidden] += attention(rms_norm(h)). Appends the m rows to the cache. */
void attention_grouped(const struct compute *cp, const struct model_config *c,
		       const struct layer_weights *l, struct kvcache *kv,
		       const struct attention_task *task, struct attention_work *work, float *h);

#endif
