/* SPDX-License-Identifier: Apache-2.0
 *
 * What machine and cgroups leave; see memory.h.
 */
#include "expertfs/memory.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One number out of a file; UINT64_MAX for "max", a missing file or no number. */
static uint64_t read_number(const char *path)
{
	char line[64] = "", *end;
	uint64_t v = UINT64_MAX;
	FILE *f = fopen(path, "re");

	if (!f)
		return v;
	if (fgets(line, sizeof(line), f)) {
		v = strtoull(line, &end, 10);
		if (end == line)
			v = UINT64_MAX;
	}
	fclose(f);
	return v;
}

static uint64_t mem_available(void)
{
	char line[128];
	uint64_t kib = 0;
	FILE *f = fopen("/proc/meminfo", "re");

	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f))
		if (strncmp(line, "MemAvailable:", 13) == 0)
			kib = strtoull(line + 13, NULL, 10);
	fclose(f);
	return kib * 1024;
}

/* The page cache in a group's use: the kernel takes it back before it refuses memory. tmpfs is
 * not in it (it counts as anonymous). */
static uint64_t group_cache(const char *dir)
{
	char path[PATH_MAX], line[128], key[64];
	unsigned long long n;
	uint64_t sum = 0;
	FILE *f;

	if (snprintf(path, sizeof(path), "%s/memory.stat", dir) >= (int)sizeof(path))
		return 0;
	f = fopen(path, "re");
	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%63s %llu", key, &n) != 2)
			continue;
		/* v1 has both the group's own and, with total_, those with the groups below. */
		if (strcmp(key, "total_active_file") == 0 ||
		    strcmp(key, "total_inactive_file") == 0)
			sum += n;
		else if ((strcmp(key, "active_file") == 0 || strcmp(key, "inactive_file") == 0) &&
			 strstr(dir, "/memory") == NULL)
			sum += n;
	}
	fclose(f);
	return sum;
}

/* What one cgroup leaves: its limit less what it uses and cannot give back. */
static uint64_t group_leaves(const char *dir, const char *limit_file, const char *use_file)
{
	char path[PATH_MAX];
	uint64_t limit, use, cache;

	if (snprintf(path, sizeof(path), "%s/%s", dir, limit_file) >= (int)sizeof(path))
		return UINT64_MAX;
	limit = read_number(path);
	if (limit >= INT64_MAX / 2) /* v1 writes "no limit" as a huge number */
		return UINT64_MAX;
	if (snprintf(path, sizeof(path), "%s/%s", dir, use_file) >= (int)sizeof(path))
		return UINT64_MAX;
	use = read_number(path);
	cache = group_cache(dir);
	use = use > cache ? use - cache : 0;
	return use >= limit ? 0 : limit - use;
}

/* The least that our group and those above it leave. root: mount point of the hierarchy. */
static uint64_t hierarchy_leaves(const char *root, const char *group, const char *limit_file,
				 const char *use_file)
{
	char dir[PATH_MAX];
	uint64_t least = UINT64_MAX;
	size_t stop = strlen(root);

	if (snprintf(dir, sizeof(dir), "%s%s", root, strcmp(group, "/") == 0 ? "" : group) >=
	    (int)sizeof(dir))
		return least;
	for (;;) {
		uint64_t here = group_leaves(dir, limit_file, use_file);
		char *slash;
		if (here < least)
			least = here;
		slash = strrchr(dir, '/');
		if (!slash || (size_t)(slash - dir) < stop || strlen(dir) <= stop)
			return least;
		*slash = 0;
	}
}

/* Lines of /proc/self/cgroup: "0::/path" (v2) and "7:memory:/path" (v1). */
static uint64_t cgroup_leaves(void)
{
	char line[PATH_MAX + 64];
	uint64_t least = UINT64_MAX, here;
	FILE *f = fopen("/proc/self/cgroup", "re");

	if (!f)
		return least;
	while (fgets(line, sizeof(line), f)) {
		char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
		if (!path)
			continue;
		*path++ = 0;
		path[strcspn(path, "\n")] = 0;
		if (strcmp(list + 1, "memory") == 0)
			here = hierarchy_leaves("/sys/fs/cgroup/memory", path,
						"memory.limit_in_bytes", "memory.usage_in_bytes");
		else if (list[1] == 0)
			here = hierarchy_leaves("/sys/fs/cgroup", path, "memory.max",
						"memory.current");
		else
			continue;
		if (here < least)
			least = here;
	}
	fclose(f);
	return least;
}

uint64_t memory_available(void)
{
	uint64_t machine = mem_available(), group = cgroup_leaves();

	return group < machine ? group : machine;
}
