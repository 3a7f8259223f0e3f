/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of a pack: begin or resume, write, finish or leave. See pack.h.
 */
#include "tools/coli-pack/pack.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expertfs/catalog.h"
#include "expertfs/fail.h"
#include "expertfs/size.h"
#include "tools/coli-pack/resume.h"
#include "tools/coli-pack/table.h"
#include "tools/coli-pack/textfile.h"
#include "tools/coli-pack/writer.h"

/* catalog.db: about 100 bytes a part and some pages, and the same again while it is written. */
#define CATALOG_BYTES(parts) (2 * (100 * (uint64_t)(parts) + (128u << 10)))

static bool exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

/* An earlier run may have been killed before it had written anything. */
static bool is_bare(const char *dir)
{
	DIR *d = opendir(dir);
	const struct dirent *e;
	bool bare = d != NULL;

	while (bare && (e = readdir(d)))
		bare = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
		       strcmp(e->d_name, STATE_NEW) == 0;
	if (d)
		closedir(d);
	return bare;
}

/* The names to be removed by a user who wants none of --restart, or "" where they lie inside. */
static void list_shards(const char *identity, char *buf, size_t bytes)
{
	char *path;

	*buf = '\0';
	for (uint32_t i = 0; identity && (path = state_shard_path(identity, i)); i++) {
		size_t at = strlen(buf);
		char *partial = text_format("%s.partial", path);
		if (partial && exists(partial))
			snprintf(buf + at, bytes - at, " and %s", partial);
		free(partial);
		free(path);
	}
}

static int refuse_other(const struct output *o, const struct state *s, const char *identity,
			char *why)
{
	char lines[2][128], shards[512];

	list_shards(s->identity, shards, sizeof(shards));
	state_differs(s->identity, identity, lines);
	return fail(why, EEXIST,
		    "%s was begun with another checkpoint or other options (\"%s\", now \"%s\"); "
		    "remove it%s, or use --restart, which does that",
		    o->partial, lines[0], lines[1], shards);
}

/* Shards of an earlier run that lie on drives which this run does not use. */
static void remove_old_shards(const struct state *s)
{
	char *path;

	for (uint32_t i = 0; (path = state_shard_path(s->identity, i)); i++) {
		char *partial = text_format("%s.partial", path);
		if (partial && output_owns_shard(partial, s->store_id, false))
			unlink(partial);
		if (output_owns_shard(path, s->store_id, false))
			unlink(path);
		free(partial);
		free(path);
	}
}

static int restart_store(struct output *o, char *why)
{
	struct state s = { 0 };
	int err = 0;

	if (exists(o->partial)) {
		err = output_lock(o, why);
		if (err == 0 && state_load(&s, o->partial, NULL) == 0) {
			memcpy(o->store_id, s.store_id, STORE_ID_SIZE);
			remove_old_shards(&s);
		}
		err = err ? err : output_remove(o, why);
		state_free(&s);
		if (o->dir_fd >= 0)
			close(o->dir_fd);
		o->dir_fd = -1;
	}
	/* Those that somebody has left who removed STORE.partial by hand. */
	for (uint32_t i = 0; err == 0 && !o->inside && i < o->drives; i++)
		if (unlink(o->shard[i].writing) != 0 && errno != ENOENT)
			err = fail(why, errno, "cannot remove %s: %s", o->shard[i].writing,
				   strerror(errno));
	return err;
}

static int begin(struct output *o, const struct plan *p, uint64_t other, struct state *s,
		 char *identity, char *why)
{
	int err = 0;

	for (uint32_t i = 0; err == 0 && !o->inside && i < o->drives; i++) {
		if (exists(o->shard[i].path))
			err = fail(why, EEXIST, "%s exists already", o->shard[i].path);
		else if (exists(o->shard[i].writing))
			err = fail(why, EEXIST,
				   "%s is there, but %s is not; remove it or use --restart",
				   o->shard[i].writing, o->partial);
	}
	err = err ? err : output_check_room(o, p, other, why);
	err = err ? err : output_create(o, why);
	if (err) {
		free(identity);
		return err;
	}
	err = state_init(s, o, identity, why);
	return err ? err : state_save(s, o->dir_fd, o->partial, why);
}

static int resume(struct output *o, const struct plan *p, uint64_t other, struct state *s,
		  const char *identity, char *why)
{
	char lines[2][128];
	int err = output_lock(o, why);

	err = err ? err : state_load(s, o->partial, why);
	if (err == -EINVAL || err == -ENOENT)
		return fail(why, EEXIST,
			    "%s is not a pack that can be resumed; remove it or use --restart",
			    o->partial);
	if (err)
		return err;
	if (state_differs(s->identity, identity, lines) || s->drives != o->drives ||
	    s->dense > p->dense_count)
		return refuse_other(o, s, identity, why);
	memcpy(o->store_id, s->store_id, STORE_ID_SIZE);
	for (uint32_t i = 0; !o->inside && i < o->drives; i++) {
		struct shard_out *x = &o->shard[i];
		if (!exists(x->path))
			continue;
		if (exists(x->writing) || !output_owns_shard(x->path, o->store_id, false))
			return fail(why, EEXIST, "%s exists already", x->path);
		x->published = true;
	}
	return output_check_room(o, p, other, why);
}

/* Killed between its last rename and the removal of pack.state: the store is whole. */
static bool finished_before(const struct output *o, const char *identity)
{
	char *path = text_format("%s/" STATE_NAME, o->store), lines[2][128];
	struct state s = { 0 };
	bool same = path && state_load(&s, o->store, NULL) == 0 &&
		    !state_differs(s.identity, identity, lines) && unlink(path) == 0;

	state_free(&s);
	free(path);
	return same;
}

static uint64_t source_of(const struct plan *p, uint32_t expert)
{
	uint64_t bytes = 0;
	struct source s;

	for (int m = 0; m < MATRICES; m++)
		if (plan_expert_source(p, expert, m, &s, NULL) == 0)
			bytes += (uint64_t)s.rows * source_row_bytes(&s);
	return bytes;
}

/* The checkpoint's bytes that an earlier run has dealt with. */
static uint64_t done_before(const struct packing *k)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < k->state->dense; i++)
		bytes += (uint64_t)k->plan->dense[i].src.rows *
			 source_row_bytes(&k->plan->dense[i].src);
	for (uint32_t e = 0; e < k->plan->experts; e++)
		if (k->written[e])
			bytes += source_of(k->plan, e);
	return bytes;
}

/* As catalog.h and STORE/shards have it. */
static const char *listed_path(const struct output *o, uint32_t drive)
{
	const char *path = o->shard[drive].path;

	return o->inside ? strrchr(path, '/') + 1 : path;
}

static int write_shard_list(const struct output *o, char *why)
{
	const char **paths = calloc(o->drives, sizeof(*paths));

	if (!paths)
		return fail(why, ENOMEM, "out of memory");
	for (uint32_t d = 0; d < o->drives; d++)
		paths[d] = listed_path(o, d);
	int err = store_write_shards(o->partial, paths, o->drives, why);
	free(paths);
	return err;
}

static int write_catalog(const struct packing *k, const char *path, char *why)
{
	const struct plan *p = k->plan;
	const struct output *o = k->out;
	static const char *const tails[] = { "", "-wal", "-shm", "-journal" };
	struct catalog *c = NULL;
	int err = 0;

	/* An earlier run may have been killed while it wrote this. */
	for (size_t i = 0; i < sizeof(tails) / sizeof(*tails); i++) {
		char *old = text_format("%s%s", path, tails[i]);
		if (!old || (unlink(old) != 0 && errno != ENOENT))
			err = fail(why, old ? errno : ENOMEM, "cannot remove the old %s", path);
		free(old);
	}
	err = err ? err : catalog_create(path, o->store_id, &c, why);
	for (uint32_t d = 0; err == 0 && d < o->drives; d++)
		err = catalog_add_drive(c, d, listed_path(o, d), p->place.shard_bytes[d], why);
	for (uint32_t i = 0; err == 0 && i < placement_parts(&p->place); i++) {
		const struct part *part = &p->place.part[i];
		struct extent x = { .offset = part->offset + SHARD_ALIGN,
				    .length = part->bytes,
				    .expert_offset = part->first,
				    .check = k->check[i],
				    .drive = part->drive,
				    .copy = part->copy };
		err = catalog_add_extent(
			c, plan_layer_of(p, part->expert)->layer, plan_number_of(p, part->expert),
			plan_layout_of(p, part->expert)->bytes, part->part, &x, why);
	}
	if (err)
		catalog_abandon(c);
	else
		err = catalog_finish(c, why);
	return err;
}

static int write_rest(const struct packing *k, const char *model_json, char *why)
{
	const struct checkpoint *ck = k->plan->ck;
	char *model = text_format("%s/model.json", k->out->partial);
	char *tokenizer = text_format("%s/tokenizer.json", k->out->partial);
	char *catalog = text_format("%s/catalog.db", k->out->partial);
	int err = model && tokenizer && catalog ? 0 : fail(why, ENOMEM, "out of memory");

	err = err ? err : text_save(model, model_json, strlen(model_json), why);
	err = err ? err : text_save(tokenizer, ck->tokenizer_text, ck->tokenizer_bytes, why);
	err = err ? err : write_shard_list(k->out, why);
	err = err ? err : write_catalog(k, catalog, why);
	free(model);
	free(tokenizer);
	free(catalog);
	return err;
}

static void say_done(const struct packing *k)
{
	const struct plan *p = k->plan;
	double seconds = pack_progress_seconds(&k->progress);
	uint64_t shards = 0;
	char a[16], b[16], c[16];

	for (uint32_t d = 0; d < k->out->drives; d++)
		shards += p->place.shard_bytes[d];
	printf("%s: %" PRIu32 " experts, %s on %" PRIu32 " drive%s, and %s of dense tensors, "
	       "in %.1f s (%s/s read)\n",
	       k->out->store, p->experts, size_text(shards, a), k->out->drives,
	       k->out->drives == 1 ? "" : "s", size_text(p->dense_bytes, b), seconds,
	       size_text(seconds > 0 ? (uint64_t)((double)(p->source_bytes - k->progress.earlier) /
						  seconds)
				     : 0,
			 c));
}

static int scan(struct packing *k, char *why)
{
	int err = output_open_files(k->out, k->plan->dense_bytes, why);

	if (err)
		return err;
	int64_t found = resume_scan(k->plan, k->out, k->state, k->there, k->check, k->written, why);
	if (found < 0)
		return (int)found;
	/* The scan may have lowered the marks: on disk, before anything is written over. */
	err = k->out->fresh ? 0 : state_save(k->state, k->out->dir_fd, k->out->partial, why);
	if (err)
		return err;
	if (!k->out->fresh)
		fprintf(stderr,
			"coli-pack: resuming: %" PRId64 " of %" PRIu32 " experts are there\n",
			found, k->plan->experts);
	pack_progress_start(&k->progress, k->plan->source_bytes, done_before(k));
	return 0;
}

/* *remove: nothing of this run is worth keeping. */
static int write_store(struct packing *k, const char *model_json, bool *remove, char *why)
{
	uint32_t parts = placement_parts(&k->plan->place);

	k->there = calloc(parts, sizeof(*k->there));
	k->check = calloc(parts, sizeof(*k->check));
	k->written = calloc(k->plan->experts, sizeof(*k->written));
	int err = k->there && k->check && k->written ? scan(k, why)
						     : fail(why, ENOMEM, "out of memory");

	*remove = err != 0;
	if (err == 0) {
		err = write_all(k, why);
		pack_progress_end(&k->progress);
		*remove = err == -EINVAL || err == -EDOM;
	}
	err = err ? err : write_rest(k, model_json, why);
	err = err ? err : output_publish(k->out, why);
	if (err == 0)
		say_done(k);
	free(k->there);
	free(k->check);
	free(k->written);
	return err;
}

int pack_store(const struct plan *p, struct output *o, const char *model_json, bool restart,
	       const volatile sig_atomic_t *stop, char *why)
{
	uint64_t other = strlen(model_json) + p->ck->tokenizer_bytes +
			 CATALOG_BYTES(placement_parts(&p->place));
	char *identity = state_identity(p, o, model_json), after[WHY_MAX];
	struct state s = { 0 };
	struct packing k = { .plan = p, .out = o, .state = &s, .stop = stop };
	bool remove = true;
	int err = 0;

	if (!identity)
		return fail(why, ENOMEM, "out of memory");
	if (exists(o->store)) {
		bool was_done = finished_before(o, identity);
		free(identity);
		if (!was_done)
			return fail(why, EEXIST, "%s exists already", o->store);
		printf("%s: was finished by an earlier run\n", o->store);
		return 0;
	}
	if (o->drives > 1) {
		table_drives(stdout, p, o);
		fflush(stdout);
	}
	if (restart)
		err = restart_store(o, why);
	if (err) {
		free(identity);
		return err;
	}
	if (exists(o->partial) && !is_bare(o->partial)) {
		err = resume(o, p, other, &s, identity, why);
		free(identity);
	} else {
		err = begin(o, p, other, &s, identity, why);
	}
	err = err ? err : write_store(&k, model_json, &remove, why);
	if (err && o->fresh && remove)
		output_remove(o, after);
	state_free(&s);
	return err;
}
