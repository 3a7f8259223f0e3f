/* SPDX-License-Identifier: Apache-2.0
 *
 * Which copy of an expert is read, and what becomes of one that is no good; see loader_copies.h.
 *
 * A copy that is late is waited for: another one could be read at the same time only into other
 * memory, since the drive may still write the first one's bytes, and nobody has looked at those,
 * when the second is done. That is an expert's size more for each load, and the backlog keeps loads
 * away from a slow drive anyway.
 */
#include "expertfs/loader_copies.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "expertfs/fail.h"
#include "expertfs/log.h"

/* Two copies whose times differ by less than an eighth are as good as each other. */
#define TIE_SHARE 8

uint64_t copy_bit(const struct copy *c)
{
	return c->number == COPY_HOT ? 1 : (uint64_t)1 << c->number;
}

static struct copy hot_copy(const struct job *j)
{
	struct extent_list *l = j->place.hot;

	return (struct copy){ l, l ? l->x : NULL, l ? l->n : 0, COPY_HOT };
}

static struct copy packed_copy(struct extent_list *l, unsigned number)
{
	struct copy c = { .list = l, .number = number };

	c.x = extent_list_copy(l, number, &c.n);
	return c;
}

struct copy copy_numbered(const struct job *j, unsigned number)
{
	struct extent_list *l = j->place.packed;

	if (number == COPY_HOT)
		return hot_copy(j);
	if (number < COPIES_MAX)
		return packed_copy(l, number);
	return (struct copy){ .number = number };
}

struct drive *copy_drive(const struct loader *l, const struct extent *x)
{
	return __atomic_load_n(&l->drive[x->drive], __ATOMIC_ACQUIRE);
}

/* Whether all of a copy's drives are there. */
bool copy_there(struct job *j, const struct copy *c)
{
	for (uint32_t i = 0; i < c->n; i++)
		if (!copy_drive(j->l, &c->x[i])) {
			j->missing = j->missing ? j->missing : &c->x[i];
			return false;
		}
	return c->n > 0;
}

static bool failing(const struct loader *l, const struct copy *c)
{
	for (uint32_t i = 0; i < c->n; i++)
		if (drive_failing(copy_drive(l, &c->x[i])))
			return true;
	return false;
}

/* Copies that are only taken when there is no other: known to be bad, or on a failing drive. */
bool copy_last_resort(const struct loader *l, const struct copy *c)
{
	return (atomic_load(&c->list->bad) & copy_bit(c)) || failing(l, c);
}

/* Nanoseconds until the last byte of the copy would have come. */
static uint64_t time_of(const struct job *j, const struct copy *c)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < c->n; i++) {
		uint64_t ns = drive_backlog(copy_drive(j->l, &c->x[i]), j->class, c->x[i].length);
		if (ns > most)
			most = ns;
	}
	return copy_last_resort(j->l, c) ? UINT64_MAX : most;
}

/* A number below n, another one each time. By chance and not in turn: experts that are asked for
 * one after the other have their copies on the drives in turn as well. */
static unsigned any_of(unsigned n)
{
	static _Atomic uint32_t count;
	uint32_t x = atomic_fetch_add_explicit(&count, 1, memory_order_relaxed) * 0x9e3779b9u;

	x = (x ^ x >> 16) * 0x85ebca6bu;
	x = (x ^ x >> 13) * 0xc2b2ae35u;
	return (x ^ x >> 16) % n;
}

/* The untried packed copies whose drives are there. Returns how many. */
static unsigned untried_copies(struct job *j, struct copy untried[COPIES_MAX])
{
	struct extent_list *l = j->place.packed;
	unsigned n = 0;

	for (unsigned i = 0; i < extent_list_copies(l) && i < COPIES_MAX; i++) {
		struct copy c = packed_copy(l, i);
		if (!(j->tried & copy_bit(&c)) && copy_there(j, &c))
			untried[n++] = c;
	}
	return n;
}

/* The one of them that would come first; *others: there are more. */
static struct copy best_packed(struct job *j, bool *others)
{
	struct copy untried[COPIES_MAX];
	uint64_t ns[COPIES_MAX], best = UINT64_MAX;
	unsigned n = untried_copies(j, untried), equal = 0;

	*others = n > 1;
	if (n <= 1) /* the usual case asks no drive */
		return n ? untried[0] : (struct copy){ .x = NULL };
	for (unsigned i = 0; i < n; i++) {
		ns[i] = time_of(j, &untried[i]);
		best = ns[i] < best ? ns[i] : best;
	}
	for (unsigned i = 0; i < n; i++)
		if (ns[i] - best <= best / TIE_SHARE)
			untried[equal++] = untried[i];
	return untried[any_of(equal)];
}

/* The copy to try next: x is NULL when none is left. *others: there is another one after it. */
static struct copy next_copy(struct job *j, bool *others)
{
	struct copy hot = hot_copy(j), c;
	bool has_hot = hot.x && !j->hot_tried && copy_there(j, &hot);

	if (has_hot && !copy_last_resort(j->l, &hot)) {
		j->hot_tried = true;
		*others = true;
		return hot;
	}
	c = best_packed(j, others);
	if (c.x && (!has_hot || !copy_last_resort(j->l, &c))) {
		j->tried |= copy_bit(&c);
		*others = *others || has_hot;
		return c;
	}
	if (has_hot) {
		j->hot_tried = true;
		*others = c.x != NULL;
		return hot;
	}
	return c;
}

int job_fault(const struct job *j, const struct extent *x, int err, const struct read_fault *f,
	      char *why)
{
	const struct store_expert *e = j->e;

	if (err == -ENOMEM)
		return fail(why, ENOMEM, "expert %u/%u: out of memory", e->layer, e->expert);
	if (err)
		return fail(why, EIO, "expert %u/%u: reading %s at %" PRIu64 ": %s", e->layer,
			    e->expert, drive_path(f->drive), f->offset, strerror(-err));
	return fail(why, EIO,
		    "expert %u/%u: the checksum of %" PRIu64 " bytes at %" PRIu64 " in %s is wrong",
		    e->layer, e->expert, x->length, x->offset, drive_path(copy_drive(j->l, x)));
}

/* No copy could be tried at all. */
static int say_missing(const struct job *j, char *why)
{
	const struct store_drive *d = j->missing ? &j->l->store->drive[j->missing->drive] : NULL;

	return fail(why, EIO, "expert %u/%u lies on a drive that is missing: %s", j->e->layer,
		    j->e->expert, d && d->path ? d->path : "the hot drive");
}

bool copy_must_prove(const struct loader *l, const struct copy *c)
{
	if (l->verify == VERIFY_NEVER || c->list->unchecked)
		return false;
	return l->verify == VERIFY_ALWAYS || atomic_load(&l->store->doubtful) ||
	       !(atomic_load(&c->list->proved) & copy_bit(c));
}

void job_begin(struct job *j, const struct loader *l, uint32_t index, enum drive_class class)
{
	*j = (struct job){ .l = l, .e = &l->store->expert[index], .class = class };
	store_take(l->store, index, &j->place);
}

void job_end(struct job *j)
{
	const struct loader *l = j->l;

	store_give(l->store, &j->place);
	if (j->hot_bad && l->hot_bad)
		l->hot_bad(l->hot_arg, (uint32_t)(j->e - l->store->expert));
}

/* A copy has been tried to the end. Says so in the log once, if it is the copy's own fault: of a
 * failing drive that was said already, and when it works again its copies are as good as before. */
static void note_result(struct job *j, const struct copy *c, int err, const char *text)
{
	uint64_t bit = copy_bit(c);

	if (err == 0) {
		if (atomic_load(&c->list->bad) & bit)
			atomic_fetch_and(&c->list->bad, ~bit);
		return;
	}
	if (err == -ENOMEM || failing(j->l, c))
		return;
	if (c->number == COPY_HOT)
		j->hot_bad = true;
	if (!(atomic_fetch_or(&c->list->bad, bit) & bit))
		log_line(LOG_WARNING, "%s", text);
}

int job_try_copies(struct job *j, try_copy *one, void *arg, unsigned *copy, char *why)
{
	char text[WHY_MAX];
	int first = 0, err;
	bool others;

	for (;;) {
		struct copy c = next_copy(j, &others);
		if (!c.x)
			return first ? first : say_missing(j, why);
		*copy = c.number;
		err = one(j, &c, arg, text);
		if (err && !(others && failing(j->l, &c)))
			err = one(j, &c, arg, text);
		note_result(j, &c, err, text);
		if (err == 0)
			return 0;
		if (first == 0) {
			first = err;
			fail(why, 0, "%s", text);
		}
	}
}

int copy_check_files(const struct job *j, const struct copy *c, char *why)
{
	for (uint32_t i = 0; c->list->unchecked && i < c->n; i++) {
		const struct store_drive *d = &j->l->store->drive[c->x[i].drive];
		if (!drive_is_as_it_was(copy_drive(j->l, &c->x[i]), d->bytes, &d->written))
			return fail(why, EIO,
				    "expert %u/%u: %s was written to while it was mounted: umount "
				    "it and mount it anew",
				    j->e->layer, j->e->expert, d->path);
	}
	return 0;
}
