/* SPDX-License-Identifier: Apache-2.0
 *
 * What the daemon believes that machine and cgroups leave, read from made-up /proc and /sys trees.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "expertfs/memory.h"
#include "tests/unit/made_root.h"

static int with_meminfo(void **state)
{
	if (new_root(state) != 0)
		return -1;
	put("/proc/meminfo", "MemTotal: 16000 kB\nMemFree: 1 kB\nMemAvailable: 8000 kB\n");
	return 0;
}

static void without_limits_what_the_machine_has(void **state)
{
	(void)state;
	assert_int_equal(memory_available_at(root), 8000 * 1024);
	put("/proc/self/cgroup", "0::/a/b\n");
	put("/sys/fs/cgroup/a/b/memory.max", "max\n");
	put("/sys/fs/cgroup/a/b/memory.high", "max\n");
	assert_int_equal(memory_available_at(root), 8000 * 1024);
}

static void version_2_counts_every_level(void **state)
{
	(void)state;
	put("/proc/self/cgroup", "0::/a/b\n");
	put("/sys/fs/cgroup/a/memory.max", "1000000\n");
	put("/sys/fs/cgroup/a/memory.current", "5000\n");
	put("/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 1000\nactive_file 500\n");
	assert_int_equal(memory_available_at(root), 1000000 - 3500);
	put("/sys/fs/cgroup/a/memory.high", "800000\n");
	assert_int_equal(memory_available_at(root), 800000 - 3500);
	put("/sys/fs/cgroup/a/memory.max", "max\n");
	assert_int_equal(memory_available_at(root), 800000 - 3500);
	put("/sys/fs/cgroup/a/b/memory.high", "900\n");
	put("/sys/fs/cgroup/a/b/memory.current", "1000\n"); /* over its limit */
	assert_int_equal(memory_available_at(root), 0);
}

static void version_1_has_one_limit(void **state)
{
	(void)state;
	put("/proc/self/cgroup", "4:memory:/a\n0::/\n");
	put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "700000\n");
	put("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "5000\n");
	put("/sys/fs/cgroup/memory/a/memory.stat",
	    "active_file 9\ntotal_inactive_file 1000\ntotal_active_file 500\n");
	assert_int_equal(memory_available_at(root), 700000 - 3500);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(without_limits_what_the_machine_has, with_meminfo,
						drop_root),
		cmocka_unit_test_setup_teardown(version_2_counts_every_level, with_meminfo,
						drop_root),
		cmocka_unit_test_setup_teardown(version_1_has_one_limit, with_meminfo, drop_root),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
