/* SPDX-License-Identifier: Apache-2.0
 *
 * The k largest of n scores, and which of equal ones.
 *
 * An indexer score is a weighted sum of ReLU terms, so all keys whose inner products are negative
 * score exactly 0, and the edge of a set may fall among equals. Two rules:
 *
 * TIES_LOWER_INDEX   of equal ones those that come first. What a query takes depends on nothing
 *                    but its own scores, so it stays as it is when the sequence grows.
 * TIES_REFERENCE     what torch.topk takes on a processor (ATen TopKImpl.h: std::partial_sort if
 *                    64 k <= n, else std::nth_element, as libstdc++ has them), for a row of n
 *                    scores of which the last ones are masked. The choice depends on n: the same
 *                    query may take other keys when the sequence grows.
 */
#ifndef ENGINE_TOPK_H
#define ENGINE_TOPK_H

#include <stdbool.h>
#include <stdint.h>

enum topk_ties { TIES_LOWER_INDEX, TIES_REFERENCE };

struct topk_item {
	float score;
	int32_t index;
};

/* score[visible]; no NaN. length >= visible: with TIES_REFERENCE the row's length, the scores
 * behind `visible` being masked. 1 <= k <= visible. out[k], ascending. work[length] for
 * TIES_REFERENCE, else NULL. Returns true if the edge fell among equals: another rule might have
 * taken others. */
bool topk_select(const float *score, int visible, int length, int k, enum topk_ties ties,
		 struct topk_item *work, int32_t *out);

#endif
