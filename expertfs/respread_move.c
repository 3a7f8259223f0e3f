/* SPDX-License-Identifier: Apache-2.0
 *
 * Moving experts from place to place while they are read; see respread_move.h.
 */
#include "expertfs/respread_move.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/fail.h"
#include "expertfs/log.h"
#include "expertfs/record.h"
#include "expertfs/yield.h"

/* A batch costs four syncs or so whatever is in it; what is in it is done again after a crash. */
#define BATCH_EXPERTS RECORD_BATCH
#define BATCH_BYTES   (128u << 20)

struct entry {
	uint32_t index;
	struct extent_list *now, *old; /* references of ours */
};

struct mover {
	struct mover_config cfg;
	struct loader loader; /* proves always */
	void *buf;
	uint64_t buf_bytes;
	struct shard_out *file[STORE_DRIVES_MAX];
	uint32_t batch;   /* experts at most */
	uint32_t writing; /* the drive that is written to */
	uint32_t unread;  /* experts that could not be read */
	char first[WHY_MAX];
	uint32_t n;
	uint64_t bytes; /* in the batch */
	struct entry entry[BATCH_EXPERTS];
};

static const struct urgency background = { DRIVE_PROMOTION };

uint64_t mover_memory(const struct store *s)
{
	return shard_round_up(s->max_expert_bytes) + sizeof(struct mover);
}

int mover_open(const struct mover_config *cfg, struct mover **out, char *why)
{
	struct mover *m = calloc(1, sizeof(*m));

	if (!m)
		return fail(why, ENOMEM, "out of memory");
	m->cfg = *cfg;
	m->batch = cfg->batch && cfg->batch < BATCH_EXPERTS ? cfg->batch : BATCH_EXPERTS;
	m->loader = *cfg->loader;
	m->loader.verify = VERIFY_ALWAYS;
	m->buf_bytes = shard_round_up(cfg->store->max_expert_bytes);
	if (posix_memalign(&m->buf, SHARD_ALIGN, m->buf_bytes) != 0) {
		free(m);
		return fail(why, ENOMEM, "out of memory for an expert of %" PRIu64 " bytes",
			    cfg->store->max_expert_bytes);
	}
	*out = m;
	return 0;
}

static void drop_entries(struct mover *m)
{
	for (uint32_t i = 0; i < m->n; i++) {
		store_drop(m->cfg.store, m->entry[i].now);
		store_drop(m->cfg.store, m->entry[i].old);
	}
	m->n = 0;
	m->bytes = 0;
}

static void withdraw(struct mover *m)
{
	for (uint32_t d = 0; d < STORE_DRIVES_MAX; d++)
		if (m->file[d])
			record_withdraw(m->file[d]);
	drop_entries(m);
}

void mover_close(struct mover *m)
{
	if (!m)
		return;
	withdraw(m);
	for (uint32_t d = 0; d < STORE_DRIVES_MAX; d++)
		shard_out_close(m->file[d]);
	free(m->buf);
	free(m);
}

static int before_write(void *arg)
{
	struct mover *m = arg;

	return yield_to_readers(m->loader.drive[m->writing], m->cfg.ask, m->cfg.arg);
}

static int open_file(struct mover *m, uint32_t drive, char *why)
{
	const struct store_drive *d = &m->cfg.store->drive[drive];

	if (m->file[drive])
		return 0;
	if (!d->path || d->missing || !m->loader.drive[drive])
		return fail(why, ENODEV, "drive %" PRIu32 " is not there", drive);
	return shard_out_open(d->path, m->cfg.store->id, drive, d->bytes, &m->file[drive], why);
}

/* The number of extent i within its copy. */
static uint32_t part_of(const struct extent_list *l, uint32_t i, uint32_t *parts)
{
	return (uint32_t)(&l->x[i] - extent_list_copy(l, l->x[i].copy, parts));
}

/* Writes the extents that are new (offset 0) from the buffer. */
static int append(struct mover *m, const struct store_expert *e, struct extent_list *l, char *why)
{
	const struct writer_pause pause = { before_write, m };
	int err = 0;

	for (uint32_t i = 0; i < l->n && !err; i++) {
		struct extent *x = &l->x[i];
		const char *data = (const char *)m->buf + x->expert_offset;
		struct record_head h = { .layer = e->layer,
					 .expert = e->expert,
					 .copy = x->copy,
					 .generation = m->cfg.generation,
					 .expert_bytes = e->bytes,
					 .part_offset = x->expert_offset,
					 .part_bytes = x->length };
		if (x->offset)
			continue;
		h.part = part_of(l, i, &h.parts);
		h.payload_check = x->check = payload_check(data, x->length);
		m->writing = x->drive;
		err = open_file(m, x->drive, why);
		if (!err)
			err = record_append(m->file[x->drive], &h, data, &pause, &x->offset, why);
	}
	return err;
}

/* Reads an extent back, past the caches, and proves it. */
static int prove(struct mover *m, const struct store_expert *e, const struct extent *x, char *why)
{
	struct drive *d = m->loader.drive[x->drive];
	struct read_batch *b = d ? read_batch_new(&background) : NULL;
	int err;

	if (!b)
		return fail(why, d ? ENOMEM : ENODEV, d ? "out of memory" : "a drive has gone");
	read_batch_add(b, d, x->offset, shard_round_up(x->length), m->buf);
	err = read_batch_wait(b, NULL);
	if (err)
		return fail(why, -err, "expert %u/%u: reading %s at %" PRIu64 ": %s", e->layer,
			    e->expert, drive_path(d), x->offset, strerror(-err));
	if (payload_check(m->buf, x->length) != x->check)
		return fail(why, EIO,
			    "expert %u/%u: %s gave other bytes at %" PRIu64 " than were written",
			    e->layer, e->expert, drive_path(d), x->offset);
	return 0;
}

/* True if `list` names these bytes. */
static bool names(const struct extent_list *list, const struct extent *x)
{
	for (uint32_t i = 0; i < list->n; i++)
		if (list->x[i].drive == x->drive && list->x[i].offset == x->offset)
			return true;
	return false;
}

static int prove_batch(struct mover *m, char *why)
{
	int err = 0;

	for (uint32_t i = 0; i < m->n && !err; i++) {
		const struct entry *t = &m->entry[i];
		const struct store_expert *e = &m->cfg.store->expert[t->index];
		/* A copy that is dropped: the others must be as good as they are said to be. */
		bool all = extent_list_copies(t->now) < extent_list_copies(t->old);
		for (uint32_t x = 0; x < t->now->n && !err; x++)
			if (!names(t->old, &t->now->x[x]) || all)
				err = prove(m, e, &t->now->x[x], why);
	}
	return err;
}

/* [[drive, layer, expert, offset, length], ...] of the places that the batch leaves. */
static char *old_places(const struct mover *m)
{
	json_t *all = json_array();
	char *text = NULL;
	int err = 0;

	for (uint32_t i = 0; i < m->n; i++) {
		const struct entry *t = &m->entry[i];
		const struct store_expert *e = &m->cfg.store->expert[t->index];
		for (uint32_t x = 0; x < t->old->n; x++)
			if (!names(t->now, &t->old->x[x]))
				err |= json_array_append_new(
					all, json_pack("[i,i,i,I,I]", t->old->x[x].drive, e->layer,
						       e->expert, (json_int_t)t->old->x[x].offset,
						       (json_int_t)t->old->x[x].length));
	}
	if (!err) /* a list that lacks one would not give its room back */
		text = json_dumps(all, JSON_COMPACT);
	json_decref(all);
	return text;
}

static int put_rows(struct mover *m, const char *old, char *why)
{
	struct catalog *c = m->cfg.catalog;
	int err = 0;

	for (uint32_t i = 0; i < m->n && !err; i++) {
		const struct store_expert *e = &m->cfg.store->expert[m->entry[i].index];
		err = catalog_replace_extents(c, e->layer, e->expert, e->bytes, m->entry[i].now,
					      why);
	}
	for (uint32_t d = 0; d < STORE_DRIVES_MAX && !err; d++)
		if (m->file[d])
			err = catalog_set_drive_bytes(c, d, shard_out_end(m->file[d]), why);
	return err ? err : catalog_meta_put(c, META_OLD, old, why);
}

static void keep_files(struct mover *m)
{
	for (uint32_t d = 0; d < STORE_DRIVES_MAX; d++)
		if (m->file[d])
			record_keep(m->file[d]);
}

static int write_catalog(struct mover *m, char *why)
{
	char *old = old_places(m);
	int err = old ? catalog_begin(m->cfg.catalog, why) : fail(why, ENOMEM, "out of memory");

	if (!err) {
		err = put_rows(m, old, why);
		if (err) {
			catalog_rollback(m->cfg.catalog);
		} else {
			/* Once it is tried, a commit may be found done although it reported an
			 * error: the records stay in any case. */
			keep_files(m);
			err = catalog_commit(m->cfg.catalog, why);
		}
	}
	free(old);
	return err;
}

static void publish(struct mover *m)
{
	struct store *s = m->cfg.store;

	pthread_mutex_lock(&s->lock);
	for (uint32_t d = 0; d < STORE_DRIVES_MAX; d++)
		if (m->file[d])
			s->drive[d].bytes = shard_out_end(m->file[d]);
	pthread_mutex_unlock(&s->lock);
	for (uint32_t i = 0; i < m->n; i++) {
		struct entry *t = &m->entry[i];
		/* Both references of the old list are ours then: the store's, and that of the entry. */
		store_drop(s, t->old);
		t->old = store_set_packed(s, t->index, t->now);
		t->now = NULL;
	}
}

static void say_kept(const char *why)
{
	static _Atomic bool said;

	if (!said)
		log_line(LOG_WARNING, "%s; the old records stay where they are", why);
	said = true;
}

/* Frees what the batch has left, once nobody reads there. A task that is cancelled waits for that
 * as well: the next batch's list takes the place of this one's in the catalog. One that stops with
 * the daemon does not, as the next start looks at the list. */
static void free_old(struct mover *m)
{
	struct store *s = m->cfg.store;
	char why[WHY_MAX];

	for (uint32_t i = 0; i < m->n; i++) {
		const struct entry *t = &m->entry[i];
		const struct store_expert *e = &s->expert[t->index];
		struct place now;
		while (!store_unread(s, t->old)) {
			if (m->cfg.ask(m->cfg.arg) == -EINTR)
				return;
			sleep_ms(1);
		}
		store_take(s, t->index, &now);
		for (uint32_t x = 0; x < t->old->n; x++) {
			const struct extent *o = &t->old->x[x];
			if (!names(now.packed, o) && !s->drive[o->drive].missing &&
			    (open_file(m, o->drive, why) != 0 ||
			     record_punch(m->file[o->drive], e->layer, e->expert, o->offset,
					  o->length, why) != 0))
				say_kept(why);
		}
		store_give(s, &now);
	}
}

int mover_flush(struct mover *m, char *why)
{
	uint32_t n = m->n;
	uint64_t bytes = m->bytes;
	int err = 0;

	if (n == 0)
		return 0;
	for (uint32_t d = 0; d < STORE_DRIVES_MAX && !err; d++)
		if (m->file[d])
			err = record_seal(m->file[d], why);
	err = err ? err : prove_batch(m, why);
	err = err ? err : write_catalog(m, why);
	if (err)
		return err;
	publish(m);
	free_old(m);
	drop_entries(m);
	m->cfg.moved(m->cfg.arg, n, bytes);
	return 0;
}

uint32_t mover_unread(const struct mover *m, char *why)
{
	if (m->unread)
		snprintf(why, WHY_MAX, "%s", m->first);
	return m->unread;
}

/* The step's place in the batch. */
static int begin_entry(struct mover *m, const struct spread_job *job,
		       const struct spread_step *step, char *why)
{
	struct store *s = m->cfg.store;
	struct place p;
	struct entry t = { .index = step->index, .now = spread_step_list(s, job, step) };

	if (!t.now)
		return fail(why, ENOMEM, "out of memory");
	store_take(s, step->index, &p);
	t.old = p.packed;
	p.packed = NULL; /* the reference goes over to the entry */
	store_give(s, &p);
	m->entry[m->n++] = t;
	return 0;
}

/* An expert without a good copy: it stays where it is, and the others go on. */
static void skip_entry(struct mover *m, const char *why)
{
	struct entry *t = &m->entry[--m->n];

	store_drop(m->cfg.store, t->now);
	store_drop(m->cfg.store, t->old);
	if (m->unread++ == 0)
		snprintf(m->first, sizeof(m->first), "%s", why);
	log_line(LOG_ERR, "%s; it is not moved", why);
}

int mover_step(struct mover *m, const struct spread_job *job, const struct spread_step *step,
	       char *why)
{
	const struct store_expert *e = &m->cfg.store->expert[step->index];
	int err = m->cfg.ask(m->cfg.arg);

	if (err)
		return fail(why, -err, "interrupted");
	err = begin_entry(m, job, step, why);
	if (err)
		return err;
	if (step->to != SPREAD_DROP) {
		if (load_expert(&m->loader, step->index, &background, m->buf, why) != 0) {
			skip_entry(m, why);
			return 0;
		}
		err = append(m, e, m->entry[m->n - 1].now, why);
		m->bytes += e->bytes;
	}
	if (!err && (m->n == m->batch || m->bytes >= BATCH_BYTES))
		err = mover_flush(m, why);
	return err;
}

/* -- after an interrupted run ------------------------------------------------------------------- */

static uint32_t index_of(const struct store *s, int64_t layer, int64_t expert)
{
	bool name = layer >= 0 && layer <= UINT16_MAX && expert >= 0 && expert <= UINT16_MAX;

	return name ? store_index(s, (unsigned)layer, (unsigned)expert) : STORE_NO_EXPERT;
}

static struct shard_out *open_drive(struct store *s, int64_t drive)
{
	struct shard_out *o = NULL;
	char why[WHY_MAX];

	if (drive < 0 || drive >= s->drives || !s->drive[drive].path || s->drive[drive].missing)
		return NULL;
	if (shard_out_open(s->drive[drive].path, s->id, (uint32_t)drive, s->drive[drive].bytes, &o,
			   why) != 0)
		return NULL;
	return o;
}

uint32_t mover_newest(struct store *s)
{
	uint32_t newest = 0;

	for (uint32_t d = 0; d < s->drives; d++) {
		struct shard_out *o = open_drive(s, d);
		struct record_head h;
		for (uint32_t i = 0; o && i < s->experts; i++) {
			const struct extent_list *l = s->expert[i].packed;
			for (uint32_t x = 0; x < l->n; x++)
				if (l->x[x].drive == d && l->x[x].offset >= SHARD_ALIGN &&
				    record_at(o, l->x[x].offset - SHARD_ALIGN, &h) &&
				    h.generation > newest)
					newest = h.generation;
		}
		shard_out_close(o);
	}
	return newest;
}

static void free_place(struct store *s, const json_t *one)
{
	json_int_t v[5];
	struct shard_out *o;
	uint32_t index;
	char why[WHY_MAX];

	for (size_t i = 0; i < 5; i++)
		v[i] = json_integer_value(json_array_get(one, i));
	index = index_of(s, v[1], v[2]);
	if (index == STORE_NO_EXPERT || v[3] <= 0 || v[4] <= 0)
		return;
	struct extent x = { .drive = (uint16_t)v[0], .offset = (uint64_t)v[3] };
	o = open_drive(s, v[0]);
	/* What is no record any more was freed before. */
	if (o && !names(s->expert[index].packed, &x))
		record_punch(o, (unsigned)v[1], (unsigned)v[2], x.offset, (uint64_t)v[4], why);
	shard_out_close(o);
}

static void free_old_places(struct store *s, struct catalog *c)
{
	char *text = NULL, why[WHY_MAX];
	json_t *all, *one;
	size_t i;

	if (catalog_meta_get(c, META_OLD, &text, why) != 0)
		return;
	all = json_loads(text, 0, NULL);
	json_array_foreach(all, i, one)
	{
		free_place(s, one);
	}
	json_decref(all);
	free(text);
	if (catalog_meta_put(c, META_OLD, NULL, why) != 0)
		log_line(LOG_WARNING, "%s", why);
}

/* Whether all records behind `from` are of experts that the catalog's places hold, too: if it were
 * an old catalog that somebody had put back, they might be the only ones. */
static bool can_be_missed(struct mover *m, struct shard_out *o, uint64_t from)
{
	char why[WHY_MAX];
	struct record_head h;

	for (uint64_t at = from; at < shard_out_end(o); at += SHARD_ALIGN) {
		if (!record_at(o, at, &h))
			continue;
		uint32_t index = index_of(m->cfg.store, h.layer, h.expert);
		if (index == STORE_NO_EXPERT ||
		    load_expert(&m->loader, index, &background, m->buf, why) != 0)
			return false;
	}
	return true;
}

static int never(void *arg)
{
	(void)arg;
	return 0;
}

static void cut_tail(struct store *s, const struct loader *l, struct shard_out *o, uint32_t drive)
{
	const struct mover_config cfg = { .store = s, .loader = l, .ask = never };
	uint64_t known = shard_round_up(s->drive[drive].bytes);
	char why[WHY_MAX];
	struct mover *m = NULL;

	if (mover_open(&cfg, &m, why) != 0 || !m)
		return;
	if (!can_be_missed(m, o, known))
		log_line(LOG_WARNING,
			 "%s has records that the catalog does not name; they stay: is catalog.db "
			 "older than the shard? expertctl rebuild looks at both",
			 s->drive[drive].path);
	else if (shard_out_cut(o, known) == 0)
		log_line(LOG_INFO, "%s: removed what an interrupted move has left",
			 s->drive[drive].path);
	mover_close(m);
}

void mover_tidy(struct store *s, const struct loader *l, struct catalog *c)
{
	free_old_places(s, c);
	for (uint32_t d = 0; d < s->drives; d++) {
		struct shard_out *o = open_drive(s, d);
		/* More than two batches were not written by us. */
		if (o && shard_out_end(o) > shard_round_up(s->drive[d].bytes) &&
		    shard_out_end(o) - s->drive[d].bytes <
			    2 * ((uint64_t)BATCH_BYTES + record_bytes(s->max_expert_bytes) +
				 (uint64_t)BATCH_EXPERTS * 2 * SHARD_ALIGN))
			cut_tail(s, l, o, d);
		shard_out_close(o);
	}
}
