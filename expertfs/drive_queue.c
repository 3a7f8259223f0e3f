/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of a drive's queue; see drive_queue.h.
 */
#include "expertfs/drive_queue.h"

#include <stdatomic.h>
#include <string.h>

void queue_init(struct drive_queue *q)
{
	memset(q, 0, sizeof(*q));
	for (int c = 0; c < DRIVE_CLASSES; c++)
		q->tail[c] = &q->head[c];
}

static uint8_t class_now(const struct urgency *u)
{
	int c = atomic_load_explicit(&u->class, memory_order_relaxed);

	return (uint8_t)(c < 0 || c >= DRIVE_CLASSES ? DRIVE_CLASSES - 1 : c);
}

static void append(struct drive_queue *q, struct piece *p, uint8_t class)
{
	p->class = class;
	p->next = NULL;
	*q->tail[class] = p;
	q->tail[class] = &p->next;
	q->waiting[class] += p->length;
}

void queue_push(struct drive_queue *q, struct piece *p)
{
	append(q, p, class_now(p->urgency));
}

void queue_put_back(struct drive_queue *q, struct piece *p)
{
	uint8_t class = class_now(p->urgency);

	p->class = class;
	p->next = q->head[class];
	q->head[class] = p;
	if (!p->next)
		q->tail[class] = &p->next;
	q->waiting[class] += p->length;
}

/* What this class and those below it may have in flight. */
static uint64_t limit_of(const struct drive_queue *q, int class)
{
	uint64_t n;

	if (class == DRIVE_DEMAND)
		return IN_FLIGHT_BYTES;
	if (class == DRIVE_PROMOTION)
		return PROMOTION_BYTES;
	n = q->speed / 1000 * LOW_WAIT_NS / 1000000;
	if (q->speed == 0 || n > PREFETCH_BYTES_MAX)
		return PREFETCH_BYTES_MAX;
	return n < PREFETCH_BYTES_MIN ? PREFETCH_BYTES_MIN : n;
}

static uint64_t flying_from(const struct drive_queue *q, int from)
{
	uint64_t n = 0;

	for (int c = from; c < DRIVE_CLASSES; c++)
		n += q->flying[c];
	return n;
}

static struct piece *start(struct drive_queue *q, int class)
{
	struct piece *p = q->head[class];

	q->head[class] = p->next;
	if (!p->next)
		q->tail[class] = &q->head[class];
	q->waiting[class] -= p->length;
	q->flying[class] += p->length;
	q->pieces++;
	q->passed[class] = 0;
	for (int c = class + 1; c < DRIVE_CLASSES; c++)
		if (q->head[c])
			q->passed[c] += p->length;
	return p;
}

/* A class that has been passed by long enough, and has nothing in flight. */
static int trickle(const struct drive_queue *q)
{
	for (int c = DRIVE_CLASSES - 1; c > DRIVE_DEMAND; c--)
		if (q->head[c] && q->passed[c] >= TRICKLE_BYTES && q->flying[c] == 0)
			return c;
	return -1;
}

struct piece *queue_take(struct drive_queue *q)
{
	int class = trickle(q);
	uint64_t all = flying_from(q, 0);

	for (int c = 0; class < 0 && c < DRIVE_CLASSES; c++)
		if (q->head[c])
			class = c;
	if (class < 0 || q->pieces >= IN_FLIGHT_PIECES)
		return NULL;
	if (q->pieces > 0 && all + q->head[class]->length > IN_FLIGHT_BYTES)
		return NULL;
	if (flying_from(q, class) > 0 &&
	    flying_from(q, class) + q->head[class]->length > limit_of(q, class))
		return NULL;
	return start(q, class);
}

void queue_done(struct drive_queue *q, const struct piece *p)
{
	q->flying[p->class] -= p->length;
	q->pieces--;
}

void queue_reclass(struct drive_queue *q, const struct urgency *u)
{
	uint8_t to = class_now(u);

	for (int c = 0; c < DRIVE_CLASSES; c++) {
		struct piece **at = &q->head[c], *p;
		if (c == to)
			continue;
		while ((p = *at)) {
			if (p->urgency != u) {
				at = &p->next;
				continue;
			}
			*at = p->next;
			if (!p->next)
				q->tail[c] = at;
			q->waiting[c] -= p->length;
			append(q, p, to);
		}
	}
}

uint64_t queue_before(const struct drive_queue *q, enum drive_class class)
{
	uint64_t n = flying_from(q, 0);

	for (int c = 0; c <= (int)class; c++)
		n += q->waiting[c];
	return n;
}
