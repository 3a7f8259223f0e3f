/* SPDX-License-Identifier: Apache-2.0
 *
 * A look into a catalog, and a change to it, as somebody with the sqlite3 program would do it. After
 * <cmocka.h>.
 */
#ifndef TESTS_SQL_H
#define TESTS_SQL_H

#include <sqlite3.h>

static inline sqlite3 *sql_open(const char *path)
{
	sqlite3 *db;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	sqlite3_busy_timeout(db, 5000);
	return db;
}

/* The one number that a query gives. */
static inline double sql_number(const char *path, const char *sql)
{
	sqlite3 *db = sql_open(path);
	sqlite3_stmt *st;
	double v;

	if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK)
		fail_msg("%s: %s", sql, sqlite3_errmsg(db));
	assert_int_equal(sqlite3_step(st), SQLITE_ROW);
	v = sqlite3_column_double(st, 0);
	sqlite3_finalize(st);
	sqlite3_close(db);
	return v;
}

static inline void sql_change(const char *path, const char *sql)
{
	sqlite3 *db = sql_open(path);

	if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
		fail_msg("%s: %s", sql, sqlite3_errmsg(db));
	sqlite3_close(db);
}

#endif
