/* SPDX-License-Identifier: Apache-2.0
 *
 * A small store of three shards whose catalog the tests lose, damage and have made anew: for
 * test_rebuild.c and test_rebuild_start.c. After catalog.h, fail.h, rebuild.h, and after these
 * <cmocka.h>, whose fail() is a macro.
 */
#ifndef TESTS_REBUILT_STORE_H
#define TESTS_REBUILT_STORE_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/sql.h"

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

static inline const char *in_top(const char *name)
{
	static char path[4][400];
	static int turn;

	turn = (turn + 1) % 4;
	snprintf(path[turn], sizeof(path[0]), "%s/%s", top, name);
	return path[turn];
}

static inline void write_file(const char *name, const char *text)
{
	FILE *f = fopen(in_top(name), "w");

	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

/* -- making a store -------------------------------------------------------------------------------
 */

static inline uint8_t byte_of(unsigned layer, unsigned expert, uint64_t at)
{
	return (uint8_t)((at * 31) ^ (at >> 8) ^ (layer * 7 + expert + 1));
}

/* Appends a record to a drive and gives its payload's place. */
static inline uint64_t add_record(unsigned drive, struct record_head h)
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
static inline void add_copy(unsigned drive, unsigned layer, unsigned expert, unsigned copy,
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

static inline void remove_all(void)
{
	char command[400];

	snprintf(command, sizeof(command), "rm -rf '%s'/*", top);
	assert_int_equal(system(command), 0);
}

static inline void open_shards(const char *id)
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

static inline void close_shards(void)
{
	for (unsigned d = 0; d < DRIVES; d++) {
		assert_int_equal(ftruncate(shard[d], (off_t)end[d]), 0);
		close(shard[d]);
	}
}

/* The folders and files but the shards; STORE/shards if listed. */
static inline void begin(bool listed)
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
static inline void add_all(void)
{
	for (unsigned i = 0; i < EXPERTS; i++)
		for (unsigned copy = 0; copy <= i / EACH; copy++)
			add_copy((i + copy) % DRIVES, i / EACH, i % EACH, copy, 0,
				 i % 2 ? CUT : BYTES);
}

static inline void make(bool listed)
{
	begin(listed);
	add_all();
	close_shards();
}

/* -- running it -----------------------------------------------------------------------------------
 */

static inline void say(void *arg, const char *line)
{
	size_t n = strlen(said);

	(void)arg;
	snprintf(said + n, sizeof(said) - n, "%s\n", line);
}

static struct rebuild_report report;

static inline int run(struct rebuild_options o)
{
	said[0] = 0;
	o.say = say;
	memset(why, 0, sizeof(why));
	return rebuild_catalog(in_top("store"), &o, &report, why);
}

static const struct rebuild_options quick = { .prove = false };

/* Opens the store and reads every copy of every expert. Returns how many experts. */
static inline uint32_t check_store(uint32_t lost)
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

static inline double ask(const char *sql)
{
	return sql_number(in_top("store/catalog.db"), sql);
}

static inline void change(const char *sql)
{
	sql_change(in_top("store/catalog.db"), sql);
}

static inline bool exists(const char *name)
{
	return access(in_top(name), F_OK) == 0;
}

static inline int set_up(void **state)
{
	const char *tmp = getenv("TMPDIR");

	(void)state;
	snprintf(top, sizeof(top), "%s/rebuild.XXXXXX", tmp ? tmp : "/tmp");
	return mkdtemp(top) ? 0 : -1;
}

static inline int tear_down(void **state)
{
	(void)state;
	remove_all();
	return rmdir(top);
}

#endif
