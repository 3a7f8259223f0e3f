/* SPDX-License-Identifier: Apache-2.0
 *
 * stats.json: the daemon's numbers, one consistent text an open. README.md lists the members.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "expertfs/fs.h"

/* A path as JSON: what is not UTF-8 cannot be, so such a path is shown with question marks. */
static json_t *path_json(const char *path)
{
	json_t *j = json_string(path);
	char *copy;

	if (j)
		return j;
	copy = strdup(path);
	for (char *c = copy; c && *c; c++)
		if (*c & 0x80)
			*c = '?';
	j = json_string(copy);
	free(copy);
	return j;
}

static json_t *memory_json(const struct fs *fs, const struct hotstore_stats *h)
{
	return json_pack("{s:I,s:I,s:I,s:I,s:I,s:b}", "budget", (json_int_t)fs->budget.total,
			 "used", (json_int_t)(fs->budget.fixed + h->policy.used), "fixed",
			 (json_int_t)fs->budget.fixed, "capacity", (json_int_t)fs->budget.capacity,
			 "slots", (json_int_t)fs->budget.slots, "huge_pages",
			 backing_source_huge(fs->source));
}

static json_t *drives_json(const struct fs *fs, uint64_t *bytes)
{
	json_t *list = json_array();

	*bytes = 0;
	for (uint32_t i = 0; i < fs->store->drives; i++) {
		struct drive_stats d;
		json_t *one;
		drive_stats(fs->drive[i], &d);
		*bytes += d.bytes;
		one = json_pack("{s:o,s:I,s:I,s:I,s:I}", "path",
				path_json(drive_path(fs->drive[i])), "bytes_read",
				(json_int_t)d.bytes, "reads", (json_int_t)d.reads, "errors",
				(json_int_t)d.errors, "in_flight", (json_int_t)d.in_flight);
		if (one && d.busy_ns)
			json_object_set_new(one, "gb_per_s",
					    json_real((double)d.bytes / (double)d.busy_ns));
		json_array_append_new(list, one);
	}
	return list;
}

char *fs_stats_json(const struct fs *fs)
{
	struct hotstore_stats h;
	struct timespec t;
	uint64_t bytes;
	json_t *drives = drives_json(fs, &bytes), *all;
	double uptime;
	char *text;

	hotstore_stats(fs->hot, &h);
	clock_gettime(CLOCK_MONOTONIC, &t);
	uptime = (double)t.tv_sec + (double)t.tv_nsec * 1e-9 - (double)fs->started_ns * 1e-9;
	all = json_pack("{s:i,s:o,s:s,s:s,s:s,s:f}", "version", 1, "store",
			path_json(fs->store->dir), "mode",
			fs->passthrough ? "passthrough" : "direct", "io",
			drive_uses_uring(fs->drive[0]) ? "io_uring" : "threads", "policy",
			fs->policy, "uptime_s", uptime);
	json_object_set_new(all, "memory", memory_json(fs, &h));
	json_object_set_new(all, "experts",
			    json_pack("{s:I,s:I,s:I,s:I}", "total", (json_int_t)fs->store->experts,
				      "resident", (json_int_t)h.resident, "held",
				      (json_int_t)h.held, "loading", (json_int_t)h.loading));
	json_object_update_new(all,
			       json_pack("{s:I,s:I,s:I,s:I,s:f}", "opens", (json_int_t)h.opens,
					 "hits", (json_int_t)h.hits, "misses", (json_int_t)h.misses,
					 "unkept", (json_int_t)h.unkept, "hit_rate",
					 h.opens ? (double)h.hits / (double)h.opens : 0.0));
	json_object_set_new(all, "bytes_read", json_integer((json_int_t)bytes));
	json_object_set_new(all, "load_ms",
			    json_pack("{s:f,s:f,s:f}", "p50", h.load_ms_p50, "p95", h.load_ms_p95,
				      "p99", h.load_ms_p99));
	json_object_set_new(all, "evictions", json_integer((json_int_t)h.policy.evictions));
	json_object_set_new(all, "errors", json_integer((json_int_t)h.errors));
	json_object_set_new(all, "drives", drives);
	text = json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
	json_decref(all);
	return text;
}
