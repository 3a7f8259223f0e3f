/* SPDX-License-Identifier: Apache-2.0
 *
 * catalog.db: written once by coli-pack, read whole by store_open(). The schema is in catalog.h.
 */
#include "expertfs/catalog.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expertfs/fail.h"

#define CATALOG_FORMAT "1"

static const char schema[] =
	"CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;"
	"CREATE TABLE drives(id INTEGER PRIMARY KEY, path TEXT NOT NULL, bytes INTEGER NOT NULL);"
	"CREATE TABLE extents(layer INTEGER, expert INTEGER, copy INTEGER, part INTEGER,"
	" expert_bytes INTEGER NOT NULL, drive INTEGER NOT NULL, offset INTEGER NOT NULL,"
	" length INTEGER NOT NULL, expert_offset INTEGER NOT NULL, xxh3 INTEGER NOT NULL,"
	" PRIMARY KEY(layer, expert, copy, part)) WITHOUT ROWID;"
	"CREATE TABLE usage(layer INTEGER, expert INTEGER, heat REAL NOT NULL, uses INTEGER NOT "
	"NULL,"
	" loads INTEGER NOT NULL, last_use INTEGER NOT NULL, load_ns INTEGER NOT NULL,"
	" PRIMARY KEY(layer, expert)) WITHOUT ROWID;";

struct catalog {
	sqlite3 *db;
	sqlite3_stmt *add_extent;
	char path[PATH_MAX];
};

static int sql_errno(int rc)
{
	switch (rc & 0xff) {
	case SQLITE_NOMEM:
		return ENOMEM;
	case SQLITE_FULL:
		return ENOSPC;
	case SQLITE_READONLY:
	case SQLITE_PERM:
		return EACCES;
	case SQLITE_CANTOPEN:
		return ENOENT;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return EBUSY;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
	case SQLITE_ERROR: /* a table or column is missing: not our schema */
		return EBADMSG;
	default:
		return EIO;
	}
}

static int sql_fail(sqlite3 *db, int rc, const char *path, char *why)
{
	return fail(why, sql_errno(rc), "%s: %s", path,
		    db ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
}

static int run(struct catalog *c, const char *sql, char *why)
{
	int rc = sqlite3_exec(c->db, sql, NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0 : sql_fail(c->db, rc, c->path, why);
}

/* Runs a statement that returns no rows and makes it ready for the next values. */
static int step_done(struct catalog *c, sqlite3_stmt *st, char *why)
{
	int rc = sqlite3_step(st);

	sqlite3_reset(st);
	return rc == SQLITE_DONE ? 0 : sql_fail(c->db, rc, c->path, why);
}

static int put_meta(struct catalog *c, const char *key, const char *value, char *why)
{
	sqlite3_stmt *st;
	int rc = sqlite3_prepare_v2(c->db, "INSERT INTO meta VALUES(?, ?)", -1, &st, NULL);

	if (rc != SQLITE_OK)
		return sql_fail(c->db, rc, c->path, why);
	sqlite3_bind_text(st, 1, key, -1, SQLITE_STATIC);
	sqlite3_bind_text(st, 2, value, -1, SQLITE_STATIC);
	rc = step_done(c, st, why);
	sqlite3_finalize(st);
	return rc;
}

static void id_to_hex(const uint8_t id[STORE_ID_SIZE], char hex[2 * STORE_ID_SIZE + 1])
{
	for (int i = 0; i < STORE_ID_SIZE; i++)
		snprintf(hex + 2 * (size_t)i, 3, "%02x", id[i]);
}

static int id_from_hex(const char *hex, uint8_t id[STORE_ID_SIZE])
{
	if (strlen(hex) != 2 * STORE_ID_SIZE ||
	    strspn(hex, "0123456789abcdef") != 2 * STORE_ID_SIZE)
		return -EINVAL;
	for (int i = 0; i < STORE_ID_SIZE; i++) {
		char two[3] = { hex[2 * i], hex[2 * i + 1] };
		id[i] = (uint8_t)strtoul(two, NULL, 16);
	}
	return 0;
}

int catalog_create(const char *path, const uint8_t store_id[STORE_ID_SIZE], struct catalog **out,
		   char *why)
{
	static const char insert[] = "INSERT INTO extents VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
	char hex[2 * STORE_ID_SIZE + 1];
	struct catalog *c;
	int rc;

	if (access(path, F_OK) == 0)
		return fail(why, EEXIST, "%s exists already", path);
	c = calloc(1, sizeof(*c));
	if (!c)
		return fail(why, ENOMEM, "out of memory");
	snprintf(c->path, sizeof(c->path), "%s", path);
	rc = sqlite3_open_v2(path, &c->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL);
	if (rc != SQLITE_OK) {
		rc = sql_fail(c->db, rc, path, why);
		catalog_abandon(c);
		return rc;
	}
	id_to_hex(store_id, hex);
	rc = run(c, "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; BEGIN", why);
	rc = rc ? rc : run(c, schema, why);
	rc = rc ? rc : put_meta(c, "format", CATALOG_FORMAT, why);
	rc = rc ? rc : put_meta(c, "store_id", hex, why);
	if (rc == 0) {
		rc = sqlite3_prepare_v2(c->db, insert, -1, &c->add_extent, NULL);
		rc = rc == SQLITE_OK ? 0 : sql_fail(c->db, rc, path, why);
	}
	if (rc) {
		catalog_abandon(c);
		return rc;
	}
	*out = c;
	return 0;
}

int catalog_add_drive(struct catalog *c, uint32_t id, const char *path, uint64_t bytes, char *why)
{
	sqlite3_stmt *st;
	int rc = sqlite3_prepare_v2(c->db, "INSERT INTO drives VALUES(?, ?, ?)", -1, &st, NULL);

	if (rc != SQLITE_OK)
		return sql_fail(c->db, rc, c->path, why);
	sqlite3_bind_int64(st, 1, id);
	sqlite3_bind_text(st, 2, path, -1, SQLITE_STATIC);
	sqlite3_bind_int64(st, 3, (int64_t)bytes);
	rc = step_done(c, st, why);
	sqlite3_finalize(st);
	return rc;
}

int catalog_add_extent(struct catalog *c, unsigned layer, unsigned expert, uint64_t expert_bytes,
		       unsigned part, const struct extent *x, char *why)
{
	const int64_t v[] = { layer,
			      expert,
			      x->copy,
			      part,
			      (int64_t)expert_bytes,
			      x->drive,
			      (int64_t)x->offset,
			      (int64_t)x->length,
			      (int64_t)x->expert_offset,
			      (int64_t)x->check };

	for (int i = 0; i < (int)(sizeof(v) / sizeof(*v)); i++)
		sqlite3_bind_int64(c->add_extent, i + 1, v[i]);
	return step_done(c, c->add_extent, why);
}

int catalog_finish(struct catalog *c, char *why)
{
	int rc = run(c, "COMMIT", why);

	/* The last connection to close copies the WAL into the file and removes it. */
	sqlite3_finalize(c->add_extent);
	c->add_extent = NULL;
	rc = rc ? rc : run(c, "PRAGMA wal_checkpoint(TRUNCATE)", why);
	catalog_abandon(c);
	return rc;
}

void catalog_abandon(struct catalog *c)
{
	if (!c)
		return;
	sqlite3_finalize(c->add_extent);
	sqlite3_close(c->db); /* rolls an open transaction back */
	free(c);
}

/* Opens for reading. A WAL database wants to write its -shm file even so; on read-only media
 * "immutable" does without, and is then true. */
static int open_reader(const char *path, sqlite3 **db, char *why)
{
	char uri[PATH_MAX * 3 + 32], *p = uri;
	int rc;

	if (access(path, R_OK) != 0)
		return fail(why, errno, "%s: %s", path, strerror(errno));
	p += sprintf(p, "file:");
	for (const char *s = path; *s && p < uri + sizeof(uri) - 24; s++)
		p += sprintf(p, strchr("%?#", *s) ? "%%%02x" : "%c", *s);
	sprintf(p, "?mode=ro%s", access(path, W_OK) == 0 ? "" : "&immutable=1");
	rc = sqlite3_open_v2(uri, db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, NULL);
	if (rc == SQLITE_OK)
		sqlite3_busy_timeout(*db, 2000);
	return rc == SQLITE_OK ? 0 : sql_fail(*db, rc, path, why);
}

/* The file must be as long as its own header says (SQLite file format, 1.3: page size at 16, pages
 * at 28, big-endian): SQLite itself takes a torn last page for an empty one. */
static int check_length(const char *path, char *why)
{
	uint8_t h[100];
	struct stat st;
	uint64_t page, pages;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool whole;

	if (fd < 0)
		return fail(why, errno, "%s: %s", path, strerror(errno));
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

/* Numbers may have gaps: drives that were removed. */
static int load_drive(sqlite3_stmt *st, struct store *s, const char *path, char *why)
{
	const char *file = (const char *)sqlite3_column_text(st, 1);
	int64_t id = sqlite3_column_int64(st, 0), bytes = sqlite3_column_int64(st, 2);
	char full[PATH_MAX];
	int n;

	if (id < 0 || id >= STORE_DRIVES_MAX || !file || !*file || bytes < 0)
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
	int err = 0, rc = sqlite3_prepare_v2(db, "SELECT id, path, bytes FROM drives ORDER BY id",
					     -1, &st, NULL);

	if (rc != SQLITE_OK)
		return sql_fail(db, rc, path, why);
	s->drive = calloc(STORE_DRIVES_MAX + 1, sizeof(*s->drive));
	if (!s->drive)
		err = fail(why, ENOMEM, "out of memory");
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
	return v[X_LENGTH] > 0 && v[X_AT] + v[X_LENGTH] <= v[X_BYTES] &&
	       v[X_OFFSET] % SHARD_ALIGN == 0 && v[X_AT] % SHARD_ALIGN == 0 &&
	       (uint64_t)v[X_OFFSET] <= room &&
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
	if (r->n == r->room) {
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
		if (!finish_expert(r))
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
	int err;

	if (snprintf(path, sizeof(path), "%s/catalog.db", s->dir) >= (int)sizeof(path))
		return fail(why, ENAMETOOLONG, "%s: the path is too long", s->dir);
	err = check_length(path, why);
	err = err ? err : open_reader(path, &db, why);
	err = err ? err : load_meta(db, s, path, why);
	err = err ? err : load_drives(db, s, path, why);
	err = err ? err : load_extents(db, s, path, why);
	sqlite3_close(db);
	return err;
}
