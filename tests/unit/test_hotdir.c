/* SPDX-License-Identifier: Apache-2.0
 *
 * The hot drive: who is loaded often gets there and is read from there, who cools leaves; it
 * survives restarts, kills and damage, and never shows a wrong byte.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/file.h>
#include <sys/wait.h>

#include "expertfs/hotdir.h"
#include "expertfs/hotfile.h"
#include "expertfs/yield.h"
#include "tests/unit/made_store.h"

#include <cmocka.h> /* last: its fail() is a macro */

#define EXPERTS 24
#define BYTES   30001u

static char why[WHY_MAX];
static char hot_folder[64]; /* on another device than the store */
static _Atomic uint64_t loads[2 * EXPERTS];

static void give_loads(void *arg, uint64_t *out)
{
	(void)arg;
	for (int i = 0; i < 2 * EXPERTS; i++)
		out[i] = loads[i];
}

static const struct made geometry = {
	.layers = 2, .experts = EXPERTS, .drives = 2, .parts = 1, .copies = 1, .bytes = BYTES
};

static uint64_t room_for(unsigned slots)
{
	return SHARD_ALIGN + slots * record_bytes(BYTES);
}

static int try_open(struct made *m, const char *folder, uint64_t bytes, struct hotdir **h)
{
	const struct hotdir_config cfg = { .store = m->store,
					   .loader = &m->loader,
					   .folder = folder,
					   .bytes = bytes,
					   .io = DRIVE_IO_AUTO,
					   .period_ms = 5,
					   .loads = give_loads };

	return hotdir_open(&cfg, h, why);
}

static struct hotdir *start(struct made *m, unsigned slots)
{
	struct hotdir *h = NULL;

	if (try_open(m, hot_folder, room_for(slots), &h) != 0)
		fail_msg("%s", why);
	m->loader.hot_bad = hotdir_bad;
	m->loader.hot_arg = h;
	return h;
}

static void finish(struct made *m, struct hotdir *h)
{
	hotdir_close(h);
	m->loader.hot_bad = NULL;
	assert_null(m->drive[STORE_HOT_DRIVE]);
}

static void hot_path(char *path)
{
	snprintf(path, PATH_MAX, "%s/test.hot", hot_folder);
}

static void forget_file(void)
{
	char path[PATH_MAX];

	hot_path(path);
	unlink(path);
	for (int i = 0; i < 2 * EXPERTS; i++)
		loads[i] = 0;
}

static bool is_hot(struct made *m, uint32_t index)
{
	struct place p;
	bool hot;

	store_take(m->store, index, &p);
	hot = p.hot != NULL;
	store_give(m->store, &p);
	return hot;
}

static unsigned hot_count(struct made *m)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < m->store->experts; i++)
		n += is_hot(m, i);
	return n;
}

/* Until so many promotions and demotions were made; within 5 s. */
static void wait_for(struct hotdir *h, uint64_t promotions, uint64_t demotions)
{
	struct hotdir_stats st;

	for (int i = 0; i < 5000; i++) {
		hotdir_stats(h, &st);
		if (st.promotions >= promotions && st.demotions >= demotions)
			return;
		sleep_ms(1);
	}
	fail_msg("%llu promotions, %llu demotions", (unsigned long long)st.promotions,
		 (unsigned long long)st.demotions);
}

static void wait_hot(struct made *m, unsigned n)
{
	for (int i = 0; i < 5000 && hot_count(m) != n; i++)
		sleep_ms(1);
	assert_int_equal(hot_count(m), n);
}

static void load_right(struct made *m, uint32_t index)
{
	uint8_t *buf = aligned_alloc(SHARD_ALIGN, shard_round_up(BYTES));

	if (!made_right(m, index, buf, why))
		fail_msg("%s", why);
	free(buf);
}

static uint64_t bytes_from_hot(struct made *m)
{
	struct drive_stats st;

	drive_stats(m->drive[STORE_HOT_DRIVE], &st);
	return st.bytes;
}

/* ----------------------------------------------------------------------------------------------- */

static void the_popular_are_promoted_and_read_there(void **state)
{
	struct made m = geometry;
	struct hotdir_stats st;
	struct hotdir *h;
	uint64_t before;

	(void)state;
	forget_file();
	made_make(&m);
	made_open(&m);
	h = start(&m, 8);
	loads[3] = 5;
	loads[30] = 2;
	loads[31] = 1; /* once is not often */
	wait_for(h, 2, 0);
	sleep_ms(50);
	assert_true(is_hot(&m, 3) && is_hot(&m, 30) && !is_hot(&m, 31));
	hotdir_stats(h, &st);
	assert_int_equal(st.slots, 8);
	assert_int_equal(st.experts, 2);
	assert_int_equal(st.bytes, 2 * BYTES);
	before = bytes_from_hot(&m);
	load_right(&m, 3);
	assert_int_equal(bytes_from_hot(&m), before + shard_round_up(BYTES));
	load_right(&m, 4);
	assert_int_equal(bytes_from_hot(&m), before + shard_round_up(BYTES));
	finish(&m, h);
	assert_int_equal(hot_count(&m), 0);
	load_right(&m, 3);
	made_close(&m);
	made_remove(&m);
}

/* Full: only a clearly more popular one displaces the coldest; the like of it changes nothing. */
static void the_full_drive_does_not_thrash(void **state)
{
	struct made m = geometry;
	struct hotdir_stats st;
	struct hotdir *h;

	(void)state;
	forget_file();
	made_make(&m);
	made_open(&m);
	h = start(&m, 4);
	for (int i = 0; i < 4; i++)
		loads[i] = 10 + (unsigned)i;
	wait_for(h, 4, 0);
	loads[4] = loads[5] = 13;
	sleep_ms(100);
	hotdir_stats(h, &st);
	assert_int_equal(st.promotions, 4);
	loads[20] = 40;
	wait_for(h, 5, 1);
	assert_true(is_hot(&m, 20) && !is_hot(&m, 0) && is_hot(&m, 1));
	assert_int_equal(hot_count(&m), 4);
	finish(&m, h);
	made_close(&m);
	made_remove(&m);
}

/* Loads of others, not time, make an expert cool; then its slot is free again. */
static void the_cool_are_forgotten(void **state)
{
	struct made m = geometry;
	struct hotdir *h;

	(void)state;
	forget_file();
	made_make(&m);
	made_open(&m);
	h = start(&m, 4);
	loads[7] = 3;
	wait_for(h, 1, 0);
	sleep_ms(100);
	assert_true(is_hot(&m, 7));
	for (int round = 0; round < 10; round++) {
		for (int i = 20; i < 40; i++)
			loads[i] += 8;
		sleep_ms(20);
	}
	wait_for(h, 5, 1);
	assert_false(is_hot(&m, 7));
	finish(&m, h);
	made_close(&m);
	made_remove(&m);
}

static void it_survives_a_restart(void **state)
{
	struct made m = geometry;
	struct hotdir *h;

	(void)state;
	forget_file();
	made_make(&m);
	made_open(&m);
	h = start(&m, 6);
	loads[1] = loads[2] = loads[40] = 4;
	wait_for(h, 3, 0);
	finish(&m, h);
	made_close(&m);
	made_open(&m);
	h = start(&m, 6);
	wait_hot(&m, 3);
	assert_true(is_hot(&m, 1) && is_hot(&m, 2) && is_hot(&m, 40));
	load_right(&m, 40);
	assert_int_equal(bytes_from_hot(&m), shard_round_up(BYTES));
	finish(&m, h);
	/* Smaller: what still has a slot stays. */
	h = start(&m, 2);
	wait_hot(&m, 2);
	finish(&m, h);
	/* Another store of the same name: nothing of this one. */
	made_close(&m);
	made_remove(&m);
	m = geometry;
	m.bytes = BYTES - 5000;
	made_make(&m);
	made_open(&m);
	h = start(&m, 6);
	sleep_ms(50);
	assert_int_equal(hot_count(&m), 0);
	finish(&m, h);
	made_close(&m);
	made_remove(&m);
}

static void damage(uint64_t at, const void *bytes, size_t n)
{
	char path[PATH_MAX];
	int fd;

	hot_path(path);
	fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, bytes, n, (off_t)at), n);
	close(fd);
}

/* Damaged bytes are found, the drives of the store serve, and the copy is not read again. */
static void a_damaged_copy_is_forgotten(void **state)
{
	struct made m = geometry;
	struct hotdir_stats st;
	struct hotdir *h;

	(void)state;
	forget_file();
	made_make(&m);
	made_open(&m);
	h = start(&m, 4);
	loads[5] = 4;
	wait_for(h, 1, 0);
	finish(&m, h);
	damage(2 * SHARD_ALIGN + 777, "damage", 6);
	made_close(&m);
	made_open(&m);
	h = start(&m, 4);
	wait_hot(&m, 1);
	load_right(&m, 5);
	wait_hot(&m, 0);
	hotdir_stats(h, &st);
	assert_int_equal(st.errors, 1);
	load_right(&m, 5);
	sleep_ms(50); /* the slot is emptied */
	finish(&m, h);
	h = start(&m, 4);
	sleep_ms(50);
	assert_int_equal(hot_count(&m), 0);
	finish(&m, h);
	made_close(&m);
	made_remove(&m);
}

static void seal_slot(struct slot_head *h)
{
	memcpy(h->magic, SLOT_MAGIC, sizeof(h->magic));
	memcpy(h->store_id, "made", 4);
	h->check = payload_check(h, offsetof(struct slot_head, check));
}

/* Heads that are torn, or valid and lie. */
static void heads_are_not_believed(void **state)
{
	struct slot_head heads[] = {
		{ .layer = 1, .expert = EXPERTS, .expert_bytes = BYTES },
		{ .layer = 70000, .expert = 0, .expert_bytes = BYTES },
		{ .layer = 0, .expert = 0, .expert_bytes = BYTES - 1 },
		{ .layer = 0, .expert = 0, .expert_bytes = UINT64_MAX },
		{ .layer = 0, .expert = 0, .expert_bytes = 0 },
		{ .layer = 0, .expert = 1, .expert_bytes = BYTES }, /* torn below */
		{ .layer = 0,
		  .expert = 2,
		  .expert_bytes = BYTES }, /* good, but the bytes are not */
		{ .layer = 0, .expert = 2, .expert_bytes = BYTES }, /* twice */
	};
	struct made m = geometry;
	struct hotdir *h;

	(void)state;
	forget_file();
	made_make(&m);
	made_open(&m);
	h = start(&m, 8);
	finish(&m, h);
	for (size_t i = 0; i < 8; i++) {
		seal_slot(&heads[i]);
		if (i == 5)
			heads[i].payload_check ^= 1;
		damage(SHARD_ALIGN + i * record_bytes(BYTES), &heads[i], sizeof(heads[i]));
	}
	h = start(&m, 8);
	wait_hot(&m, 1);
	assert_true(is_hot(&m, 2));
	if (!made_all_right(&m, why))
		fail_msg("%s", why);
	wait_hot(&m, 0);
	finish(&m, h);
	made_close(&m);
	made_remove(&m);
}

/* As a daemon that was killed, whose memory is being taken back. */
static void *dies_slowly(void *fd)
{
	sleep_ms(300);
	close(*(int *)fd);
	return NULL;
}

static void what_cannot_be_is_refused(void **state)
{
	struct made m = geometry;
	struct hotdir *h, *second = NULL;
	char path[PATH_MAX];
	pthread_t dying;
	FILE *f;
	int fd;

	(void)state;
	forget_file();
	made_make(&m);
	made_open(&m);
	assert_int_equal(try_open(&m, m.root, room_for(4), &second), -EINVAL);
	assert_non_null(strstr(why, "lies on the drive of the store itself"));
	assert_int_equal(try_open(&m, "/nowhere/at/all", room_for(4), &second), -ENOENT);
	assert_int_equal(try_open(&m, hot_folder, room_for(1) - 1, &second), -EINVAL);
	assert_non_null(strstr(why, "one expert takes"));
	assert_int_equal(try_open(&m, hot_folder, 1ull << 60, &second), 0);
	hotdir_close(second);
	h = start(&m, 4);
	assert_int_equal(try_open(&m, hot_folder, room_for(4), &second), -EBUSY);
	finish(&m, h);
	/* One that was killed a moment ago is waited for. */
	hot_path(path);
	fd = open(path, O_RDWR);
	assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
	assert_int_equal(pthread_create(&dying, NULL, dies_slowly, &fd), 0);
	assert_int_equal(try_open(&m, hot_folder, room_for(4), &second), 0);
	pthread_join(dying, NULL);
	hotdir_close(second);
	f = fopen(path, "w");
	fputs("precious", f);
	fclose(f);
	assert_int_equal(try_open(&m, hot_folder, room_for(4), &second), -EEXIST);
	made_close(&m);
	made_remove(&m);
}

/* -- while it is read --------------------------------------------------------------------------- */

static _Atomic bool readers_end;

static void *read_always(void *arg)
{
	struct made *m = arg;
	uint8_t *buf = aligned_alloc(SHARD_ALIGN, shard_round_up(BYTES));
	char *sentence = calloc(1, WHY_MAX);
	unsigned seed = (unsigned)(uintptr_t)&seed;

	while (!readers_end) {
		uint32_t index = (uint32_t)rand_r(&seed) % m->store->experts;
		if (!made_right(m, index, buf, sentence)) {
			free(buf);
			return sentence;
		}
		loads[index]++;
	}
	free(buf);
	free(sentence);
	return NULL;
}

/* Popularity wanders, slots change hands, bytes stay right. */
static void experts_come_and_go_while_they_are_read(void **state)
{
	struct made m = geometry;
	pthread_t thread[3];
	struct hotdir *h;
	char *sentence;

	(void)state;
	forget_file();
	made_make(&m);
	made_open(&m);
	h = start(&m, 5);
	readers_end = false;
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, read_always, &m), 0);
	for (unsigned round = 0; round < 60; round++) {
		loads[round * 7 % (2 * EXPERTS)] += 10000 * (1u + round);
		if (round % 8 == 0)
			hotdir_bad(h, round * 7 % (2 * EXPERTS));
		sleep_ms(15);
	}
	wait_for(h, 20, 15);
	readers_end = true;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(pthread_join(thread[i], (void **)&sentence), 0);
		if (sentence)
			fail_msg("%s", sentence);
	}
	finish(&m, h);
	made_close(&m);
	made_remove(&m);
}

static void promote_for_ever(struct made *m)
{
	made_open(m);
	start(m, 5);
	for (unsigned round = 0;; round++) {
		loads[(unsigned)rand() % (2 * EXPERTS)] += 1000 * (1 + round);
		sleep_ms(2);
	}
}

static void a_kill_loses_nothing(void **state)
{
	struct made m = geometry;
	unsigned seed = 3, kept = 0;

	(void)state;
	if (MADE_NO_FORK)
		skip();
	forget_file();
	made_make(&m);
	for (int round = 0; round < 20; round++) {
		struct hotdir *h;
		pid_t pid = fork();
		assert_true(pid >= 0);
		if (pid == 0)
			promote_for_ever(&m);
		sleep_ms(40 + (unsigned)rand_r(&seed) % 60);
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
		made_open(&m);
		h = start(&m, 5);
		sleep_ms(20);
		kept += hot_count(&m);
		if (!made_all_right(&m, why))
			fail_msg("%s", why);
		finish(&m, h);
		made_close(&m);
	}
	assert_true(kept > 20);
	made_remove(&m);
}

static int remove_folder(void **state)
{
	(void)state;
	forget_file();
	rmdir(hot_folder);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_popular_are_promoted_and_read_there),
		cmocka_unit_test(the_full_drive_does_not_thrash),
		cmocka_unit_test(the_cool_are_forgotten),
		cmocka_unit_test(it_survives_a_restart),
		cmocka_unit_test(a_damaged_copy_is_forgotten),
		cmocka_unit_test(heads_are_not_believed),
		cmocka_unit_test(what_cannot_be_is_refused),
		cmocka_unit_test(experts_come_and_go_while_they_are_read),
		cmocka_unit_test(a_kill_loses_nothing),
	};
	const char *tmp = getenv("TMPDIR");
	struct stat a, b;

	snprintf(hot_folder, sizeof(hot_folder), "/dev/shm/test_hotdir.XXXXXX");
	if (!mkdtemp(hot_folder) || stat(hot_folder, &a) != 0 ||
	    stat(tmp ? tmp : "/tmp", &b) != 0 || a.st_dev == b.st_dev) {
		puts("needs a /dev/shm that is another file system than TMPDIR");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, remove_folder);
}
