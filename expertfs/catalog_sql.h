/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the catalog share: a connection, its errors as ours, and the small statements.
 * Only for catalog*.c; everybody else sees catalog.h.
 */
#ifndef EXPERTFS_CATALOG_SQL_H
#define EXPERTFS_CATALOG_SQL_H

#include <limits.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "expertfs/catalog.h"

#define CATALOG_FORMAT  "1"
#define CATALOG_WAIT_MS 10000 /* for a writer of another process: it is done in milliseconds */

struct catalog {
	sqlite3 *db;
	sqlite3_stmt *add_extent, *drop_extents, *put_usage; /* NULL until they are needed */
	char path[PATH_MAX];
};

int sql_fail(sqlite3 *db, int rc, const char *path, char *why);

/* For a new connection: what else than plain tables may be in a file that somebody else made is not
 * carried out. A view in a table's place can have rows without end, a trigger can do anything, and
 * a computed column make values of any length. */
void sql_distrust(sqlite3 *db);

/* Runs statements that give no rows. */
int sql_run(struct catalog *c, const char *sql, char *why);
int sql_prepare(struct catalog *c, const char *sql, sqlite3_stmt **st, char *why);
/* Binds n integers, runs a statement that gives no rows, and makes it ready for the next values. */
int sql_put(struct catalog *c, sqlite3_stmt *st, const int64_t *v, int n, char *why);

/* The row of a SELECT layer, expert, uses, loads, last_use, load_ns, heat. False: it makes no
 * sense. */
bool usage_from_row(sqlite3_stmt *st, struct usage_row *row);

/* DIR/catalog.db. */
int catalog_path(const char *dir, char path[PATH_MAX], char *why);
/* Opens for reading. A WAL database wants to write its -shm file even so; where that cannot be
 * written, or the drive is full, "immutable" does without, as long as no -wal holds something that
 * the file does not. */
int catalog_open_reader(const char *path, sqlite3 **db, char *why);

#endif
