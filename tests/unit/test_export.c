/* SPDX-License-Identifier: Apache-2.0
 *
 * expertctl export on a store made by hand: striped experts on two drives, with a replica, which is
 * more than coli-pack writes today. Damage must end in a replica's bytes or in one sentence and no
 * folder.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "expertfs/catalog.h"
#include "expertfs/shard.h"
#include "tools/expertctl/expertctl.h"

enum { DRIVES = 2, LAYERS = 2, EXPERTS = 3, BYTES = 3 * SHARD_ALIGN + 1000, CUT = SHARD_ALIGN };

static char top[PATH_MAX / 2];

static const char *in_top(const char *name)
{
	static char path[4][PATH_MAX];
	static unsigned turn;

	turn = (turn + 1) % 4;
	snprintf(path[turn], PATH_MAX, "%s/%s", top, name);
	return path[turn];
}

static uint8_t byte_of(unsigned layer, unsigned expert, size_t i)
{
	return (uint8_t)(i * 31 + i / 251 + (size_t)layer * 7 + (size_t)expert * 13);
}

static void write_file(const char *name, const char *text)
{
	FILE *f = fopen(in_top(name), "w");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

/* Appends one record to a shard; the extent that finds it again in *x. */
static void add_record(int fd, struct record_head h, struct extent *x)
{
	static uint8_t block[SHARD_ALIGN], payload[BYTES + SHARD_ALIGN];
	off_t at = lseek(fd, 0, SEEK_END);

	memset(payload, 0, sizeof(payload));
	for (size_t i = 0; i < h.part_bytes; i++)
		payload[i] = byte_of(h.layer, h.expert, h.part_offset + i);
	h.payload_check = payload_check(payload, h.part_bytes);
	record_head_seal(&h);
	memset(block, 0, sizeof(block));
	memcpy(block, &h, sizeof(h));
	assert_int_equal(write(fd, block, sizeof(block)), sizeof(block));
	assert_int_equal(write(fd, payload, shard_round_up(h.part_bytes)),
			 shard_round_up(h.part_bytes));
	*x = (struct extent){ .offset = (uint64_t)at + SHARD_ALIGN,
			      .length = h.part_bytes,
			      .expert_offset = h.part_offset,
			      .check = h.payload_check,
			      .copy = (uint16_t)h.copy };
}

/* Copy 0 of an expert is cut in two, one part a drive; copy 1, of layer 1 only, is whole on drive
 * 0. */
static void add_expert(struct catalog *c, const int fd[DRIVES], struct record_head h)
{
	struct extent x;

	h.expert_bytes = BYTES;
	for (unsigned part = 0; part < 2; part++) {
		h.part = part;
		h.parts = 2;
		h.part_offset = part ? CUT : 0;
		h.part_bytes = part ? BYTES - CUT : CUT;
		add_record(fd[part], h, &x);
		x.drive = (uint16_t)part;
		assert_int_equal(catalog_add_extent(c, h.layer, h.expert, BYTES, part, &x, NULL),
				 0);
	}
	if (h.layer == 1) {
		h.copy = 1;
		h.part = 0;
		h.parts = 1;
		h.part_offset = 0;
		h.part_bytes = BYTES;
		add_record(fd[0], h, &x);
		assert_int_equal(catalog_add_extent(c, h.layer, h.expert, BYTES, 0, &x, NULL), 0);
	}
}

static void make_store(void)
{
	static uint8_t block[SHARD_ALIGN];
	static const char *const shards[DRIVES] = { "store/0.shard", "store/1.shard" };
	struct catalog *c = NULL;
	int fd[DRIVES];

	assert_int_equal(mkdir(in_top("store"), 0755), 0);
	write_file("store/model.json", "{}\n");
	write_file("store/tokenizer.json", "{\"a\": 1}\n");
	write_file("store/dense.bin", "");
	for (unsigned d = 0; d < DRIVES; d++) {
		struct shard_head h = { .drive = d,
					.drives = DRIVES,
					.store_id = "fifteen bytes.." };
		shard_head_seal(&h);
		memset(block, 0, sizeof(block));
		memcpy(block, &h, sizeof(h));
		fd[d] = open(in_top(shards[d]), O_RDWR | O_CREAT | O_EXCL, 0644);
		assert_int_equal(write(fd[d], block, sizeof(block)), sizeof(block));
	}
	assert_int_equal(catalog_create(in_top("store/catalog.db"),
					(const uint8_t *)"fifteen bytes..", &c, NULL),
			 0);
	for (unsigned i = 0; i < LAYERS * EXPERTS; i++)
		add_expert(c, fd,
			   (struct record_head){ .layer = i / EXPERTS,
						 .expert = i % EXPERTS,
						 .store_id = "fifteen bytes.." });
	for (unsigned d = 0; d < DRIVES; d++) {
		off_t bytes = lseek(fd[d], 0, SEEK_END);
		assert_int_equal(
			catalog_add_drive(c, d, strchr(shards[d], '/') + 1, (uint64_t)bytes, NULL),
			0);
		close(fd[d]);
	}
	assert_int_equal(catalog_finish(c, NULL), 0);
}

/* Turns a bit of the payload that belongs to a copy of an expert. Order in the shards as written
 * above. */
static void damage(unsigned layer, unsigned expert, bool replica)
{
	uint64_t at = SHARD_ALIGN;
	uint8_t byte;
	int fd = open(in_top("store/0.shard"), O_RDWR);

	for (unsigned i = 0; i < layer * EXPERTS + expert; i++)
		at += record_bytes(CUT) + (i / EXPERTS == 1 ? record_bytes(BYTES) : 0);
	at += replica ? record_bytes(CUT) : 0;
	at += SHARD_ALIGN + 100;
	assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
	assert_int_equal(byte, byte_of(layer, expert, 100));
	byte ^= 4;
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
	close(fd);
}

/* Runs export with stderr in a file; what was said in said[]. */
static int run_export(const char *dir, char said[1024])
{
	int keep = dup(STDERR_FILENO), fd = open(in_top("said"), O_RDWR | O_CREAT | O_TRUNC, 0644);
	char from[PATH_MAX], to[PATH_MAX];
	int status;
	ssize_t n;

	snprintf(from, sizeof(from), "%s", in_top("store"));
	snprintf(to, sizeof(to), "%s", in_top(dir));
	fflush(stderr);
	dup2(fd, STDERR_FILENO);
	status = ctl_export.run((char *[]){ from, to, NULL });
	fflush(stderr);
	dup2(keep, STDERR_FILENO);
	close(keep);
	n = pread(fd, said, 1023, 0);
	said[n > 0 ? n : 0] = '\0';
	close(fd);
	return status;
}

static void assert_exported(const char *dir)
{
	static uint8_t data[BYTES + 1];
	char path[PATH_MAX];

	for (unsigned i = 0; i < LAYERS * EXPERTS; i++) {
		unsigned layer = i / EXPERTS, expert = i % EXPERTS;
		int fd;
		snprintf(path, sizeof(path), "%s/%s/experts/%03u/%03u", top, dir, layer, expert);
		fd = open(path, O_RDONLY);
		assert_int_equal(read(fd, data, sizeof(data)), BYTES);
		close(fd);
		for (size_t k = 0; k < BYTES; k++)
			if (data[k] != byte_of(layer, expert, k))
				fail_msg("%s differs at byte %zu", path, k);
	}
}

static void assert_absent(const char *dir)
{
	char name[64];

	assert_int_not_equal(access(in_top(dir), F_OK), 0);
	snprintf(name, sizeof(name), "%s.partial", dir);
	assert_int_not_equal(access(in_top(name), F_OK), 0);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

static int set_up(void **state)
{
	const char *tmp = getenv("TMPDIR");

	(void)state;
	snprintf(top, sizeof(top), "%s/export.XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(top));
	make_store();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	return nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void exports_a_sound_store(void **state)
{
	char said[1024], text[16] = "";
	struct stat st;
	int fd;

	(void)state;
	assert_int_equal(run_export("out/", said), 0);
	assert_string_equal(said, "");
	assert_exported("out");
	fd = open(in_top("out/tokenizer.json"), O_RDONLY);
	assert_int_equal(read(fd, text, sizeof(text)), 9);
	close(fd);
	assert_string_equal(text, "{\"a\": 1}\n");
	assert_int_equal(stat(in_top("out/dense.bin"), &st), 0);
	assert_int_equal(st.st_size, 0);
	assert_int_equal(access(in_top("out/model.json"), R_OK), 0);
	assert_int_not_equal(access(in_top("out/catalog.db"), F_OK), 0);
}

static void takes_a_replica(void **state)
{
	char said[1024];

	(void)state;
	damage(1, 2, false);
	assert_int_equal(run_export("out", said), 0);
	assert_non_null(strstr(said, "0.shard is damaged"));
	assert_non_null(strstr(said, "expert 1/2"));
	assert_non_null(strstr(said, "a replica was good"));
	assert_exported("out");
}

/* One line that names the file, exit status 1, and no folder. */
static void assert_fails(const char *dir, const char *words)
{
	char said[1024];

	assert_int_equal(run_export(dir, said), 1);
	if (!strstr(said, words) || strncmp(said, "expertctl: ", 11) != 0 ||
	    strchr(said, '\n') != said + strlen(said) - 1)
		fail_msg("said: %s", said);
}

static void damage_of_all_copies_fails(void **state)
{
	(void)state;
	damage(1, 0, false);
	damage(1, 0, true);
	assert_fails("out", "0.shard is damaged: the checksum of expert 1/0 does not hold");
	assert_absent("out");
}

static void damage_without_replica_fails(void **state)
{
	(void)state;
	damage(0, 1, false);
	assert_fails("out", "0.shard is damaged: the checksum of expert 0/1 does not hold");
	assert_absent("out");
}

static void a_shard_that_is_gone_fails(void **state)
{
	(void)state;
	assert_int_equal(unlink(in_top("store/1.shard")), 0);
	assert_fails("out", "1.shard");
	assert_absent("out");
}

static void a_shard_that_is_cut_fails(void **state)
{
	(void)state;
	assert_int_equal(truncate(in_top("store/1.shard"), 3 * SHARD_ALIGN), 0);
	assert_fails("out", "1.shard");
	assert_absent("out");
}

static void nothing_is_overwritten(void **state)
{
	struct stat st;

	(void)state;
	assert_int_equal(mkdir(in_top("there"), 0755), 0);
	assert_fails("there", "there exists already");
	assert_int_equal(mkdir(in_top("left.partial"), 0755), 0);
	write_file("left.partial/file", "x");
	assert_fails("left", "left.partial is in the way");
	assert_int_equal(stat(in_top("left.partial/file"), &st), 0);
	assert_fails("no/such/parent", "no/such");
	assert_int_equal(symlink("nowhere", in_top("dangling")), 0);
	assert_fails("dangling", "dangling exists already");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(exports_a_sound_store, set_up, tear_down),
		cmocka_unit_test_setup_teardown(takes_a_replica, set_up, tear_down),
		cmocka_unit_test_setup_teardown(damage_of_all_copies_fails, set_up, tear_down),
		cmocka_unit_test_setup_teardown(damage_without_replica_fails, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_shard_that_is_gone_fails, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_shard_that_is_cut_fails, set_up, tear_down),
		cmocka_unit_test_setup_teardown(nothing_is_overwritten, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
