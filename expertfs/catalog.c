/* SPDX-License-Identifier: Apache-2.0
 *
 * Making a catalog.db, and what its parts share. The schema is in catalog.h.
 */
#include "expertfs/catalog.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expertfs/catalog_sql.h"
#include "expertfs/fail.h"

/* Bytes of a value or a row: more than any of ours. */
#define VALUE_MAX (16 << 20)

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

static int sql_errno(int rc, const char *path)
{
	switch (rc & 0xff) {
	case SQLITE_NOMEM:
		return ENOMEM;
	case SQLITE_FULL:
		return ENOSPC;
	case SQLITE_READONLY:
	case SQLITE_PERM:
		return EACCES;
	case SQLITE_CANTOPEN: /* it, or its -wal or -shm */
		return access(path, F_OK) == 0 ? EACCES : ENOENT;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return EBUSY;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
	case SQLITE_TOOBIG:
	case SQLITE_ERROR: /* a table or column is missing: not our schema */
		return EBADMSG;
	default:
		return EIO;
	}
}

int sql_fail(sqlite3 *db, int rc, const char *path, char *why)
{
	int err = sql_errno(rc, path), os = db && err == EIO ? sqlite3_system_errno(db) : 0;

	if (os) /* "disk I/O error" is all that SQLite says */
		return fail(why, os, "%s: %s", path, strerror(os));
	return fail(why, err, "%s: %s", path, db ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
}

void sql_distrust(sqlite3 *db)
{
	sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
	sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
	sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	sqlite3_limit(db, SQLITE_LIMIT_LENGTH, VALUE_MAX);
}

int sql_run(struct catalog *c, const char *sql, char *why)
{
	int rc = sqlite3_exec(c->db, sql, NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0 : sql_fail(c->db, rc, c->path, why);
}

int sql_prepare(struct catalog *c, const char *sql, sqlite3_stmt **st, char *why)
{
	int rc = sqlite3_prepare_v2(c->db, sql, -1, st, NULL);

	return rc == SQLITE_OK ? 0 : sql_fail(c->db, rc, c->path, why);
}

int sql_put(struct catalog *c, sqlite3_stmt *st, const int64_t *v, int n, char *why)
{
	int rc;

	for (int i = 0; i < n; i++)
		sqlite3_bind_int64(st, i + 1, v[i]);
	rc = sqlite3_step(st);
	/* The sentence first: a reset may forget what was wrong. */
	rc = rc == SQLITE_DONE ? 0 : sql_fail(c->db, rc, c->path, why);
	sqlite3_reset(st);
	return rc;
}

void id_to_hex(const uint8_t id[STORE_ID_SIZE], char hex[2 * STORE_ID_SIZE + 1])
{
	for (int i = 0; i < STORE_ID_SIZE; i++)
		snprintf(hex + 2 * (size_t)i, 3, "%02x", id[i]);
}

int id_from_hex(const char *hex, uint8_t id[STORE_ID_SIZE])
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

int catalog_path(const char *dir, char path[PATH_MAX], char *why)
{
	if (snprintf(path, PATH_MAX, "%s/catalog.db", dir) >= PATH_MAX)
		return fail(why, ENAMETOOLONG, "%s: the path is too long", dir);
	return 0;
}

static int fill_new(struct catalog *c, const uint8_t store_id[STORE_ID_SIZE], char *why)
{
	char hex[2 * STORE_ID_SIZE + 1];
	int err = sql_run(c, "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; BEGIN", why);

	id_to_hex(store_id, hex);
	err = err ? err : sql_run(c, schema, why);
	err = err ? err : catalog_meta_put(c, "format", CATALOG_FORMAT, why);
	return err ? err : catalog_meta_put(c, "store_id", hex, why);
}

int catalog_create(const char *path, const uint8_t store_id[STORE_ID_SIZE], struct catalog **out,
		   char *why)
{
	struct catalog *c;
	int rc;

	if (access(path, F_OK) == 0)
		return fail(why, EEXIST, "%s exists already", path);
	c = calloc(1, sizeof(*c));
	if (!c)
		return fail(why, ENOMEM, "out of memory");
	snprintf(c->path, sizeof(c->path), "%s", path);
	rc = sqlite3_open_v2(path, &c->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL);
	rc = rc == SQLITE_OK ? 0 : sql_fail(c->db, rc, path, why);
	rc = rc ? rc : fill_new(c, store_id, why);
	if (rc) {
		catalog_abandon(c);
		return rc;
	}
	*out = c;
	return 0;
}

int catalog_add_drive(struct catalog *c, uint32_t id, const char *path, uint64_t bytes, char *why)
{
	return catalog_put_drive(c, id, path, bytes, why);
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
	int err = 0;

	if (!c->add_extent)
		err = sql_prepare(c, "INSERT INTO extents VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
				  &c->add_extent, why);
	return err ? err : sql_put(c, c->add_extent, v, (int)(sizeof(v) / sizeof(*v)), why);
}

int catalog_finish(struct catalog *c, char *why)
{
	int rc = sql_run(c, "COMMIT", why);

	/* The last connection to close copies the WAL into the file and removes it. */
	sqlite3_finalize(c->add_extent);
	c->add_extent = NULL;
	rc = rc ? rc : sql_run(c, "PRAGMA wal_checkpoint(TRUNCATE)", why);
	catalog_abandon(c);
	return rc;
}

void catalog_abandon(struct catalog *c)
{
	catalog_close(c);
}
