/* SPDX-License-Identifier: Apache-2.0
 *
 * Measuring drives: that a figure is only given where it is the drive's, that the page cache has no
 * part in it, and that nothing is changed or left behind.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "expertfs/fail.h" /* before cmocka.h, which has a macro of that name */
#include <cmocka.h>

#include "expertfs/probe.h"

#define BYTES (24u << 20)

static char dir[300], path[320], why[WHY_MAX];

static void write_file(size_t bytes)
{
	char *data = malloc(bytes + 1);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_non_null(data);
	assert_true(fd >= 0);
	for (size_t i = 0; i < bytes; i++)
		data[i] = (char)(i * 2654435761u >> 13);
	assert_int_equal(write(fd, data, bytes), bytes);
	assert_int_equal(fsync(fd), 0);
	assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	close(fd);
	free(data);
}

static int set_up(void **state)
{
	(void)state;
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%s/test_probe.XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/file", dir);
	return 0;
}

/* Also that nobody has left anything. */
static int tear_down(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(dir);
}

/* What a result must be, whatever it is. */
static void check_result(const struct probe_result *r)
{
	assert_int_not_equal(*r->text, 0);
	if (r->bytes_per_s == 0) {
		assert_false(r->honest);
		assert_int_equal(r->bytes, 0);
		return;
	}
	assert_true(r->bytes >= PROBE_PIECE && r->bytes % PROBE_PIECE == 0);
	assert_true(r->p50_ns > 0 && r->p50_ns <= r->p99_ns);
	if (r->honest)
		assert_true(r->bytes >= (uint64_t)PROBE_LEAST * PROBE_PIECE);
}

/* Pages of the file that are in the page cache. */
static size_t cached_pages(size_t bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t page = (size_t)sysconf(_SC_PAGESIZE), n = bytes / page, count = 0;
	unsigned char *in = malloc(n);

	assert_true(fd >= 0);
	assert_non_null(in);
	void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	assert_true(map != MAP_FAILED);
	assert_int_equal(mincore(map, bytes, in), 0);
	for (size_t i = 0; i < n; i++)
		count += in[i] & 1;
	munmap(map, bytes);
	close(fd);
	free(in);
	return count;
}

static void measure_file(enum probe_io io)
{
	struct stat before, after;
	struct probe_result r;

	write_file(BYTES + 4711);
	bool cold = cached_pages(BYTES) == 0;
	assert_int_equal(stat(path, &before), 0);
	int err = probe_file(path, io, &r, why);
	if (err == -ENOSYS || err == -EPERM) {
		assert_int_equal(io, PROBE_IO_URING);
		assert_non_null(strstr(why, "io_uring"));
		return;
	}
	assert_int_equal(err, 0);
	check_result(&r);
	assert_int_equal(stat(path, &after), 0);
	assert_memory_equal(&before.st_mtim, &after.st_mtim, sizeof(before.st_mtim));
	assert_int_equal(before.st_size, after.st_size);
	if (!r.honest)
		return;
	/* All of its whole pieces once, and past the page cache. */
	assert_int_equal(r.bytes, BYTES);
	assert_non_null(strstr(r.text, path));
	if (io != PROBE_IO_AUTO)
		assert_int_equal(r.uring, io == PROBE_IO_URING);
	if (cold)
		assert_int_equal(cached_pages(BYTES), 0);
}

static void test_file(void **state)
{
	(void)state;
	measure_file(PROBE_IO_AUTO);
}

static void test_file_uring(void **state)
{
	(void)state;
	measure_file(PROBE_IO_URING);
}

static void test_file_threads(void **state)
{
	(void)state;
	measure_file(PROBE_IO_THREADS);
}

/* set_up's folder must be empty again: tear_down sees to that. */
static void test_folder(void **state)
{
	(void)state;
	struct probe_result r;
	struct statfs fs;

	assert_int_equal(statfs(dir, &fs), 0);
	for (int io = PROBE_IO_AUTO; io <= PROBE_IO_THREADS; io += PROBE_IO_THREADS) {
		assert_int_equal(probe_folder(dir, (enum probe_io)io, &r, why), 0);
		check_result(&r);
		assert_true(r.bytes <= PROBE_FILE);
		if (fs.f_type == TMPFS_MAGIC)
			assert_false(r.honest);
	}
}

/* A tmpfs takes O_DIRECT since kernel 6.6, and would give a splendid figure. */
static void test_memory(void **state)
{
	(void)state;
	struct probe_result r;
	struct statfs fs;
	char name[] = "/dev/shm/test_probe.XXXXXX";

	if (statfs("/dev/shm", &fs) != 0 || fs.f_type != TMPFS_MAGIC)
		skip();
	assert_int_equal(probe_folder("/dev/shm", PROBE_IO_AUTO, &r, why), 0);
	assert_false(r.honest);
	assert_int_equal(r.bytes_per_s, 0);
	assert_non_null(strstr(r.text, "cannot be measured"));
	int fd = mkstemp(name);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, BYTES), 0);
	assert_int_equal(probe_file(name, PROBE_IO_AUTO, &r, why), 0);
	unlink(name);
	close(fd);
	assert_false(r.honest);
	assert_int_equal(r.bytes_per_s, 0);
}

/* Little is measured, but not passed off as the drive's figure; nothing is not measured. */
static void test_small(void **state)
{
	(void)state;
	struct probe_result r;
	static const size_t sizes[] = { 0, 1, PROBE_PIECE - 1, PROBE_PIECE,
					(PROBE_LEAST - 1) * (size_t)PROBE_PIECE };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		write_file(sizes[i]);
		assert_int_equal(probe_file(path, PROBE_IO_AUTO, &r, why), 0);
		check_result(&r);
		assert_false(r.honest);
		if (r.bytes_per_s)
			assert_int_equal(r.bytes, sizes[i] / PROBE_PIECE * PROBE_PIECE);
	}
}

static void test_not_a_file(void **state)
{
	(void)state;
	struct probe_result r;

	assert_int_equal(probe_file(path, PROBE_IO_AUTO, &r, why), -ENOENT);
	assert_non_null(strstr(why, path));
	assert_int_equal(probe_folder(path, PROBE_IO_AUTO, &r, why), -ENOENT);
	assert_int_equal(probe_file(dir, PROBE_IO_AUTO, &r, why), -EINVAL);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(probe_file(path, PROBE_IO_AUTO, &r, why), -EINVAL);
	assert_int_equal(probe_folder(path, PROBE_IO_AUTO, &r, why), -ENOTDIR);
	assert_int_equal(probe_file("/proc/self/status", PROBE_IO_AUTO, &r, why), 0);
	assert_false(r.honest);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_file),       TEST(test_file_uring), TEST(test_file_threads),
		TEST(test_folder),     TEST(test_memory),     TEST(test_small),
		TEST(test_not_a_file),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
