/* SPDX-License-Identifier: Apache-2.0
 *
 * What coli-pack finds of an interrupted run: whole records are kept, a damaged or half one and all
 * behind it are cut off, and what pack.state says to be on disk is not read again but for the last.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expertfs/fail.h" /* before cmocka.h, which has a macro of that name */
#include <cmocka.h>

#include "tools/coli-pack/resume.h"

#define DRIVES  2u
#define EXPERTS 10u
#define BYTES   5000u
#define RECORD  (3 * SHARD_ALIGN) /* head, and the payload's two blocks */

static char top[256], why[WHY_MAX];
static struct checkpoint ck = { .config.model.experts = EXPERTS };
static struct plan_layer layer = { .layer = 3 };
static struct plan_place place[EXPERTS];
static uint64_t shard_bytes[DRIVES];
static struct plan plan = { .ck = &ck,
			    .layouts = 1,
			    .layout[0].bytes = BYTES,
			    .layers = 1,
			    .layer = &layer,
			    .experts = EXPERTS,
			    .place = place,
			    .drives = DRIVES,
			    .shard_bytes = shard_bytes };
static struct output *out;
static struct state state_of;
static bool written[EXPERTS];
static uint64_t check[EXPERTS];

static void write_record(uint32_t e)
{
	char *record = calloc(1, RECORD);
	struct record_head h = {
		.layer = 3, .expert = e, .parts = 1, .expert_bytes = BYTES, .part_bytes = BYTES
	};

	assert_non_null(record);
	memset(record + SHARD_ALIGN, (int)e + 1, BYTES);
	h.payload_check = payload_check(record + SHARD_ALIGN, BYTES);
	memcpy(h.store_id, out->store_id, STORE_ID_SIZE);
	record_head_seal(&h);
	memcpy(record, &h, sizeof(h));
	assert_int_equal(
		pwrite(out->shard[place[e].drive].fd, record, RECORD, (off_t)place[e].offset),
		RECORD);
	free(record);
}

/* A store of two drives with all records, and no mark. */
static int set_up(void **state)
{
	(void)state;
	const char *tmp = getenv("TMPDIR");
	char store[300], drives[DRIVES][300], *list[DRIVES];

	snprintf(top, sizeof(top), "%s/test_pack_resume.XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(top));
	snprintf(store, sizeof(store), "%s/store/", top);
	for (uint32_t d = 0; d < DRIVES; d++) {
		snprintf(drives[d], sizeof(drives[d]), "%s/drive%u", top, d);
		assert_int_equal(mkdir(drives[d], 0777), 0);
		list[d] = drives[d];
		shard_bytes[d] = SHARD_ALIGN + EXPERTS / DRIVES * RECORD;
	}
	assert_int_equal(output_name(store, list, DRIVES, &out, why), 0);
	assert_int_equal(output_create(out, why), 0);
	assert_int_equal(output_open_files(out, 0, why), 0);
	assert_int_equal(state_init(&state_of, out, strdup("identity\n"), why), 0);
	for (uint32_t e = 0; e < EXPERTS; e++) {
		place[e] = (struct plan_place){ .offset = SHARD_ALIGN + e / DRIVES * RECORD,
						.drive = e % DRIVES };
		write_record(e);
	}
	memset(written, 0, sizeof(written));
	memset(check, 0, sizeof(check));
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	char path[300];

	assert_int_equal(output_remove(out, why), 0);
	output_close(out);
	state_free(&state_of);
	for (uint32_t d = 0; d < DRIVES; d++) {
		snprintf(path, sizeof(path), "%s/drive%u", top, d);
		assert_int_equal(rmdir(path), 0);
	}
	return rmdir(top);
}

/* Scans; drive d must then hold its first n[d] experts, and nothing behind them. */
static void scan(uint32_t first, uint32_t second)
{
	const uint32_t want[DRIVES] = { first, second };
	struct stat st;

	assert_int_equal(resume_scan(&plan, out, &state_of, written, check, why), first + second);
	for (uint32_t e = 0; e < EXPERTS; e++)
		assert_int_equal(written[e], e / DRIVES < want[e % DRIVES]);
	for (uint32_t d = 0; d < DRIVES; d++) {
		assert_int_equal(fstat(out->shard[d].fd, &st), 0);
		assert_int_equal(st.st_size, SHARD_ALIGN + want[d] * RECORD);
	}
	char payload[BYTES];
	memset(payload, 1, sizeof(payload));
	if (first)
		assert_int_equal(check[0], payload_check(payload, BYTES));
}

static void flip(uint32_t e, uint64_t at)
{
	int fd = out->shard[place[e].drive].fd;
	off_t where = (off_t)(place[e].offset + at);
	char c;

	assert_int_equal(pread(fd, &c, 1, where), 1);
	c ^= 1;
	assert_int_equal(pwrite(fd, &c, 1, where), 1);
}

static void test_whole(void **state)
{
	(void)state;
	scan(5, 5);
}

static void test_nothing(void **state)
{
	(void)state;
	for (uint32_t d = 0; d < DRIVES; d++)
		assert_int_equal(ftruncate(out->shard[d].fd, SHARD_ALIGN), 0);
	scan(0, 0);
}

static void test_half_a_record(void **state)
{
	(void)state;
	assert_int_equal(ftruncate(out->shard[1].fd, SHARD_ALIGN + 3 * RECORD - 1), 0);
	scan(5, 2);
}

static void test_flipped_head(void **state)
{
	(void)state;
	flip(6, 8);
	scan(3, 5);
}

static void test_flipped_payload(void **state)
{
	(void)state;
	flip(4, SHARD_ALIGN + BYTES - 1);
	scan(2, 5);
}

/* A record of another store, as a file system may show after a crash. */
static void test_foreign_record(void **state)
{
	(void)state;
	out->store_id[0] ^= 1;
	write_record(3);
	out->store_id[0] ^= 1;
	scan(5, 1);
}

static void test_wrong_expert(void **state)
{
	(void)state;
	struct plan_place own = place[5];

	place[5] = place[7];
	write_record(5);
	place[5] = own;
	scan(5, 3);
}

/* Below the mark payloads are not read: that is what the mark is for. */
static void test_below_the_mark(void **state)
{
	(void)state;
	state_of.durable[0] = SHARD_ALIGN + 3 * RECORD;
	flip(0, SHARD_ALIGN + 7);
	assert_int_equal(resume_scan(&plan, out, &state_of, written, check, why), 10);
	assert_true(written[0]);
}

/* But the last one is. */
static void test_last_below_the_mark(void **state)
{
	(void)state;
	state_of.durable[0] = SHARD_ALIGN + 5 * RECORD;
	flip(8, SHARD_ALIGN + 7);
	flip(6, SHARD_ALIGN + 7);
	scan(3, 5);
}

static void test_state_comes_back(void **state)
{
	(void)state;
	struct state back;

	state_of.dense = 17;
	state_of.durable[1] = 123456789012345;
	assert_int_equal(state_load(&back, out->partial, why), -ENOENT);
	assert_int_equal(state_save(&state_of, out->dir_fd, out->partial, why), 0);
	assert_int_equal(state_load(&back, out->partial, why), 0);
	assert_memory_equal(back.store_id, out->store_id, STORE_ID_SIZE);
	assert_int_equal(back.dense, 17);
	assert_int_equal(back.drives, DRIVES);
	assert_int_equal(back.durable[0], 0);
	assert_int_equal(back.durable[1], 123456789012345);
	assert_string_equal(back.identity, "identity\n");
	state_free(&back);
}

static void test_damaged_state(void **state)
{
	(void)state;
	char path[400], text[400];
	struct state back;

	assert_int_equal(state_save(&state_of, out->dir_fd, out->partial, why), 0);
	snprintf(path, sizeof(path), "%s/" STATE_NAME, out->partial);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	ssize_t n = pread(fd, text, sizeof(text), 0);
	char *identity = memmem(text, (size_t)n, "--\n", 3);
	assert_non_null(identity);
	/* Cut anywhere before the identity, and with any byte of it changed to a letter. */
	for (off_t cut = 0; cut < identity + 3 - text; cut++) {
		assert_int_equal(ftruncate(fd, cut), 0);
		assert_int_equal(state_load(&back, out->partial, why), -EINVAL);
		assert_non_null(strstr(why, path));
		assert_int_equal(pwrite(fd, text, (size_t)n, 0), n);
		assert_int_equal(pwrite(fd, "x", 1, cut), 1);
		assert_int_equal(state_load(&back, out->partial, why), -EINVAL);
		assert_int_equal(pwrite(fd, text, (size_t)n, 0), n);
	}
	close(fd);
}

static void test_differences(void **state)
{
	(void)state;
	char lines[2][128];

	assert_false(state_differs("bits 4\nname a\n", "bits 4\nname a\n", lines));
	assert_true(state_differs("bits 4\nname a\n", "bits 4\nname b\n", lines));
	assert_string_equal(lines[0], "name a");
	assert_string_equal(lines[1], "name b");
	assert_true(state_differs("bits 4\n", "bits 4\nname b\n", lines));
	assert_string_equal(lines[0], "");
	assert_string_equal(lines[1], "name b");
	assert_true(state_differs("bits 16\n", "bits 1\n", lines));
	assert_string_equal(lines[0], "bits 16");

	static const char identity[] = "bits 4\nshard /a b/x.shard\nshard /c/x.shard\n";
	char *path = state_shard_path(identity, 1);
	assert_string_equal(path, "/c/x.shard");
	free(path);
	path = state_shard_path(identity, 0);
	assert_string_equal(path, "/a b/x.shard");
	free(path);
	assert_null(state_shard_path(identity, 2));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_whole),
		TEST(test_nothing),
		TEST(test_half_a_record),
		TEST(test_flipped_head),
		TEST(test_flipped_payload),
		TEST(test_foreign_record),
		TEST(test_wrong_expert),
		TEST(test_below_the_mark),
		TEST(test_last_below_the_mark),
		TEST(test_state_comes_back),
		TEST(test_damaged_state),
		cmocka_unit_test(test_differences),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
