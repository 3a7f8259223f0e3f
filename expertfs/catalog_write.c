/* SPDX-License-Identifier: Apache-2.0
 *
 * Changing a catalog.db that is in use: placement, drives, usage. See catalog.h.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/catalog_sql.h"
#include "expertfs/fail.h"

/* Is it ours at all? */
static int check_format(struct catalog *c, char *why)
{
	char *value = NULL;
	int err = catalog_meta_get(c, "format", &value, why);

	if (err == -ENOENT || (err == 0 && value && strcmp(value, CATALOG_FORMAT) != 0))
		err = fail(why, EBADMSG, "%s is not a catalog of format %s", c->path,
			   CATALOG_FORMAT);
	free(value);
	return err;
}

static int open_writer(struct catalog *c, char *why)
{
	int rc = sqlite3_open_v2(c->path, &c->db, SQLITE_OPEN_READWRITE, NULL);

	if (rc != SQLITE_OK)
		return sql_fail(c->db, rc, c->path, why);
	sql_distrust(c->db);
	/* What cannot be written is opened for reading, without a word. */
	if (sqlite3_db_readonly(c->db, "main") != 0)
		return fail(why, EROFS, "%s cannot be written", c->path);
	sqlite3_busy_timeout(c->db, CATALOG_WAIT_MS);
	/* A transaction changes some pages; a small cache is enough, and counts into the budget. */
	return sql_run(
		c, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA cache_size=-256", why);
}

static int open_reader(struct catalog *c, char *why)
{
	return catalog_open_reader(c->path, &c->db, why);
}

static int open_with(int (*connect)(struct catalog *c, char *why), const char *dir,
		     struct catalog **out, char *why)
{
	struct catalog *c = calloc(1, sizeof(*c));
	int err;

	if (!c)
		return fail(why, ENOMEM, "out of memory");
	err = catalog_path(dir, c->path, why);
	err = err ? err : connect(c, why);
	err = err ? err : check_format(c, why);
	if (err)
		catalog_close(c);
	else
		*out = c;
	return err;
}

int catalog_open(const char *dir, struct catalog **out, char *why)
{
	return open_with(open_writer, dir, out, why);
}

int catalog_open_read(const char *dir, struct catalog **out, char *why)
{
	return open_with(open_reader, dir, out, why);
}

int catalog_lazy(struct catalog *c, char *why)
{
	return sql_run(c, "PRAGMA synchronous=NORMAL", why);
}

void catalog_close(struct catalog *c)
{
	if (!c)
		return;
	sqlite3_finalize(c->add_extent);
	sqlite3_finalize(c->drop_extents);
	sqlite3_finalize(c->put_usage);
	sqlite3_close(c->db); /* rolls an open transaction back */
	free(c);
}

int catalog_begin(struct catalog *c, char *why)
{
	/* At once a writer: a reader that becomes one may be refused in the middle. */
	return sql_run(c, "BEGIN IMMEDIATE", why);
}

int catalog_commit(struct catalog *c, char *why)
{
	int err = sql_run(c, "COMMIT", why);

	if (err)
		catalog_rollback(c);
	return err;
}

void catalog_rollback(struct catalog *c)
{
	if (!sqlite3_get_autocommit(c->db))
		sqlite3_exec(c->db, "ROLLBACK", NULL, NULL, NULL);
}

/* The part number of each extent is its place within its copy. */
static int check_list(const struct catalog *c, unsigned layer, unsigned expert,
		      uint64_t expert_bytes, const struct extent_list *l, char *why)
{
	uint64_t at = expert_bytes; /* of the expert, covered by the copy at hand */
	unsigned copies = 0;
	bool good = l->n > 0 && expert_bytes > 0;

	for (uint32_t i = 0; i < l->n && good; i++) {
		const struct extent *x = &l->x[i];
		if (at == expert_bytes) {
			good = x->copy == copies++;
			at = 0;
		}
		good = good && x->copy == copies - 1 && x->expert_offset == at && x->length > 0 &&
		       x->length <= expert_bytes - at && x->offset % SHARD_ALIGN == 0 &&
		       at % SHARD_ALIGN == 0;
		at += x->length;
	}
	return good && at == expert_bytes
		       ? 0
		       : fail(why, EINVAL,
			      "%s: the new extents of expert %u/%u do not cover it copy after copy",
			      c->path, layer, expert);
}

static int replace(struct catalog *c, unsigned layer, unsigned expert, uint64_t expert_bytes,
		   const struct extent_list *l, char *why)
{
	const int64_t v[] = { layer, expert };
	unsigned part = 0;
	int err = 0;

	if (!c->drop_extents)
		err = sql_prepare(c, "DELETE FROM extents WHERE layer = ? AND expert = ?",
				  &c->drop_extents, why);
	err = err ? err : sql_put(c, c->drop_extents, v, 2, why);
	for (uint32_t i = 0; i < l->n && !err; i++) {
		part = i && l->x[i].copy == l->x[i - 1].copy ? part + 1 : 0;
		err = catalog_add_extent(c, layer, expert, expert_bytes, part, &l->x[i], why);
	}
	return err;
}

int catalog_replace_extents(struct catalog *c, unsigned layer, unsigned expert,
			    uint64_t expert_bytes, const struct extent_list *l, char *why)
{
	int err = check_list(c, layer, expert, expert_bytes, l, why);

	err = err ? err : sql_run(c, "SAVEPOINT expert", why);
	if (err)
		return err;
	err = replace(c, layer, expert, expert_bytes, l, why);
	/* Outside of a transaction this commits. */
	err = err ? err : sql_run(c, "RELEASE expert", why);
	if (err)
		sqlite3_exec(c->db, "ROLLBACK TO expert; RELEASE expert", NULL, NULL, NULL);
	return err;
}

int catalog_put_drive(struct catalog *c, uint32_t id, const char *path, uint64_t bytes, char *why)
{
	const int64_t v[] = { id };
	sqlite3_stmt *st;
	int err = sql_prepare(c, "INSERT OR REPLACE INTO drives(id, path, bytes) VALUES(?, ?, ?)",
			      &st, why);

	if (err)
		return err;
	sqlite3_bind_text(st, 2, path, -1, SQLITE_STATIC);
	sqlite3_bind_int64(st, 3, (int64_t)bytes);
	err = sql_put(c, st, v, 1, why);
	sqlite3_finalize(st);
	return err;
}

/* Runs a change of one drive that must find it. */
static int change_drive(struct catalog *c, const char *sql, const int64_t *v, int n, uint32_t id,
			char *why)
{
	sqlite3_stmt *st;
	int err = sql_prepare(c, sql, &st, why);

	if (err)
		return err;
	err = sql_put(c, st, v, n, why);
	sqlite3_finalize(st);
	if (!err && sqlite3_changes(c->db) == 0)
		err = fail(why, ENOENT, "%s has no drive %" PRIu32, c->path, id);
	return err;
}

int catalog_set_drive_bytes(struct catalog *c, uint32_t id, uint64_t bytes, char *why)
{
	const int64_t v[] = { (int64_t)bytes, id };

	return change_drive(c, "UPDATE drives SET bytes = ? WHERE id = ?", v, 2, id, why);
}

int catalog_drop_drive(struct catalog *c, uint32_t id, char *why)
{
	const int64_t v[] = { id };
	sqlite3_stmt *st;
	int rc, err = sql_prepare(c, "SELECT 1 FROM extents WHERE drive = ? LIMIT 1", &st, why);

	if (err)
		return err;
	sqlite3_bind_int64(st, 1, id);
	rc = sqlite3_step(st);
	if (rc == SQLITE_ROW)
		err = fail(why, EBUSY, "%s: experts still lie on drive %" PRIu32, c->path, id);
	else if (rc != SQLITE_DONE)
		err = sql_fail(c->db, rc, c->path, why);
	sqlite3_finalize(st);
	return err ? err : change_drive(c, "DELETE FROM drives WHERE id = ?", v, 1, id, why);
}

int catalog_meta_get(struct catalog *c, const char *key, char **value, char *why)
{
	sqlite3_stmt *st;
	int rc, err = sql_prepare(c, "SELECT value FROM meta WHERE key = ?", &st, why);

	if (err)
		return err;
	sqlite3_bind_text(st, 1, key, -1, SQLITE_STATIC);
	rc = sqlite3_step(st);
	if (rc == SQLITE_ROW) {
		const char *text = (const char *)sqlite3_column_text(st, 0);
		*value = strdup(text ? text : "");
		err = *value ? 0 : fail(why, ENOMEM, "out of memory");
	} else {
		err = rc == SQLITE_DONE ? -ENOENT : sql_fail(c->db, rc, c->path, why);
	}
	sqlite3_finalize(st);
	return err;
}

int catalog_meta_put(struct catalog *c, const char *key, const char *value, char *why)
{
	sqlite3_stmt *st;
	int err = sql_prepare(c,
			      value ? "INSERT OR REPLACE INTO meta(key, value) VALUES(?, ?)"
				    : "DELETE FROM meta WHERE key = ?",
			      &st, why);

	if (err)
		return err;
	sqlite3_bind_text(st, 1, key, -1, SQLITE_STATIC);
	if (value)
		sqlite3_bind_text(st, 2, value, -1, SQLITE_STATIC);
	err = sql_put(c, st, NULL, 0, why);
	sqlite3_finalize(st);
	return err;
}

/* -- usage ----------------------------------------------------------------------------------------
 */

bool usage_from_row(sqlite3_stmt *st, struct usage_row *row)
{
	int64_t v[6];

	for (int i = 0; i < 6; i++) {
		v[i] = sqlite3_column_int64(st, i);
		if (v[i] < 0)
			return false;
	}
	*row = (struct usage_row){ .layer = (uint16_t)v[0],
				   .expert = (uint16_t)v[1],
				   .heat = sqlite3_column_double(st, 6),
				   .uses = (uint64_t)v[2],
				   .loads = (uint64_t)v[3],
				   .last_use = (uint64_t)v[4],
				   .load_ns = (uint64_t)v[5] };
	return v[0] <= UINT16_MAX && v[1] <= UINT16_MAX && isfinite(row->heat) && row->heat >= 0;
}

int catalog_usage_each(struct catalog *c, int (*each)(void *arg, const struct usage_row *row),
		       void *arg, char *why)
{
	struct usage_row row;
	sqlite3_stmt *st;
	int rc, err = sql_prepare(c,
				  "SELECT layer, expert, uses, loads, last_use, load_ns, heat"
				  " FROM usage ORDER BY layer, expert",
				  &st, why);

	if (err)
		return err;
	while (!err && (rc = sqlite3_step(st)) != SQLITE_DONE) {
		if (rc != SQLITE_ROW)
			err = sql_fail(c->db, rc, c->path, why);
		else if (usage_from_row(st, &row))
			err = each(arg, &row);
	}
	sqlite3_finalize(st);
	return err;
}

int catalog_usage_put(struct catalog *c, const struct usage_row *row, char *why)
{
	const int64_t v[] = { row->layer,
			      row->expert,
			      (int64_t)row->uses,
			      (int64_t)row->loads,
			      (int64_t)row->last_use,
			      (int64_t)row->load_ns };
	int err = 0;

	if (!c->put_usage)
		err = sql_prepare(
			c,
			"INSERT OR REPLACE INTO usage(layer, expert, uses, loads, last_use,"
			" load_ns, heat) VALUES(?, ?, ?, ?, ?, ?, ?)",
			&c->put_usage, why);
	if (err)
		return err;
	sqlite3_bind_double(c->put_usage, 7, row->heat);
	return sql_put(c, c->put_usage, v, 6, why);
}

int catalog_usage_clear(struct catalog *c, char *why)
{
	int err = catalog_begin(c, why);

	if (err)
		return err;
	err = sql_run(c, "DELETE FROM usage; DELETE FROM meta WHERE key = 'clock'", why);
	if (err)
		catalog_rollback(c);
	return err ? err : catalog_commit(c, why);
}
