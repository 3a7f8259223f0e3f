/* SPDX-License-Identifier: Apache-2.0
 *
 * A catalog made anew from the shards: the same as the lost one; moved experts, holes, moves that
 * were killed; damage to heads, payloads, files; what is kept of the old one; and what a daemon's
 * start makes of all that.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expertfs/catalog.h"
#include "expertfs/fail.h"
#include "expertfs/rebuild.h"
#include "expertfs/storelock.h"

#include <cmocka.h> /* last: its fail() is a macro */

#define DRIVES  3u
#define LAYERS  2u
#define EACH    4u
#define EXPERTS (LAYERS * EACH)
#define BYTES   20000u
#define CUT     8192u

static char top[256], why[WHY_MAX];
static char said[65536]; /* all lines of the last rebuild */
static int shard[DRIVES];
static uint64_t end[DRIVES];
static const char store_id[STORE_ID_SIZE] = "rebuild";

static const char *in_top(const char *name)
{
	static char path[4][400];
	static int turn;

	turn = (turn + 1) % 4;
	snprintf(path[turn], sizeof(path[0]), "%s/%s", top, name);
	return path[turn];
}

static void write_file(const char *name, const char *text)
{
	FILE *f = fopen(in_top(name), "w");

	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

/* -- making a store -------------------------------------------------------------------------------
 */

static uint8_t byte_of(unsigned layer, unsigned expert, uint64_t at)
{
	return (uint8_t)((at * 31) ^ (at >> 8) ^ (layer * 7 + expert + 1));
}

/* Appends a record to a drive and gives its payload's place. */
static uint64_t add_record(unsigned drive, struct record_head h)
{
	static char block[SHARD_ALIGN], data[BYTES + SHARD_ALIGN];
	uint64_t at = end[drive], padded = shard_round_up(h.part_bytes);

	memset(data, 0, sizeof(data));
	for (uint64_t i = 0; i < h.part_bytes; i++)
		data[i] = (char)byte_of(h.layer, h.expert, h.part_offset + i);
	h.expert_bytes = BYTES;
	h.payload_check = payload_check(data, h.part_bytes);
	memcpy(h.store_id, store_id, STORE_ID_SIZE);
	record_head_seal(&h);
	memset(block, 0, sizeof(block));
	memcpy(block, &h, sizeof(h));
	assert_int_equal(pwrite(shard[drive], block, SHARD_ALIGN, (off_t)at), SHARD_ALIGN);
	assert_int_equal(pwrite(shard[drive], data, padded, (off_t)at + SHARD_ALIGN), padded);
	end[drive] += record_bytes(h.part_bytes);
	return at + SHARD_ALIGN;
}

/* A copy in one or two parts, the second one on the next drive, cut after `cut`. */
static void add_copy(unsigned drive, unsigned layer, unsigned expert, unsigned copy,
		     unsigned generation, uint32_t cut)
{
	struct record_head h = { .layer = layer,
				 .expert = expert,
				 .copy = copy,
				 .generation = generation,
				 .parts = cut < BYTES ? 2 : 1,
				 .part_bytes = cut };

	add_record(drive, h);
	if (cut < BYTES) {
		h.part = 1;
		h.part_offset = cut;
		h.part_bytes = BYTES - cut;
		add_record((drive + 1) % DRIVES, h);
	}
}

static const char *const shard_names[DRIVES] = { "store/0.shard", "far/1.shard", "far/2.shard" };

static void remove_all(void)
{
	char command[400];

	snprintf(command, sizeof(command), "rm -rf '%s'/*", top);
	assert_int_equal(system(command), 0);
}

static void open_shards(const char *id)
{
	static char block[SHARD_ALIGN];

	for (unsigned d = 0; d < DRIVES; d++) {
		struct shard_head h = { .drive = d, .drives = DRIVES };
		memcpy(h.store_id, id, STORE_ID_SIZE);
		shard_head_seal(&h);
		memset(block, 0, sizeof(block));
		memcpy(block, &h, sizeof(h));
		shard[d] = open(in_top(shard_names[d]), O_RDWR | O_CREAT | O_TRUNC, 0644);
		assert_true(shard[d] >= 0);
		assert_int_equal(write(shard[d], block, SHARD_ALIGN), SHARD_ALIGN);
		end[d] = SHARD_ALIGN;
	}
}

static void close_shards(void)
{
	for (unsigned d = 0; d < DRIVES; d++) {
		assert_int_equal(ftruncate(shard[d], (off_t)end[d]), 0);
		close(shard[d]);
	}
}

/* The folders and files but the shards; STORE/shards if listed. */
static void begin(bool listed)
{
	const char *paths[DRIVES];

	remove_all();
	assert_int_equal(mkdir(in_top("store"), 0755), 0);
	assert_int_equal(mkdir(in_top("far"), 0755), 0);
	write_file("store/model.json",
		   "{\"experts\": {\"count\": 4, \"layouts\": [{\"layers\": [0, 1]}]}}\n");
	write_file("store/tokenizer.json", "{}\n");
	write_file("store/dense.bin", "");
	paths[0] = "0.shard";
	paths[1] = in_top("far/1.shard");
	paths[2] = in_top("far/2.shard");
	if (listed)
		assert_int_equal(store_write_shards(in_top("store"), paths, DRIVES, why), 0);
	open_shards(store_id);
}

/* All experts: even ones whole, odd ones striped; those of layer 1 in two copies. */
static void add_all(void)
{
	for (unsigned i = 0; i < EXPERTS; i++)
		for (unsigned copy = 0; copy <= i / EACH; copy++)
			add_copy((i + copy) % DRIVES, i / EACH, i % EACH, copy, 0,
				 i % 2 ? CUT : BYTES);
}

static void make(bool listed)
{
	begin(listed);
	add_all();
	close_shards();
}

/* -- running it -----------------------------------------------------------------------------------
 */

static void say(void *arg, const char *line)
{
	size_t n = strlen(said);

	(void)arg;
	snprintf(said + n, sizeof(said) - n, "%s\n", line);
}

static struct rebuild_report report;

static int run(struct rebuild_options o)
{
	said[0] = 0;
	o.say = say;
	memset(why, 0, sizeof(why));
	return rebuild_catalog(in_top("store"), &o, &report, why);
}

static const struct rebuild_options prove = { .prove = true }, quick = { .prove = false },
				    partial = { .prove = true, .partial = true };

static void expect_said(const char *words)
{
	if (!strstr(said, words))
		fail_msg("not said: %s; but: %s", words, said);
}

/* Opens the store and reads every copy of every expert. Returns how many experts. */
static uint32_t check_store(uint32_t lost)
{
	static char data[BYTES];
	struct store *s = NULL;
	uint32_t n;

	assert_int_equal(store_open(in_top("store"), &s, why), 0);
	assert_int_equal(s->lost, lost);
	for (uint32_t i = 0; i < s->experts; i++) {
		const struct store_expert *e = &s->expert[i];
		for (uint32_t j = 0; j < e->packed->n; j++) {
			const struct extent *x = &e->packed->x[j];
			int fd;
			if (s->drive[x->drive].missing)
				continue;
			fd = open(s->drive[x->drive].path, O_RDONLY);
			assert_true(fd >= 0);
			assert_int_equal(pread(fd, data, x->length, (off_t)x->offset), x->length);
			close(fd);
			assert_int_equal(payload_check(data, x->length), x->check);
			for (uint64_t k = 0; k < x->length; k++)
				if ((uint8_t)data[k] !=
				    byte_of(e->layer, e->expert, x->expert_offset + k))
					fail_msg("expert %u/%u: a wrong byte", e->layer, e->expert);
		}
	}
	n = s->experts;
	store_close(s);
	return n;
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

/* One value of the catalog. */
static double ask(const char *sql)
{
	sqlite3_stmt *st;
	sqlite3 *db;
	double v;

	assert_int_equal(sqlite3_open(in_top("store/catalog.db"), &db), SQLITE_OK);
	if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK)
		fail_msg("%s: %s", sql, sqlite3_errmsg(db));
	assert_int_equal(sqlite3_step(st), SQLITE_ROW);
	v = sqlite3_column_double(st, 0);
	sqlite3_finalize(st);
	sqlite3_close(db);
	return v;
}

static void change(const char *sql)
{
	sqlite3 *db;

	assert_int_equal(sqlite3_open(in_top("store/catalog.db"), &db), SQLITE_OK);
	if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
		fail_msg("%s: %s", sql, sqlite3_errmsg(db));
	sqlite3_close(db);
}

static bool exists(const char *name)
{
	return access(in_top(name), F_OK) == 0;
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
	static const char *const models[] = {
		"{\"experts\": {\"count\": 4, \"layouts\": [{\"layers\": [0, 1]}]}}",
		"{}",
		"{\"experts\": {\"count\": 99999999, \"layouts\": [{\"layers\": [0]}]}}",
		"{\"experts\": {\"count\": 4, \"layouts\": [{\"layers\": [0, -1]}]}}",
		"{\"experts\": {\"count\": 4, \"layouts\": []}}",
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

/* -- a daemon's start -----------------------------------------------------------------------------
 */

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

static int set_up(void **state)
{
	const char *tmp = getenv("TMPDIR");

	(void)state;
	snprintf(top, sizeof(top), "%s/rebuild.XXXXXX", tmp ? tmp : "/tmp");
	return mkdtemp(top) ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	remove_all();
	return rmdir(top);
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
		cmocka_unit_test(start_without_catalog),
		cmocka_unit_test(start_with_a_torn_catalog),
		cmocka_unit_test(start_with_a_damaged_page),
		cmocka_unit_test(start_with_a_foreign_catalog),
		cmocka_unit_test(start_after_a_killed_rebuild),
		cmocka_unit_test(not_while_it_is_served),
		cmocka_unit_test(hostile_shards),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
