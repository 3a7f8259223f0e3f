/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a catalog.db whole, into a store. No number of it becomes an address before it fits to
 * all the others.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expertfs/catalog_sql.h"
#include "expertfs/fail.h"

/* What is committed and not yet in the file itself. */
static uint64_t wal_bytes(const char *path)
{
	char wal[PATH_MAX + 8];
	struct stat st;

	snprintf(wal, sizeof(wal), "%s-wal", path);
	return stat(wal, &st) == 0 ? (uint64_t)st.st_size : 0;
}

/* *db is to be closed whatever comes. */
static int open_reader(const char *path, bool immutable, sqlite3 **db)
{
	char uri[PATH_MAX * 3 + 32], *p = uri;
	int rc;

	p += sprintf(p, "file:");
	for (const char *s = path; *s && p < uri + sizeof(uri) - 24; s++)
		p += sprintf(p, strchr("%?#", *s) ? "%%%02x" : "%c", *s);
	sprintf(p, "?mode=ro%s", immutable ? "&immutable=1" : "");
	rc = sqlite3_open_v2(uri, db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, NULL);
	if (rc != SQLITE_OK)
		return rc;
	sql_distrust(*db);
	sqlite3_busy_timeout(*db, CATALOG_WAIT_MS);
	/* The file itself is opened with the first statement. */
	return sqlite3_exec(*db, "PRAGMA schema_version", NULL, NULL, NULL);
}

int catalog_open_reader(const char *path, sqlite3 **db, char *why)
{
	bool fixed = access(path, W_OK) != 0 && wal_bytes(path) == 0;
	int rc;

	if (access(path, R_OK) != 0)
		return fail(why, errno, "%s: %s", path, strerror(errno));
	rc = open_reader(path, fixed, db);
	/* The drive has no room for the -shm file. */
	if (rc == SQLITE_IOERR && !fixed && wal_bytes(path) == 0) {
		sqlite3_close(*db);
		*db = NULL;
		rc = open_reader(path, true, db);
	}
	if (rc == SQLITE_CANTOPEN && wal_bytes(path) > 0)
		return fail(why, EROFS,
			    "%s has changes in %s-wal that cannot be read where they cannot be "
			    "written: make the folder writable once",
			    path, path);
	return rc == SQLITE_OK ? 0 : sql_fail(*db, rc, path, why);
}

/* The file must be as long as its own header says (SQLite file format, 1.3: page size at 16, pages
 * at 28, big-endian): SQLite itself takes a torn last page for an empty one. As long as there is a
 * WAL, a checkpoint that was killed may have written the header and not yet the pages, which the
 * WAL still has. */
static int check_length(const char *path, char *why)
{
	uint8_t h[100];
	struct stat st;
	uint64_t page, pages;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool whole;

	if (fd < 0)
		return fail(why, errno, "%s: %s", path, strerror(errno));
	if (wal_bytes(path) > 0) {
		close(fd);
		return 0;
	}
	whole = fstat(fd, &st) == 0 && pread(fd, h, sizeof(h), 0) == (ssize_t)sizeof(h);
	close(fd);
	if (whole) {
		page = (uint64_t)h[16] << 8 | h[17];
		pages = (uint64_t)h[28] << 24 | (uint64_t)h[29] << 16 | (uint64_t)h[30] << 8 |
			h[31];
		whole = (uint64_t)st.st_size >= (page == 1 ? 65536 : page) * pages;
	}
	return whole ? 0 : fail(why, EBADMSG, "%s is damaged: it ends too early", path);
}

static int load_meta(sqlite3 *db, struct store *s, const char *path, char *why)
{
	sqlite3_stmt *st;
	int rc = sqlite3_prepare_v2(db, "SELECT key, value FROM meta", -1, &st, NULL), found = 0;

	if (rc != SQLITE_OK)
		return sql_fail(db, rc, path, why);
	while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
		const char *key = (const char *)sqlite3_column_text(st, 0);
		const char *value = (const char *)sqlite3_column_text(st, 1);
		if (!key || !value)
			continue;
		if (strcmp(key, "format") == 0 && strcmp(value, CATALOG_FORMAT) == 0)
			found |= 1;
		if (strcmp(key, "store_id") == 0 && id_from_hex(value, s->id) == 0)
			found |= 2;
	}
	sqlite3_finalize(st);
	if (rc != SQLITE_DONE)
		return sql_fail(db, rc, path, why);
	return found == 3 ? 0
			  : fail(why, EBADMSG, "%s is not a catalog of format %s", path,
				 CATALOG_FORMAT);
}

/* Numbers ascend, and may have gaps: drives that were removed. */
static int load_drive(sqlite3_stmt *st, struct store *s, const char *path, char *why)
{
	const char *file = (const char *)sqlite3_column_text(st, 1);
	int64_t id = sqlite3_column_int64(st, 0), bytes = sqlite3_column_int64(st, 2);
	char full[PATH_MAX];
	int n;

	if (id < s->drives || id >= STORE_DRIVES_MAX || !file || !*file || bytes < 0)
		return fail(why, EBADMSG,
			    "%s: drive %" PRId64 " is not numbered or named as it should be", path,
			    id);
	n = file[0] == '/' ? snprintf(full, sizeof(full), "%s", file)
			   : snprintf(full, sizeof(full), "%s/%s", s->dir, file);
	if (n >= (int)sizeof(full))
		return fail(why, ENAMETOOLONG, "%s: the path of drive %" PRId64 " is too long",
			    path, id);
	s->drive[id] = (struct store_drive){ .path = strdup(full), .bytes = (uint64_t)bytes };
	if (!s->drive[id].path)
		return fail(why, ENOMEM, "out of memory");
	s->drives = (uint32_t)id + 1;
	return 0;
}

static int load_drives(sqlite3 *db, struct store *s, const char *path, char *why)
{
	sqlite3_stmt *st;
	int rc, err = 0;

	s->drive = calloc(STORE_DRIVES_MAX + 1, sizeof(*s->drive));
	if (!s->drive)
		return fail(why, ENOMEM, "out of memory");
	rc = sqlite3_prepare_v2(db, "SELECT id, path, bytes FROM drives ORDER BY id", -1, &st,
				NULL);
	if (rc != SQLITE_OK)
		return sql_fail(db, rc, path, why);
	while (err == 0 && (rc = sqlite3_step(st)) == SQLITE_ROW)
		err = load_drive(st, s, path, why);
	if (err == 0 && rc != SQLITE_DONE)
		err = sql_fail(db, rc, path, why);
	sqlite3_finalize(st);
	return err;
}

/* A row of extents, in the order of the SELECT. */
enum {
	X_LAYER,
	X_EXPERT,
	X_COPY,
	X_PART,
	X_BYTES,
	X_DRIVE,
	X_OFFSET,
	X_LENGTH,
	X_AT,
	X_CHECK,
	X_COLUMNS
};

/* What the rows so far came to. The extents of one expert are gathered, and become its list when
 * the next one begins. */
struct row_state {
	struct store_expert *expert; /* of the last row; NULL before the first */
	struct extent *x;            /* of that expert: n of them in a room of room */
	uint32_t n, room;
	int64_t part; /* of the last row */
	bool no_memory;
};

/* Everything a row says of itself must hold before it becomes an address. */
static bool row_sound(const struct store *s, const int64_t v[X_COLUMNS])
{
	uint64_t room;

	for (int i = 0; i < X_CHECK; i++)
		if (v[i] < 0 || v[i] > INT64_MAX / 4)
			return false;
	if (v[X_LAYER] > UINT16_MAX || v[X_EXPERT] > UINT16_MAX || v[X_COPY] > UINT16_MAX ||
	    v[X_DRIVE] >= s->drives || !s->drive[v[X_DRIVE]].path)
		return false;
	room = s->drive[v[X_DRIVE]].bytes;
	return v[X_LENGTH] > 0 && (uint64_t)v[X_BYTES] <= STORE_EXPERT_BYTES_MAX &&
	       v[X_AT] + v[X_LENGTH] <= v[X_BYTES] && v[X_OFFSET] % SHARD_ALIGN == 0 &&
	       v[X_AT] % SHARD_ALIGN == 0 && (uint64_t)v[X_OFFSET] <= room &&
	       shard_round_up((uint64_t)v[X_LENGTH]) <= room - (uint64_t)v[X_OFFSET];
}

/* The expert at hand has all its rows: they must end with a whole copy, and become its list. */
static bool finish_expert(struct row_state *r)
{
	const struct extent *last = r->n ? &r->x[r->n - 1] : NULL;
	struct extent_list *l;

	if (!last)
		return true;
	if (last->expert_offset + last->length != r->expert->bytes)
		return false;
	l = extent_list_new(r->n);
	if (l) {
		memcpy(l->x, r->x, r->n * sizeof(*r->x));
		r->expert->packed = l;
	}
	r->no_memory = !l;
	r->n = 0;
	return l != NULL;
}

static bool gather(struct row_state *r, const int64_t v[X_COLUMNS])
{
	if (!r->x || r->n == r->room) {
		uint32_t room = r->room ? 2 * r->room : 16;
		struct extent *grown = realloc(r->x, room * sizeof(*grown));
		r->no_memory = !grown;
		if (!grown)
			return false;
		r->x = grown;
		r->room = room;
	}
	r->x[r->n++] = (struct extent){ .offset = (uint64_t)v[X_OFFSET],
					.length = (uint64_t)v[X_LENGTH],
					.expert_offset = (uint64_t)v[X_AT],
					.check = (uint64_t)v[X_CHECK],
					.drive = (uint16_t)v[X_DRIVE],
					.copy = (uint16_t)v[X_COPY] };
	r->part = v[X_PART];
	return true;
}

/* Adds one row, sorted by layer, expert, copy, part. Copies and parts are numbered from 0 without
 * gaps, and the parts of a copy follow each other from the expert's first byte to its last. */
static bool add_row(struct store *s, struct row_state *r, const int64_t v[X_COLUMNS])
{
	const struct store_expert *e = r->expert;
	const struct extent *last = r->n ? &r->x[r->n - 1] : NULL;
	bool same = last && e->layer == v[X_LAYER] && e->expert == v[X_EXPERT];
	bool goes_on = same && last->copy == v[X_COPY];

	if (!row_sound(s, v) || (same && e->bytes != (uint64_t)v[X_BYTES]) ||
	    v[X_PART] != (goes_on ? r->part + 1 : 0) ||
	    (uint64_t)v[X_AT] != (goes_on ? last->expert_offset + last->length : 0))
		return false;
	if (!goes_on && v[X_COPY] != (same ? last->copy + 1 : 0))
		return false;
	if (same && !goes_on && last->expert_offset + last->length != e->bytes)
		return false;
	if (!same) {
		if (s->experts == STORE_EXPERTS_MAX || !finish_expert(r))
			return false;
		r->expert = &s->expert[s->experts++];
		*r->expert = (struct store_expert){ .layer = (uint16_t)v[X_LAYER],
						    .expert = (uint16_t)v[X_EXPERT],
						    .bytes = (uint64_t)v[X_BYTES] };
	}
	return gather(r, v);
}

static int count_extents(sqlite3 *db, const char *path, int64_t *n, char *why)
{
	sqlite3_stmt *st;
	int rc = sqlite3_prepare_v2(db, "SELECT count(*) FROM extents", -1, &st, NULL);

	if (rc != SQLITE_OK)
		return sql_fail(db, rc, path, why);
	rc = sqlite3_step(st);
	*n = rc == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
	sqlite3_finalize(st);
	if (rc != SQLITE_ROW)
		return sql_fail(db, rc, path, why);
	return *n > 0 ? 0 : fail(why, EBADMSG, "%s lists no expert", path);
}

static int load_extents(sqlite3 *db, struct store *s, const char *path, char *why)
{
	static const char rows[] =
		"SELECT layer, expert, copy, part, expert_bytes, drive, offset, length,"
		" expert_offset, xxh3 FROM extents ORDER BY layer, expert, copy, part";
	struct row_state r = { 0 };
	int64_t n = 0, v[X_COLUMNS] = { 0 };
	sqlite3_stmt *st;
	bool sound = true;
	int rc = count_extents(db, path, &n, why);

	if (rc || n < 1)
		return rc;
	s->expert = calloc((size_t)n, sizeof(*s->expert));
	if (!s->expert)
		return fail(why, ENOMEM, "out of memory for %" PRId64 " extents", n);
	rc = sqlite3_prepare_v2(db, rows, -1, &st, NULL);
	if (rc != SQLITE_OK)
		return sql_fail(db, rc, path, why);
	rc = SQLITE_ROW;
	while (sound && n-- > 0 && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		for (int i = 0; i < X_COLUMNS; i++)
			v[i] = sqlite3_column_int64(st, i);
		sound = add_row(s, &r, v);
	}
	rc = rc == SQLITE_ROW ? 0 : sql_fail(db, rc, path, why);
	sqlite3_finalize(st);
	sound = sound && !rc && finish_expert(&r);
	free(r.x);
	if (r.no_memory)
		return fail(why, ENOMEM, "out of memory");
	if (!rc && !sound)
		rc = fail(why, EBADMSG,
			  "%s: the extents of expert %" PRId64 "/%" PRId64 " do not fit together",
			  path, v[X_LAYER], v[X_EXPERT]);
	return rc;
}

int catalog_load(struct store *s, char *why)
{
	char path[PATH_MAX];
	sqlite3 *db = NULL;
	int err = catalog_path(s->dir, path, why);

	err = err ? err : check_length(path, why);
	err = err ? err : catalog_open_reader(path, &db, why);
	err = err ? err : load_meta(db, s, path, why);
	err = err ? err : load_drives(db, s, path, why);
	err = err ? err : load_extents(db, s, path, why);
	sqlite3_close(db);
	return err;
}

static int quick_check(sqlite3 *db, const char *path, char *why)
{
	const char *found, *line;
	sqlite3_stmt *st;
	int err = 0, rc = sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &st, NULL);

	if (rc != SQLITE_OK)
		return sql_fail(db, rc, path, why);
	rc = sqlite3_step(st);
	found = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(st, 0) : NULL;
	if (rc != SQLITE_ROW)
		err = sql_fail(db, rc, path, why);
	else if (!found || strcmp(found, "ok") != 0) {
		/* A head line and then what is wrong. */
		line = found ? strchr(found, '\n') : NULL;
		line = line ? line + 1 : found ? found : "";
		err = fail(why, EBADMSG, "%s is damaged: %.*s", path, (int)strcspn(line, "\n"),
			   line);
	}
	sqlite3_finalize(st);
	return err;
}

int catalog_check(const char *dir, char *why)
{
	char path[PATH_MAX];
	sqlite3 *db = NULL;
	int err = catalog_path(dir, path, why);

	err = err ? err : catalog_open_reader(path, &db, why);
	err = err ? err : quick_check(db, path, why);
	sqlite3_close(db);
	return err;
}
