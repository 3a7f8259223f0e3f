/* SPDX-License-Identifier: Apache-2.0
 *
 * Selecting the k largest, with ties as topk.h says.
 *
 * The set without its ties is found by radix selection, in linear time. Only when the edge falls
 * among equals and the reference's rule is asked for is the reference's way gone: the selection
 * algorithms of a C++ library, step by step, because the order of their comparisons and moves is
 * what decides. They are known from the literature: Musser's introselect, Hoare's partition around
 * a median of three, Floyd's heap.
 */
#include "engine/topk.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Maps floats to integers of the same order; both zeros to one. */
static uint32_t order_of(float f)
{
	union {
		float f;
		uint32_t u;
	} x = { .f = f == 0 ? 0 : f };

	return x.u & 0x80000000u ? ~x.u : x.u | 0x80000000u;
}

/* The k-th largest, found byte by byte from histograms in four passes; *equal: how many of those
 * that equal it belong to the k. */
static uint32_t find_edge(const float *score, int n, int k, int *equal)
{
	uint32_t prefix = 0, mask = 0;

	*equal = k;
	for (int shift = 24; shift >= 0; shift -= 8) {
		int histogram[256] = { 0 }, byte = 255;
		for (int i = 0; i < n; i++) {
			uint32_t u = order_of(score[i]);
			histogram[u >> shift & 255] += (u & mask) == prefix;
		}
		while (byte > 0 && histogram[byte] < *equal)
			*equal -= histogram[byte--];
		prefix |= (uint32_t)byte << shift;
		mask |= 0xffu << shift;
	}
	return prefix;
}

static void swap(struct topk_item *a, struct topk_item *b)
{
	struct topk_item t = *a;

	*a = *b;
	*b = t;
}

/* Puts x into a heap of n whose place `hole` is free: the hole sinks to a leaf along the lesser
 * children, then x rises from there (the least of all is on top). */
static void heap_put(struct topk_item *heap, int hole, int n, struct topk_item x)
{
	int top = hole, child = hole;

	while (child < (n - 1) / 2) {
		child = 2 * (child + 1);
		if (heap[child].score > heap[child - 1].score)
			child--;
		heap[hole] = heap[child];
		hole = child;
	}
	if (n % 2 == 0 && child == (n - 2) / 2) {
		heap[hole] = heap[2 * child + 1];
		hole = 2 * child + 1;
	}
	for (; hole > top && heap[(hole - 1) / 2].score > x.score; hole = (hole - 1) / 2)
		heap[hole] = heap[(hole - 1) / 2];
	heap[hole] = x;
}

/* The k largest of n to the front. */
static void heap_select(struct topk_item *a, int k, int n)
{
	for (int parent = (k - 2) / 2; k >= 2 && parent >= 0; parent--)
		heap_put(a, parent, k, a[parent]);
	for (int i = k; i < n; i++) {
		if (a[i].score > a[0].score) {
			struct topk_item x = a[i];
			a[i] = a[0];
			heap_put(a, 0, k, x);
		}
	}
}

static void insertion_sort(struct topk_item *a, int n)
{
	for (int i = 1; i < n; i++) {
		struct topk_item x = a[i];
		int j = i;
		while (j > 0 && x.score > a[j - 1].score) {
			a[j] = a[j - 1];
			j--;
		}
		a[j] = x;
	}
}

/* The median of a[1], the middle and the last to a[0]: the pivot. */
static void choose_pivot(struct topk_item *a, int n)
{
	struct topk_item *x = &a[1], *y = &a[n / 2], *z = &a[n - 1];

	if (x->score > y->score)
		swap(a, y->score > z->score ? y : x->score > z->score ? z : x);
	else
		swap(a, x->score > z->score ? x : y->score > z->score ? z : y);
}

/* Splits a[1..n) around the pivot a[0]; returns where the second part begins. */
static int partition(struct topk_item *a, int n)
{
	int left = 1, right = n;

	for (;;) {
		while (a[left].score > a[0].score)
			left++;
		do
			right--;
		while (a[0].score > a[right].score);
		if (left >= right)
			return left;
		swap(&a[left++], &a[right]);
	}
}

/* The k largest of n to the front, by partitions around the k-th; a heap if these go badly. */
static void introselect(struct topk_item *a, int k, int n)
{
	int from = 0, to = n, depth = 0;

	for (int m = n; m > 1; m /= 2)
		depth += 2;
	while (to - from > 3) {
		if (depth-- == 0) {
			heap_select(a + from, k - from, to - from);
			swap(&a[from], &a[k - 1]);
			return;
		}
		choose_pivot(a + from, to - from);
		int cut = from + partition(a + from, to - from);
		if (cut <= k - 1)
			from = cut;
		else
			to = cut;
	}
	insertion_sort(a + from, to - from);
}

static void select_as_reference(const float *score, int visible, int length, int k,
				struct topk_item *work, int32_t *out)
{
	int taken = 0;

	for (int i = 0; i < length; i++)
		work[i] = (struct topk_item){ i < visible ? score[i] : -INFINITY, i };
	if (64 * (int64_t)k <= length)
		heap_select(work, k, length);
	else
		introselect(work, k, length);
	/* Into ascending order: mark, then sweep. The places behind the k are free for the marks.
	 */
	for (int i = 0; i < k; i++)
		out[i] = work[i].index;
	for (int i = 0; i < visible; i++)
		work[i].index = 0;
	for (int i = 0; i < k; i++)
		work[out[i]].index = 1;
	for (int i = 0; i < visible; i++)
		if (work[i].index)
			out[taken++] = i;
}

bool topk_select(const float *score, int visible, int length, int k, enum topk_ties ties,
		 struct topk_item *work, int32_t *out)
{
	int equal, all = 0, taken = 0;
	assert(k >= 1 && k <= visible && visible <= length);
	uint32_t edge = find_edge(score, visible, k, &equal);

	for (int i = 0; i < visible; i++)
		all += order_of(score[i]) == edge;
	if (all > equal && ties == TIES_REFERENCE) {
		select_as_reference(score, visible, length, k, work, out);
		return true;
	}
	for (int i = 0, left = equal; taken < k; i++) {
		uint32_t u = order_of(score[i]);
		if (u > edge || (u == edge && left-- > 0))
			out[taken++] = i;
	}
	return all > equal;
}
