/* SPDX-License-Identifier: Apache-2.0
 *
 * Records that are appended to a shard in use: durable before they count, withdrawn whole, and
 * nothing but the very record that is meant is ever punched.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expertfs/fail.h"
#include "expertfs/record.h"

#include <cmocka.h> /* last: its fail() is a macro */

#define BYTES 10000u

static const uint8_t id[STORE_ID_SIZE] = "record test", other[STORE_ID_SIZE] = "another";
static char why[WHY_MAX], path[PATH_MAX];
static _Alignas(SHARD_ALIGN) uint8_t data[3 * SHARD_ALIGN], back[3 * SHARD_ALIGN];

static struct shard_out *make(void)
{
	struct shard_out *o = NULL;

	unlink(path);
	assert_int_equal(shard_create(path, id, 3, why), 0);
	assert_int_equal(shard_out_open(path, id, 3, SHARD_ALIGN, &o, why), 0);
	return o;
}

static uint64_t append(struct shard_out *o, unsigned expert)
{
	struct record_head h = {
		.layer = 1, .expert = expert, .parts = 1, .expert_bytes = BYTES, .part_bytes = BYTES
	};
	uint64_t offset = 0;

	memset(data, (int)expert + 1, BYTES);
	h.payload_check = payload_check(data, BYTES);
	assert_int_equal(record_append(o, &h, data, NULL, &offset, why), 0);
	return offset;
}

static uint64_t file_bytes(void)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return (uint64_t)st.st_size;
}

static bool has_head(struct shard_out *o, uint64_t offset, unsigned expert)
{
	struct record_head h;

	return record_at(o, offset - SHARD_ALIGN, &h) && h.expert == expert;
}

static bool has_bytes(uint64_t offset, unsigned expert)
{
	int fd = open(path, O_RDONLY);
	bool good = pread(fd, back, BYTES, (off_t)offset) == BYTES;

	for (unsigned i = 0; i < BYTES; i++)
		good = good && back[i] == expert + 1;
	close(fd);
	return good;
}

/* A head is there only when its payload is on the drive. */
static void heads_come_last(void **state)
{
	struct shard_out *o = make();
	uint64_t a = append(o, 0), b = append(o, 1);

	(void)state;
	assert_int_equal(a, 2 * SHARD_ALIGN);
	assert_int_equal(b, a + record_bytes(BYTES));
	assert_false(has_head(o, a, 0) || has_head(o, b, 1));
	assert_int_equal(record_seal(o, why), 0);
	assert_true(has_head(o, a, 0) && has_head(o, b, 1) && has_bytes(a, 0) && has_bytes(b, 1));
	assert_int_equal(shard_out_end(o), file_bytes());
	record_keep(o);
	append(o, 2);
	record_withdraw(o);
	assert_int_equal(file_bytes(), b - SHARD_ALIGN + record_bytes(BYTES));
	append(o, 2);
	assert_int_equal(record_seal(o, why), 0);
	record_withdraw(o);
	assert_int_equal(shard_out_end(o), file_bytes());
	assert_true(has_bytes(a, 0) && has_bytes(b, 1));
	shard_out_close(o);
}

static void only_the_record_that_is_meant_is_punched(void **state)
{
	struct shard_out *o = make();
	uint64_t at[3];

	(void)state;
	for (unsigned i = 0; i < 3; i++)
		at[i] = append(o, i);
	assert_int_equal(record_seal(o, why), 0);
	record_keep(o);
	assert_int_equal(record_punch(o, 1, 0, at[1], BYTES, why), -EBADMSG);
	assert_int_equal(record_punch(o, 2, 1, at[1], BYTES, why), -EBADMSG);
	assert_int_equal(record_punch(o, 1, 1, at[1], BYTES - 1, why), -EBADMSG);
	assert_int_equal(record_punch(o, 1, 1, at[1] + SHARD_ALIGN, BYTES, why), -EBADMSG);
	assert_int_equal(record_punch(o, 1, 1, SHARD_ALIGN, BYTES, why), -EBADMSG);
	assert_int_equal(record_punch(o, 1, 1, 0, BYTES, why), -EBADMSG);
	assert_int_equal(record_punch(o, 1, 1, 1 << 30, BYTES, why), -EBADMSG);
	assert_true(has_bytes(at[1], 1));
	assert_int_equal(record_punch(o, 1, 1, at[1], BYTES, why), 0);
	assert_false(has_head(o, at[1], 1) || has_bytes(at[1], 1));
	assert_true(has_bytes(at[0], 0) && has_bytes(at[2], 2) && has_head(o, at[2], 2));
	assert_int_equal(record_punch(o, 1, 1, at[1], BYTES, why), -EBADMSG);
	shard_out_close(o);
}

static void other_files_are_not_written_to(void **state)
{
	struct shard_out *o = make();
	int fd;

	(void)state;
	shard_out_close(o);
	assert_int_equal(shard_create(path, id, 3, why), 0); /* again: it is that already */
	assert_int_equal(shard_create(path, id, 4, why), -EEXIST);
	assert_int_equal(shard_create(path, other, 3, why), -EEXIST);
	assert_int_equal(shard_out_open(path, other, 3, SHARD_ALIGN, &o, why), -EBADMSG);
	assert_int_equal(shard_out_open(path, id, 2, SHARD_ALIGN, &o, why), -EBADMSG);
	assert_int_equal(shard_out_open(path, id, 3, SHARD_ALIGN + 1, &o, why), -EBADMSG);
	assert_int_equal(shard_out_open("/nowhere", id, 3, 0, &o, why), -ENOENT);
	/* With a record it is not an empty one any more. */
	assert_int_equal(shard_out_open(path, id, 3, SHARD_ALIGN, &o, why), 0);
	append(o, 0);
	assert_int_equal(record_seal(o, why), 0);
	shard_out_close(o);
	assert_int_equal(shard_create(path, id, 3, why), -EEXIST);
	fd = open(path, O_WRONLY | O_TRUNC);
	assert_int_equal(write(fd, "precious", 8), 8);
	close(fd);
	assert_int_equal(shard_create(path, id, 3, why), -EEXIST);
	assert_int_equal(shard_out_open(path, id, 3, 0, &o, why), -EBADMSG);
	assert_int_equal(file_bytes(), 8);
}

/* What lies behind the catalog's end stays, and new records go behind it, on 4 KiB. */
static void a_longer_file_is_gone_on_with(void **state)
{
	struct shard_out *o = make();
	uint64_t a = append(o, 0), b;

	(void)state;
	assert_int_equal(record_seal(o, why), 0);
	shard_out_close(o);
	assert_int_equal(truncate(path, (off_t)(a + BYTES)), 0);
	assert_int_equal(shard_out_open(path, id, 3, SHARD_ALIGN, &o, why), 0);
	b = append(o, 1);
	assert_int_equal(b, a + shard_round_up(BYTES) + SHARD_ALIGN);
	assert_int_equal(record_seal(o, why), 0);
	assert_true(has_bytes(a, 0) && has_bytes(b, 1));
	assert_int_equal(shard_out_cut(o, SHARD_ALIGN), 0);
	assert_int_equal(file_bytes(), SHARD_ALIGN);
	shard_out_close(o);
}

static int stop_at_once(void *arg)
{
	(void)arg;
	return -EINTR;
}

static void a_batch_has_an_end(void **state)
{
	struct shard_out *o = make();
	const struct writer_pause pause = { stop_at_once, NULL };
	struct record_head h = { .parts = 1, .expert_bytes = 1, .part_bytes = 1 };
	uint64_t offset;

	(void)state;
	for (unsigned i = 0; i < RECORD_BATCH; i++)
		append(o, i);
	assert_int_equal(record_append(o, &h, data, NULL, &offset, why), -ENOBUFS);
	assert_int_equal(record_seal(o, why), 0);
	assert_int_equal(record_append(o, &h, data, &pause, &offset, why), -EINTR);
	record_withdraw(o);
	assert_int_equal(file_bytes(), SHARD_ALIGN);
	shard_out_close(o);
}

static int remove_file(void **state)
{
	(void)state;
	unlink(path);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(heads_come_last),
		cmocka_unit_test(only_the_record_that_is_meant_is_punched),
		cmocka_unit_test(other_files_are_not_written_to),
		cmocka_unit_test(a_longer_file_is_gone_on_with),
		cmocka_unit_test(a_batch_has_an_end),
	};
	const char *tmp = getenv("TMPDIR");

	snprintf(path, sizeof(path), "%s/test_record.%d.shard", tmp ? tmp : "/tmp", (int)getpid());
	return cmocka_run_group_tests(tests, NULL, remove_file);
}
