/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory budget; see budget.h.
 */
#include "expertfs/budget.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/fail.h"
#include "expertfs/size.h"

#define THREAD_BYTES (32u << 10) /* what a thread's stack and libfuse's buffer really touch */
#define EXPERT_BYTES 256u        /* catalog entry and extent, slot, policy entry, rounded up */

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

/* What one cgroup leaves: its limit less its use. */
static uint64_t group_leaves(const char *dir, const char *limit_file, const char *use_file)
{
	char path[PATH_MAX];
	uint64_t limit, use;

	if (snprintf(path, sizeof(path), "%s/%s", dir, limit_file) >= (int)sizeof(path))
		return UINT64_MAX;
	limit = read_number(path);
	if (limit >= INT64_MAX / 2) /* v1 writes "no limit" as a huge number */
		return UINT64_MAX;
	if (snprintf(path, sizeof(path), "%s/%s", dir, use_file) >= (int)sizeof(path))
		return UINT64_MAX;
	use = read_number(path);
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

int budget_make(uint64_t asked, const struct store *s, const struct backing_source *source,
		int threads, struct budget *b, char *why)
{
	uint64_t buffer =
		s->max_expert_bytes < READ_BUFFER_SIZE ? s->max_expert_bytes : READ_BUFFER_SIZE;
	uint64_t all = 0, needed;
	char t1[16], t2[16], t3[16];

	b->available = memory_available();
	b->total = asked == UINT64_MAX ? b->available / 2 : asked;
	b->fixed = (uint64_t)s->experts * EXPERT_BYTES + (uint64_t)threads * THREAD_BYTES +
		   READ_BUFFERS * buffer;
	b->capacity = b->total > b->fixed ? b->total - b->fixed : 0;
	for (uint32_t i = 0; i < s->experts; i++)
		all += backing_cost(source, s->expert[i].bytes);
	b->slots = all <= b->capacity ? s->experts : (uint32_t)(b->capacity / (all / s->experts));
	needed = b->fixed + (all < b->capacity ? all : b->capacity);
	if (b->available && needed > b->available)
		return fail(why, ENOMEM, "--memory %s does not fit: %s is available, %s is missing",
			    size_text(b->total, t1), size_text(b->available, t2),
			    size_text(needed - b->available, t3));
	return 0;
}

void budget_text(const struct budget *b, const struct store *s, const struct backing_source *source,
		 char *text, size_t size)
{
	char t1[16], t2[16], t3[16];

	snprintf(text, size, "memory %s: tables and buffers %s, hot store %s (%u of %u experts%s)",
		 size_text(b->total, t1), size_text(b->fixed, t2), size_text(b->capacity, t3),
		 b->slots, s->experts, backing_source_huge(source) ? ", in huge pages" : "");
}
