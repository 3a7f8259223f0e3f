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
#include "tools/coli-pack/speeds.h"

#define DRIVES  2u
#define EXPERTS 10u
#define BYTES   5000u
#define RECORD  (3 * SHARD_ALIGN) /* head, and the payload's two blocks */

static char top[256], why[WHY_MAX];
static struct checkpoint ck = { .config.model.experts = EXPERTS };
static struct plan_layer layer = { .layer = 3 };
static struct part place[EXPERTS]; /* whole experts, in turns */
static uint32_t start[EXPERTS + 1];
static uint64_t shard_bytes[DRIVES];
static struct plan plan = { .ck = &ck,
			    .layouts = 1,
			    .layout[0].bytes = BYTES,
			    .layers = 1,
			    .layer = &layer,
			    .experts = EXPERTS,
			    .place = { .experts = EXPERTS,
				       .drives = DRIVES,
				       .part = place,
				       .start = start,
				       .shard_bytes = shard_bytes } };
static struct output *out;
static struct state state_of;
static bool there[EXPERTS], written[EXPERTS];
static uint64_t check[EXPERTS];

/* The record of part i, as if it were part `as`. */
static void write_as(uint32_t i, uint32_t as)
{
	const struct part *x = &place[as];
	char *record = calloc(1, RECORD);
	struct record_head h = { .layer = 3,
				 .expert = x->expert,
				 .part = x->part,
				 .parts = x->parts,
				 .copy = x->copy,
				 .expert_bytes = BYTES,
				 .part_offset = x->first,
				 .part_bytes = x->bytes };

	assert_non_null(record);
	memset(record + SHARD_ALIGN, (int)x->expert + 1, x->bytes);
	h.payload_check = payload_check(record + SHARD_ALIGN, x->bytes);
	memcpy(h.store_id, out->store_id, STORE_ID_SIZE);
	record_head_seal(&h);
	memcpy(record, &h, sizeof(h));
	size_t n = record_bytes(x->bytes);
	assert_int_equal(pwrite(out->shard[place[i].drive].fd, record, n, (off_t)place[i].offset),
			 n);
	free(record);
}

static void write_record(uint32_t i)
{
	write_as(i, i);
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
		place[e] = (struct part){ .offset = SHARD_ALIGN + e / DRIVES * RECORD,
					  .bytes = BYTES,
					  .expert = e,
					  .drive = e % DRIVES,
					  .parts = 1 };
		start[e + 1] = e + 1;
		write_record(e);
	}
	plan.place.experts = plan.experts = EXPERTS;
	memset(there, 0, sizeof(there));
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

	assert_int_equal(resume_scan(&plan, out, &state_of, there, check, written, why),
			 first + second);
	for (uint32_t e = 0; e < EXPERTS; e++) {
		assert_int_equal(there[e], e / DRIVES < want[e % DRIVES]);
		assert_int_equal(written[e], there[e]);
	}
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
	write_as(7, 5);
	scan(5, 3);
}

/* Below the mark payloads are not read: that is what the mark is for. */
static void test_below_the_mark(void **state)
{
	(void)state;
	state_of.durable[0] = SHARD_ALIGN + 3 * RECORD;
	flip(0, SHARD_ALIGN + 7);
	assert_int_equal(resume_scan(&plan, out, &state_of, there, check, written, why), 10);
	assert_int_equal(state_of.durable[0], SHARD_ALIGN + 3 * RECORD);
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
	assert_int_equal(state_of.durable[0], SHARD_ALIGN + 3 * RECORD);
}

/* Five experts in two parts, of which the first is a block, on drives in turn; so each drive has
 * records of two sizes. */
static void make_stripes(void)
{
	uint64_t end[DRIVES] = { SHARD_ALIGN, SHARD_ALIGN };

	plan.place.experts = plan.experts = EXPERTS / 2;
	for (uint32_t i = 0; i < EXPERTS; i++) {
		uint32_t e = i / 2, part = i % 2;
		start[e + 1] = i + 1;
		place[i] = (struct part){ .first = part * SHARD_ALIGN,
					  .bytes = part ? BYTES - SHARD_ALIGN : SHARD_ALIGN,
					  .expert = e,
					  .drive = (uint16_t)((e + part) % DRIVES),
					  .part = (uint16_t)part,
					  .parts = 2 };
		place[i].offset = end[place[i].drive];
		end[place[i].drive] += record_bytes(place[i].bytes);
		write_record(i);
	}
	for (uint32_t d = 0; d < DRIVES; d++)
		assert_int_equal(ftruncate(out->shard[d].fd, (off_t)end[d]), 0);
}

static void test_stripes(void **state)
{
	(void)state;
	make_stripes();
	assert_int_equal(resume_scan(&plan, out, &state_of, there, check, written, why), 5);
}

/* The killed run had got further on one drive: its parts stay, their experts are not whole. */
static void test_stripes_ahead(void **state)
{
	(void)state;
	make_stripes();
	/* Drive 1 loses the second part of expert 2 and all behind. */
	assert_int_equal(place[5].drive, 1);
	assert_int_equal(ftruncate(out->shard[1].fd, (off_t)place[5].offset + 100), 0);
	assert_int_equal(resume_scan(&plan, out, &state_of, there, check, written, why), 2);
	for (uint32_t i = 0; i < EXPERTS; i++)
		assert_int_equal(there[i], place[i].drive == 0 || i < 5);
	for (uint32_t e = 0; e < plan.experts; e++)
		assert_int_equal(written[e], e < 2);
}

/* Another part, copy or cut of the same expert is not the part that was planned. */
static void test_stripes_differ(void **state)
{
	(void)state;
	for (int field = 0; field < 4; field++) {
		make_stripes();
		struct part own = place[6];
		place[6].copy = field == 0;
		place[6].parts = (uint16_t)(field == 1 ? 3 : 2);
		place[6].part = field == 2;
		place[6].first = field == 3 ? 16 : 0;
		write_record(6);
		place[6] = own;
		assert_int_equal(resume_scan(&plan, out, &state_of, there, check, written, why), 3);
		assert_false(there[6]);
	}
}

/* A record that a move has written (its generation says so) was not written by this pack. */
static void test_moved_record(void **state)
{
	(void)state;
	struct record_head h;
	off_t at = (off_t)place[4].offset;
	int fd = out->shard[0].fd;

	assert_int_equal(pread(fd, &h, sizeof(h), at), sizeof(h));
	h.generation = 1;
	record_head_seal(&h);
	assert_int_equal(pwrite(fd, &h, sizeof(h), at), sizeof(h));
	scan(2, 5);
}

static void test_speeds(void **state)
{
	(void)state;
	enum speeds_from from;
	uint64_t speed[3];

	assert_true(state_speeds("bits 4\nspeeds measured 12 34\nshard /a\n", &from, speed, 2));
	assert_int_equal(from, SPEEDS_MEASURED);
	assert_int_equal(speed[0], 12);
	assert_int_equal(speed[1], 34);
	assert_true(state_speeds("speeds given 7\n", &from, speed, 1));
	assert_int_equal(from, SPEEDS_GIVEN);
	assert_true(state_speeds("speeds equal 1 1 1\n", &from, speed, 3));
	assert_int_equal(from, SPEEDS_EQUAL);
	static const char *const bad[] = { "bits 4\n",
					   "speeds measured 12\n",
					   "speeds measured 1 2 3\n",
					   "speeds measured 1 0\n",
					   "speeds guessed 1 2\n",
					   "speeds measured 1 x\n",
					   "speeds measured" };
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_false(state_speeds(bad[i], &from, speed, 2));
}

static void test_even_speeds(void **state)
{
	(void)state;
	uint64_t speed[] = { 1000, 400, 950, 905, 380, 10 };
	static const uint64_t want[] = { 951, 390, 951, 951, 390, 10 };

	speeds_even_out(speed, 6);
	for (int i = 0; i < 6; i++)
		assert_int_equal(speed[i], want[i]);
	uint64_t small[] = { 1, 2, 1 };
	speeds_even_out(small, 3);
	assert_int_equal(small[0], 1);
	assert_int_equal(small[1], 2);
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
		TEST(test_stripes),
		TEST(test_stripes_ahead),
		TEST(test_stripes_differ),
		TEST(test_moved_record),
		cmocka_unit_test(test_speeds),
		cmocka_unit_test(test_even_speeds),
		TEST(test_state_comes_back),
		TEST(test_damaged_state),
		cmocka_unit_test(test_differences),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
