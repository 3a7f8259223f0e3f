/* SPDX-License-Identifier: Apache-2.0
 *
 * usage.c: what the hot store counts comes to catalog.db and back, and the fill after a restart
 * asks in the right order, waits when it must and ends at once. The hot store here is a small one
 * of the test's own, which counts what it is told.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expertfs/catalog.h"
#include "expertfs/clock.h"
#include "expertfs/fail.h"
#include "expertfs/storelock.h"
#include "expertfs/usage.h"

#include <cmocka.h> /* last: its fail() is a macro */

#include "tests/unit/sql.h"

#define LAYERS  2u
#define EACH    50u
#define EXPERTS (LAYERS * EACH)
#define BYTES   4096u

static char dir[256], why[WHY_MAX];

/* -- the hot store of the test --------------------------------------------------------------------
 */

struct hotstore {
	pthread_mutex_t lock;
	struct hot_info info[EXPERTS];
	uint32_t asked[EXPERTS];
	uint32_t asks, again; /* loads asked for; times it said that enough are queued */
	uint32_t room, queue; /* experts that fit; that may wait */
	uint32_t drops;       /* asks that come to nothing */
};

static struct hotstore hot = { .lock = PTHREAD_MUTEX_INITIALIZER };

void hotstore_snapshot(struct hotstore *h, struct hot_info *info)
{
	pthread_mutex_lock(&h->lock);
	memcpy(info, h->info, sizeof(h->info));
	pthread_mutex_unlock(&h->lock);
}

void hotstore_seed(struct hotstore *h, uint32_t index, const struct hot_info *info)
{
	pthread_mutex_lock(&h->lock); /* a second daemon is seeded while the first one records */
	h->info[index] = *info;
	pthread_mutex_unlock(&h->lock);
}

int hotstore_load(struct hotstore *h, uint32_t index, enum hot_reason reason)
{
	int err = 0;

	assert_int_equal(reason, HOT_FILL);
	pthread_mutex_lock(&h->lock);
	if (h->info[index].state != HOT_COLD)
		err = -EEXIST;
	else if (h->asks == h->room)
		err = -ENOSPC;
	else if (h->queue == 0)
		err = -EAGAIN;
	if (!err && h->drops) {
		h->drops--;
	} else if (!err) {
		h->asked[h->asks++] = index;
		h->info[index].state = HOT_LOADING;
		h->queue--;
	}
	h->again += err == -EAGAIN;
	pthread_mutex_unlock(&h->lock);
	return err;
}

/* One open of an expert. */
static void use(uint32_t index, double heat)
{
	pthread_mutex_lock(&hot.lock);
	hot.info[index].uses++;
	hot.info[index].heat = heat;
	hot.info[index].last_use = 1700000000 + index;
	hot.info[index].load_ns = 1000 + index;
	pthread_mutex_unlock(&hot.lock);
}

/* Heats as they are after so many half-lives without a use. */
static void fade(double half_lives)
{
	pthread_mutex_lock(&hot.lock);
	for (uint32_t i = 0; i < EXPERTS; i++)
		hot.info[i].heat *= half_lives < 1 ? 1 - half_lives / 2 : 0.5;
	pthread_mutex_unlock(&hot.lock);
}

/* -- help -----------------------------------------------------------------------------------------
 */

static struct store *store;

static const char *in_dir(const char *name)
{
	static char path[300];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static void make(void)
{
	static const char id[STORE_ID_SIZE] = "usage";
	struct catalog *c;
	FILE *f;

	unlink(in_dir("catalog.db"));
	assert_int_equal(catalog_create(in_dir("catalog.db"), (const uint8_t *)id, &c, why), 0);
	assert_int_equal(catalog_add_drive(c, 0, "a.shard", 1 << 20, why), 0);
	for (unsigned i = 0; i < EXPERTS; i++) {
		struct extent x = { .offset = (i + 1) * 8192ul, .length = BYTES };
		assert_int_equal(catalog_add_extent(c, i / EACH, i % EACH, BYTES, 0, &x, why), 0);
	}
	assert_int_equal(catalog_finish(c, why), 0);
	f = fopen(in_dir("model.json"), "w");
	assert_non_null(f);
	fclose(f);
	store = calloc(1, sizeof(*store));
	assert_non_null(store);
	pthread_mutex_init(&store->lock, NULL);
	store->dir = strdup(dir);
	assert_int_equal(catalog_load(store, why), 0);
	memset(&hot.info, 0, sizeof(hot.info));
	hot.asks = hot.again = hot.drops = 0;
	hot.room = hot.queue = EXPERTS;
}

static void forget(void)
{
	store_close(store);
	store = NULL;
	memset(&hot.info, 0, sizeof(hot.info));
	hot.asks = 0;
}

static struct usage *start(unsigned flush_ms)
{
	const struct usage_config cfg = { .store = store, .hot = &hot, .flush_ms = flush_ms };
	struct usage *u = NULL;

	assert_int_equal(usage_start(&cfg, &u, why), 0);
	return u;
}

static double ask(const char *sql)
{
	return sql_number(in_dir("catalog.db"), sql);
}

static void change(const char *sql)
{
	sql_change(in_dir("catalog.db"), sql);
}

static struct usage_stats stats_of(struct usage *u)
{
	struct usage_stats s;

	usage_stats(u, &s);
	return s;
}

/* Until the condition holds, at most ten seconds. */
#define WAIT_FOR(condition)                                                                        \
	do {                                                                                       \
		uint64_t until_ = clock_ns() + 10000000000u;                                       \
		while (!(condition)) {                                                             \
			if (clock_ns() > until_)                                                   \
				fail_msg("line %d: waited in vain for %s", __LINE__, #condition);  \
			usleep(1000);                                                              \
		}                                                                                  \
	} while (0)

/* -- tests ----------------------------------------------------------------------------------------
 */

static void comes_back_after_a_restart(void **state)
{
	struct usage *u;

	(void)state;
	make();
	u = start(100000);
	assert_true(stats_of(u).recording);
	use(3, 1);
	use(70, 2);
	use(70, 3.5);
	usage_stop(u); /* the end writes, however long the period is */
	assert_float_equal(ask("SELECT count(*) FROM usage"), 2, 0);
	assert_float_equal(ask("SELECT heat FROM usage WHERE layer = 1 AND expert = 20"), 2, 1.5);
	assert_float_equal(ask("SELECT value FROM meta WHERE key = 'clock'"), 3, 0);
	assert_float_equal(ask("SELECT load_ns FROM usage WHERE expert = 3"), 1003, 0);

	memset(&hot.info, 0, sizeof(hot.info));
	u = start(100000);
	assert_int_equal(stats_of(u).known, 2);
	assert_int_equal(hot.info[70].uses, 2);
	assert_int_equal(hot.info[70].last_use, 1700000070);
	use(70, 4);
	usage_stop(u);
	assert_float_equal(ask("SELECT uses FROM usage WHERE layer = 1 AND expert = 20"), 3, 0);
	assert_float_equal(ask("SELECT value FROM meta WHERE key = 'clock'"), 4, 0);
	forget();
}

static void writes_only_what_changed(void **state)
{
	struct usage *u;

	(void)state;
	make();
	u = start(10);
	for (uint32_t i = 0; i < EXPERTS; i++)
		use(i, 1);
	WAIT_FOR(stats_of(u).rows >= EXPERTS);
	usleep(50000); /* several periods: nothing to do */
	assert_int_equal(stats_of(u).rows, EXPERTS);
	use(5, 2);
	WAIT_FOR(stats_of(u).rows == EXPERTS + 1);
	fade(0.02); /* by 1 %: not worth it yet */
	usleep(50000);
	assert_int_equal(stats_of(u).rows, EXPERTS + 1);
	fade(0.2);
	WAIT_FOR(stats_of(u).rows >= 2 * EXPERTS + 1);
	assert_float_equal(ask("SELECT max(heat) FROM usage WHERE expert <> 5"), 0.891, 0.001);
	fade(0.02);
	usage_stop(u); /* the end is exact */
	assert_float_equal(ask("SELECT max(heat) FROM usage WHERE expert <> 5"), 0.882, 0.001);
	assert_int_equal(hot.asks, 0);
	forget();
}

/* Seeds the catalog with heats that fall with the number, which are asked for in that order. */
static void seed_heats(void)
{
	change("INSERT INTO usage SELECT layer, expert, 100 - layer * 50 - expert, 1000, 1, 1, 1"
	       " FROM extents");
}

static void fills_hottest_first(void **state)
{
	struct usage *u;

	(void)state;
	make();
	seed_heats();
	change("UPDATE usage SET heat = 200 WHERE layer = 1 AND expert = 7");
	change("UPDATE usage SET heat = 0.4 WHERE layer = 0 AND expert = 1");
	change("UPDATE usage SET heat = 5000 WHERE layer = 0 AND expert = 2"); /* more than uses */
	change("INSERT INTO usage VALUES(9, 9, 1, 1, 1, 1, 1)");               /* of no expert */
	u = start(100000);
	WAIT_FOR(stats_of(u).filling == USAGE_FILLED);
	assert_int_equal(hot.asks, EXPERTS - 1);
	assert_int_equal(stats_of(u).asked, EXPERTS - 1);
	assert_int_equal(stats_of(u).warm, EXPERTS - 1);
	assert_int_equal(hot.asked[0], 2);
	assert_float_equal(hot.info[2].heat, 1000, 0);
	assert_int_equal(hot.asked[1], 57);
	assert_int_equal(hot.asked[2], 0);
	for (uint32_t i = 3; i < 40; i++)
		assert_int_equal(hot.asked[i], i);
	usage_stop(u);
	forget();
}

static void waits_and_ends_when_full(void **state)
{
	struct usage *u;

	(void)state;
	make();
	seed_heats();
	hot.queue = 3;
	hot.room = 20;
	u = start(20); /* flushes go on meanwhile */
	WAIT_FOR(stats_of(u).asked == 3);
	use(90, 1);
	WAIT_FOR(stats_of(u).flushes > 0);
	assert_int_equal(stats_of(u).filling, USAGE_FILLING);
	for (int i = 0; i < 30; i++) {
		pthread_mutex_lock(&hot.lock);
		hot.queue++;
		pthread_mutex_unlock(&hot.lock);
		usleep(2000);
	}
	WAIT_FOR(stats_of(u).filling == USAGE_FILLED);
	assert_int_equal(hot.asks, 20);
	/* More memory: another fill, of those that are cold by now. */
	pthread_mutex_lock(&hot.lock);
	hot.room = hot.queue = EXPERTS;
	pthread_mutex_unlock(&hot.lock);
	usage_fill(u);
	WAIT_FOR(stats_of(u).warm != EXPERTS && stats_of(u).filling == USAGE_FILLED);
	assert_int_equal(hot.asks, EXPERTS);
	usage_stop(u);
	forget();
}

/* Loads that the hot store drops again are asked for again, hottest first; not for ever. */
static void asks_again(void **state)
{
	struct usage *u;

	(void)state;
	make();
	seed_heats();
	hot.drops = 150;
	u = start(100000);
	WAIT_FOR(stats_of(u).filling == USAGE_FILLED);
	assert_int_equal(hot.asks, EXPERTS);
	assert_int_equal(stats_of(u).asked, EXPERTS);
	assert_int_equal(hot.asked[0], 50); /* the second pass reached as far as that */
	assert_int_equal(hot.asked[50], 0);
	usage_stop(u);
	forget();

	make();
	seed_heats();
	hot.drops = UINT32_MAX;
	u = start(100000);
	WAIT_FOR(stats_of(u).filling == USAGE_FILLED);
	assert_int_equal(hot.asks, 0);
	assert_int_equal(stats_of(u).asked, 0);
	usage_stop(u);
	forget();
}

static void ends_in_the_middle_of_a_fill(void **state)
{
	struct usage *u;
	uint64_t start_ns;

	(void)state;
	make();
	seed_heats();
	hot.queue = 0;
	u = start(100000);
	WAIT_FOR(stats_of(u).filling == USAGE_FILLING);
	start_ns = clock_ns();
	usage_stop(u);
	assert_true(clock_ns() - start_ns < 2000000000u);
	assert_int_equal(hot.asks, 0);
	forget();
}

static void second_daemon_reads_only(void **state)
{
	struct usage *a, *b;

	(void)state;
	make();
	a = start(10);
	b = start(10);
	assert_true(stats_of(a).recording);
	assert_false(stats_of(b).recording);
	use(1, 1);
	WAIT_FOR(stats_of(a).rows == 1);
	usage_stop(b);
	assert_int_equal(ask("SELECT uses FROM usage"), 1);
	b = start(10);
	assert_int_equal(stats_of(b).known, 1);
	usage_stop(b);
	usage_stop(a);
	a = start(10); /* the lock went with the first */
	assert_true(stats_of(a).recording);
	usage_stop(a);
	forget();
}

/* A writer that keeps the database from us: nothing is lost. */
static void keeps_what_it_cannot_write(void **state)
{
	struct usage *u;

	(void)state;
	make();
	u = start(10);
	change("ALTER TABLE usage RENAME TO other");
	use(1, 1);
	WAIT_FOR(stats_of(u).errors > 1);
	assert_int_equal(stats_of(u).rows, 0);
	change("ALTER TABLE other RENAME TO usage");
	WAIT_FOR(stats_of(u).rows == 1);
	usage_stop(u);
	assert_int_equal(ask("SELECT uses FROM usage"), 1);
	forget();
}

static void flushes_when_asked(void **state)
{
	struct usage *u, *second;

	(void)state;
	make();
	u = start(100000);
	second = start(100000);
	for (int i = 0; i < 50; i++) {
		use(7, i + 1);
		assert_int_equal(usage_flush(u, why), 0);
		assert_int_equal(ask("SELECT uses FROM usage"), i + 1);
	}
	assert_int_equal(usage_flush(u, why), 0); /* nothing to do */
	assert_int_equal(stats_of(u).flushes, 50);
	assert_int_equal(usage_flush(second, why), -EROFS);
	change("ALTER TABLE usage RENAME TO other");
	use(7, 1);
	assert_true(usage_flush(u, why) < 0);
	assert_non_null(strstr(why, "catalog.db"));
	usage_stop(second);
	usage_stop(u);
	forget();
}

static void locks(void **state)
{
	int a, b, c;

	(void)state;
	make();
	assert_int_equal(store_lock(dir, STORE_SERVED, &a, why), 0);
	assert_int_equal(store_lock(dir, STORE_SERVED, &b, why), 0);
	assert_int_equal(store_lock(dir, STORE_ALONE, &c, why), -EBUSY);
	assert_non_null(strstr(why, "mounted"));
	assert_int_equal(store_lock_change(a, dir, STORE_ALONE, 0, why), -EBUSY);
	assert_int_equal(store_lock(dir, STORE_ALONE, &c, why), -EBUSY); /* a has it still */
	close(b);
	assert_int_equal(store_lock_change(a, dir, STORE_ALONE, 0, why), 0);
	assert_int_equal(store_lock(dir, STORE_SERVED, &b, why), -EBUSY);
	assert_int_equal(store_lock_change(a, dir, STORE_SERVED, 0, why), 0);
	assert_int_equal(store_lock(dir, STORE_SERVED, &b, why), 0);
	assert_int_equal(store_lock(dir, STORE_RECORDED, &c, why), 0);
	close(a);
	close(b);
	close(c);
	assert_int_equal(store_lock("/nowhere at all", STORE_SERVED, &a, why), -ENOENT);
	forget();
}

/* As a daemon that was killed, whose memory is being taken back. */
static void *dies_slowly(void *fd)
{
	usleep(300000);
	close(*(int *)fd);
	return NULL;
}

static void a_change_waits_for_the_dying(void **state)
{
	pthread_t thread;
	int a, b;

	(void)state;
	make();
	assert_int_equal(store_lock(dir, STORE_SERVED, &a, why), 0);
	assert_int_equal(store_lock(dir, STORE_SERVED, &b, why), 0);
	assert_int_equal(pthread_create(&thread, NULL, dies_slowly, &b), 0);
	assert_int_equal(store_lock_change(a, dir, STORE_ALONE, STORE_DYING_MS, why), 0);
	pthread_join(thread, NULL);
	close(a);
	/* One that came between and has it alone. */
	a = open(dir, O_RDONLY | O_DIRECTORY);
	assert_int_equal(store_lock(dir, STORE_ALONE, &b, why), 0);
	assert_int_equal(store_lock_change(a, dir, STORE_ALONE, 100, why), -ENOLCK);
	assert_int_equal(pthread_create(&thread, NULL, dies_slowly, &b), 0);
	assert_int_equal(store_lock_change(a, dir, STORE_SERVED, STORE_DYING_MS, why), 0);
	pthread_join(thread, NULL);
	close(a);
	forget();
}

struct server {
	pthread_t thread;
	int fd, bad;
};

static void *asks_to_be_alone(void *arg)
{
	struct server *s = arg;
	char sentence[WHY_MAX];

	for (int i = 0; i < 2000; i++)
		s->bad += store_lock_change(s->fd, dir, STORE_ALONE, 0, sentence) != -EBUSY;
	return NULL;
}

/* Of several that serve a store none comes to be alone, in whatever moment it asks. */
static void nobody_is_alone_beside_others(void **state)
{
	struct server s[3] = { 0 };

	(void)state;
	make();
	fclose(fopen(in_dir("tokenizer.json"), "w"));
	for (int i = 0; i < 3; i++)
		assert_int_equal(store_lock(dir, STORE_SERVED, &s[i].fd, why), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&s[i].thread, NULL, asks_to_be_alone, &s[i]), 0);
	for (int i = 0; i < 3; i++)
		pthread_join(s[i].thread, NULL);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(s[i].bad, 0);
		close(s[i].fd);
	}
	unlink(in_dir("tokenizer.json"));
	forget();
}

static int set_up(void **state)
{
	const char *tmp = getenv("TMPDIR");

	(void)state;
	snprintf(dir, sizeof(dir), "%s/usage.XXXXXX", tmp ? tmp : "/tmp");
	return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	unlink(in_dir("catalog.db"));
	unlink(in_dir("catalog.db-wal"));
	unlink(in_dir("catalog.db-shm"));
	unlink(in_dir("model.json"));
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(comes_back_after_a_restart),
		cmocka_unit_test(writes_only_what_changed),
		cmocka_unit_test(fills_hottest_first),
		cmocka_unit_test(waits_and_ends_when_full),
		cmocka_unit_test(asks_again),
		cmocka_unit_test(ends_in_the_middle_of_a_fill),
		cmocka_unit_test(second_daemon_reads_only),
		cmocka_unit_test(keeps_what_it_cannot_write),
		cmocka_unit_test(flushes_when_asked),
		cmocka_unit_test(locks),
		cmocka_unit_test(a_change_waits_for_the_dying),
		cmocka_unit_test(nobody_is_alone_beside_others),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
