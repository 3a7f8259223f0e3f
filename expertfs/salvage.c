/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a damaged catalog; see salvage.h.
 */
#include "expertfs/salvage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expertfs/catalog_sql.h"
#include "expertfs/fail.h"

struct salvage {
	sqlite3 *db;
	sqlite3_stmt *usage;
};

static sqlite3 *open_one(const char *path)
{
	sqlite3 *db = NULL;
	char why[WHY_MAX];

	if (access(path, R_OK) == 0 && catalog_open_reader(path, &db, why) == 0)
		return db;
	sqlite3_close(db);
	return NULL;
}

struct salvage *salvage_open(const char *dir)
{
	struct salvage *s = calloc(1, sizeof(*s));
	char path[PATH_MAX], aside[PATH_MAX + 16], why[WHY_MAX];

	if (!s || catalog_path(dir, path, why) != 0) {
		free(s);
		return NULL;
	}
	snprintf(aside, sizeof(aside), "%s.damaged", path);
	s->db = open_one(access(path, F_OK) == 0 ? path : aside);
	if (!s->db) {
		free(s);
		return NULL;
	}
	if (sqlite3_prepare_v2(s->db,
			       "SELECT layer, expert, uses, loads, last_use, load_ns, heat"
			       " FROM usage WHERE layer = ? AND expert = ?",
			       -1, &s->usage, NULL) != SQLITE_OK)
		s->usage = NULL;
	return s;
}

void salvage_close(struct salvage *s)
{
	if (!s)
		return;
	sqlite3_finalize(s->usage);
	sqlite3_close(s->db);
	free(s);
}

struct id_check {
	const uint8_t *id;
	bool foreign;
};

static void check_id(void *arg, const char *key, const char *value)
{
	struct id_check *c = arg;
	uint8_t id[STORE_ID_SIZE];

	if (strcmp(key, "store_id") == 0 && id_from_hex(value, id) == 0)
		c->foreign = memcmp(id, c->id, STORE_ID_SIZE) != 0;
}

bool salvage_foreign(struct salvage *s, const uint8_t id[STORE_ID_SIZE])
{
	struct id_check c = { .id = id };

	salvage_meta(s, check_id, &c);
	return c.foreign;
}

bool salvage_usage(struct salvage *s, unsigned layer, unsigned expert, struct usage_row *row)
{
	bool found;

	if (!s || !s->usage)
		return false;
	sqlite3_bind_int64(s->usage, 1, layer);
	sqlite3_bind_int64(s->usage, 2, expert);
	found = sqlite3_step(s->usage) == SQLITE_ROW && usage_from_row(s->usage, row);
	sqlite3_reset(s->usage);
	return found;
}

void salvage_meta(struct salvage *s, void (*each)(void *arg, const char *key, const char *value),
		  void *arg)
{
	sqlite3_stmt *st;

	if (!s ||
	    sqlite3_prepare_v2(s->db, "SELECT key, value FROM meta", -1, &st, NULL) != SQLITE_OK)
		return;
	while (sqlite3_step(st) == SQLITE_ROW) {
		const char *key = (const char *)sqlite3_column_text(st, 0);
		const char *value = (const char *)sqlite3_column_text(st, 1);
		if (key && value)
			each(arg, key, value);
	}
	sqlite3_finalize(st);
}

void salvage_drives(struct salvage *s, void (*each)(void *arg, int64_t id, const char *path),
		    void *arg)
{
	sqlite3_stmt *st;

	if (!s || sqlite3_prepare_v2(s->db, "SELECT id, path FROM drives ORDER BY id", -1, &st,
				     NULL) != SQLITE_OK)
		return;
	while (sqlite3_step(st) == SQLITE_ROW) {
		const char *path = (const char *)sqlite3_column_text(st, 1);
		if (path && *path)
			each(arg, sqlite3_column_int64(st, 0), path);
	}
	sqlite3_finalize(st);
}
