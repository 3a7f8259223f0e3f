/* SPDX-License-Identifier: Apache-2.0
 *
 * catalog.db: what is written comes back, and no damaged row becomes an address.
 */
#include <errno.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expertfs/catalog.h"
#include "expertfs/fail.h"

#include <cmocka.h> /* last: its fail() is a macro */

#define BYTES 10000u

static char dir[256], path[300];
static char why[WHY_MAX];

/* 2 layers x 3 experts on two drives, in two parts and two copies. */
static void make(void)
{
	const uint8_t id[STORE_ID_SIZE] = { 1, 2, 254, 255 };
	struct catalog *c;

	unlink(path);
	assert_int_equal(catalog_create(path, id, &c, why), 0);
	for (unsigned l = 0; l < 2; l++) {
		for (unsigned e = 0; e < 3; e++) {
			for (unsigned i = 0; i < 4; i++) {
				struct extent x = { .offset = 4096 * (2 + i),
						    .length = i % 2 ? BYTES - 8192 : 8192,
						    .expert_offset = i % 2 ? 8192 : 0,
						    .check = UINT64_MAX - i,
						    .drive = (uint16_t)(i % 2),
						    .copy = (uint16_t)(i / 2) };
				assert_int_equal(
					catalog_add_extent(c, 4 * l, e, BYTES, i % 2, &x, why), 0);
			}
		}
	}
	assert_int_equal(catalog_add_drive(c, 0, "a.shard", 1 << 20, why), 0);
	assert_int_equal(catalog_add_drive(c, 1, "/elsewhere/a.shard", 1 << 20, why), 0);
	assert_int_equal(catalog_finish(c, why), 0);
}

static int load(struct store **out)
{
	struct store *s = calloc(1, sizeof(*s));
	int err;

	s->dir = strdup(dir);
	err = catalog_load(s, why);
	if (err || !out)
		store_close(s);
	else
		*out = s;
	return err;
}

static void round_trip(void **state)
{
	struct store *s;
	char full[300];

	(void)state;
	make();
	assert_int_equal(load(&s), 0);
	snprintf(full, sizeof(full), "%s/a.shard", dir);
	assert_int_equal(s->drives, 2);
	assert_string_equal(s->drive[0].path, full);
	assert_string_equal(s->drive[1].path, "/elsewhere/a.shard");
	assert_int_equal(s->experts, 6);
	assert_int_equal(s->id[2], 254);
	const struct store_expert *e = store_find(s, 4, 2);
	assert_non_null(e);
	assert_int_equal(e->packed->n, 4);
	assert_int_equal(e->bytes, BYTES);
	assert_int_equal(e->packed->x[3].check, UINT64_MAX - 3);
	assert_int_equal(e->packed->x[3].expert_offset, 8192);
	assert_null(store_find(s, 1, 0));
	assert_null(store_find(s, 4, 3));
	store_close(s);
}

static void damaged_rows_are_refused(void **state)
{
	static const char *const damage[] = {
		"UPDATE extents SET offset = 4097 WHERE layer = 4 AND expert = 1",
		"UPDATE extents SET offset = -4096 WHERE layer = 4 AND expert = 1 AND part = 0",
		"UPDATE extents SET offset = 1048576 WHERE layer = 4 AND expert = 1",
		"UPDATE extents SET offset = 9223372036854771712 WHERE expert = 1",
		"UPDATE extents SET length = 9223372036854775807 WHERE expert = 1 AND part = 1",
		"UPDATE extents SET length = 0 WHERE expert = 1 AND part = 1",
		"UPDATE extents SET length = 1000 WHERE expert = 1 AND part = 1",
		"UPDATE extents SET length = 1000 WHERE layer = 4 AND copy = 1 AND part = 1",
		"UPDATE extents SET expert_offset = 4096 WHERE expert = 1 AND part = 1",
		"UPDATE extents SET expert_bytes = 9000 WHERE expert = 1",
		"UPDATE extents SET expert_bytes = 20000 WHERE expert = 1 AND copy = 1",
		"UPDATE extents SET drive = 2 WHERE expert = 1",
		"UPDATE extents SET drive = -1 WHERE expert = 1",
		"UPDATE extents SET layer = 70000 WHERE layer = 4",
		"UPDATE extents SET layer = -1 WHERE layer = 0",
		"UPDATE extents SET part = 2 WHERE expert = 1 AND part = 1",
		"UPDATE extents SET copy = 2 WHERE expert = 1 AND copy = 1",
		"UPDATE extents SET copy = 3 WHERE expert = 1 AND copy = 0",
		"DELETE FROM extents WHERE expert = 2 AND part = 0",
		"DELETE FROM extents WHERE layer = 4 AND expert = 2 AND part = 1",
		"DELETE FROM extents",
		"UPDATE drives SET id = 7 WHERE id = 1",
		"UPDATE drives SET bytes = 8192",
		"UPDATE drives SET path = ''",
		"DELETE FROM drives",
		"UPDATE meta SET value = '2' WHERE key = 'format'",
		"UPDATE meta SET value = 'xyz' WHERE key = 'store_id'",
		"DROP TABLE extents",
		"ALTER TABLE extents RENAME COLUMN offset TO off",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(damage) / sizeof(*damage); i++) {
		sqlite3 *db;
		make();
		assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
		assert_int_equal(sqlite3_exec(db, damage[i], NULL, NULL, NULL), SQLITE_OK);
		sqlite3_close(db);
		memset(why, 0, sizeof(why));
		if (load(NULL) != -EBADMSG)
			fail_msg("%s: loaded, or: %s", damage[i], why);
		assert_non_null(strstr(why, "catalog.db"));
	}
}

static void torn_files_are_refused(void **state)
{
	(void)state;
	for (long keep = 0; keep < 20000; keep += 1700) {
		make();
		assert_int_equal(truncate(path, keep), 0);
		memset(why, 0, sizeof(why));
		assert_true(load(NULL) < 0);
		assert_non_null(strstr(why, "catalog.db"));
	}
	unlink(path);
	assert_int_equal(load(NULL), -ENOENT);
}

static void abandoned_leaves_no_rows(void **state)
{
	const uint8_t id[STORE_ID_SIZE] = { 0 };
	struct catalog *c;

	(void)state;
	unlink(path);
	assert_int_equal(catalog_create(path, id, &c, why), 0);
	assert_int_equal(catalog_add_drive(c, 0, "a", 4096, why), 0);
	catalog_abandon(c);
	assert_true(load(NULL) < 0);
	make();
	assert_int_equal(catalog_create(path, id, &c, why), -EEXIST);
}

static int set_up(void **state)
{
	const char *tmp = getenv("TMPDIR");

	(void)state;
	snprintf(dir, sizeof(dir), "%s/catalog.XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/catalog.db", dir);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trip),
		cmocka_unit_test(damaged_rows_are_refused),
		cmocka_unit_test(torn_files_are_refused),
		cmocka_unit_test(abandoned_leaves_no_rows),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
