/* SPDX-License-Identifier: Apache-2.0
 *
 * What a daemon's start makes of a catalog that is missing, torn, damaged or of another store, and
 * who may make it anew when.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "expertfs/catalog.h"
#include "expertfs/fail.h"
#include "expertfs/rebuild.h"
#include "expertfs/storelock.h"

#include <cmocka.h> /* last: its fail() is a macro */

#include "tests/unit/rebuilt_store.h"

static int open_store(uint32_t *experts)
{
	struct store *s = NULL;
	int lock, err;

	memset(why, 0, sizeof(why));
	err = store_open_or_rebuild(in_top("store"), &s, &lock, why);
	if (!err) {
		*experts = s->experts;
		assert_int_equal(s->lost, 0);
		store_close(s);
		close(lock);
	}
	return err;
}

static void start_without_catalog(void **state)
{
	uint32_t n = 0;

	(void)state;
	make(true);
	assert_int_equal(open_store(&n), 0);
	assert_int_equal(n, EXPERTS);
	assert_int_equal(check_store(0), EXPERTS);
	/* Not over a pack that is not done. */
	unlink(in_top("store/catalog.db"));
	write_file("store/pack.state", "");
	assert_int_equal(open_store(&n), -ENOENT);
	unlink(in_top("store/pack.state"));
	/* Nor for what is no store. */
	unlink(in_top("store/model.json"));
	assert_int_equal(open_store(&n), -ENOENT);
	assert_false(exists("store/catalog.db"));
}

static void start_with_a_torn_catalog(void **state)
{
	uint32_t n = 0;

	(void)state;
	for (long keep = 0; keep < 20480; keep += 4500) {
		make(true);
		assert_int_equal(run(quick), 0);
		change("INSERT INTO usage VALUES(0, 1, 7, 7, 1, 1, 1)");
		assert_int_equal(truncate(in_top("store/catalog.db"), keep), 0);
		assert_int_equal(open_store(&n), 0);
		assert_int_equal(n, EXPERTS);
		assert_true(exists("store/catalog.db.damaged"));
		assert_int_equal(check_store(0), EXPERTS);
	}
	make(true);
	write_file("store/catalog.db", "this is no database, and was never meant to be one....");
	assert_int_equal(open_store(&n), 0);
	assert_int_equal(check_store(0), EXPERTS);
	/* Nothing is made anew when nothing is wrong. */
	unlink(in_top("store/catalog.db.damaged"));
	assert_int_equal(open_store(&n), 0);
	assert_false(exists("store/catalog.db.damaged"));
}

/* Damage that opening a store does not meet: any page of the file. */
static void start_with_a_damaged_page(void **state)
{
	static char page[4096];
	struct stat st;
	uint32_t n = 0;
	int anew = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(page); i++)
		page[i] = (char)(i * 2654435761u >> 13);
	make(true);
	assert_int_equal(run(quick), 0);
	assert_int_equal(stat(in_top("store/catalog.db"), &st), 0);
	for (long at = 0; at < st.st_size; at += 4096) {
		int fd;
		make(true);
		assert_int_equal(run(quick), 0);
		change("INSERT INTO usage SELECT layer, expert, 1, 3, 1, 5, 6 FROM extents"
		       " GROUP BY 1, 2");
		fd = open(in_top("store/catalog.db"), O_RDWR);
		assert_int_equal(pwrite(fd, page, sizeof(page), at), sizeof(page));
		close(fd);
		assert_int_equal(open_store(&n), 0);
		assert_int_equal(n, EXPERTS);
		assert_int_equal(check_store(0), EXPERTS);
		assert_int_equal(catalog_check(in_top("store"), why), 0);
		anew += exists("store/catalog.db.damaged");
	}
	assert_int_equal(anew, st.st_size / 4096);
	/* Where it cannot be made anew, it does as long as the extents are good. */
	assert_int_equal(run(quick), 0);
	change("INSERT INTO usage SELECT layer, expert, 1, 3, 1, 5, 6 FROM extents GROUP BY 1, 2");
	long at = 4096 * ((long)ask("SELECT rootpage FROM sqlite_master WHERE name = 'usage'") - 1);
	int fd = open(in_top("store/catalog.db"), O_RDWR);
	assert_int_equal(pwrite(fd, page, sizeof(page), at), sizeof(page));
	close(fd);
	int lock;
	assert_int_equal(store_lock(in_top("store"), STORE_SERVED, &lock, why), 0);
	assert_int_equal(open_store(&n), 0);
	assert_int_equal(catalog_check(in_top("store"), why), -EBADMSG);
	close(lock);
	assert_int_equal(open_store(&n), 0);
	assert_int_equal(catalog_check(in_top("store"), why), 0);
}

static void start_with_a_foreign_catalog(void **state)
{
	uint32_t n = 0;

	(void)state;
	make(true);
	assert_int_equal(run(quick), 0);
	change("UPDATE meta SET value = '00112233445566778899aabbccddeeff' WHERE key = 'store_id';"
	       "INSERT INTO usage VALUES(0, 1, 7, 7, 1, 1, 1)");
	assert_int_equal(open_store(&n), 0);
	assert_int_equal(n, EXPERTS);
	assert_int_equal(check_store(0), EXPERTS);
	assert_int_equal(ask("SELECT count(*) FROM usage"), 0); /* was of the other one */
	/* A drive that is away is no reason. */
	unlink(in_top("store/catalog.db.damaged"));
	assert_int_equal(rename(in_top("far/1.shard"), in_top("away.shard")), 0);
	struct store *s = NULL;
	int lock;
	assert_int_equal(store_open_or_rebuild(in_top("store"), &s, &lock, why), 0);
	assert_true(s->lost > 0);
	store_close(s);
	close(lock);
	assert_false(exists("store/catalog.db.damaged"));
	/* But then a bad catalog cannot be made anew. */
	assert_int_equal(truncate(in_top("store/catalog.db"), 6000), 0);
	assert_int_equal(open_store(&n), -ENOENT);
	assert_non_null(strstr(why, "far/1.shard is missing"));
	assert_true(exists("store/catalog.db"));
}

/* A rebuild that was killed between its two renames, with the WAL still there. */
static void start_after_a_killed_rebuild(void **state)
{
	uint32_t n = 0;

	(void)state;
	make(true);
	assert_int_equal(run(quick), 0);
	change("INSERT INTO usage VALUES(0, 1, 7, 7, 1, 1, 1)");
	assert_int_equal(rename(in_top("store/catalog.db"), in_top("store/catalog.db.damaged")), 0);
	write_file("store/catalog.db-wal", "a WAL of the old one");
	write_file("store/catalog.db.new", "half of a new one");
	assert_int_equal(open_store(&n), 0);
	assert_int_equal(check_store(0), EXPERTS);
	assert_int_equal(ask("SELECT uses FROM usage"), 7);
	assert_true(exists("store/catalog.db.damaged"));
	assert_false(exists("store/catalog.db-wal"));
	assert_false(exists("store/catalog.db.new"));
}

static void not_while_it_is_served(void **state)
{
	uint32_t n = 0;
	int lock;

	(void)state;
	make(true);
	assert_int_equal(run(quick), 0);
	assert_int_equal(store_lock(in_top("store"), STORE_SERVED, &lock, why), 0);
	assert_int_equal(run(quick), -EBUSY);
	assert_non_null(strstr(why, "unmount it first"));
	assert_int_equal(open_store(&n), 0); /* a second daemon */
	unlink(in_top("store/catalog.db"));
	assert_int_equal(open_store(&n), -EBUSY);
	close(lock);
	assert_int_equal(open_store(&n), 0);
	assert_int_equal(store_lock(in_top("store"), STORE_ALONE, &lock, why), 0);
	assert_int_equal(open_store(&n), -EBUSY);
	close(lock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(start_without_catalog),
		cmocka_unit_test(start_with_a_torn_catalog),
		cmocka_unit_test(start_with_a_damaged_page),
		cmocka_unit_test(start_with_a_foreign_catalog),
		cmocka_unit_test(start_after_a_killed_rebuild),
		cmocka_unit_test(not_while_it_is_served),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
