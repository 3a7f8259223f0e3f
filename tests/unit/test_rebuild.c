/* SPDX-License-Identifier: Apache-2.0
 *
 * A catalog made anew from the shards: the same as the lost one; moved experts, holes, moves that
 * were killed; damage to heads, payloads, files; what is kept of the old one. A daemon's start on
 * such a store is in test_rebuild_start.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "expertfs/catalog.h"
#include "expertfs/fail.h"
#include "expertfs/rebuild.h"
#include "expertfs/shardsets.h"

#include <cmocka.h> /* last: its fail() is a macro */

#include "tests/unit/rebuilt_store.h"

static const struct rebuild_options prove = { .prove = true },
				    partial = { .prove = true, .partial = true };

static void expect_said(const char *words)
{
	if (!strstr(said, words))
		fail_msg("not said: %s; but: %s", words, said);
}

static unsigned copies_of(unsigned layer, unsigned expert)
{
	struct store *s = NULL;
	const struct store_expert *e;
	unsigned n;

	assert_int_equal(store_open(in_top("store"), &s, why), 0);
	e = store_find(s, layer, expert);
	n = e ? extent_list_copies(e->packed) : 0;
	store_close(s);
	return n;
}

static void flip(const char *name, uint64_t at)
{
	int fd = open(in_top(name), O_RDWR);
	uint8_t byte;

	assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
	byte ^= 0x10;
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
	close(fd);
}

/* -- whole stores ---------------------------------------------------------------------------------
 */

static void finds_everything(void **state)
{
	(void)state;
	for (int listed = 0; listed < 2; listed++) {
		make(listed);
		if (listed) {
			assert_int_equal(run(prove), 0);
		} else {
			assert_int_equal(run(prove), -ENOENT);
			assert_non_null(strstr(why, "drive 1 is missing"));
			const char *far = in_top("far");
			struct rebuild_options o = { .prove = true, .drive = &far, .drives = 1 };
			assert_int_equal(run(o), 0);
		}
		assert_int_equal(report.experts, EXPERTS);
		assert_int_equal(report.drives, DRIVES);
		assert_int_equal(report.records, 18);
		assert_int_equal(report.bad + report.missing, 0);
		assert_string_equal(said, "");
		assert_int_equal(check_store(0), EXPERTS);
		assert_int_equal(copies_of(0, 3), 1);
		assert_int_equal(copies_of(1, 3), 2);
		/* It found the list, or wrote one: the next time needs no help. */
		unlink(in_top("store/catalog.db"));
		assert_int_equal(run(quick), 0);
		assert_int_equal(check_store(0), EXPERTS);
		assert_false(exists("store/catalog.db.new"));
	}
}

/* The old catalog says where the drives are, if there is no list. */
static void asks_the_old_catalog(void **state)
{
	(void)state;
	make(true);
	assert_int_equal(run(quick), 0);
	unlink(in_top("store/shards"));
	change("DROP TABLE extents");
	assert_int_equal(run(quick), 0);
	assert_int_equal(check_store(0), EXPERTS);
	assert_true(exists("store/catalog.db.damaged"));
	/* Not if it is that of another store. */
	unlink(in_top("store/shards"));
	change("UPDATE meta SET value = '00112233445566778899aabbccddeeff' WHERE key = 'store_id'");
	assert_int_equal(run(quick), -ENOENT);
}

static void moved_experts(void **state)
{
	(void)state;
	begin(true);
	/* 0/0 moved, and its old record is gone but for its head; 0/1 moved and both are there. */
	add_copy(0, 0, 0, 0, 0, BYTES);
	add_copy(0, 0, 1, 0, 0, BYTES);
	for (unsigned i = 2; i < EXPERTS; i++)
		add_copy(i % DRIVES, i / EACH, i % EACH, 0, 0, i % 2 ? CUT : BYTES);
	add_copy(1, 0, 0, 0, 1, CUT);
	add_copy(2, 0, 1, 0, 3, BYTES);
	fallocate(shard[0], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, SHARD_ALIGN,
		  (off_t)record_bytes(BYTES));
	/* 0/2: a move into two parts that did not come to its end, twice, cut elsewhere the second
	 * time: no two of these parts fit together. */
	add_record(1, (struct record_head){
			      .expert = 2, .generation = 1, .parts = 2, .part_bytes = CUT });
	add_record(2, (struct record_head){ .expert = 2,
					    .generation = 1,
					    .parts = 2,
					    .part = 1,
					    .part_offset = 4096,
					    .part_bytes = BYTES - 4096 });
	/* 0/3: the same, but the third time was whole. */
	add_record(1, (struct record_head){
			      .expert = 3, .generation = 1, .parts = 3, .part_bytes = CUT });
	add_record(1, (struct record_head){ .expert = 3,
					    .generation = 1,
					    .parts = 3,
					    .part = 1,
					    .part_offset = CUT,
					    .part_bytes = 4096 });
	add_record(0, (struct record_head){
			      .expert = 3, .generation = 1, .parts = 3, .part_bytes = 4096 });
	add_record(1, (struct record_head){ .expert = 3,
					    .generation = 1,
					    .parts = 3,
					    .part = 1,
					    .part_offset = 4096,
					    .part_bytes = 4096 });
	add_record(2, (struct record_head){ .expert = 3,
					    .generation = 1,
					    .parts = 3,
					    .part = 2,
					    .part_offset = 8192,
					    .part_bytes = BYTES - 8192 });
	close_shards();
	assert_int_equal(run(prove), 0);
	assert_string_equal(said, "");
	assert_int_equal(check_store(0), EXPERTS);
	assert_int_equal(ask("SELECT drive FROM extents WHERE layer = 0 AND expert = 1"), 2);
	assert_int_equal(ask("SELECT count(*) FROM extents WHERE layer = 0 AND expert = 0"), 2);
	assert_int_equal(ask("SELECT drive FROM extents WHERE layer = 0 AND expert = 2"), 2);
	assert_int_equal(ask("SELECT count(*) FROM extents WHERE layer = 0 AND expert = 3"), 3);
}

/* A move that was killed has left a head in front of half a payload, and the old record is there:
 * also who believes heads must take the old one. */
static void half_a_move(void **state)
{
	struct rebuild_options o[] = { prove, quick };

	(void)state;
	for (int i = 0; i < 2; i++) {
		begin(true);
		add_all();
		uint64_t at = end[1];
		add_copy(1, 0, 0, 0, 1, BYTES);
		add_copy(2, 0, 1, 0, 1, BYTES); /* this one is good */
		fallocate(shard[1], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			  (off_t)at + 2 * SHARD_ALIGN, 3 * SHARD_ALIGN);
		close_shards();
		assert_int_equal(run(o[i]), 0);
		assert_int_equal(check_store(0), EXPERTS);
		assert_int_equal(ask("SELECT drive FROM extents WHERE layer = 0 AND expert = 0"),
				 0);
		assert_int_equal(ask("SELECT count(*) FROM extents WHERE layer = 0 AND expert = 1"),
				 1);
	}
}

/* Without a model.json that says, layers are alike. */
static void knows_what_is_missing(void **state)
{
	static const char too_many[] =
		"{\"experts\": {\"count\": 65536, \"layouts\": [{\"layers\": "
		"[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]}]}}";
	static const char *const models[] = {
		"{\"experts\": {\"count\": 4, \"layouts\": [{\"layers\": [0, 1]}]}}",
		"{}",
		"{\"experts\": {\"count\": 99999999, \"layouts\": [{\"layers\": [0]}]}}",
		"{\"experts\": {\"count\": 4, \"layouts\": [{\"layers\": [0, -1]}]}}",
		"{\"experts\": {\"count\": 4, \"layouts\": []}}",
		too_many,
		"no JSON",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(models) / sizeof(*models); i++) {
		begin(true);
		write_file("store/model.json", models[i]);
		for (unsigned e = 0; e < EXPERTS; e++)
			if (e != 5)
				add_copy(e % DRIVES, e / EACH, e % EACH, 0, 0, BYTES);
		close_shards();
		assert_int_equal(run(prove), -ENODATA);
		assert_non_null(strstr(why, "1 experts of"));
		expect_said("expert 1/1 has no whole copy");
		assert_false(exists("store/catalog.db"));
		assert_int_equal(run(partial), 0);
		assert_int_equal(report.missing, 1);
		assert_int_equal(check_store(0), EXPERTS - 1);
	}
}

/* -- damage ---------------------------------------------------------------------------------------
 */

static void damaged_head(void **state)
{
	(void)state;
	make(true);
	flip("store/0.shard", SHARD_ALIGN + 20); /* expert 0/0 */
	assert_int_equal(run(prove), -ENODATA);
	expect_said("expert 0/0 has no whole copy");
	expect_said(
		"store/0.shard: 24576 bytes are neither a record nor a hole, the first at 4096");
	assert_int_equal(run(partial), 0);
	assert_int_equal(check_store(0), EXPERTS - 1);
}

/* A copy whose payload is bad is none; the other one becomes the first. */
static void damaged_payload(void **state)
{
	(void)state;
	make(true);
	assert_int_equal(run(quick), 0);
	uint64_t at = (uint64_t)ask("SELECT offset FROM extents WHERE layer = 1 AND expert = 2"
				    " AND copy = 0");
	flip("store/0.shard", at + 77);
	assert_int_equal(ask("SELECT drive FROM extents WHERE layer = 1 AND expert = 2"), 0);
	assert_int_equal(run(quick), 0); /* does not see it */
	assert_int_equal(copies_of(1, 2), 2);
	assert_int_equal(run(prove), 0);
	expect_said("part 1 of 1 of expert 1/2");
	expect_said("its checksum is wrong");
	assert_int_equal(report.bad, 1);
	assert_int_equal(check_store(0), EXPERTS);
	assert_int_equal(copies_of(1, 2), 1);
}

static void torn_shard(void **state)
{
	(void)state;
	make(true);
	/* The last record of drive 0 lacks its last block. */
	assert_int_equal(truncate(in_top("store/0.shard"), (off_t)end[0] - 4096), 0);
	assert_int_equal(run(prove), 0); /* it was a second copy */
	assert_int_equal(check_store(0), EXPERTS);
	assert_int_equal(truncate(in_top("store/0.shard"), 5000), 0);
	assert_true(run(prove) < 0);
	assert_int_equal(check_store(3), EXPERTS); /* the old catalog as it was */
	assert_int_equal(truncate(in_top("store/0.shard"), 100), 0);
	assert_int_equal(run(prove), -ENOENT);
	expect_said("it has only 100 bytes");
}

static void missing_drives(void **state)
{
	const char *given[2];
	struct rebuild_options o = { .prove = true, .drive = given, .drives = 1 };

	(void)state;
	make(true);
	assert_int_equal(rename(in_top("far/1.shard"), in_top("moved.shard")), 0);
	assert_int_equal(run(prove), -ENOENT);
	assert_non_null(strstr(why, "far/1.shard is missing"));
	assert_int_equal(run(partial), 0);
	expect_said("has no whole copy");
	check_store(0);
	/* The drive is remembered, so that it is found when it comes back. */
	assert_int_equal(ask("SELECT count(*) FROM drives"), 3);
	given[0] = in_top("moved.shard");
	assert_int_equal(run(o), 0);
	assert_int_equal(check_store(0), EXPERTS);
	assert_int_equal(run(prove), 0); /* the list knows it now */

	given[0] = in_top("nowhere");
	assert_int_equal(run(o), -ENOENT);
	given[0] = in_top("store/dense.bin");
	assert_int_equal(run(o), -EBADMSG);
	assert_int_equal(mkdir(in_top("empty"), 0755), 0);
	given[0] = in_top("empty");
	assert_int_equal(run(o), -ENOENT);
	assert_non_null(strstr(why, "no shard of the store in it"));
	/* Two files that say that they are the same drive. */
	char command[1000];
	snprintf(command, sizeof(command), "cp '%s' '%s'", in_top("far/2.shard"),
		 in_top("empty/x.shard"));
	assert_int_equal(system(command), 0);
	given[0] = in_top("far/2.shard");
	given[1] = in_top("empty");
	o.drives = 2;
	assert_int_equal(run(o), -EEXIST);
	/* Not named, such a one is left out. */
	snprintf(command, sizeof(command), "cp '%s' '%s'", in_top("far/2.shard"),
		 in_top("store/x.shard"));
	assert_int_equal(system(command), 0);
	assert_int_equal(run(prove), 0);
	expect_said("store/x.shard is left out");
	assert_int_equal(check_store(0), EXPERTS);
}

static void no_shards_at_all(void **state)
{
	(void)state;
	make(false);
	unlink(in_top("store/0.shard"));
	assert_int_equal(run(prove), -ENOENT);
	assert_non_null(strstr(why, "--drive FOLDER"));
	assert_int_equal(rebuild_catalog("/nowhere at all", &prove, &report, why), -ENOENT);
}

/* -- what is kept ---------------------------------------------------------------------------------
 */

/* Random bytes over a page of the database at a time: never a crash, and what is read is right. */
static void usage_is_kept(void **state)
{
	static char page[4096];
	uint64_t kept_all = 0, kept_some = 0;
	long bytes = 0;

	(void)state;
	for (long at = -1; at <= bytes; at += at < 0 ? 1 : 4096) {
		make(true);
		assert_int_equal(run(quick), 0);
		change("INSERT INTO usage SELECT layer, expert, layer * 10 + expert, 3, 1, 5, 6"
		       " FROM extents GROUP BY 1, 2; INSERT INTO meta VALUES('clock', '24');"
		       "INSERT INTO meta VALUES('respread', 'add 3')");
		if (at < 0) {
			struct stat st;
			assert_int_equal(stat(in_top("store/catalog.db"), &st), 0);
			bytes = st.st_size - 4096;
		} else {
			int fd = open(in_top("store/catalog.db"), O_RDWR);
			for (size_t i = 0; i < sizeof(page); i++)
				page[i] = (char)(i * 2654435761u >> 13);
			assert_int_equal(pwrite(fd, page, sizeof(page), at), sizeof(page));
			close(fd);
		}
		assert_int_equal(run(quick), 0);
		assert_int_equal(check_store(0), EXPERTS);
		assert_int_equal(ask("SELECT count(*) FROM usage"), report.usage);
		assert_int_equal(ask("SELECT count(*) FROM usage WHERE heat <> layer * 10 + expert"
				     " OR uses <> 3"),
				 0);
		kept_all += report.usage == EXPERTS;
		kept_some += report.usage > 0;
		if (at < 0) {
			assert_int_equal(report.usage, EXPERTS);
			assert_int_equal(ask("SELECT value FROM meta WHERE key = 'clock'"), 24);
			assert_int_equal(ask("SELECT count(*) FROM meta WHERE key = 'respread'"),
					 1);
		}
	}
	/* A page of the other tables does not cost it. */
	assert_true(kept_all >= 3);
	assert_true(kept_some < (uint64_t)bytes / 4096 + 2);
}

/* -- anything at all ------------------------------------------------------------------------------
 */

static uint64_t random_next(uint64_t *x)
{
	*x = *x * 6364136223846793005u + 1442695040888963407u;
	return *x >> 33;
}

/* Heads that hold, with numbers that do not make sense; shards with bytes changed and cut. */
static void hostile_shards(void **state)
{
	static const uint64_t numbers[] = { 0,          1,          2,
					    3,          4095,       4096,
					    8192,       BYTES,      BYTES - CUT,
					    UINT16_MAX, 65536,      UINT32_MAX,
					    INT64_MAX,  UINT64_MAX, UINT64_MAX - 4095,
					    1ull << 62 };
	const uint64_t kinds = sizeof(numbers) / sizeof(*numbers);
	uint64_t seed = 5;
	char block[SHARD_ALIGN];

	(void)state;
	for (int round = 0; round < 40; round++) {
		make(true);
		for (int i = 0; i < 4; i++) {
			unsigned d = (unsigned)(random_next(&seed) % DRIVES);
			uint64_t at = random_next(&seed) % (end[d] / SHARD_ALIGN) * SHARD_ALIGN;
			int fd = open(in_top(shard_names[d]), O_RDWR);
			struct record_head h;
			if (random_next(&seed) % 4 == 0)
				assert_int_equal(
					ftruncate(fd, (off_t)(at + random_next(&seed) % 99)), 0);
			if (pread(fd, block, sizeof(block), (off_t)at) == (ssize_t)sizeof(block)) {
				memcpy(&h, block, sizeof(h));
				h.layer = (uint32_t)numbers[random_next(&seed) % 3];
				h.expert = (uint32_t)numbers[random_next(&seed) % kinds];
				h.part = (uint32_t)numbers[random_next(&seed) % kinds];
				h.parts = (uint32_t)numbers[random_next(&seed) % kinds];
				h.copy = (uint32_t)numbers[random_next(&seed) % kinds];
				h.expert_bytes = numbers[random_next(&seed) % kinds];
				h.part_offset = numbers[random_next(&seed) % kinds];
				h.part_bytes = numbers[random_next(&seed) % kinds];
				memcpy(h.store_id, store_id, STORE_ID_SIZE);
				if (random_next(&seed) % 8)
					record_head_seal(&h);
				memcpy(block, &h, sizeof(h));
				assert_int_equal(pwrite(fd, block, sizeof(block), (off_t)at),
						 sizeof(block));
			}
			close(fd);
		}
		if (run(partial) == 0) {
			struct store *s = NULL;
			/* Layers or experts that nobody knows may be in it, but it opens. */
			if (store_open(in_top("store"), &s, why) != 0)
				fail_msg("round %d: %s", round, why);
			store_close(s);
		}
	}
}

/* A head that holds, of an expert that is larger than a catalog may have. */
static void no_giants(void **state)
{
	struct record_head h = { .expert = 9, .parts = 1 };
	static char block[SHARD_ALIGN];
	int fd;

	(void)state;
	make(true);
	h.expert_bytes = h.part_bytes = STORE_EXPERT_BYTES_MAX + SHARD_ALIGN;
	memcpy(h.store_id, store_id, STORE_ID_SIZE);
	record_head_seal(&h);
	memcpy(block, &h, sizeof(h));
	fd = open(in_top(shard_names[0]), O_RDWR);
	assert_int_equal(pwrite(fd, block, sizeof(block), (off_t)end[0]), sizeof(block));
	assert_int_equal(ftruncate(fd, (off_t)(end[0] + record_bytes(h.part_bytes))), 0);
	close(fd);
	assert_int_equal(run(quick), 0);
	expect_said("neither a record nor a hole");
	assert_int_equal(check_store(0), EXPERTS);
}

/* Very many records of one part, none of which leads anywhere. */
static void many_dead_ends(void **state)
{
	const uint32_t each = 100000;
	struct shard_record *r = calloc(2ul * each, sizeof(*r));
	struct found found;
	clock_t before = clock();

	(void)state;
	assert_non_null(r);
	for (uint32_t i = 0; i < 2 * each; i++)
		r[i] = (struct shard_record){ .part = i % 2,
					      .parts = 2,
					      .expert_bytes = BYTES,
					      .part_offset = i % 2 ? CUT : 0,
					      .part_bytes = i % 2 ? BYTES - CUT - 1 : CUT,
					      .offset = (i + 2ull) * SHARD_ALIGN };
	assert_int_equal(shard_sets(r, 2 * each, &found), 0);
	assert_int_equal(found.n, 1);
	assert_int_equal(found.whole, 0);
	shard_sets_free(&found);
	/* And one that does, among them. */
	r[each / 2].part = 1;
	r[each / 2].part_offset = CUT;
	r[each / 2].part_bytes = BYTES - CUT;
	assert_int_equal(shard_sets(r, 2 * each, &found), 0);
	assert_int_equal(found.whole, 1);
	assert_int_equal(found.expert[0].list->n, 2);
	assert_int_equal(found.expert[0].list->x[1].length, BYTES - CUT);
	shard_sets_free(&found);
	assert_true(clock() - before < 4 * CLOCKS_PER_SEC);
	free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finds_everything),
		cmocka_unit_test(asks_the_old_catalog),
		cmocka_unit_test(moved_experts),
		cmocka_unit_test(half_a_move),
		cmocka_unit_test(knows_what_is_missing),
		cmocka_unit_test(damaged_head),
		cmocka_unit_test(damaged_payload),
		cmocka_unit_test(torn_shard),
		cmocka_unit_test(missing_drives),
		cmocka_unit_test(no_shards_at_all),
		cmocka_unit_test(usage_is_kept),
		cmocka_unit_test(hostile_shards),
		cmocka_unit_test(no_giants),
		cmocka_unit_test(many_dead_ends),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
