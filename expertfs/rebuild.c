/* SPDX-License-Identifier: Apache-2.0
 *
 * The order in which a catalog is made anew; see rebuild.h.
 */
#include "expertfs/rebuild.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expertfs/catalog.h"
#include "expertfs/disk.h"
#include "expertfs/fail.h"
#include "expertfs/geometry.h"
#include "expertfs/salvage.h"
#include "expertfs/shardfind.h"
#include "expertfs/shardscan.h"
#include "expertfs/shardsets.h"
#include "expertfs/storelock.h"

#define NAMED_MAX 20 /* experts and records that are named one by one */

struct rebuild {
	char *dir; /* absolute */
	const struct rebuild_options *o;
	struct rebuild_report *r;
	struct salvage *old;
	struct shard_files files;
	struct shard_record *record;
	struct found found;
	struct catalog *c;
	char fresh[PATH_MAX];

	pthread_mutex_t lock; /* all below, and r->bad */
	uint64_t done, total;
	bool stopped;
};

__attribute__((format(printf, 2, 3))) static void tell(struct rebuild *b, const char *fmt, ...)
{
	char line[WHY_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	b->o->say(b->o->arg, line);
}

/* -- reading the shards ---------------------------------------------------------------------------
 */

/* One thread a shard, since each is a drive. */
struct worker {
	struct rebuild *b;
	struct shard_scan *s;
	pthread_t thread;
	bool started;
	int err;
	char why[WHY_MAX];
};

/* Bytes that came, if any; false if the user wants it to end. */
static bool go_on(struct rebuild *b, uint64_t bytes)
{
	bool yes;

	pthread_mutex_lock(&b->lock);
	b->done += bytes;
	if (!b->stopped && b->o->progress && !b->o->progress(b->o->arg, b->done, b->total))
		b->stopped = true;
	yes = !b->stopped;
	pthread_mutex_unlock(&b->lock);
	return yes;
}

static bool came(void *arg, uint64_t bytes)
{
	return go_on(((struct worker *)arg)->b, bytes);
}

static void record_bad(void *arg, const struct shard_scan *s, const struct shard_record *r, int err)
{
	struct rebuild *b = ((struct worker *)arg)->b;

	pthread_mutex_lock(&b->lock);
	if (++b->r->bad <= NAMED_MAX)
		tell(b, "%s: part %" PRIu32 " of %" PRIu32 " of expert %u/%u at %" PRIu64 ": %s",
		     s->path, r->part + 1, r->parts, r->layer, r->expert, r->offset,
		     proof_text(err));
	pthread_mutex_unlock(&b->lock);
}

static void *scan_main(void *arg)
{
	struct worker *w = arg;

	w->err = shard_scan_records(w->s, w->why);
	return NULL;
}

static void *prove_main(void *arg)
{
	struct worker *w = arg;

	w->err = shard_prove(w->s, came, record_bad, w, w->why);
	return NULL;
}

static int run_workers(struct rebuild *b, void *(*body)(void *), char *why)
{
	struct worker *w = calloc(b->files.drives + 1ul, sizeof(*w));
	int err = w ? 0 : fail(why, ENOMEM, "out of memory");

	for (uint32_t i = 0; w && i < b->files.drives; i++) {
		if (!b->files.scan[i])
			continue;
		w[i].b = b;
		w[i].s = b->files.scan[i];
		w[i].started = pthread_create(&w[i].thread, NULL, body, &w[i]) == 0;
		if (!w[i].started)
			body(&w[i]);
	}
	for (uint32_t i = 0; w && i < b->files.drives; i++) {
		if (w[i].started)
			pthread_join(w[i].thread, NULL);
		if (w[i].err && !err)
			err = fail(why, -w[i].err, "%s", w[i].why);
	}
	free(w);
	if (err == -ECANCELED || (!err && !go_on(b, 0)))
		err = fail(why, EINTR, "interrupted; nothing was changed");
	return err;
}

static int read_shards(struct rebuild *b, char *why)
{
	int err = run_workers(b, scan_main, why);

	for (uint32_t i = 0; i < b->files.drives && !err; i++) {
		const struct shard_scan *s = b->files.scan[i];
		if (!s)
			continue;
		if (s->damaged)
			tell(b,
			     "%s: %" PRIu64 " bytes are neither a record nor a hole, the first at "
			     "%" PRIu64,
			     s->path, s->damaged, s->damaged_at);
		b->r->records += s->n;
		for (uint32_t j = 0; j < s->n; j++)
			b->total += s->record[j].part_bytes;
	}
	if (!err && b->o->prove)
		err = run_workers(b, prove_main, why);
	return err;
}

/* For a rebuild that believes heads: the payload of one record all the same. */
struct doubt {
	struct rebuild *b;
	void *buf;
};

static void prove_one(void *arg, struct shard_record *r)
{
	const struct doubt *d = arg;
	const struct shard_scan *s = d->b->files.scan[r->drive];
	int fd = proof_open(s->path);

	r->bad = fd < 0 ||
		 proof_range(fd, r->offset, r->part_bytes, r->check, d->buf, NULL, NULL) != 0;
	if (fd >= 0)
		close(fd);
}

/* An expert that was moved when the daemon was killed may have a new head in front of nothing, and
 * its old record still. */
static int prove_contested(struct rebuild *b, uint32_t n, char *why)
{
	struct doubt d = { .b = b };

	if (posix_memalign(&d.buf, SHARD_ALIGN, PROOF_BYTES) != 0)
		return fail(why, ENOMEM, "out of memory");
	shard_contested(b->record, n, prove_one, &d);
	free(d.buf);
	return 0;
}

/* All records into one array, and from there into experts. */
static int gather(struct rebuild *b, char *why)
{
	uint64_t n = 0;

	if (b->r->records > UINT32_MAX)
		return fail(why, EFBIG, "the shards have %" PRIu64 " records", b->r->records);
	b->record = calloc(b->r->records + 1, sizeof(*b->record));
	if (!b->record)
		return fail(why, ENOMEM, "out of memory for %" PRIu64 " records", b->r->records);
	for (uint32_t i = 0; i < b->files.drives; i++) {
		const struct shard_scan *s = b->files.scan[i];
		if (!s || s->n == 0)
			continue;
		memcpy(b->record + n, s->record, s->n * sizeof(*s->record));
		n += s->n;
	}
	if (!b->o->prove && prove_contested(b, (uint32_t)n, why) != 0)
		return -ENOMEM;
	if (shard_sets(b->record, (uint32_t)n, &b->found) != 0)
		return fail(why, ENOMEM, "out of memory for %" PRIu64 " records", n);
	return b->found.whole ? 0
			      : fail(why, ENODATA, "the shards of %s have no whole expert", b->dir);
}

/* -- is it all there? -----------------------------------------------------------------------------
 */

static int check_drives(struct rebuild *b, char *why)
{
	for (uint32_t i = 0; i < b->files.drives; i++) {
		const char *path = b->files.missing[i];
		if (!path)
			continue;
		if (!b->o->partial)
			return fail(why, ENOENT,
				    "the shard of drive %" PRIu32 "%s%s is missing; is the drive "
				    "mounted? (expertctl rebuild --drive PATH says where it is, "
				    "--partial goes on without)",
				    i, *path ? ", " : "", path);
		tell(b, "drive %" PRIu32 "%s%s is missing", i, *path ? ", " : "", path);
	}
	return 0;
}

static void expert_wanted(void *arg, unsigned layer, unsigned expert)
{
	struct rebuild *b = arg;
	const struct found_expert *e = shard_sets_find(&b->found, layer, expert);

	if (e && e->list)
		return;
	if (++b->r->missing <= NAMED_MAX)
		tell(b, "expert %u/%u has no whole copy", layer, expert);
}

/* Every expert that model.json promises. Where that says nothing, layers are taken to have the same
 * number of experts. */
static int check_experts(struct rebuild *b, char *why)
{
	unsigned most = 0;

	if (geometry_each(b->dir, expert_wanted, b) != 0) {
		for (uint32_t i = 0; i < b->found.n; i++)
			if (b->found.expert[i].expert >= most)
				most = b->found.expert[i].expert + 1u;
		for (uint32_t i = 0; i < b->found.n; i++)
			if (i == 0 || b->found.expert[i].layer != b->found.expert[i - 1].layer)
				for (unsigned e = 0; e < most; e++)
					expert_wanted(b, b->found.expert[i].layer, e);
	}
	if (b->r->missing > NAMED_MAX)
		tell(b, "and %" PRIu32 " more", b->r->missing - NAMED_MAX);
	if (b->r->missing == 0 || b->o->partial)
		return 0;
	return fail(why, ENODATA,
		    "%" PRIu32 " experts of %s are not in its shards; nothing was changed "
		    "(expertctl rebuild --partial goes on without them)",
		    b->r->missing, b->dir);
}

/* -- writing --------------------------------------------------------------------------------------
 */

/* A shard's path as the catalog has it: relative if it lies in the store's folder. */
static int stored_path(const struct rebuild *b, const char *path, char real[PATH_MAX],
		       const char **stored, char *why)
{
	size_t n = strlen(b->dir);

	if (!realpath(path, real))
		return fail(why, errno, "%s: %s", path, strerror(errno));
	*stored = real;
	if (strncmp(real, b->dir, n) == 0 && real[n] == '/' && !strchr(real + n + 1, '/'))
		*stored = real + n + 1;
	return 0;
}

static int put_drives(struct rebuild *b, char *why)
{
	char real[PATH_MAX];
	const char *path = NULL;
	int err = 0;

	for (uint32_t i = 0; i < b->files.drives && !err; i++) {
		const struct shard_scan *s = b->files.scan[i];
		const char *missing = b->files.missing[i];
		if (s) {
			err = stored_path(b, s->path, real, &path, why);
			err = err ? err : catalog_put_drive(b->c, i, path, s->end, why);
			b->r->drives++;
		} else if (missing && *missing) {
			err = catalog_put_drive(b->c, i, missing, SHARD_ALIGN, why);
			b->r->drives++;
		}
	}
	return err;
}

static int put_expert(struct rebuild *b, const struct found_expert *e, char *why)
{
	const struct extent_list *l = e->list;
	struct usage_row row;
	unsigned part = 0;
	int err = 0;

	for (uint32_t i = 0; i < l->n && !err; i++) {
		part = i && l->x[i].copy == l->x[i - 1].copy ? part + 1 : 0;
		err = catalog_add_extent(b->c, e->layer, e->expert, e->bytes, part, &l->x[i], why);
	}
	b->r->experts++;
	if (!err && salvage_usage(b->old, e->layer, e->expert, &row)) {
		err = catalog_usage_put(b->c, &row, why);
		b->r->usage++;
	}
	return err;
}

struct meta_copy {
	struct catalog *c;
	int n, err;
	char *why;
};

/* What the daemon keeps there: the clock, a move that was under way. */
static void copy_meta(void *arg, const char *key, const char *value)
{
	struct meta_copy *m = arg;

	if (m->err || m->n++ > 100 || strcmp(key, "format") == 0 || strcmp(key, "store_id") == 0 ||
	    strlen(key) > 64 || strlen(value) > 65536)
		return;
	m->err = catalog_meta_put(m->c, key, value, m->why);
}

/* As the old one, or the store's other files: the daemon of another user may have to write it. */
static void take_owner(const struct rebuild *b, int fd)
{
	char path[PATH_MAX + 16];
	struct stat st;

	snprintf(path, sizeof(path), "%s/catalog.db", b->dir);
	if (stat(path, &st) != 0) {
		snprintf(path, sizeof(path), "%s/model.json", b->dir);
		if (stat(path, &st) != 0)
			return;
	}
	if (fchown(fd, st.st_uid, st.st_gid) != 0 || fchmod(fd, st.st_mode & 0666) != 0)
		return; /* not ours to give: as it is */
}

static int sync_fresh(const struct rebuild *b, char *why)
{
	int err = 0, fd = open(b->fresh, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return fail(why, errno, "%s: %s", b->fresh, strerror(errno));
	take_owner(b, fd);
	if (fsync(fd) != 0)
		err = fail(why, errno, "%s: %s", b->fresh, strerror(errno));
	close(fd);
	return err;
}

static void remove_fresh(const struct rebuild *b)
{
	static const char *const ends[] = { "", "-wal", "-shm", "-journal" };
	char path[PATH_MAX + 16];

	for (int i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "%s%s", b->fresh, ends[i]);
		unlink(path);
	}
}

static int write_fresh(struct rebuild *b, char *why)
{
	struct meta_copy m = { .why = why };
	int err;

	if (snprintf(b->fresh, sizeof(b->fresh), "%s/catalog.db.new", b->dir) >=
	    (int)sizeof(b->fresh) - 16)
		return fail(why, ENAMETOOLONG, "%s: the path is too long", b->dir);
	remove_fresh(b);
	err = catalog_create(b->fresh, b->files.id, &b->c, why);
	if (err)
		return err;
	err = put_drives(b, why);
	for (uint32_t i = 0; i < b->found.n && !err; i++)
		if (b->found.expert[i].list)
			err = put_expert(b, &b->found.expert[i], why);
	m.c = b->c;
	if (!err)
		salvage_meta(b->old, copy_meta, &m);
	err = err ? err : m.err;
	if (err)
		catalog_abandon(b->c);
	else
		err = catalog_finish(b->c, why);
	b->c = NULL;
	err = err ? err : sync_fresh(b, why);
	if (err)
		remove_fresh(b);
	return err;
}

static int move_file(const struct rebuild *b, const char *from, const char *to, char *why)
{
	char a[PATH_MAX + 32], z[PATH_MAX + 32];

	snprintf(a, sizeof(a), "%s/%s", b->dir, from);
	snprintf(z, sizeof(z), "%s/%s", b->dir, to);
	if (rename(a, z) == 0 || errno == ENOENT)
		return 0;
	return fail(why, errno, "%s: %s", a, strerror(errno));
}

static void remove_file(const struct rebuild *b, const char *name)
{
	char path[PATH_MAX + 32];

	snprintf(path, sizeof(path), "%s/%s", b->dir, name);
	unlink(path);
}

/* The old one with its WAL, if there is any. The database goes first: a kill in between leaves no
 * catalog.db, which is noticed, and not one without its last changes, which is not. */
static int put_aside(const struct rebuild *b, char *why)
{
	char path[PATH_MAX + 16];
	int err = 0;

	snprintf(path, sizeof(path), "%s/catalog.db", b->dir);
	if (access(path, F_OK) == 0) {
		remove_file(b, "catalog.db.damaged-wal");
		err = move_file(b, "catalog.db", "catalog.db.damaged", why);
		err = err ? err : move_file(b, "catalog.db-wal", "catalog.db.damaged-wal", why);
	}
	/* A WAL that is left here would be taken for the new one's own. */
	remove_file(b, "catalog.db-wal");
	remove_file(b, "catalog.db-shm");
	remove_file(b, "catalog.db.damaged-shm");
	return err;
}

static int swap(const struct rebuild *b, char *why)
{
	int err = put_aside(b, why);

	err = err ? err : move_file(b, "catalog.db.new", "catalog.db", why);
	if (err)
		return err;
	err = sync_folder(b->dir);
	return err ? fail(why, -err, "%s: %s", b->dir, strerror(-err)) : 0;
}

/* The list for the next time. */
static void write_list(struct rebuild *b)
{
	const char *path[STORE_DRIVES_MAX] = { NULL };
	char *real = calloc(b->files.drives + 1ul, PATH_MAX), why[WHY_MAX] = "out of memory";
	int err = real ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < b->files.drives && !err; i++) {
		path[i] = b->files.missing[i] && *b->files.missing[i] ? b->files.missing[i] : NULL;
		if (b->files.scan[i])
			err = stored_path(b, b->files.scan[i]->path, real + (size_t)i * PATH_MAX,
					  &path[i], why);
	}
	err = err ? err : store_write_shards(b->dir, path, b->files.drives, why);
	if (err)
		tell(b, "the list of the shards could not be written: %s", why);
	free(real);
}

/* -- all of it ------------------------------------------------------------------------------------
 */

int rebuild_alone(const char *dir, const struct rebuild_options *o, struct rebuild_report *r,
		  char *why)
{
	struct rebuild b = { .o = o, .r = r, .dir = realpath(dir, NULL) };
	int err;

	if (!b.dir)
		return fail(why, errno, "%s: %s", dir, strerror(errno));
	pthread_mutex_init(&b.lock, NULL);
	b.old = salvage_open(b.dir);
	err = shard_find(b.dir, o->drive, o->drives, b.old, o->say, o->arg, &b.files, why);
	if (!err && salvage_foreign(b.old, b.files.id)) {
		salvage_close(b.old);
		b.old = NULL;
	}
	err = err ? err : check_drives(&b, why);
	err = err ? err : read_shards(&b, why);
	err = err ? err : gather(&b, why);
	err = err ? err : check_experts(&b, why);
	err = err ? err : write_fresh(&b, why);
	salvage_close(b.old);
	if (!err) {
		err = swap(&b, why);
		if (!err)
			write_list(&b);
	}
	shard_sets_free(&b.found);
	shard_files_free(&b.files);
	pthread_mutex_destroy(&b.lock);
	free(b.record);
	free(b.dir);
	return err;
}

int rebuild_catalog(const char *dir, const struct rebuild_options *o, struct rebuild_report *r,
		    char *why)
{
	int lock, err = store_lock(dir, STORE_ALONE, &lock, why);

	*r = (struct rebuild_report){ 0 };
	if (err)
		return err;
	err = rebuild_alone(dir, o, r, why);
	close(lock);
	return err;
}
