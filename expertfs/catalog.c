/* SPDX-License-Identifier: Apache-2.0
 *
 * catalog.db: written once by coli-pack, read whole by store_open(). The schema is in catalog.h.
 */
#include "expertfs/catalog.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static int load_drive(sqlite3_stmt *st, struct store *s, const char *path, char *why)
{
	const char *file = (const char *)sqlite3_column_text(st, 1);
	int64_t id = sqlite3_column_int64(st, 0), bytes = sqlite3_column_int64(st, 2);
	struct store_drive *grown;
	char full[PATH_MAX];
	int n;

	if (id != s->drives || id > UINT16_MAX || !file || !*file || bytes < 0)
		return fail(why, EBADMSG,
			    "%s: drive %" PRId64 " is not numbered or named as it should be", path,
			    id);
	n = file[0] == '/' ? snprintf(full, sizeof(full), "%s", file)
			   : snprintf(full, sizeof(full), "%s/%s", s->dir, file);
	if (n >= (int)sizeof(full))
		return fail(why, ENAMETOOLONG, "%s: the path of drive %" PRId64 " is too long",
			    path, id);
	grown = realloc(s->drive, (s->drives + 1) * sizeof(*grown));
	if (!grown)
		return fail(why, ENOMEM, "out of memory");
	s->drive = grown;
	s->drive[s->drives] =
		(struct store_drive){ .path = strdup(full), .bytes = (uint64_t)bytes };
	if (!s->drive[s->drives].path)
		return fail(why, ENOMEM, "out of memory");
	s->drives++;
	return 0;
}

static int load_drives(sqlite3 *db, struct store *s, const char *path, char *why)
{
	sqlite3_stmt *st;
	int err = 0, rc = sqlite3_prepare_v2(db, "SELECT id, path, bytes FROM drives ORDER BY id",
					     -1, &st, NULL);

	if (rc != SQLITE_OK)
		return sql_fail(db, rc, path, why);
	while (err == 0 && (rc = sqlite3_step(st)) == SQLITE_ROW)
		err = load_drive(st, s, path, why);
	if (err == 0 && rc != SQLITE_DONE)
		err = sql_fail(db, rc, path, why);
	sqlite3_finalize(st);
	return err;
}

/* Everything a row of extents says must hold before it becomes an address. */
static bool extent_sound(const struct store *s, const int64_t v[10], uint32_t number)
{
	uint64_t bytes = (uint64_t)v[4], offset = (uint64_t)v[6], length = (uint64_t)v[7];
	uint64_t at = (uint64_t)v[8];

	return v[0] >= 0 && v[0] <= UINT16_MAX && v[1] >= 0 && v[1] <= UINT16_MAX && v[2] >= 0 &&
	       v[2] <= UINT16_MAX && v[3] == number && v[4] > 0 && v[4] <= INT64_MAX / 4 &&
	       v[5] >= 0 && v[5] < s->drives && v[6] >= 0 && v[7] > 0 && v[8] >= 0 &&
	       offset % SHARD_ALIGN == 0 && at % SHARD_ALIGN == 0 && length <= bytes &&
	       at <= bytes - length && offset <= s->drive[v[5]].bytes &&
	       shard_round_up(length) <= s->drive[v[5]].bytes - offset;
}

/* Adds one row (sorted by layer, expert, copy, part). Parts of a copy follow each other without
 * gap. */
static int load_extent(struct store *s, const int64_t v[10], const char *path, char *why)
{
	struct store_expert *e = s->experts ? &s->expert[s->experts - 1] : NULL;
	bool same = e && e->layer == v[0] && e->expert == v[1];
	struct extent *last =
		same ? &s->extent[(size_t)(e->extent - s->extent) + e->extents - 1] : NULL;
	bool same_copy = last && last->copy == v[2];
	uint64_t expected = same_copy ? last->expert_offset + last->length : 0;
	uint32_t part = 0;

	if (same_copy)
		for (struct extent *x = last; x >= e->extent && x->copy == v[2]; x--)
			part++;
	if (!extent_sound(s, v, part) || (uint64_t)v[8] != expected ||
	    (same && e->bytes != (uint64_t)v[4]) ||
	    (last && !same_copy && last->expert_offset + last->length != e->bytes))
		return fail(why, EBADMSG,
			    "%s: the extents of expert %" PRId64 "/%" PRId64 " do not fit together",
			    path, v[0], v[1]);
	if (!same) {
		e = &s->expert[s->experts++];
		*e = (struct store_expert){ .layer = (uint16_t)v[0],
					    .expert = (uint16_t)v[1],
					    .extent = last ? last + 1 : s->extent,
					    .bytes = (uint64_t)v[4] };
		if (s->experts > 1)
			e->extent = e[-1].extent + e[-1].extents;
	}
	s->extent[(size_t)(e->extent - s->extent) + e->extents++] =
		(struct extent){ .offset = (uint64_t)v[6],
				 .length = (uint64_t)v[7],
				 .expert_offset = (uint64_t)v[8],
				 .check = (uint64_t)v[9],
				 .drive = (uint16_t)v[5],
				 .copy = (uint16_t)v[2] };
	return 0;
}

static int load_extents(sqlite3 *db, struct store *s, const char *path, char *why)
{
	static const char count[] = "SELECT count(*) FROM extents";
	static const char rows[] =
		"SELECT layer, expert, copy, part, expert_bytes, drive, offset, length,"
		" expert_offset, xxh3 FROM extents ORDER BY layer, expert, copy, part";
	sqlite3_stmt *st;
	int err = 0, rc = sqlite3_prepare_v2(db, count, -1, &st, NULL);
	int64_t n = 0;

	if (rc != SQLITE_OK)
		return sql_fail(db, rc, path, why);
	if (sqlite3_step(st) == SQLITE_ROW)
		n = sqlite3_column_int64(st, 0);
	sqlite3_finalize(st);
	if (n < 1)
		return fail(why, EBADMSG, "%s lists no expert", path);
	s->expert = calloc((size_t)n, sizeof(*s->expert));
	s->extent = calloc((size_t)n, sizeof(*s->extent));
	if (!s->expert || !s->extent)
		return fail(why, ENOMEM, "out of memory for %" PRId64 " extents", n);
	rc = sqlite3_prepare_v2(db, rows, -1, &st, NULL);
	if (rc != SQLITE_OK)
		return sql_fail(db, rc, path, why);
	while (err == 0 && n-- > 0 && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		int64_t v[10];
		for (int i = 0; i < 10; i++)
			v[i] = sqlite3_column_int64(st, i);
		err = load_extent(s, v, path, why);
	}
	if (err == 0 && rc != SQLITE_ROW)
		err = sql_fail(db, rc, path, why);
	sqlite3_finalize(st);
	return err;
}

/* Each copy of each expert is whole: load_extent() saw the starts, here are the ends. */
static int check_whole(const struct store *s, const char *path, char *why)
{
	for (uint32_t i = 0; i < s->experts; i++) {
		const struct extent *last = &s->expert[i].extent[s->expert[i].extents - 1];
		if (last->expert_offset + last->length != s->expert[i].bytes)
			return fail(why, EBADMSG, "%s: expert %u/%u ends before its last byte",
				    path, s->expert[i].layer, s->expert[i].expert);
	}
	return 0;
}

int catalog_load(struct store *s, char *why)
{
	char path[PATH_MAX];
	sqlite3 *db = NULL;
	int err;

	if (snprintf(path, sizeof(path), "%s/catalog.db", s->dir) >= (int)sizeof(path))
		return fail(why, ENAMETOOLONG, "%s: the path is too long", s->dir);
	err = open_reader(path, &db, why);
	err = err ? err : load_meta(db, s, path, why);
	err = err ? err : load_drives(db, s, path, why);
	err = err ? err : load_extents(db, s, path, why);
	err = err ? err : check_whole(s, path, why);
	sqlite3_close(db);
	return err;
}
