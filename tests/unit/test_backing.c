/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for experts: that it takes what it is said to take, lies in few pieces, holds the bound,
 * and is used again only when nobody maps it.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "expertfs/backing.h"

#define PAGE 4096ull
#define MIB  (1ull << 20)

static struct backing_source *source;

/* The proof needs a tmpfs of our own, and so does the bound: root has one. */
static int set_up(void **state)
{
	(void)state;
	source = backing_source_open(8 * MIB, 16);
	return source && backing_source_proves(source) ? 0 : -1;
}

static int tear_down(void **state)
{
	bool left = backing_source_used(source) != 0;

	(void)state;
	backing_source_close(source);
	return left ? -1 : 0;
}

static const uint64_t sizes[] = { 1,       PAGE,        300001,      612 * PAGE,
				  2 * MIB, 3 * MIB - 1, 5 * MIB + 1, 8 * MIB };
#define SIZES (sizeof(sizes) / sizeof(*sizes))

static void takes_what_it_costs(void **state)
{
	struct backing b;

	(void)state;
	for (size_t i = 0; i < SIZES; i++) {
		assert_int_equal(backing_new(source, sizes[i], &b), 0);
		assert_int_equal(backing_source_used(source), backing_cost(source, sizes[i]));
		assert_true(backing_cost(source, sizes[i]) < sizes[i] + PAGE);
		memset(b.map, 7, sizes[i]);
		assert_int_equal(backing_freeze(source, &b, true), 0);
		assert_int_equal(backing_source_used(source), backing_cost(source, sizes[i]));
		assert_int_equal(((const char *)b.map)[sizes[i] - 1], 7);
		backing_drop(&b, -1);
		assert_int_equal(backing_source_used(source), 0);
	}
}

/* Pages of a mapping that do not lie behind the one before. */
static size_t pieces(const void *map, size_t pages)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entry, before = 0;
	size_t n = 0;

	assert_true(fd >= 0);
	for (size_t i = 0; i < pages; i++) {
		assert_int_equal(pread(fd, &entry, 8, (off_t)(((uintptr_t)map / PAGE + i) * 8)), 8);
		entry &= (1ull << 55) - 1;
		n += entry != before + 1;
		before = entry;
	}
	close(fd);
	return n;
}

/* A tmpfs has folios of all sizes since Linux 6.14. */
static bool kernel_can(void)
{
	struct utsname u;
	int major = 0, minor = 0;

	return uname(&u) == 0 && sscanf(u.release, "%d.%d", &major, &minor) == 2 &&
	       (major > 6 || (major == 6 && minor >= 14));
}

/* Each piece is a segment of the drive's request. How few they can be depends on how the machine's
 * memory lies; a page each is what faults alone would give. */
static void lies_in_few_pieces(void **state)
{
	struct backing b;

	(void)state;
	if (!backing_source_huge(source) || !kernel_can())
		skip();
	for (size_t i = 2; i < SIZES; i++) {
		size_t pages = (sizes[i] + PAGE - 1) / PAGE;
		assert_int_equal(backing_new(source, sizes[i], &b), 0);
		size_t n = pieces(b.map, pages);
		if (n > pages / 4)
			fail_msg("%ju bytes lie in %zu pieces", (uintmax_t)sizes[i], n);
		backing_drop(&b, -1);
	}
}

static void holds_the_bound(void **state)
{
	struct backing a, b;

	(void)state;
	backing_source_limit(source, 4 * MIB);
	assert_int_equal(backing_new(source, 3 * MIB, &a), 0);
	assert_int_equal(backing_new(source, 3 * MIB, &b), -ENOMEM);
	assert_int_equal(backing_source_used(source), 3 * MIB);
	backing_drop(&a, -1);
	assert_int_equal(backing_new(source, 3 * MIB, &b), 0);
	backing_drop(&b, -1);
	backing_source_limit(source, 64 * MIB);
}

static void is_used_again_when_idle(void **state)
{
	struct backing b;
	char path[64];

	(void)state;
	assert_int_equal(backing_new(source, 300001, &b), 0);
	assert_int_equal(backing_freeze(source, &b, false), 0);
	assert_true(backing_idle(source, &b));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", b.fd);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_false(backing_idle(source, &b));
	void *map = mmap(NULL, 300001, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	close(fd);
	assert_false(backing_idle(source, &b));
	munmap(map, 300001);
	assert_true(backing_idle(source, &b));
	assert_int_equal(backing_thaw(&b, 300100, -1), 0);
	memset(b.map, 1, b.mapped);
	assert_int_equal(backing_freeze(source, &b, false), 0);
	assert_int_equal(lseek(b.fd, 0, SEEK_END), 300100);
	backing_drop(&b, -1);
}

/* In direct mode without root there is no proof, and nothing that descriptors are needed for. */
static int map_many(void)
{
	struct rlimit few = { 32, 32 };
	struct backing b[64];
	int err = setresuid(65534, 65534, 65534) || setrlimit(RLIMIT_NOFILE, &few);

	source = err ? NULL : backing_source_open(PAGE, 64);
	if (!source || backing_source_proves(source))
		return 1;
	for (int i = 0; i < 64 && !err; i++) {
		err = backing_new(source, 5000, &b[i]);
		if (!err)
			memset(b[i].map, i, 5000);
		err = err ? err : backing_freeze(source, &b[i], true);
	}
	for (int i = 0; i < 64 && !err; i++) {
		err = ((const char *)b[i].map)[4999] != i;
		backing_drop(&b[i], -1);
	}
	backing_source_close(source);
	return err != 0;
}

static void takes_no_descriptors_where_they_prove_nothing(void **state)
{
	pid_t child = fork();
	int status;

	(void)state;
	assert_true(child >= 0);
	if (child == 0)
		_exit(map_many());
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(takes_what_it_costs, set_up, tear_down),
		cmocka_unit_test_setup_teardown(lies_in_few_pieces, set_up, tear_down),
		cmocka_unit_test_setup_teardown(holds_the_bound, set_up, tear_down),
		cmocka_unit_test_setup_teardown(is_used_again_when_idle, set_up, tear_down),
		cmocka_unit_test(takes_no_descriptors_where_they_prove_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
