/* SPDX-License-Identifier: Apache-2.0
 *
 * One expert from its copies: the choice, the checksums, and what becomes of a drive that fails.
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

#include "expertfs/clock.h"
#include "made_store.h"

#include <cmocka.h> /* last: it makes fail() a macro */

#define SIZE 700001u /* no multiple of anything */

static char why[WHY_MAX];

static void make(struct made *m, unsigned experts, unsigned drives, unsigned parts, unsigned copies)
{
	*m = (struct made){ .layers = 1,
			    .experts = experts,
			    .drives = drives,
			    .parts = parts,
			    .copies = copies,
			    .bytes = SIZE };
	made_make(m);
	made_open(m);
}

static void finish(struct made *m)
{
	made_close(m);
	made_remove(m);
}

static uint8_t *buffer(void)
{
	uint8_t *buf = aligned_alloc(SHARD_ALIGN, shard_round_up(SIZE));

	assert_non_null(buf);
	memset(buf, 0xff, shard_round_up(SIZE));
	return buf;
}

/* Changes one byte of a copy of an expert, behind the daemon's back. */
static void damage(struct made *m, uint32_t index, unsigned copy)
{
	const struct extent_list *l = m->store->expert[index].packed;
	uint8_t byte;

	for (uint32_t i = 0; i < l->n; i++) {
		if (l->x[i].copy != copy)
			continue;
		int fd = open(m->store->drive[l->x[i].drive].path, O_RDWR);
		off_t at = (off_t)(l->x[i].offset + l->x[i].length / 2);
		assert_int_equal(pread(fd, &byte, 1, at), 1);
		byte ^= 0x10;
		assert_int_equal(pwrite(fd, &byte, 1, at), 1);
		close(fd);
		return;
	}
	fail_msg("expert %u has no copy %u", index, copy);
}

static struct drive_stats stats(struct made *m, unsigned drive)
{
	struct drive_stats s;

	drive_stats(m->drive[drive], &s);
	return s;
}

static void expect_right(struct made *m, uint32_t index, uint8_t *buf)
{
	if (!made_right(m, index, buf, why))
		fail_msg("%s", why);
	for (uint64_t i = SIZE; i < shard_round_up(SIZE); i++)
		assert_int_equal(buf[i], 0);
}

static const struct urgency demand = { DRIVE_DEMAND };

static void expect_eio(struct made *m, uint32_t index, uint8_t *buf, const char *text)
{
	assert_int_equal(load_expert(&m->loader, index, &demand, buf, why), -EIO);
	if (!strstr(why, text))
		fail_msg("the sentence is: %s", why);
}

static void test_layouts(void **state)
{
	static const unsigned layout[][3] = { { 1, 1, 1 }, { 3, 1, 1 }, { 3, 3, 1 },
					      { 4, 2, 2 }, { 2, 5, 2 }, { 5, 1, 5 } };
	uint8_t *buf = buffer();
	struct made m;

	(void)state;
	for (unsigned i = 0; i < sizeof(layout) / sizeof(layout[0]); i++) {
		make(&m, 7, layout[i][0], layout[i][1], layout[i][2]);
		for (uint32_t e = 0; e < 7; e++)
			expect_right(&m, e, buf);
		finish(&m);
	}
	free(buf);
}

/* Idle drives take turns; a busy one is left alone. */
static void test_spread(void **state)
{
	struct read_batch *b = read_batch_new(&demand);
	uint8_t *buf = buffer(), *other;
	uint64_t before[2], spread[2];
	struct made m;

	(void)state;
	make(&m, 16, 2, 1, 2);
	for (int round = 0; round < 4; round++)
		for (uint32_t e = 0; e < 16; e++)
			expect_right(&m, e, buf);
	for (unsigned d = 0; d < 2; d++)
		spread[d] = before[d] = stats(&m, d).bytes;
	assert_in_range(spread[0] * 100 / (spread[0] + spread[1]), 40, 60);
	/* Drive 0 gets a queue of 6 GiB (of the same few bytes, over and over). */
	other = aligned_alloc(SHARD_ALIGN, 4 << 20);
	for (int i = 0; i < 1536; i++)
		read_batch_add(b, m.drive[0], 0, 4 << 20, other);
	for (uint32_t e = 0; e < 16; e++)
		expect_right(&m, e, buf);
	assert_true(stats(&m, 0).queued[DRIVE_DEMAND] > 0);
	assert_int_equal(stats(&m, 1).bytes - before[1], 16 * shard_round_up(SIZE));
	assert_int_equal(read_batch_wait(b, NULL), 0);
	free(other);
	free(buf);
	finish(&m);
}

static void test_torn_copy(void **state)
{
	struct drive_stats s[2];
	uint8_t *buf = buffer();
	struct made m;

	(void)state;
	make(&m, 4, 2, 1, 2);
	damage(&m, 0, 0); /* on drive 0 */
	for (int i = 0; i < 8; i++)
		expect_right(&m, 0, buf);
	s[0] = stats(&m, 0);
	assert_int_equal(s[0].errors, 2); /* tried twice, and then known to be bad */
	assert_false(s[0].failing);
	assert_int_equal(s[0].bytes, 2 * shard_round_up(SIZE));
	/* The other copy becomes wrong as well: nothing is handed out. */
	m.loader.verify = VERIFY_ALWAYS;
	damage(&m, 0, 1);
	expect_eio(&m, 0, buf, "checksum");
	assert_non_null(strstr(why, "/d1/")); /* the first fault that was met */
	s[1] = stats(&m, 1);
	assert_int_equal(s[1].errors, 2);
	/* A bad copy that is good again is found when it is all there is. */
	damage(&m, 0, 0);
	expect_right(&m, 0, buf);
	for (uint32_t e = 1; e < 4; e++)
		expect_right(&m, e, buf);
	free(buf);
	finish(&m);
}

static void test_torn_stripe(void **state)
{
	uint8_t *buf = buffer();
	struct made m;

	(void)state;
	make(&m, 3, 4, 2, 2);
	damage(&m, 1, 0);
	for (int i = 0; i < 4; i++)
		for (uint32_t e = 0; e < 3; e++)
			expect_right(&m, e, buf);
	damage(&m, 1, 1);
	m.loader.verify = VERIFY_ALWAYS;
	expect_eio(&m, 1, buf, "expert 0/1: the checksum of ");
	expect_right(&m, 2, buf);
	free(buf);
	finish(&m);
}

static void test_missing_drive(void **state)
{
	uint8_t *buf = buffer();
	char path[PATH_MAX];
	unsigned copy = 9;
	struct made m;

	(void)state;
	make(&m, 6, 3, 1, 2);
	made_close(&m);
	made_path(&m, 1, path);
	unlink(path);
	made_open(&m);
	assert_null(m.drive[1]);
	assert_int_equal(m.store->lost, 0);
	for (uint32_t e = 0; e < 6; e++)
		expect_right(&m, e, buf);
	finish(&m);

	make(&m, 6, 3, 1, 1);
	made_close(&m);
	made_path(&m, 1, path);
	unlink(path);
	made_open(&m);
	assert_int_equal(m.store->lost, 2);
	for (uint32_t e = 0; e < 6; e++) {
		if (e % 3 == 1) {
			expect_eio(&m, e, buf, "/d1/test.shard");
			assert_int_equal(prove_expert(&m.loader, e, &copy, why), -EIO);
			assert_non_null(strstr(why, "missing"));
		} else {
			expect_right(&m, e, buf);
		}
	}
	free(buf);
	finish(&m);
}

static void wait_for_drive(struct made *m, unsigned drive)
{
	uint64_t until = clock_ns() + 20000000000u;

	while (stats(m, drive).failing && clock_ns() < until)
		usleep(20000);
	assert_false(stats(m, drive).failing);
}

/* A drive loses its bytes under the running daemon, and gets them back. */
static void test_vanish(void **state)
{
	uint8_t *buf = buffer();
	char path[PATH_MAX], kept[PATH_MAX + 8], command[3 * PATH_MAX];
	struct drive_stats s;
	struct made m;

	(void)state;
	make(&m, 12, 3, 1, 2);
	made_path(&m, 0, path);
	snprintf(kept, sizeof(kept), "%s.kept", path);
	snprintf(command, sizeof(command), "cp %s %s", path, kept);
	assert_int_equal(system(command), 0);
	assert_int_equal(truncate(path, 0), 0);
	for (int i = 0; i < 8 && !stats(&m, 0).failing; i++)
		for (uint32_t e = 0; e < 12; e++)
			expect_right(&m, e, buf);
	s = stats(&m, 0);
	assert_true(s.failing);
	for (int i = 0; i < 4; i++)
		for (uint32_t e = 0; e < 12; e++)
			expect_right(&m, e, buf);
	assert_int_equal(stats(&m, 0).reads, s.reads); /* no load has tried it */
	snprintf(command, sizeof(command), "cat %s >%s", kept, path);
	assert_int_equal(system(command), 0);
	wait_for_drive(&m, 0);
	for (int i = 0; i < 8; i++)
		for (uint32_t e = 0; e < 12; e++)
			expect_right(&m, e, buf);
	assert_true(stats(&m, 0).bytes > s.bytes);
	finish(&m);

	make(&m, 4, 2, 1, 1);
	made_path(&m, 0, path);
	assert_int_equal(truncate(path, SHARD_ALIGN), 0);
	for (int i = 0; i < 3; i++) {
		expect_eio(&m, 0, buf, "d0/test.shard");
		expect_right(&m, 1, buf);
		expect_eio(&m, 2, buf, "expert 0/2: reading ");
		expect_right(&m, 3, buf);
	}
	free(buf);
	finish(&m);
}

static unsigned hot_told, hot_index;

static void hot_bad(void *arg, uint32_t index)
{
	struct made *m = arg;
	struct extent_list *old = store_set_hot(m->store, index, NULL);

	hot_told++;
	hot_index = index;
	if (old)
		assert_true(store_unread(m->store, old)); /* the loader holds nothing */
	store_drop(m->store, old);
}

/* A hot copy of an expert on a drive of its own. */
static void add_hot(struct made *m, uint32_t index)
{
	const struct store_expert *e = &m->store->expert[index];
	uint8_t *data = calloc(1, shard_round_up(SIZE));
	struct extent_list *l = extent_list_new(1);
	char path[PATH_MAX];
	FILE *f;

	assert_non_null(data);
	assert_non_null(l);
	made_fill(e->layer, e->expert, data, SIZE);
	snprintf(path, sizeof(path), "%s/hot", m->root);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, shard_round_up(SIZE), f), shard_round_up(SIZE));
	assert_int_equal(fclose(f), 0);
	l->x[0] = (struct extent){ .length = SIZE,
				   .check = payload_check(data, SIZE),
				   .drive = STORE_HOT_DRIVE };
	if (!m->drive[STORE_HOT_DRIVE])
		assert_int_equal(drive_open(path, DRIVE_IO_AUTO, &m->drive[STORE_HOT_DRIVE], why),
				 0);
	store_drop(m->store, store_set_hot(m->store, index, l));
	free(data);
}

static void test_hot(void **state)
{
	uint8_t *buf = buffer();
	unsigned copy = 9;
	char path[PATH_MAX];
	struct made m;

	(void)state;
	make(&m, 4, 2, 1, 2);
	m.loader.hot_bad = hot_bad;
	m.loader.hot_arg = &m;
	add_hot(&m, 2);
	expect_right(&m, 2, buf);
	assert_int_equal(stats(&m, STORE_HOT_DRIVE).bytes, shard_round_up(SIZE));
	assert_int_equal(stats(&m, 0).bytes + stats(&m, 1).bytes, 0);
	assert_int_equal(prove_expert(&m.loader, 2, &copy, why), 0);
	assert_int_equal(copy, COPY_HOT);
	expect_right(&m, 1, buf);
	assert_int_equal(hot_told, 0);
	/* It goes bad. */
	m.loader.verify = VERIFY_ALWAYS;
	snprintf(path, sizeof(path), "%s/hot", m.root);
	FILE *f = fopen(path, "r+");
	assert_non_null(f);
	assert_int_equal(fwrite("what?", 1, 5, f), 5);
	fclose(f);
	expect_right(&m, 2, buf);
	assert_int_equal(hot_told, 1);
	assert_int_equal(hot_index, 2);
	assert_null(m.store->expert[2].hot);
	expect_right(&m, 2, buf);
	assert_int_equal(hot_told, 1);
	/* Nobody need be told. */
	m.loader.hot_bad = NULL;
	add_hot(&m, 3);
	expect_right(&m, 3, buf);
	assert_int_equal(truncate(path, 0), 0);
	for (int i = 0; i < 10; i++)
		expect_right(&m, 3, buf);
	/* All there is, if the packed copies are gone. */
	add_hot(&m, 3);
	damage(&m, 3, 0);
	damage(&m, 3, 1);
	expect_right(&m, 3, buf);
	free(buf);
	finish(&m);
}

static void test_verify(void **state)
{
	uint8_t *buf = buffer();
	unsigned copy;
	struct made m;

	(void)state;
	make(&m, 4, 1, 1, 1);
	m.loader.verify = VERIFY_NEVER;
	damage(&m, 0, 0);
	assert_int_equal(load_expert(&m.loader, 0, &demand, buf, why), 0);
	assert_int_equal(prove_expert(&m.loader, 0, &copy, why), 0);
	/* What was not looked at was not proved. */
	m.loader.verify = VERIFY_FIRST;
	expect_eio(&m, 0, buf, "checksum");
	expect_eio(&m, 0, buf, "checksum");
	assert_int_equal(prove_expert(&m.loader, 0, &copy, why), -EIO);
	assert_int_equal(load_expert(&m.loader, 1, &demand, buf, why), 0);
	damage(&m, 1, 0);
	assert_int_equal(load_expert(&m.loader, 1, &demand, buf, why), 0);
	m.loader.verify = VERIFY_ALWAYS;
	expect_eio(&m, 1, buf, "checksum");
	/* Nor is it believed any more once others may have moved it. */
	m.loader.verify = VERIFY_FIRST;
	assert_int_equal(load_expert(&m.loader, 3, &demand, buf, why), 0);
	damage(&m, 3, 0);
	assert_int_equal(load_expert(&m.loader, 3, &demand, buf, why), 0);
	m.store->doubtful = true;
	expect_eio(&m, 3, buf, "checksum");
	m.store->doubtful = false;
	/* A copy in another place was not proved by the one before it. */
	assert_int_equal(load_expert(&m.loader, 2, &demand, buf, why), 0);
	damage(&m, 2, 0);
	struct extent_list *l = extent_list_new(1), *old;
	assert_non_null(l);
	l->x[0] = m.store->expert[2].packed->x[0];
	old = store_set_packed(m.store, 2, l);
	expect_eio(&m, 2, buf, "checksum");
	store_drop(m.store, old);
	free(buf);
	finish(&m);
}

/* What read_expert() hands out. */
struct part {
	uint64_t offset;
	ssize_t n;
	bool right;
	unsigned expert;
};

static void take_part(void *arg, const char *data, ssize_t n)
{
	struct part *p = arg;

	p->n = n;
	p->right = true;
	for (ssize_t i = 0; i < n; i++)
		p->right = p->right &&
			   (uint8_t)data[i] == made_byte(0, p->expert, p->offset + (uint64_t)i);
}

static struct part read_part(struct made *m, uint32_t index, unsigned copy, uint64_t offset,
			     size_t size)
{
	struct part p = { .offset = offset, .expert = m->store->expert[index].expert };

	read_expert(&m->loader, index, copy, offset, size, take_part, &p);
	return p;
}

static void expect_part(struct made *m, uint32_t index, unsigned copy, uint64_t offset, size_t size)
{
	struct part p = read_part(m, index, copy, offset, size);

	assert_int_equal(p.n, offset >= SIZE ? 0 : size < SIZE - offset ? size : SIZE - offset);
	assert_true(p.right);
}

static void expect_parts(struct made *m, uint32_t index, unsigned copy)
{
	static const uint64_t offset[] = {
		0, 1, 4095, 4096, 233472, 350000, 699999, 700001, 1 << 20
	};
	static const size_t size[] = { 0, 1, 4096, 131072, 1 << 20 };

	for (unsigned o = 0; o < sizeof(offset) / sizeof(offset[0]); o++)
		for (unsigned s = 0; s < sizeof(size) / sizeof(size[0]); s++)
			expect_part(m, index, copy, offset[o], size[s]);
}

static void test_unkept(void **state)
{
	unsigned copy;
	struct made m;
	char path[PATH_MAX];

	(void)state;
	make(&m, 4, 4, 2, 2);
	for (uint32_t e = 0; e < 4; e++) {
		assert_int_equal(prove_expert(&m.loader, e, &copy, why), 0);
		assert_in_range(copy, 0, 1);
		expect_parts(&m, e, copy);
	}
	/* The copy that was proved is on a drive that goes: the other is proved and read. */
	assert_int_equal(prove_expert(&m.loader, 0, &copy, why), 0);
	made_path(&m, m.store->expert[0].packed->x[2 * copy].drive, path);
	assert_int_equal(truncate(path, SHARD_ALIGN), 0);
	expect_parts(&m, 0, copy);
	/* The other is torn: not a byte of it. */
	assert_int_equal(prove_expert(&m.loader, 2, &copy, why), 0);
	finish(&m);

	make(&m, 1, 2, 1, 2);
	assert_int_equal(prove_expert(&m.loader, 0, &copy, why), 0);
	damage(&m, 0, 1 - copy);
	made_path(&m, copy, path);
	assert_int_equal(truncate(path, SHARD_ALIGN), 0);
	assert_int_equal(read_part(&m, 0, copy, 0, 65536).n, -EIO);
	assert_int_equal(read_part(&m, 0, copy, 300000, 65536).n, -EIO);
	finish(&m);

	/* A copy that is no more (or never was). */
	make(&m, 1, 1, 1, 1);
	expect_part(&m, 0, 3, 0, SIZE);
	expect_part(&m, 0, COPY_HOT, 5000, SIZE);
	finish(&m);
}

/* A kernel may be told to ask for more at once than a buffer holds. */
static void test_long_read(void **state)
{
	struct made m = {
		.layers = 1, .experts = 1, .drives = 1, .parts = 1, .copies = 1, .bytes = 6 << 20
	};
	struct part p;

	(void)state;
	made_make(&m);
	made_open(&m);
	p = read_part(&m, 0, 0, 4095, 5 << 20);
	assert_int_equal(p.n, READ_MAX);
	assert_true(p.right);
	finish(&m);
}

/* -- all at once ------------------------------------------------------------------------------- */

#define READERS 6

static struct made busy;
static _Atomic int ended;
static _Atomic unsigned loads;

static void *reader(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	struct urgency u = { DRIVE_PREFETCH };
	uint8_t *buf = buffer();
	char text[WHY_MAX];

	while (!ended) {
		uint32_t e = (uint32_t)rand_r(&seed) % 12;
		unsigned copy;
		if (rand_r(&seed) % 4 == 0) {
			struct part p;
			if (prove_expert(&busy.loader, e, &copy, text) != 0)
				fail_msg("%s", text);
			p = read_part(&busy, e, copy, 4096 * ((unsigned)rand_r(&seed) % 100),
				      65536);
			assert_true(p.n == 65536 && p.right);
		} else {
			if (load_expert(&busy.loader, e, &u, buf, text) != 0)
				fail_msg("%s", text);
			assert_int_equal(buf[1000], made_byte(0, e, 1000));
			assert_int_equal(buf[SIZE - 1], made_byte(0, e, SIZE - 1));
			u.class = rand_r(&seed) % DRIVE_CLASSES;
			loader_raise(&busy.loader, &u);
		}
		loads++;
	}
	free(buf);
	return NULL;
}

/* Places change and a drive goes and comes while many read. */
static void test_together(void **state)
{
	pthread_t thread[READERS];
	char path[PATH_MAX], kept[PATH_MAX + 8], command[3 * PATH_MAX];
	uint64_t until;

	(void)state;
	make(&busy, 12, 3, 1, 2);
	busy.loader.verify = VERIFY_ALWAYS;
	made_path(&busy, 1, path);
	snprintf(kept, sizeof(kept), "%s.kept", path);
	snprintf(command, sizeof(command), "cp %s %s", path, kept);
	assert_int_equal(system(command), 0);
	snprintf(command, sizeof(command), "cat %s >%s", kept, path);
	for (uintptr_t i = 0; i < READERS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, reader, (void *)(i + 1)), 0);
	until = clock_ns() + 2000000000u;
	for (unsigned round = 0; clock_ns() < until; round++) {
		uint32_t e = round % 12;
		const struct extent_list *now = busy.store->expert[e].packed;
		struct extent_list *l = extent_list_new(2), *old;
		l->x[0] = now->x[1]; /* the copies change their numbers */
		l->x[1] = now->x[0];
		l->x[0].copy = 0;
		l->x[1].copy = 1;
		old = store_set_packed(busy.store, e, l);
		while (!store_unread(busy.store, old))
			usleep(100);
		store_drop(busy.store, old);
		if (round % 64 == 10)
			assert_int_equal(truncate(path, 0), 0);
		if (round % 64 == 30)
			assert_int_equal(system(command), 0);
	}
	ended = 1;
	for (unsigned i = 0; i < READERS; i++)
		pthread_join(thread[i], NULL);
	assert_true(loads > 100);
	finish(&busy);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layouts),       cmocka_unit_test(test_spread),
		cmocka_unit_test(test_torn_copy),     cmocka_unit_test(test_torn_stripe),
		cmocka_unit_test(test_missing_drive), cmocka_unit_test(test_vanish),
		cmocka_unit_test(test_hot),           cmocka_unit_test(test_verify),
		cmocka_unit_test(test_unkept),        cmocka_unit_test(test_long_read),
		cmocka_unit_test(test_together),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
