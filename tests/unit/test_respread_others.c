/* SPDX-License-Identifier: Apache-2.0
 *
 * Experts that move while others have the old places, or the store: a cancel under readers, a lock that
 * was lost. The moving itself: test_respread.c.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/file.h>

#include "expertfs/respread.h"
#include "expertfs/yield.h"
#include "tests/unit/made_store.h"

#include <cmocka.h> /* last: its fail() is a macro */

static char why[WHY_MAX];

static uint64_t known_speed(const char *path)
{
	(void)path;
	return 100;
}

/* Bytes that a shard takes on the disk. */
static uint64_t disk_bytes(struct made *m, unsigned drive)
{
	char path[PATH_MAX];
	struct stat st;

	made_path(m, drive, path);
	assert_int_equal(stat(path, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

/* The store as another process would find it now. */
static void assert_whole_on_disk(struct made *m)
{
	struct made other = *m;

	made_open(&other);
	assert_int_equal(other.store->lost, 0);
	if (!made_all_right(&other, why))
		fail_msg("%s", why);
	made_close(&other);
}

/* Cancelled while somebody reads the old places: their room comes back all the same. */
static void a_cancelled_task_gives_room_back(void **state)
{
	struct made m = {
		.layers = 1, .experts = 24, .drives = 2, .parts = 1, .copies = 1, .bytes = 100001
	};
	struct respread_status st;
	struct respread_config cfg = { .lock = -1, .speed = known_speed, .batch = 5 };
	struct respread *r = NULL;
	struct place held[24];
	uint64_t before;
	bool moved = false;

	(void)state;
	made_make(&m);
	made_open(&m);
	before = disk_bytes(&m, 1);
	cfg.store = m.store;
	cfg.loader = &m.loader;
	assert_int_equal(respread_start(&cfg, &r, why), 0);
	for (uint32_t i = 0; i < 24; i++)
		store_take(m.store, i, &held[i]);
	assert_int_equal(respread_command(r, "remove 1", why), 0);
	while (!moved) {
		sleep_ms(1);
		pthread_mutex_lock(&m.store->lock);
		for (uint32_t i = 0; i < 24; i++)
			moved |= m.store->expert[i].packed != held[i].packed;
		pthread_mutex_unlock(&m.store->lock);
	}
	assert_int_equal(respread_command(r, "cancel", why), 0);
	sleep_ms(50);
	for (uint32_t i = 0; i < 24; i++)
		store_give(m.store, &held[i]);
	do {
		sleep_ms(2);
		respread_status(r, &st);
	} while (st.state == RESPREAD_QUEUED || st.state == RESPREAD_RUNNING);
	assert_int_equal(st.state, RESPREAD_CANCELLED);
	assert_int_equal(st.experts_done, 5);
	assert_true(disk_bytes(&m, 1) + 5 * m.bytes <= before);
	respread_stop(r);
	made_close(&m);
	assert_whole_on_disk(&m);
	made_remove(&m);
}

/* Another process had the store alone when its lock was asked for again. */
static void a_lost_lock_is_asked_for_again(void **state)
{
	struct made m = {
		.layers = 1, .experts = 4, .drives = 2, .parts = 1, .copies = 1, .bytes = 9000
	};
	struct respread_config cfg = { .speed = known_speed };
	struct respread *r = NULL;
	int other, third;

	(void)state;
	made_make(&m);
	made_open(&m);
	cfg.store = m.store;
	cfg.loader = &m.loader;
	cfg.lock = open(m.dir, O_RDONLY | O_DIRECTORY);
	other = open(m.dir, O_RDONLY | O_DIRECTORY);
	third = open(m.dir, O_RDONLY | O_DIRECTORY);
	assert_int_equal(flock(other, LOCK_EX | LOCK_NB), 0);
	assert_int_equal(respread_start(&cfg, &r, why), 0);
	for (int i = 0; i < 1000 && !m.store->doubtful; i++)
		sleep_ms(10);
	assert_true(m.store->doubtful);
	assert_int_equal(respread_command(r, "remove 1", why), -EROFS);
	assert_non_null(strstr(why, "mount the store anew"));
	close(other);
	for (int i = 0; i < 500 && flock(third, LOCK_EX | LOCK_NB) == 0; i++) {
		flock(third, LOCK_UN);
		sleep_ms(10);
	}
	assert_int_equal(flock(third, LOCK_EX | LOCK_NB), -1);
	assert_int_equal(respread_command(r, "remove 1", why), -EROFS);
	respread_stop(r);
	close(third);
	close(cfg.lock);
	made_close(&m);
	assert_whole_on_disk(&m);
	made_remove(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_cancelled_task_gives_room_back),
		cmocka_unit_test(a_lost_lock_is_asked_for_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
