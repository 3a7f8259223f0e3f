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

static uint64_t mem_available(const char *root)
{
	char path[PATH_MAX], line[128];
	uint64_t kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/proc/meminfo", root);
	f = fopen(path, "re");
	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f))
		if (strncmp(line, "MemAvailable:", 13) == 0)
			kib = strtoull(line + 13, NULL, 10);
	fclose(f);
	return kib * 1024;
}

/* The page cache in a group's use: the kernel takes it back before it refuses memory. tmpfs is
 * not in it (it counts as anonymous). scope: "total_" for v1, which has the figures of the group
 * alone and, with that, those with the groups below; "" for v2. */
static uint64_t group_cache(const char *dir, const char *scope)
{
	char path[PATH_MAX], line[128], active[64], inactive[64], key[64];
	unsigned long long n;
	uint64_t sum = 0;
	FILE *f;

	if (snprintf(path, sizeof(path), "%s/memory.stat", dir) >= (int)sizeof(path))
		return 0;
	snprintf(active, sizeof(active), "%sactive_file", scope);
	snprintf(inactive, sizeof(inactive), "%sinactive_file", scope);
	f = fopen(path, "re");
	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%63s %llu", key, &n) == 2 &&
		    (strcmp(key, active) == 0 || strcmp(key, inactive) == 0))
			sum += n;
	fclose(f);
	return sum;
}

/* The two ways in which cgroups tell of memory: where they are mounted, names of the files. */
struct hierarchy {
	const char *root, *limit, *high, *use, *scope;
};

/* Above memory.high (systemd's MemoryHigh=) nobody is killed, but slowed down until it is no more
 * than that: a limit, too. v1 has none; memory.soft_limit_in_bytes slows nobody down. */
static const struct hierarchy v1 = { "/sys/fs/cgroup/memory", "memory.limit_in_bytes", NULL,
				     "memory.usage_in_bytes", "total_" };
static const struct hierarchy v2 = { "/sys/fs/cgroup", "memory.max", "memory.high",
				     "memory.current", "" };

static uint64_t number_of_group(const char *dir, const char *name)
{
	char path[PATH_MAX];

	if (!name || snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
		return UINT64_MAX;
	return read_number(path);
}

/* What one cgroup leaves: its limit less what it uses and cannot give back. */
static uint64_t group_leaves(const char *dir, const struct hierarchy *h)
{
	uint64_t limit = number_of_group(dir, h->limit), high = number_of_group(dir, h->high), use,
		 cache;

	limit = high < limit ? high : limit;
	if (limit >= INT64_MAX / 2) /* v1 writes "no limit" as a huge number */
		return UINT64_MAX;
	use = number_of_group(dir, h->use);
	cache = group_cache(dir, h->scope);
	use = use > cache ? use - cache : 0;
	return use >= limit ? 0 : limit - use;
}

/* The least that our group and those above it leave. */
static uint64_t hierarchy_leaves(const char *root, const struct hierarchy *h, const char *group)
{
	char dir[PATH_MAX];
	uint64_t least = UINT64_MAX;
	size_t stop = strlen(root) + strlen(h->root);

	if (snprintf(dir, sizeof(dir), "%s%s%s", root, h->root,
		     strcmp(group, "/") == 0 ? "" : group) >= (int)sizeof(dir))
		return least;
	for (;;) {
		uint64_t here = group_leaves(dir, h);
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
static uint64_t cgroup_leaves(const char *root)
{
	char path[PATH_MAX], line[PATH_MAX + 64];
	uint64_t least = UINT64_MAX, here;
	FILE *f;

	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	f = fopen(path, "re");
	if (!f)
		return least;
	while (fgets(line, sizeof(line), f)) {
		char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
		if (!group)
			continue;
		*group++ = 0;
		group[strcspn(group, "\n")] = 0;
		if (strcmp(list + 1, "memory") == 0)
			here = hierarchy_leaves(root, &v1, group);
		else if (list[1] == 0)
			here = hierarchy_leaves(root, &v2, group);
		else
			continue;
		if (here < least)
			least = here;
	}
	fclose(f);
	return least;
}

uint64_t memory_available_at(const char *root)
{
	uint64_t machine = mem_available(root), group = cgroup_leaves(root);

	return group < machine ? group : machine;
}

uint64_t memory_available(void)
{
	return memory_available_at("");
}
