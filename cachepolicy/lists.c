/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of experts: lists.h. Rings, whose heads are nodes of the same table.
 */
#include "cachepolicy/lists.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

int cp_lists_create(struct cp_lists *l, const struct cp_order *o, uint32_t lists)
{
	assert(lists <= CP_LISTS_MAX);
	l->n = o->n;
	l->node = calloc((size_t)o->n + lists, sizeof(l->node[0]));
	if (!l->node)
		return -ENOMEM;
	for (uint32_t i = 0; i < o->n; i++)
		l->node[i].list = CP_NONE;
	for (uint32_t head = o->n; head < o->n + lists; head++)
		l->node[head].prev = l->node[head].next = head;
	return 0;
}

void cp_lists_destroy(struct cp_lists *l)
{
	free(l->node);
}

void cp_lists_unlink(struct cp_lists *l, uint32_t i)
{
	struct cp_node *node = &l->node[i];

	if (!node->linked)
		return;
	l->node[node->prev].next = node->next;
	l->node[node->next].prev = node->prev;
	node->linked = false;
}

void cp_lists_link(struct cp_lists *l, uint32_t i)
{
	struct cp_node *node = &l->node[i];
	uint32_t head = l->n + node->list;

	assert(!node->linked && node->list != CP_NONE);
	node->next = head;
	node->prev = l->node[head].prev;
	l->node[node->prev].next = i;
	l->node[head].prev = i;
	node->linked = true;
}

void cp_lists_assign(struct cp_lists *l, uint32_t i, uint32_t list, uint64_t bytes)
{
	struct cp_node *node = &l->node[i];

	cp_lists_unlink(l, i);
	if (node->list != CP_NONE) {
		l->bytes[node->list] -= node->bytes;
		l->members[node->list]--;
	}
	node->list = list;
	node->bytes = bytes;
	if (list != CP_NONE) {
		l->bytes[list] += bytes;
		l->members[list]++;
	}
}

void cp_lists_move(struct cp_lists *l, uint32_t i, uint32_t list, uint64_t bytes)
{
	cp_lists_assign(l, i, list, bytes);
	cp_lists_link(l, i);
}

static uint32_t or_none(const struct cp_lists *l, uint32_t i)
{
	return i < l->n ? i : CP_NONE;
}

uint32_t cp_lists_oldest(const struct cp_lists *l, uint32_t list)
{
	return or_none(l, l->node[l->n + list].next);
}

uint32_t cp_lists_newer(const struct cp_lists *l, uint32_t i)
{
	return or_none(l, l->node[i].next);
}

uint32_t cp_lists_oldest_free(struct cp_lists *l, const struct cp_order *o, uint32_t list)
{
	uint32_t i;

	while ((i = cp_lists_oldest(l, list)) != CP_NONE && cp_held(o, i))
		cp_lists_unlink(l, i);
	return i;
}

int cp_listed_create(struct cp_order *o, uint32_t lists)
{
	struct cp_listed *l = cp_listed_of(o);

	l->mark = calloc(o->n, sizeof(l->mark[0]));
	return l->mark ? cp_lists_create(&l->lists, o, lists) : -ENOMEM;
}

int cp_listed_create_one(struct cp_order *o, const char *inner)
{
	(void)inner;
	return cp_listed_create(o, 1);
}

void cp_listed_destroy(struct cp_order *o)
{
	free(cp_listed_of(o)->mark);
	cp_lists_destroy(&cp_listed_of(o)->lists);
}

void cp_listed_enter(struct cp_order *o, uint32_t i)
{
	cp_listed_of(o)->mark[i] = 0;
	cp_lists_assign(&cp_listed_of(o)->lists, i, 0, o->entry[i].bytes);
}

void cp_listed_leave(struct cp_order *o, uint32_t i)
{
	cp_lists_assign(&cp_listed_of(o)->lists, i, CP_NONE, 0);
}

void cp_listed_unlink(struct cp_order *o, uint32_t i)
{
	cp_lists_unlink(&cp_listed_of(o)->lists, i);
}

void cp_listed_link(struct cp_order *o, uint32_t i)
{
	if (!cp_listed_of(o)->lists.node[i].linked)
		cp_lists_link(&cp_listed_of(o)->lists, i);
}

void cp_listed_mark(struct cp_order *o, uint32_t i, uint32_t weight)
{
	(void)weight;
	cp_listed_of(o)->mark[i] = o->entry[i].resident;
}
