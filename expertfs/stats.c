/* SPDX-License-Identifier: Apache-2.0
 *
 * stats.json: the daemon's numbers, one consistent text an open. README.md lists the members.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/clock.h"
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

/* NULL objects and values that could not be allocated are left out (jansson passes NULL on). */
static void put(json_t *o, const char *key, uint64_t v)
{
	json_object_set_new(o, key, json_integer((json_int_t)v));
}

static json_t *memory_json(const struct fs *fs, const struct hotstore_stats *h)
{
	json_t *o = json_object();

	put(o, "budget", fs->budget.total);
	put(o, "used", fs->budget.fixed + h->policy.used);
	put(o, "fixed", fs->budget.fixed);
	put(o, "capacity", fs->budget.capacity);
	put(o, "slots", fs->budget.slots);
	json_object_set_new(o, "huge_pages", json_boolean(backing_source_huge(fs->source)));
	return o;
}

static json_t *experts_json(const struct fs *fs, const struct hotstore_stats *h)
{
	json_t *o = json_object();

	put(o, "total", fs->store->experts);
	put(o, "resident", h->resident);
	put(o, "held", h->held);
	put(o, "loading", h->loading);
	return o;
}

static json_t *drive_json(struct drive *drive, uint64_t *bytes)
{
	json_t *o = json_object();
	struct drive_stats d;

	drive_stats(drive, &d);
	*bytes += d.bytes;
	json_object_set_new(o, "path", path_json(drive_path(drive)));
	put(o, "bytes_read", d.bytes);
	put(o, "reads", d.reads);
	put(o, "errors", d.errors);
	put(o, "in_flight", d.in_flight);
	if (d.busy_ns)
		json_object_set_new(o, "gb_per_s", json_real((double)d.bytes / (double)d.busy_ns));
	return o;
}

static json_t *all_json(const struct fs *fs, const struct hotstore_stats *h, double uptime)
{
	json_t *o = json_object(), *drives = json_array();
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < fs->store->drives; i++)
		if (fs->drive[i])
			json_array_append_new(drives, drive_json(fs->drive[i], &bytes));
	put(o, "version", 1);
	json_object_set_new(o, "store", path_json(fs->store->dir));
	json_object_set_new(o, "mode", json_string(fs->passthrough ? "passthrough" : "direct"));
	json_object_set_new(o, "io", json_string(fs_uses_uring(fs) ? "io_uring" : "threads"));
	json_object_set_new(o, "policy", json_string(h->spec));
	json_object_set_new(o, "uptime_s", json_real(uptime));
	json_object_set_new(o, "memory", memory_json(fs, h));
	json_object_set_new(o, "experts", experts_json(fs, h));
	put(o, "opens", h->opens);
	put(o, "hits", h->hits);
	put(o, "misses", h->misses);
	put(o, "unkept", h->unkept);
	json_object_set_new(o, "hit_rate",
			    json_real(h->opens ? (double)h->hits / (double)h->opens : 0));
	put(o, "bytes_read", bytes);
	json_object_set_new(o, "load_ms",
			    json_pack("{s:f,s:f,s:f}", "p50", h->load_ms_p50, "p95", h->load_ms_p95,
				      "p99", h->load_ms_p99));
	put(o, "evictions", h->policy.evictions);
	put(o, "errors", h->errors);
	json_object_set_new(o, "drives", drives);
	return o;
}

char *fs_stats_json(const struct fs *fs)
{
	struct hotstore_stats h;
	json_t *all;
	char *text;

	hotstore_stats(fs->hot, &h);
	all = all_json(fs, &h, (double)(clock_ns() - fs->started_ns) * 1e-9);
	text = json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
	json_decref(all);
	return text;
}
