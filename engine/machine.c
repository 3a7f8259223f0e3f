/* SPDX-License-Identifier: Apache-2.0
 *
 * Cores and memory that this process may use, from /proc, /sys and its cgroups.
 *
 * A cgroup's files are found as the kernel describes it: /proc/self/cgroup names the group within
 * each hierarchy, /proc/self/mountinfo where the hierarchy is mounted and which part of it (a
 * container sees only its own). Every level up to the mounted one may hold a limit.
 */
#include "engine/machine.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define PATH_SIZE 4096

struct cgroup {
	bool v2;
	char top[PATH_SIZE];  /* where the hierarchy is mounted */
	char path[PATH_SIZE]; /* this process's group, below top */
};

/* "KEY VALUE" or "KEY: VALUE kB" lines; false if the key is not there. */
static bool value_of(const char *path, const char *key, uint64_t *out)
{
	FILE *f = fopen(path, "re");
	char line[512];
	bool found = false;
	size_t n = strlen(key);

	if (!f)
		return false;
	while (!found && fgets(line, sizeof(line), f)) {
		if (strncmp(line, key, n) != 0 || (line[n] != ' ' && line[n] != ':'))
			continue;
		char *end;
		*out = strtoull(line + n + 1, &end, 10);
		found = end != line + n + 1;
	}
	fclose(f);
	return found;
}

/* The first number of a file; false if there is none ("max"). *second: the one after it, else 0. */
static bool number_in(const char *path, uint64_t *out, uint64_t *second)
{
	FILE *f = fopen(path, "re");
	char line[256] = "", *end;
	bool ok = f && fgets(line, sizeof(line), f);

	if (f)
		fclose(f);
	*out = strtoull(line, &end, 10);
	ok = ok && end != line && line[0] != '-';
	if (second)
		*second = ok ? strtoull(end, NULL, 10) : 0;
	return ok;
}

/* Group of this process: the line "0::PATH" (v2) or "N:...,CONTROLLER,...:PATH" (v1). */
static bool own_group(const char *root, const char *controller, char *out)
{
	char file[PATH_SIZE], line[PATH_SIZE];
	bool found = false;

	snprintf(file, sizeof(file), "%s/proc/self/cgroup", root);
	FILE *f = fopen(file, "re");
	while (f && !found && fgets(line, sizeof(line), f)) {
		char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
		if (!path)
			continue;
		*path++ = 0;
		path[strcspn(path, "\n")] = 0;
		if (!controller) {
			found = list[1] == 0;
		} else {
			for (char *save, *c = strtok_r(list + 1, ",", &save); c && !found;
			     c = strtok_r(NULL, ",", &save))
				found = strcmp(c, controller) == 0;
		}
		if (found)
			snprintf(out, PATH_SIZE, "%s", path);
	}
	if (f)
		fclose(f);
	return found;
}

/* A line of mountinfo: "ID PARENT DEV ROOT MOUNTPOINT OPTIONS ... - TYPE SOURCE SUPEROPTIONS". */
static bool is_hierarchy(char *line, const char *controller, char **mount_root, char **mount_point)
{
	char *type = strstr(line, " - "), *save, *word = NULL, *super = NULL;

	if (!type)
		return false;
	*type = 0;
	type += 3;
	type[strcspn(type, "\n")] = 0;
	strtok_r(line, " ", &save);
	for (int i = 1; i <= 4; i++) {
		word = strtok_r(NULL, " ", &save);
		if (i == 3)
			*mount_root = word;
	}
	*mount_point = word;
	if (!word)
		return false;
	if (!controller)
		return strncmp(type, "cgroup2 ", 8) == 0;
	if (strncmp(type, "cgroup ", 7) != 0)
		return false;
	super = strrchr(type, ' ');
	for (char *c = strtok_r(super + 1, ",", &save); c; c = strtok_r(NULL, ",", &save))
		if (strcmp(c, controller) == 0)
			return true;
	return false;
}

/* controller: of v1, NULL for v2. False if this process is in no such hierarchy. */
static bool find_cgroup(const char *root, const char *controller, struct cgroup *g)
{
	char file[PATH_SIZE], group[PATH_SIZE], *line = NULL, *mount_root, *mount_point;
	size_t room = 0;
	bool found = false;

	if (!own_group(root, controller, group))
		return false;
	snprintf(file, sizeof(file), "%s/proc/self/mountinfo", root);
	FILE *f = fopen(file, "re");
	while (f && !found && getline(&line, &room, f) > 0) {
		if (!is_hierarchy(line, controller, &mount_root, &mount_point))
			continue;
		size_t n = strcmp(mount_root, "/") == 0 ? 0 : strlen(mount_root);
		bool below = strncmp(group, mount_root, n) == 0 && (!group[n] || group[n] == '/');
		g->v2 = !controller;
		snprintf(g->top, sizeof(g->top), "%s%s", root, mount_point);
		snprintf(g->path, sizeof(g->path), "%s", below ? group + n : "");
		found = true;
	}
	free(line);
	if (f)
		fclose(f);
	return found;
}

/* The file `name` of the group; then of its parent, and so on: shortens g->path. False at the end.
 */
static bool next_level(struct cgroup *g)
{
	char *slash = strrchr(g->path, '/');

	if (!slash)
		return false;
	*slash = 0;
	return true;
}

static const char *file_of(const struct cgroup *g, const char *name, char *out, size_t room)
{
	const char *path = strcmp(g->path, "/") == 0 ? "" : g->path;

	if (snprintf(out, room, "%s%s/%s", g->top, path, name) >= (int)room)
		out[0] = 0;
	return out;
}

/* False if there is none. Above memory.high (systemd's MemoryHigh=) nobody is killed, but slowed down
 * until it is no more than that: a limit, too. */
static bool limit_of_group(const struct cgroup *g, uint64_t *out)
{
	char file[3 * PATH_SIZE];
	const char *name = g->v2 ? "memory.max" : "memory.limit_in_bytes";
	bool limited = number_in(file_of(g, name, file, sizeof(file)), out, NULL);
	uint64_t high;

	if (!g->v2 || !number_in(file_of(g, "memory.high", file, sizeof(file)), &high, NULL) ||
	    (limited && *out <= high))
		return limited;
	*out = high;
	return true;
}

static uint64_t room_in_group(const struct cgroup *g)
{
	char file[3 * PATH_SIZE];
	uint64_t limit, used, inactive = 0, active = 0;
	const char *stat = "memory.stat";

	if (!limit_of_group(g, &limit) ||
	    !number_in(file_of(g, g->v2 ? "memory.current" : "memory.usage_in_bytes", file,
			       sizeof(file)),
		       &used, NULL))
		return UINT64_MAX;
	value_of(file_of(g, stat, file, sizeof(file)),
		 g->v2 ? "inactive_file" : "total_inactive_file", &inactive);
	value_of(file_of(g, stat, file, sizeof(file)), g->v2 ? "active_file" : "total_active_file",
		 &active);
	uint64_t held = used - (inactive + active < used ? inactive + active : used);
	return limit > held ? limit - held : 0;
}

static void least(struct memory_room *room, uint64_t bytes, const char *limit)
{
	if (bytes < room->bytes)
		*room = (struct memory_room){ bytes, limit };
}

struct memory_room machine_memory_at(const char *root)
{
	struct memory_room room = { UINT64_MAX, "no limit" };
	char file[PATH_SIZE];
	struct cgroup *g = malloc(sizeof(*g));
	struct rlimit as;
	uint64_t v;

	snprintf(file, sizeof(file), "%s/proc/meminfo", root);
	if (value_of(file, "MemAvailable", &v))
		least(&room, v * 1024, "MemAvailable of this machine");
	for (int v2 = 0; g && v2 < 2; v2++)
		if (find_cgroup(root, v2 ? NULL : "memory", g))
			do
				least(&room, room_in_group(g),
				      "what the cgroup's memory limit leaves");
			while (next_level(g));
	free(g);
	if (getrlimit(RLIMIT_AS, &as) == 0 && as.rlim_cur != RLIM_INFINITY &&
	    number_in("/proc/self/statm", &v, NULL)) {
		uint64_t used = v * (uint64_t)sysconf(_SC_PAGESIZE);
		least(&room, as.rlim_cur > used ? as.rlim_cur - used : 0,
		      "what the limit of address space leaves, ulimit -v");
	}
	return room;
}

struct memory_room machine_memory(void)
{
	return machine_memory_at("");
}

uint64_t machine_own_memory(void)
{
	uint64_t kib = 0;

	value_of("/proc/self/status", "RssAnon", &kib);
	return kib * 1024;
}

double machine_cpu_quota_at(const char *root)
{
	struct cgroup *g = malloc(sizeof(*g));
	char file[3 * PATH_SIZE];
	double quota = 0;

	for (int v2 = 0; g && v2 < 2; v2++) {
		if (!find_cgroup(root, v2 ? NULL : "cpu", g))
			continue;
		do {
			uint64_t runs, period = 0;
			bool limited = number_in(
				file_of(g, v2 ? "cpu.max" : "cpu.cfs_quota_us", file, sizeof(file)),
				&runs, v2 ? &period : NULL);
			if (limited && !v2)
				limited = number_in(
					file_of(g, "cpu.cfs_period_us", file, sizeof(file)),
					&period, NULL);
			if (limited && period &&
			    (quota == 0 || (double)runs / (double)period < quota))
				quota = (double)runs / (double)period;
		} while (next_level(g));
	}
	free(g);
	return quota;
}

/* Which core a processor belongs to, as one number; its own number if the kernel does not say. */
static uint64_t core_of(int cpu)
{
	char file[128];
	uint64_t package, core;

	snprintf(file, sizeof(file), "/sys/devices/system/cpu/cpu%d/topology/physical_package_id",
		 cpu);
	bool ok = number_in(file, &package, NULL);
	snprintf(file, sizeof(file), "/sys/devices/system/cpu/cpu%d/topology/core_id", cpu);
	return ok && number_in(file, &core, NULL) ? package << 32 | core
						  : UINT64_MAX - (uint64_t)cpu;
}

int machine_cores(void)
{
	uint64_t seen[CPU_SETSIZE];
	double quota = machine_cpu_quota_at("");
	cpu_set_t set;
	int n = 0;

	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		return 1;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &set))
			continue;
		uint64_t core = core_of(cpu);
		int i = 0;
		while (i < n && seen[i] != core)
			i++;
		seen[i] = core;
		n += i == n;
	}
	if (quota > 0 && quota < n)
		n = (int)quota + (quota > (int)quota);
	return n > 0 ? n : 1;
}
