/* SPDX-License-Identifier: Apache-2.0
 *
 * What the machine and its cgroups allow, read from made-up /proc and /sys trees; and what a
 * mount's statistics say.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "engine/machine.h"
#include "engine/mount.h"
#include "tests/unit/made_root.h"

#define MEMINFO "MemTotal: 16000000 kB\nMemFree: 1 kB\nMemAvailable: 8000000 kB\n"

static void without_cgroups_what_the_machine_has(void **state)
{
	(void)state;
	assert_true(machine_memory_at(root).bytes == UINT64_MAX); /* nothing there at all */
	put("/proc/meminfo", MEMINFO);
	struct memory_room room = machine_memory_at(root);
	assert_true(room.bytes == 8000000ull * 1024);
	assert_non_null(strstr(room.limit, "machine"));
	put("/proc/self/cgroup", "0::/some/group\n");
	put("/proc/self/mountinfo", "25 1 0:22 / /proc rw - proc proc rw\n");
	assert_true(machine_memory_at(root).bytes == 8000000ull * 1024);
	assert_true(machine_cpu_quota_at(root) == 0);
}

#define V2_MOUNT "30 1 0:25 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"

static void version_2_counts_every_level(void **state)
{
	(void)state;
	put("/proc/meminfo", MEMINFO);
	put("/proc/self/cgroup", "0::/a/b\n");
	put("/proc/self/mountinfo", V2_MOUNT);
	put("/sys/fs/cgroup/a/b/memory.max", "max\n");
	put("/sys/fs/cgroup/a/b/memory.current", "1000\n");
	put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
	assert_true(machine_memory_at(root).bytes == 8000000ull * 1024);
	/* 5000 used, of which 1500 are pages of files. */
	put("/sys/fs/cgroup/a/memory.max", "1000000\n");
	put("/sys/fs/cgroup/a/memory.current", "5000\n");
	put("/sys/fs/cgroup/a/memory.stat", "anon 3500\ninactive_file 1000\nactive_file 500\n");
	put("/sys/fs/cgroup/a/cpu.max", "250000 100000\n");
	struct memory_room room = machine_memory_at(root);
	assert_true(room.bytes == 1000000 - 3500);
	assert_non_null(strstr(room.limit, "cgroup"));
	assert_true(machine_cpu_quota_at(root) == 2.5);
	put("/sys/fs/cgroup/a/memory.high", "max\n");
	assert_true(machine_memory_at(root).bytes == 1000000 - 3500);
	put("/sys/fs/cgroup/a/memory.high", "800000\n");
	assert_true(machine_memory_at(root).bytes == 800000 - 3500);
	put("/sys/fs/cgroup/a/memory.max", "max\n");
	assert_true(machine_memory_at(root).bytes == 800000 - 3500);
	put("/sys/fs/cgroup/a/memory.high", "2000000\n");
	put("/sys/fs/cgroup/a/memory.max", "1000000\n");
	assert_true(machine_memory_at(root).bytes == 1000000 - 3500);
	put("/sys/fs/cgroup/a/b/memory.max", "900\n"); /* over its limit */
	assert_true(machine_memory_at(root).bytes == 0);
}

static void version_1_and_a_container(void **state)
{
	(void)state;
	put("/proc/meminfo", MEMINFO);
	put("/proc/self/cgroup", "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x/inner\n0::/\n");
	/* The container's root is /docker/x, mounted at the top of the hierarchy it sees. */
	put("/proc/self/mountinfo",
	    "31 1 0:26 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	    "32 1 0:27 /docker/x /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n");
	put("/sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "9223372036854771712\n");
	put("/sys/fs/cgroup/memory/inner/memory.usage_in_bytes", "100\n");
	put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "700000\n");
	put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "20000\n");
	put("/sys/fs/cgroup/memory/memory.stat",
	    "inactive_file 1\ntotal_inactive_file 4000\ntotal_active_file 1000\n");
	put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n");
	put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
	assert_true(machine_memory_at(root).bytes == 700000 - 15000);
	assert_true(machine_cpu_quota_at(root) == 1.5);
	put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
	assert_true(machine_cpu_quota_at(root) == 0);
}

static void the_limit_of_address_space_counts(void **state)
{
	struct rlimit old, less;

	(void)state;
	put("/proc/meminfo", MEMINFO);
	assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
	if (old.rlim_cur != RLIM_INFINITY)
		skip();
	less = old;
	less.rlim_cur = 1ull << 46; /* more than a sanitizer's shadow takes */
	assert_int_equal(setrlimit(RLIMIT_AS, &less), 0);
	put("/proc/meminfo", "MemAvailable: 99999999999999 kB\n");
	struct memory_room room = machine_memory_at(root);
	assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
	assert_true(room.bytes < less.rlim_cur);
	assert_non_null(strstr(room.limit, "ulimit"));
}

static void this_machine(void **state)
{
	(void)state;
	assert_true(machine_cores() >= 1 && machine_cores() <= 4096);
	assert_true(machine_memory().bytes > 1 << 20);
}

static void statistics_of_a_mount(void **state)
{
	struct mount_stats s;
	char why[1024] = "";

	(void)state;
	assert_int_equal(mount_stats(root, &s, why), 0);
	assert_true(s.mode == SERVE_PLAIN && s.hits == -1 && s.misses == -1);
	put("/.expertfs/stats.json",
	    "{\"version\": 1, \"mode\": \"passthrough\", \"hits\": 12, \"misses\": 0}");
	assert_int_equal(mount_stats(root, &s, why), 0);
	assert_true(s.mode == SERVE_PASSTHROUGH && s.hits == 12 && s.misses == 0);
	put("/.expertfs/stats.json", "{\"mode\": \"direct\"}");
	assert_int_equal(mount_stats(root, &s, why), 0);
	assert_true(s.mode == SERVE_DIRECT && s.hits == -1 && s.memory_to_come == 0);
	put("/.expertfs/stats.json",
	    "{\"mode\": \"direct\", \"memory\": {\"budget\": 1000, \"used\": 300}}");
	assert_int_equal(mount_stats(root, &s, why), 0);
	assert_int_equal(s.memory_to_come, 700);
	put("/.expertfs/stats.json", "{\"mode\": \"direct\", \"memory\": {\"budget\": 1000, "
				     "\"needed\": 450, \"used\": 300}}");
	assert_int_equal(mount_stats(root, &s, why), 0);
	assert_int_equal(s.memory_to_come, 150);
	put("/.expertfs/stats.json",
	    "{\"mode\": \"direct\", \"memory\": {\"budget\": 1000, \"used\": 1300}}");
	assert_int_equal(mount_stats(root, &s, why), 0);
	assert_int_equal(s.memory_to_come, 0);
	assert_true(s.mode == SERVE_DIRECT && s.hits == -1);
	assert_true(s.slots == -1 && s.bytes_read == -1 && s.prefetch_used == -1 &&
		    s.drive_speed == 0);
	put("/.expertfs/stats.json",
	    "{\"mode\": \"direct\", \"bytes_read\": 5, \"experts\": {\"total\": 9}, \"memory\": "
	    "{\"slots\": 7, \"hot_store\": 100, \"capacity\": 90}, \"prefetch\": {\"loaded\": 3, "
	    "\"used\": 2, \"wasted\": 1}, \"drives\": [{\"speed\": 1000}, {\"speed\": 500}]}");
	assert_int_equal(mount_stats(root, &s, why), 0);
	assert_true(s.bytes_read == 5 && s.experts == 9 && s.slots == 7 && s.hot_store == 100 &&
		    s.capacity == 90);
	assert_true(s.prefetch_loaded == 3 && s.prefetch_used == 2 && s.prefetch_wasted == 1 &&
		    s.drive_speed == 1500);
	/* Of one drive it is not known, so of all. */
	put("/.expertfs/stats.json",
	    "{\"mode\": \"direct\", \"drives\": [{\"speed\": 1000}, {\"speed\": 0}]}");
	assert_int_equal(mount_stats(root, &s, why), 0);
	assert_true(s.drive_speed == 0);
	const char *const bad[] = { "",
				    "{",
				    "[]",
				    "{}",
				    "{\"mode\": 5}",
				    "{\"mode\": \"other\"}",
				    "{\"mode\": \"direct\", \"memory\": {\"slots\": -1}}",
				    "{\"mode\": \"direct\", \"drives\": [{\"speed\": -1}]}",
				    "{\"mode\": \"direct\", \"hits\": -3}",
				    "{\"mode\": \"direct\", \"memory\": {\"budget\": -3}}" };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		put("/.expertfs/stats.json", bad[i]);
		assert_int_equal(mount_stats(root, &s, why), -EINVAL);
		assert_non_null(strstr(why, "stats.json"));
	}
}

static void errors_in_words(void **state)
{
	char why[1024];

	(void)state;
	assert_int_equal(mount_fail(why, ENOTCONN, "/mnt/x", "expert", "/mnt/x/experts/003/117"),
			 -ENOTCONN);
	assert_string_equal(why, "the expertfs daemon behind /mnt/x is gone");
	mount_fail(why, ECONNABORTED, "/mnt/x", "expert", "/mnt/x/experts/003/117");
	assert_string_equal(why, "the expertfs daemon behind /mnt/x is gone");
	mount_fail(why, EIO, root, "expert", "FILE"); /* a plain directory: a drive's own error */
	assert_string_equal(why, "expert FILE cannot be read: Input/output error");
	mount_fail(why, ENOENT, root, "expert", "FILE");
	assert_non_null(strstr(why, "holds no model any more: was it unmounted?"));
	put("/model.json", "{}");
	mount_fail(why, ENOENT, root, "expert", "FILE");
	assert_string_equal(why, "expert FILE cannot be read: No such file or directory");
	put("/.expertfs/stats.json", "{}");
	mount_fail(why, EIO, root, "expert", "FILE");
	assert_non_null(strstr(why, "expert FILE cannot be read: the daemon reports a damaged or "
				    "missing record (EIO)"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(without_cgroups_what_the_machine_has, new_root,
						drop_root),
		cmocka_unit_test_setup_teardown(version_2_counts_every_level, new_root, drop_root),
		cmocka_unit_test_setup_teardown(version_1_and_a_container, new_root, drop_root),
		cmocka_unit_test_setup_teardown(the_limit_of_address_space_counts, new_root,
						drop_root),
		cmocka_unit_test(this_machine),
		cmocka_unit_test_setup_teardown(statistics_of_a_mount, new_root, drop_root),
		cmocka_unit_test_setup_teardown(errors_in_words, new_root, drop_root),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
