/* SPDX-License-Identifier: Apache-2.0
 *
 * One task from its begin to its end: what a drive needs to come and to go, the plan, the room for
 * it, and the carrying out. The catalog's meta has the task while it lasts:
 *
 *	respread         {"line", "kind", "drive", "striped", "speed": [[drive, bytes/s], ...],
 *	                  "experts": [[layer, expert], ...]}
 *	respread_unlink  the shard of a drive that has left the store, until it is deleted
 *	generation       of the records that moves have written; each run has one of its own
 *	layout           "striped" or "whole": a store of one drive does not show it
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "expertfs/clock.h"
#include "expertfs/log.h"
#include "expertfs/probe.h"
#include "expertfs/record.h"
#include "expertfs/respread_parts.h"
#include "expertfs/size.h"

#define META_TASK   "respread"
#define META_UNLINK "respread_unlink"
#define META_NUMBER "generation"
#define META_LAYOUT "layout"

/* Room that is left free on each drive: a batch is written before its old records are freed. */
#define SPARE_ROOM (256ull << 20)
#define SPARE_PART 64 /* or that part of the need, if it is small */

/* -- in the catalog ----------------------------------------------------------------------------- */

static const char *const kinds[] = { "add", "remove", "move" };

static char *task_json(const struct respread *r, const struct task *t)
{
	json_t *o = json_object(), *speed = json_array(), *experts = json_array();
	char *text;

	for (uint32_t d = 0; d < STORE_DRIVES_MAX; d++)
		if (t->job.speed[d])
			json_array_append_new(
				speed, json_pack("[i,I]", (int)d, (json_int_t)t->job.speed[d]));
	for (uint32_t i = 0; i < t->job.experts; i++) {
		const struct store_expert *e = &r->cfg.store->expert[t->job.expert[i]];
		json_array_append_new(experts, json_pack("[i,i]", e->layer, e->expert));
	}
	json_object_set_new(o, "line", json_stringn_nocheck(t->line, strlen(t->line)));
	json_object_set_new(o, "kind", json_string(kinds[t->job.kind]));
	json_object_set_new(o, "drive", json_integer(t->job.drive));
	json_object_set_new(o, "striped", json_boolean(t->job.striped));
	json_object_set_new(o, "speed", speed);
	json_object_set_new(o, "experts", experts);
	text = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	return text;
}

static bool read_experts(const struct store *s, const json_t *list, struct spread_job *job)
{
	const json_t *one;
	size_t i;

	job->expert = calloc(json_array_size(list) + 1, sizeof(*job->expert));
	if (!job->expert)
		return false;
	json_array_foreach(list, i, one)
	{
		json_int_t layer = json_integer_value(json_array_get(one, 0));
		json_int_t expert = json_integer_value(json_array_get(one, 1));
		const struct store_expert *e =
			layer < 0 || layer > UINT16_MAX || expert < 0 || expert > UINT16_MAX
				? NULL
				: store_find(s, (unsigned)layer, (unsigned)expert);
		if (e)
			job->expert[job->experts++] = (uint32_t)(e - s->expert);
	}
	return true;
}

static bool read_task(const struct store *s, const json_t *o, struct task *t)
{
	const char *line = json_string_value(json_object_get(o, "line"));
	const char *kind = json_string_value(json_object_get(o, "kind"));
	const json_t *drive = json_object_get(o, "drive"), *one;
	size_t i;
	int k = 0;

	while (k < 3 && (!kind || strcmp(kind, kinds[k]) != 0))
		k++;
	if (!line || k == 3 || !json_is_integer(drive) || json_integer_value(drive) < 0 ||
	    json_integer_value(drive) >= STORE_DRIVES_MAX)
		return false;
	t->line = strdup(line);
	t->begun = true;
	t->job.kind = (enum spread_kind)k;
	t->job.drive = (uint32_t)json_integer_value(drive);
	t->job.striped = json_is_true(json_object_get(o, "striped"));
	json_array_foreach(json_object_get(o, "speed"), i, one)
	{
		json_int_t d = json_integer_value(json_array_get(one, 0));
		json_int_t speed = json_integer_value(json_array_get(one, 1));
		if (d >= 0 && d < STORE_DRIVES_MAX && speed > 0)
			t->job.speed[d] = (uint64_t)speed;
	}
	return t->line && read_experts(s, json_object_get(o, "experts"), &t->job);
}

int task_load(struct respread *r, struct task **out, char *why)
{
	char *text = NULL;
	struct task *t;
	json_t *o;
	int err = catalog_meta_get(r->catalog, META_TASK, &text, why);

	*out = NULL;
	if (err)
		return err == -ENOENT ? 0 : err;
	o = json_loads(text, 0, NULL);
	t = calloc(1, sizeof(*t));
	if (t && read_task(r->cfg.store, o, t)) {
		*out = t;
	} else {
		task_free(t);
		log_line(LOG_ERR, "the task in catalog.db cannot be read, and is forgotten: %.200s",
			 text);
		err = task_forget(r, why);
	}
	json_decref(o);
	free(text);
	return err;
}

int task_forget(struct respread *r, char *why)
{
	return catalog_meta_put(r->catalog, META_TASK, NULL, why);
}

static int put_task(struct respread *r, const struct task *t, char *why)
{
	char *text = task_json(r, t);
	int err = text ? catalog_meta_put(r->catalog, META_TASK, text, why)
		       : fail(why, EINVAL, "\"%s\" cannot be written as JSON", t->line);

	free(text);
	return err ? err
		   : catalog_meta_put(r->catalog, META_LAYOUT, t->job.striped ? "striped" : "whole",
				      why);
}

/* A number that no record has yet. */
static int next_generation(struct respread *r, uint32_t *n, char *why)
{
	char *text = NULL, number[16];
	int err = catalog_meta_get(r->catalog, META_NUMBER, &text, why);

	if (err && err != -ENOENT)
		return err;
	/* Nothing has moved yet, or the catalog was lost since. */
	*n = 1 + (text ? (uint32_t)strtoul(text, NULL, 10) : mover_newest(r->cfg.store));
	free(text);
	snprintf(number, sizeof(number), "%" PRIu32, *n);
	return catalog_meta_put(r->catalog, META_NUMBER, number, why);
}

static bool was_striped(struct respread *r)
{
	char *text = NULL, why[WHY_MAX];
	bool striped;

	if (catalog_meta_get(r->catalog, META_LAYOUT, &text, why) != 0)
		return spread_is_striped(r->cfg.store);
	striped = strncmp(text, "stripe", 6) == 0;
	free(text);
	return striped;
}

/* -- speeds and room ---------------------------------------------------------------------------- */

static bool takes_experts(const struct respread *r, uint32_t d)
{
	const struct store *s = r->cfg.store;

	return d < s->drives && s->drive[d].path && !s->drive[d].missing && r->cfg.loader->drive[d];
}

static uint64_t measure(const struct respread *r, const char *path, bool folder)
{
	struct probe_result p;
	char why[WHY_MAX];
	int err;

	if (r->cfg.speed)
		return r->cfg.speed(path);
	err = folder ? probe_folder(path, PROBE_IO_AUTO, &p, why)
		     : probe_file(path, PROBE_IO_AUTO, &p, why);
	if (err || !p.honest)
		log_line(LOG_INFO, "the speed of %s cannot be measured: %s", path,
			 err ? why : p.text);
	return err || !p.honest ? 0 : p.bytes_per_s;
}

/* All drives that are to hold experts. If one cannot be measured they count as equal. */
static int measure_all(struct respread *r, struct task *t, char *why)
{
	struct spread_job *j = &t->job;
	bool all = true;
	int err = 0;

	for (uint32_t d = 0; d < STORE_DRIVES_MAX && !err; d++) {
		bool comes = j->kind == SPREAD_ADD && d == j->drive;
		j->speed[d] = 0;
		if (!comes && (!takes_experts(r, d) || (j->kind == SPREAD_REMOVE && d == j->drive)))
			continue;
		j->speed[d] = 1;
		/* Where all goes to one drive nothing has to be weighed. */
		if (j->kind != SPREAD_MOVE && !t->equal) {
			uint64_t speed = comes ? measure(r, t->folder, true)
					       : measure(r, r->cfg.store->drive[d].path, false);
			all = all && speed > 0;
			j->speed[d] = speed ? speed : 1;
		}
		err = respread_ask(r);
	}
	for (uint32_t d = 0; d < STORE_DRIVES_MAX && !all; d++)
		j->speed[d] = j->speed[d] ? 1 : 0;
	return err ? fail(why, -err, "interrupted") : 0;
}

/* The drives of one file system share its room. */
static int check_room(struct respread *r, const struct task *t, const struct spread_plan *p,
		      char *why)
{
	const struct store *s = r->cfg.store;
	bool seen[STORE_DRIVES_MAX] = { false };
	char a[16], b[16];

	for (uint32_t d = 0; d < STORE_DRIVES_MAX; d++) {
		uint64_t need = 0, left;
		const char *where = NULL;
		struct statvfs v;
		struct stat st, other;
		for (uint32_t o = d; o < STORE_DRIVES_MAX; o++) {
			const char *path = o < s->drives ? s->drive[o].path : NULL;
			if (t->folder && o == t->job.drive)
				path = t->folder;
			if (seen[o] || !path || p->needed[o] == 0 ||
			    stat(path, where ? &other : &st) != 0)
				continue;
			if (where && other.st_dev != st.st_dev)
				continue;
			where = where ? where : path;
			need += p->needed[o];
			seen[o] = true;
		}
		if (!where || statvfs(where, &v) != 0)
			continue;
		left = (uint64_t)v.f_bavail * v.f_frsize;
		need += need / SPARE_PART < SPARE_ROOM ? need / SPARE_PART : SPARE_ROOM;
		if (left < need)
			return fail(why, ENOSPC, "%s needs %s and has %s free", where,
				    size_text(need, a), size_text(left, b));
	}
	return 0;
}

/* -- a drive comes ------------------------------------------------------------------------------ */

static int free_number(const struct store *s, uint32_t *drive, char *why)
{
	uint32_t d = s->drives; /* one that nobody has had comes first */

	if (d == STORE_DRIVES_MAX)
		for (d = 0; d < STORE_DRIVES_MAX && s->drive[d].path;)
			d++;
	*drive = d;
	return d < STORE_DRIVES_MAX
		       ? 0
		       : fail(why, ENOSPC, "a store has at most %d drives", STORE_DRIVES_MAX);
}

/* FOLDER/NAME.shard, with the name that the others have. */
static int new_path(const struct store *s, const char *folder, char path[PATH_MAX], char *why)
{
	char other[PATH_MAX] = "store.shard";
	struct stat st;
	char *real;

	for (uint32_t d = 0; d < s->drives; d++)
		if (s->drive[d].path) {
			snprintf(other, sizeof(other), "%s", s->drive[d].path);
			break;
		}
	real = realpath(folder, NULL);
	if (!real || stat(real, &st) != 0) {
		free(real);
		return fail(why, errno, "%s: %s", folder, strerror(errno));
	}
	int n = snprintf(path, PATH_MAX, "%s/%s", real, basename(other));
	free(real);
	if (n >= PATH_MAX)
		return fail(why, ENAMETOOLONG, "%s: the path is too long", folder);
	if (!S_ISDIR(st.st_mode))
		return fail(why, ENOTDIR, "%s is not a folder", folder);
	for (uint32_t d = 0; d < s->drives; d++)
		if (s->drive[d].path && strcmp(s->drive[d].path, path) == 0)
			return fail(why, EEXIST, "%s is drive %" PRIu32 " already", folder, d);
	return 0;
}

/* As the catalog has paths: relative if it lies in the store's folder. */
static const char *catalog_form(const struct store *s, const char *path)
{
	size_t n = strlen(s->dir);

	return strncmp(path, s->dir, n) == 0 && path[n] == '/' ? path + n + 1 : path;
}

static int write_shards(const struct store *s, char *why)
{
	const char *paths[STORE_DRIVES_MAX];

	for (uint32_t d = 0; d < s->drives; d++)
		paths[d] = s->drive[d].path ? catalog_form(s, s->drive[d].path) : NULL;
	return store_write_shards(s->dir, paths, s->drives, why);
}

static int catalog_add(struct respread *r, struct task *t, const char *path, char *why)
{
	int err = catalog_begin(r->catalog, why);

	if (err)
		return err;
	err = catalog_put_drive(r->catalog, t->job.drive, catalog_form(r->cfg.store, path),
				SHARD_ALIGN, why);
	err = err ? err : put_task(r, t, why);
	if (err) {
		catalog_rollback(r->catalog);
		return err;
	}
	return catalog_commit(r->catalog, why);
}

static void enlist(struct respread *r, uint32_t drive, char *path, struct drive *d)
{
	struct store *s = r->cfg.store;

	pthread_mutex_lock(&s->lock);
	s->drive[drive] = (struct store_drive){ .path = path, .bytes = SHARD_ALIGN };
	if (drive >= s->drives)
		s->drives = drive + 1;
	r->cfg.loader->drive[drive] = d;
	pthread_mutex_unlock(&s->lock);
}

/* A daemon of root makes no files for others where they could not. */
static int create(struct respread *r, const struct task *t, const char *path, char *why)
{
	struct user before;
	int err = rights_take(&t->by, &before)
			  ? shard_create(path, r->cfg.store->id, t->job.drive, why)
			  : fail(why, EPERM, "%s: %s", path, strerror(EPERM));

	rights_give_back(&before);
	return err;
}

static int bring(struct respread *r, struct task *t, const char *path, char *why)
{
	char *copy = strdup(path);
	struct drive *d = NULL;
	int err = copy ? create(r, t, path, why) : fail(why, ENOMEM, "out of memory");

	if (err) {
		free(copy);
		return err;
	}
	err = drive_open(path, r->cfg.io, &d, why);
	err = err ? err : catalog_add(r, t, path, why);
	if (err) {
		drive_close(d);
		free(copy);
		return err; /* the empty shard stays: a second try takes it */
	}
	t->begun = true;
	enlist(r, t->job.drive, copy, d);
	return write_shards(r->cfg.store, why);
}

/* -- a drive goes ------------------------------------------------------------------------------- */

/* Deletes what the catalog says is to be deleted: the shard of a drive that left. */
static int delete_shard(struct respread *r, char *why)
{
	char *text = NULL, *path, *colon;
	struct shard_out *o = NULL;
	uint32_t drive;
	int err = catalog_meta_get(r->catalog, META_UNLINK, &text, why);

	if (err)
		return err == -ENOENT ? 0 : err;
	drive = (uint32_t)strtoul(text, &colon, 10); /* "N:PATH" */
	path = *colon ? colon + 1 : colon;
	/* If it is not there, or not ours any more, there is nothing to delete. */
	if (drive < STORE_DRIVES_MAX && !r->cfg.store->drive[drive].path &&
	    shard_out_open(path, r->cfg.store->id, drive, 0, &o, why) == 0 && unlink(path) != 0)
		log_line(LOG_WARNING, "%s: %s", path, strerror(errno));
	shard_out_close(o);
	free(text);
	return catalog_meta_put(r->catalog, META_UNLINK, NULL, why);
}

static int catalog_remove(struct respread *r, const struct task *t, char *why)
{
	char text[PATH_MAX + 16];
	int err = catalog_begin(r->catalog, why);

	if (err)
		return err;
	snprintf(text, sizeof(text), "%" PRIu32 ":%s", t->job.drive,
		 r->cfg.store->drive[t->job.drive].path);
	err = catalog_drop_drive(r->catalog, t->job.drive, why);
	err = err ? err : catalog_meta_put(r->catalog, META_UNLINK, text, why);
	if (err) {
		catalog_rollback(r->catalog);
		return err;
	}
	return catalog_commit(r->catalog, why);
}

/* No expert lies on it and nobody reads there: each batch has waited for that. */
static int send_away(struct respread *r, const struct task *t, char *why)
{
	struct store *s = r->cfg.store;
	uint32_t drive = t->job.drive;
	char **gone, *path;
	struct drive *d;
	int err;

	if (drive < s->drives && s->drive[drive].path) {
		gone = reallocarray(r->gone, r->gone_n + 1, sizeof(*gone));
		if (!gone)
			return fail(why, ENOMEM, "out of memory");
		r->gone = gone;
		err = catalog_remove(r, t, why);
		if (err)
			return err;
		pthread_mutex_lock(&s->lock);
		d = r->cfg.loader->drive[drive];
		path = s->drive[drive].path;
		r->cfg.loader->drive[drive] = NULL;
		s->drive[drive] = (struct store_drive){ .path = NULL };
		pthread_mutex_unlock(&s->lock);
		r->gone[r->gone_n++] = path;
		drive_close(d);
	}
	err = write_shards(s, why);
	return err ? err : delete_shard(r, why);
}

/* -- the whole ---------------------------------------------------------------------------------- */

static void moved(void *arg, uint32_t experts, uint64_t bytes)
{
	struct respread *r = arg;

	pthread_mutex_lock(&r->lock);
	r->now->status.experts_done += experts;
	r->now->status.bytes_done += bytes;
	pthread_mutex_unlock(&r->lock);
}

static void begin_progress(struct respread *r, struct task *t, const struct spread_plan *p)
{
	pthread_mutex_lock(&r->lock);
	t->status.experts_done = 0;
	t->status.bytes_done = 0;
	t->status.experts_total = p->n;
	t->status.bytes_total = p->bytes;
	t->started_ns = clock_ns();
	pthread_mutex_unlock(&r->lock);
}

static int carry_out(struct respread *r, struct task *t, const struct spread_plan *p, char *why)
{
	struct mover_config cfg = { .store = r->cfg.store,
				    .loader = r->cfg.loader,
				    .catalog = r->catalog,
				    .batch = r->cfg.batch,
				    .ask = respread_ask,
				    .moved = moved,
				    .arg = r };
	char text[16], first[WHY_MAX];
	struct mover *m = NULL;
	int err = next_generation(r, &cfg.generation, why);

	if (p->n)
		log_line(LOG_INFO, "%s: %" PRIu32 " experts, %s", t->line, p->n,
			 size_text(p->bytes, text));
	if (p->dropped)
		log_line(LOG_WARNING,
			 "%s: %" PRIu32 " experts will have a copy less: there are "
			 "too few drives",
			 t->line, p->dropped);
	err = err ? err : mover_open(&cfg, &m, why);
	for (uint32_t i = 0; i < p->n && !err; i++)
		err = mover_step(m, &t->job, &p->step[i], why);
	err = err ? err : mover_flush(m, why);
	if (!err && mover_unread(m, first))
		err = fail(why, EIO,
			   "%" PRIu32 " of the experts could not be read and stayed; the first: "
			   "%.500s",
			   mover_unread(m, first), first);
	mover_close(m);
	return err;
}

/* Everything that can be said against it before anything is changed. */
static int prepare(struct respread *r, struct task *t, char path[PATH_MAX], char *why)
{
	struct store *s = r->cfg.store;
	uint32_t there = 0;
	int err = 0;

	t->job.striped = was_striped(r);
	if (t->job.kind == SPREAD_ADD) {
		err = free_number(s, &t->job.drive, why);
		err = err ? err : new_path(s, t->folder, path, why);
	} else if (t->job.drive >= s->drives || !s->drive[t->job.drive].path) {
		err = fail(why, ENOENT, "there is no drive %" PRIu32 " any more", t->job.drive);
	} else if (t->job.kind == SPREAD_MOVE && !takes_experts(r, t->job.drive)) {
		err = fail(why, ENODEV, "%s is missing", s->drive[t->job.drive].path);
	}
	err = err ? err : measure_all(r, t, why);
	for (uint32_t d = 0; d < STORE_DRIVES_MAX; d++)
		there += t->job.speed[d] > 0;
	if (!err && there == 0)
		err = fail(why, EINVAL, "the last drive cannot be removed");
	return err;
}

static int begin(struct respread *r, struct task *t, const char *path, char *why)
{
	int err;

	if (t->job.kind == SPREAD_ADD)
		return bring(r, t, path, why);
	err = put_task(r, t, why);
	t->begun = !err;
	return err;
}

int task_run(struct respread *r, struct task *t, char *why)
{
	struct spread_plan p = { 0 };
	char path[PATH_MAX] = "";
	int err = 0;

	if (!t->begun)
		err = prepare(r, t, path, why);
	else if (t->job.kind != SPREAD_REMOVE && !takes_experts(r, t->job.drive))
		err = fail(why, ENODEV, "drive %" PRIu32 " is missing", t->job.drive);
	err = err ? err : spread_plan_make(r->cfg.store, &t->job, &p, why);
	err = err ? err : check_room(r, t, &p, why);
	if (!err && !t->begun)
		err = begin(r, t, path, why);
	if (!err) {
		begin_progress(r, t, &p);
		err = carry_out(r, t, &p, why);
	}
	spread_plan_free(&p);
	if (!err && t->job.kind == SPREAD_REMOVE)
		err = send_away(r, t, why);
	return err;
}
