/* SPDX-License-Identifier: Apache-2.0
 *
 * catalog.db: what is written comes back, no damaged row becomes an address, and a change is there
 * as a whole or not at all.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expertfs/catalog.h"
#include "expertfs/fail.h"

#include <cmocka.h> /* last: its fail() is a macro */

#include "tests/unit/sql.h"

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

static struct store *new_store(void)
{
	struct store *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	s->dir = strdup(dir);
	return s;
}

/* What catalog_load() returns. */
static int load(void)
{
	struct store *s = new_store();
	int err = catalog_load(s, why);

	store_close(s);
	return err;
}

/* A store that must load. */
static struct store *loaded(void)
{
	struct store *s = new_store();

	if (catalog_load(s, why) != 0) {
		print_error("%s\n", why);
		abort();
	}
	return s;
}

static void round_trip(void **state)
{
	struct store *s;
	char full[300];

	(void)state;
	make();
	s = loaded();
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

static void refused(const char *damage)
{
	make();
	sql_change(path, damage);
	memset(why, 0, sizeof(why));
	if (load() != -EBADMSG)
		fail_msg("%s: loaded, or: %s", damage, why);
	assert_non_null(strstr(why, "catalog.db"));
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
	for (size_t i = 0; i < sizeof(damage) / sizeof(*damage); i++)
		refused(damage[i]);
	/* On a drive that would be long enough. */
	refused("UPDATE drives SET bytes = 1 << 40; UPDATE extents SET expert_bytes = 1 << 37; "
		"UPDATE extents SET length = (1 << 37) - 8192 WHERE part = 1");
}

/* A drive twice; a view, which may be endless; a computed column, which may take any memory. */
static void other_schemas_are_refused(void **state)
{
	(void)state;
	refused("ALTER TABLE drives RENAME TO d; CREATE TABLE drives AS"
		" SELECT * FROM d UNION ALL SELECT * FROM d");
	refused("ALTER TABLE extents RENAME TO e; CREATE VIEW extents AS SELECT * FROM e");
	refused("ALTER TABLE meta RENAME TO m; CREATE VIEW meta AS SELECT * FROM m");
	refused("ALTER TABLE extents RENAME TO e; CREATE TABLE extents AS SELECT * FROM e;"
		"ALTER TABLE extents RENAME COLUMN part TO p; ALTER TABLE extents ADD COLUMN"
		" part AS (p + 0 * length(hex(zeroblob(50000000))))");
}

static void torn_files_are_refused(void **state)
{
	(void)state;
	for (long keep = 0; keep < 20000; keep += 1700) {
		make();
		assert_int_equal(truncate(path, keep), 0);
		memset(why, 0, sizeof(why));
		assert_true(load() < 0);
		assert_non_null(strstr(why, "catalog.db"));
	}
	unlink(path);
	assert_int_equal(load(), -ENOENT);
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
	assert_true(load() < 0);
	make();
	assert_int_equal(catalog_create(path, id, &c, why), -EEXIST);
}

/* -- changing it ----------------------------------------------------------------------------------
 */

static struct extent_list *list_of(uint32_t n, const struct extent *x)
{
	struct extent_list *l = extent_list_new(n);

	assert_non_null(l);
	memcpy(l->x, x, n * sizeof(*x));
	return l;
}

/* One more copy than before, on the new drive 5, and the last in three parts. */
static const struct extent moved[] = {
	{ .offset = 8192, .length = BYTES, .check = 7, .drive = 5, .copy = 0 },
	{ .offset = 40960, .length = 4096, .check = 8, .drive = 0, .copy = 1 },
	{ .offset = 40960,
	  .length = 4096,
	  .expert_offset = 4096,
	  .check = 9,
	  .drive = 1,
	  .copy = 1 },
	{ .offset = 40960, .length = BYTES - 8192, .expert_offset = 8192, .drive = 5, .copy = 1 },
};

static void move_one(struct catalog *c, unsigned expert)
{
	struct extent_list *l = list_of(4, moved);

	assert_int_equal(catalog_replace_extents(c, 4, expert, BYTES, l, why), 0);
	free(l);
}

static void check_moved(const struct store *s, unsigned expert)
{
	const struct store_expert *e = store_find(s, 4, expert);

	assert_int_equal(e->packed->n, 4);
	for (int i = 0; i < 4; i++) {
		const struct extent *x = &e->packed->x[i];
		assert_int_equal(x->offset, moved[i].offset);
		assert_int_equal(x->length, moved[i].length);
		assert_int_equal(x->expert_offset, moved[i].expert_offset);
		assert_int_equal(x->check, moved[i].check);
		assert_int_equal(x->drive, moved[i].drive);
		assert_int_equal(x->copy, moved[i].copy);
	}
}

static void experts_move(void **state)
{
	struct catalog *c;
	struct store *s;

	(void)state;
	make();
	assert_int_equal(catalog_open(dir, &c, why), 0);
	assert_int_equal(catalog_begin(c, why), 0);
	assert_int_equal(catalog_put_drive(c, 5, "b.shard", 1 << 20, why), 0);
	assert_int_equal(catalog_set_drive_bytes(c, 0, 2 << 20, why), 0);
	assert_int_equal(catalog_set_drive_bytes(c, 3, 2 << 20, why), -ENOENT);
	move_one(c, 1);
	move_one(c, 2);
	assert_int_equal(catalog_commit(c, why), 0);
	/* A reader sees it while the writer is there (WAL). */
	s = loaded();
	assert_int_equal(s->drives, 6);
	assert_null(s->drive[3].path);
	assert_int_equal(s->drive[0].bytes, 2 << 20);
	check_moved(s, 1);
	check_moved(s, 2);
	assert_int_equal(store_find(s, 4, 0)->packed->n, 4);
	store_close(s);

	assert_int_equal(catalog_drop_drive(c, 5, why), -EBUSY);
	assert_int_equal(catalog_drop_drive(c, 9, why), -ENOENT);
	assert_int_equal(catalog_put_drive(c, 7, "/c.shard", 4096, why), 0);
	assert_int_equal(catalog_drop_drive(c, 7, why), 0);
	catalog_close(c);
	s = loaded();
	assert_int_equal(s->drives, 6);
	store_close(s);
}

/* Nothing of a transaction stays that was rolled back, or of a replacement that was refused. */
static void what_fails_changes_nothing(void **state)
{
	struct extent x[4];
	struct extent_list *l;
	struct catalog *c;
	struct store *s;

	(void)state;
	make();
	assert_int_equal(catalog_open(dir, &c, why), 0);
	assert_int_equal(catalog_begin(c, why), 0);
	assert_int_equal(catalog_put_drive(c, 5, "b.shard", 1 << 20, why), 0);
	move_one(c, 1);
	catalog_rollback(c);
	for (int i = 0; i < 9; i++) {
		memcpy(x, moved, sizeof(x));
		x[0].copy += i == 0;
		x[1].expert_offset += i == 1 ? 4096 : 0;
		x[1].length += i == 2 ? 4096 : 0;
		x[1].length -= i == 3 ? 1 : 0;
		x[0].length -= i == 4 ? 1 : 0;
		x[3].length += i == 5 ? 1 : 0;
		x[2].copy += i == 6;
		x[0].offset += i == 7 ? 512 : 0;
		x[2].length = i == 8 ? 0 : x[2].length;
		l = list_of(4, x);
		assert_int_equal(catalog_replace_extents(c, 4, 1, BYTES, l, why), -EINVAL);
		free(l);
	}
	l = list_of(3, moved);
	assert_int_equal(catalog_replace_extents(c, 4, 1, BYTES, l, why), -EINVAL);
	free(l);
	catalog_close(c);
	s = loaded();
	assert_int_equal(s->drives, 2);
	assert_int_equal(store_find(s, 4, 1)->packed->x[0].drive, 0);
	store_close(s);
}

/* What a kill leaves: the database and its WAL as they are at that moment. */
static void survives_a_kill(void **state)
{
	struct catalog *c;
	struct store *s;
	int status;
	pid_t pid;

	(void)state;
	make();
	pid = fork();
	if (pid == 0) {
		if (catalog_open(dir, &c, why) == 0 && catalog_lazy(c, why) == 0 &&
		    catalog_begin(c, why) == 0 &&
		    catalog_put_drive(c, 5, "b.shard", 1 << 20, why) == 0) {
			move_one(c, 1);
			if (catalog_commit(c, why) == 0 && catalog_begin(c, why) == 0) {
				move_one(c, 2);
				_exit(0); /* without a commit, and nothing closed */
			}
		}
		_exit(1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	s = loaded();
	check_moved(s, 1);
	assert_int_equal(store_find(s, 4, 2)->packed->x[0].drive, 0);
	store_close(s);
	assert_int_equal(catalog_open(dir, &c, why), 0);
	catalog_close(c); /* the last one takes the WAL along */
	assert_int_equal(load(), 0);
}

static void meta_values(void **state)
{
	struct catalog *c;
	char *value = NULL;

	(void)state;
	make();
	assert_int_equal(catalog_open(dir, &c, why), 0);
	assert_int_equal(catalog_meta_get(c, "clock", &value, why), -ENOENT);
	assert_int_equal(catalog_meta_put(c, "clock", "17", why), 0);
	assert_int_equal(catalog_meta_put(c, "clock", "18", why), 0);
	catalog_close(c);
	assert_int_equal(catalog_open_read(dir, &c, why), 0);
	assert_int_equal(catalog_meta_get(c, "clock", &value, why), 0);
	assert_string_equal(value, "18");
	free(value);
	assert_true(catalog_meta_put(c, "clock", "19", why) < 0);
	catalog_close(c);
	assert_int_equal(catalog_open(dir, &c, why), 0);
	assert_int_equal(catalog_meta_put(c, "clock", NULL, why), 0);
	assert_int_equal(catalog_meta_get(c, "clock", &value, why), -ENOENT);
	catalog_close(c);
}

struct rows {
	struct usage_row row[8];
	int n;
};

static int take_row(void *arg, const struct usage_row *row)
{
	struct rows *r = arg;

	assert_in_range(r->n, 0, 7);
	r->row[r->n++] = *row;
	return 0;
}

static void usage_rows(void **state)
{
	const struct usage_row in[] = {
		{ 4, 1, 2.5, 7, 3, 1700000000, 12345 },
		{ 0, 2, 0, 1, 0, 0, 0 },
		{ 65535, 65535, 1e300, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX },
	};
	struct rows out = { .n = 0 };
	struct catalog *c;

	(void)state;
	make();
	assert_int_equal(catalog_open(dir, &c, why), 0);
	assert_int_equal(catalog_begin(c, why), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(catalog_usage_put(c, &in[i], why), 0);
	assert_int_equal(catalog_usage_put(c, &in[1], why), 0);
	assert_int_equal(catalog_commit(c, why), 0);
	assert_int_equal(catalog_usage_each(c, take_row, &out, why), 0);
	assert_int_equal(out.n, 3);
	assert_int_equal(out.row[0].expert, 2);
	assert_int_equal(out.row[1].uses, 7);
	assert_float_equal(out.row[1].heat, 2.5, 0);
	assert_int_equal(out.row[1].load_ns, 12345);
	assert_int_equal(out.row[2].last_use, INT64_MAX);
	catalog_close(c);

	/* Rows of nonsense are left out. */
	sql_change(path, "UPDATE usage SET uses = -1 WHERE layer = 4;"
			 "UPDATE usage SET heat = 9e999 WHERE layer = 65535;"
			 "INSERT INTO usage VALUES(70000, 1, 1, 1, 1, 1, 1);"
			 "INSERT INTO usage VALUES(1, -1, 1, 1, 1, 1, 1);"
			 "INSERT INTO usage VALUES(1, 1, -1, 1, 1, 1, 1)");
	out.n = 0;
	assert_int_equal(catalog_open_read(dir, &c, why), 0);
	assert_int_equal(catalog_usage_each(c, take_row, &out, why), 0);
	assert_int_equal(out.n, 1);
	catalog_close(c);
}

static void not_a_catalog(void **state)
{
	struct catalog *c;
	FILE *f;

	(void)state;
	unlink(path);
	assert_int_equal(catalog_open(dir, &c, why), -ENOENT);
	assert_int_equal(catalog_open_read(dir, &c, why), -ENOENT);
	f = fopen(path, "w");
	assert_non_null(f);
	for (int i = 0; i < 5000; i++)
		fputc(i * 7 & 255, f);
	fclose(f);
	assert_int_equal(catalog_open(dir, &c, why), -EBADMSG);
	assert_int_equal(catalog_open_read(dir, &c, why), -EBADMSG);
	assert_non_null(strstr(why, "catalog.db"));
	make();
	assert_int_equal(chmod(path, 0444), 0);
	if (geteuid() != 0)
		assert_int_equal(catalog_open(dir, &c, why), -EROFS);
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
		cmocka_unit_test(other_schemas_are_refused),
		cmocka_unit_test(torn_files_are_refused),
		cmocka_unit_test(abandoned_leaves_no_rows),
		cmocka_unit_test(experts_move),
		cmocka_unit_test(what_fails_changes_nothing),
		cmocka_unit_test(survives_a_kill),
		cmocka_unit_test(meta_values),
		cmocka_unit_test(usage_rows),
		cmocka_unit_test(not_a_catalog),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
