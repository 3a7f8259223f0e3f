/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of the daemon's figures, and where each comes from; see figures.h.
 */
#include "expertfs/figures.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/clock.h"

/* Of the two types that a figure may be stored as; no other compiles. */
#define AT(type, field)                                                                            \
	(offsetof(type, field) + _Generic(((type *)0)->field, uint64_t : 0u, double : 0u))
#define OF(field)    AT(struct fs_figures, field)
#define PLAN(field)  AT(struct fs_figures, budget.field)
#define HOT(field)   AT(struct fs_figures, hot.field)
#define DRIVE(field) AT(struct drive_figures, field)
#define DIR(field)   AT(struct fs_figures, hot_dir.field)
#define USAGE(field) AT(struct fs_figures, usage.field)
#define QUANTILE(q)  "quantile=\"" q "\""
#define CLASS(c)     "class=\"" c "\""

/* clang-format off: two lines an entry */
const struct figure fs_figure_table[] = {
	{ "uptime_s", "uptime_seconds", NULL, GAUGE, REAL, OF(uptime_s), "Time since the mount." },
	{ "memory.budget", "memory_budget_bytes", NULL, GAUGE, COUNT, PLAN(total),
	  "What --memory allows." },
	{ "memory.needed", "memory_needed_bytes", NULL, GAUGE, COUNT, PLAN(needed),
	  "What of it can come to be used: less if all experts take less." },
	{ "memory.used", "memory_used_bytes", NULL, GAUGE, COUNT, OF(used),
	  "In use: fixed part, experts, what lies ready, what is still mapped." },
	{ "memory.fixed", "memory_fixed_bytes", NULL, GAUGE, COUNT, PLAN(fixed),
	  "Set aside for all but the hot store." },
	{ "memory.tables", "memory_tables_bytes", NULL, GAUGE, COUNT, PLAN(tables),
	  "Of the fixed part: what is known of each expert." },
	{ "memory.threads", "memory_threads_bytes", NULL, GAUGE, COUNT, PLAN(threads),
	  "Of the fixed part: stacks and request buffers." },
	{ "memory.buffers", "memory_buffers_bytes", NULL, GAUGE, COUNT, PLAN(buffers),
	  "Of the fixed part: reads of experts that are not kept." },
	{ "memory.usage", "memory_usage_bytes", NULL, GAUGE, COUNT, PLAN(usage),
	  "Of the fixed part: writing usage to the catalog." },
	{ "memory.moving", "memory_moving_bytes", NULL, GAUGE, COUNT, PLAN(moving),
	  "Of the fixed part: experts on their way to another drive." },
	{ "memory.hot_drive", "memory_hot_drive_bytes", NULL, GAUGE, COUNT, PLAN(hot_drive),
	  "Of the fixed part: the hot drive." },
	{ "memory.hot_store", "memory_hot_store_bytes", NULL, GAUGE, COUNT, PLAN(capacity),
	  "What the hot store may use while the machine has enough." },
	{ "memory.capacity", "memory_capacity_bytes", NULL, GAUGE, COUNT, HOT(capacity),
	  "What the hot store may use now." },
	{ "memory.available", "memory_available_bytes", NULL, GAUGE, COUNT, PLAN(available),
	  "What machine and cgroup had at the start." },
	{ "memory.experts", "memory_experts_bytes", NULL, GAUGE, COUNT, HOT(policy.used),
	  "Of the experts in memory and on their way." },
	{ "memory.ready", "memory_ready_bytes", NULL, GAUGE, COUNT, HOT(ready_bytes),
	  "Set aside for the experts that come next." },
	{ "memory.evicted_but_mapped", "memory_evicted_but_mapped_bytes", NULL, GAUGE, COUNT,
	  HOT(mapped_bytes), "Of experts that were evicted and that readers map still." },
	{ "memory.pinned", "memory_pinned_bytes", NULL, GAUGE, COUNT, HOT(pinned_bytes),
	  "Of the experts that are told to stay." },
	{ "memory.slots", "memory_slots", NULL, GAUGE, COUNT, OF(slots),
	  "Experts of mean size that fit into the hot store." },
	{ "memory.huge_pages", "memory_huge_pages", NULL, GAUGE, BOOL, OF(huge_pages),
	  "1 if experts lie in huge pages." },
	{ "experts.total", "experts", NULL, GAUGE, COUNT, OF(experts), "Experts in the store." },
	{ "experts.resident", "experts_resident", NULL, GAUGE, COUNT, HOT(resident),
	  "Experts in memory." },
	{ "experts.held", "experts_held", NULL, GAUGE, COUNT, HOT(held),
	  "Experts that a reader holds open." },
	{ "experts.loading", "experts_loading", NULL, GAUGE, COUNT, HOT(loading),
	  "Experts on their way into memory." },
	{ "experts.pinned", "experts_pinned", NULL, GAUGE, COUNT, HOT(pinned),
	  "Experts that are told to stay in memory." },
	{ "experts.mapped", "experts_mapped", NULL, GAUGE, COUNT, HOT(mapped),
	  "Experts that should have gone, but that a reader has mapped." },
	{ "opens", "opens_total", NULL, COUNTER, COUNT, HOT(opens),
	  "Opens of experts; each is one use." },
	{ "hits", "hits_total", NULL, COUNTER, COUNT, HOT(hits),
	  "Opens of an expert that was in memory." },
	{ "misses", "misses_total", NULL, COUNTER, COUNT, HOT(misses),
	  "Opens of an expert that was not." },
	{ "unkept", "unkept_total", NULL, COUNTER, COUNT, HOT(unkept),
	  "Misses that found no room in memory." },
	{ "hit_rate", "hit_ratio", NULL, GAUGE, REAL, OF(hit_rate),
	  "Hits of all opens since the mount." },
	{ "opens_1m", "opens_1m", NULL, GAUGE, COUNT, HOT(opens_1m), "Opens of the last minute." },
	{ "hits_1m", "hits_1m", NULL, GAUGE, COUNT, HOT(hits_1m), "Hits of the last minute." },
	{ "hit_rate_1m", "hit_ratio_1m", NULL, GAUGE, REAL, OF(hit_rate_1m),
	  "Hits of all opens of the last minute." },
	{ "bytes_read", "read_bytes_total", NULL, COUNTER, COUNT, OF(bytes_read),
	  "Bytes read from all drives." },
	{ "load_ms.p50", "load_seconds", QUANTILE("0.5"), SUMMARY, MS, HOT(load_ms_p50),
	  "From the open of an expert that is not in memory to the answer." },
	{ "load_ms.p95", "load_seconds", QUANTILE("0.95"), SUMMARY, MS, HOT(load_ms_p95), "" },
	{ "load_ms.p99", "load_seconds", QUANTILE("0.99"), SUMMARY, MS, HOT(load_ms_p99), "" },
	{ "prefetch.asked", "prefetch_asked_total", NULL, COUNTER, COUNT, HOT(prefetch_asked),
	  "Experts asked for ahead of need." },
	{ "prefetch.loaded", "prefetch_loaded_total", NULL, COUNTER, COUNT, HOT(prefetch_loaded),
	  "Those of them that were loaded." },
	{ "prefetch.used", "prefetch_used_total", NULL, COUNTER, COUNT, HOT(prefetch_used),
	  "Those that were opened after that." },
	{ "prefetch.wasted", "prefetch_wasted_total", NULL, COUNTER, COUNT, HOT(prefetch_wasted),
	  "Those that were evicted before it." },
	{ "promotions", "promotions_total", NULL, COUNTER, COUNT, DIR(promotions),
	  "Experts copied to the hot drive." },
	{ "demotions", "demotions_total", NULL, COUNTER, COUNT, DIR(demotions),
	  "Experts forgotten on the hot drive." },
	{ "hot_dir.slots", "hot_dir_slots", NULL, GAUGE, COUNT, DIR(slots),
	  "Experts that fit on the hot drive; 0: there is none." },
	{ "hot_dir.experts", "hot_dir_experts", NULL, GAUGE, COUNT, DIR(experts),
	  "Experts that are on the hot drive." },
	{ "hot_dir.bytes", "hot_dir_bytes", NULL, GAUGE, COUNT, DIR(bytes),
	  "Bytes of the experts that are on the hot drive." },
	{ "hot_dir.errors", "hot_dir_errors_total", NULL, COUNTER, COUNT, DIR(errors),
	  "Copies on the hot drive that were damaged or could not be written." },
	{ "usage.recording", "usage_recording", NULL, GAUGE, BOOL, OF(recording),
	  "1 if the catalog remembers which experts are used." },
	{ "usage.flushes", "usage_flushes_total", NULL, COUNTER, COUNT, USAGE(flushes),
	  "Transactions that wrote usage to the catalog." },
	{ "usage.errors", "usage_errors_total", NULL, COUNTER, COUNT, USAGE(errors),
	  "Transactions that failed." },
	{ "usage.known", "usage_known", NULL, GAUGE, COUNT, USAGE(known),
	  "Experts whose usage was known at the start." },
	{ "usage.warm", "usage_warm", NULL, GAUGE, COUNT, USAGE(warm),
	  "Experts that are worth loading ahead after the start." },
	{ "usage.warm_asked", "usage_warm_asked", NULL, GAUGE, COUNT, USAGE(asked),
	  "Those of them that were asked for so far." },
	{ "evictions", "evictions_total", NULL, COUNTER, COUNT, HOT(policy.evictions),
	  "Experts dropped from memory." },
	{ "recycled", "recycled_total", NULL, COUNTER, COUNT, HOT(recycled),
	  "Loads that needed no fresh memory." },
	{ "errors", "errors_total", NULL, COUNTER, COUNT, HOT(errors),
	  "Opens that ended with EIO." },
	{ 0 }
};

const struct figure drive_figure_table[] = {
	{ "bytes_read", "drive_read_bytes_total", NULL, COUNTER, COUNT, DRIVE(stats.bytes),
	  "Bytes read from the drive." },
	{ "reads", "drive_reads_total", NULL, COUNTER, COUNT, DRIVE(stats.reads),
	  "Reads of the drive, of at most 512 KiB each." },
	{ "errors", "drive_errors_total", NULL, COUNTER, COUNT, DRIVE(stats.errors),
	  "Reads of the drive that failed." },
	{ "in_flight", "drive_in_flight", NULL, GAUGE, COUNT, DRIVE(in_flight),
	  "Reads that the drive has now." },
	{ "queue.demand", "drive_queue_bytes", CLASS("demand"), GAUGE, COUNT,
	  DRIVE(stats.queued[DRIVE_DEMAND]), "Bytes that wait for the drive or are in flight." },
	{ "queue.prefetch", "drive_queue_bytes", CLASS("prefetch"), GAUGE, COUNT,
	  DRIVE(stats.queued[DRIVE_PREFETCH]), "" },
	{ "queue.promotion", "drive_queue_bytes", CLASS("promotion"), GAUGE, COUNT,
	  DRIVE(stats.queued[DRIVE_PROMOTION]), "" },
	{ "speed", "drive_speed_bytes_per_second", NULL, GAUGE, COUNT, DRIVE(stats.speed),
	  "What the drive gives when it has enough to do; 0: not known yet." },
	{ "gb_per_s", "drive_busy_bytes_per_second", NULL, GAUGE, GB, DRIVE(gb_per_s),
	  "Bytes read in the time in which the drive had something to do." },
	{ "read_ms.p50", "drive_read_seconds", QUANTILE("0.5"), SUMMARY, MS, DRIVE(stats.p50_ms),
	  "Time of one read of the drive." },
	{ "read_ms.p99", "drive_read_seconds", QUANTILE("0.99"), SUMMARY, MS, DRIVE(stats.p99_ms),
	  "" },
	{ 0 }
};
/* clang-format on */

double figure_value(const struct figure *f, const void *base)
{
	const char *at = (const char *)base + f->offset;
	double real;

	if (f->type == COUNT || f->type == BOOL)
		return (double)figure_count(f, base);
	memcpy(&real, at, sizeof(real));
	return real;
}

uint64_t figure_count(const struct figure *f, const void *base)
{
	uint64_t count;

	memcpy(&count, (const char *)base + f->offset, sizeof(count));
	return count;
}

/* A copy of a path as valid UTF-8: if it is not, what is not ASCII in it becomes '?'. */
static char *utf8_copy(const char *text)
{
	json_t *valid = json_string(text); /* NULL if it is not UTF-8 */
	char *copy = strdup(text);

	for (char *c = copy; c && *c && !valid; c++)
		if (*c & 0x80)
			*c = '?';
	json_decref(valid);
	return copy;
}

/* Under the store's lock, which whoever adds or removes a drive holds while it does that. */
static int take_drive(const struct fs *fs, uint32_t number, struct drive_figures *d)
{
	struct drive *drive = fs->drive[number];
	const char *path = drive ? drive_path(drive) : fs->store->drive[number].path;

	*d = (struct drive_figures){ .number = number,
				     .path = utf8_copy(path),
				     .state = "missing",
				     .role = number == STORE_HOT_DRIVE ? "hot" : "store" };
	if (drive) {
		drive_stats(drive, &d->stats);
		d->state = d->stats.failing ? "failing" : "ok";
		d->in_flight = d->stats.in_flight;
		if (d->stats.busy_ns)
			d->gb_per_s = (double)d->stats.bytes / (double)d->stats.busy_ns;
	}
	return d->path ? 0 : -ENOMEM;
}

static bool is_drive(const struct fs *fs, uint32_t number)
{
	return fs->drive[number] || (number < fs->store->drives && fs->store->drive[number].path);
}

static int take_drives(const struct fs *fs, struct fs_figures *f)
{
	uint32_t n = 0;
	int err = 0;

	pthread_mutex_lock(&fs->store->lock);
	f->io = fs_uses_uring(fs) ? "io_uring" : "threads";
	for (uint32_t i = 0; i <= STORE_DRIVES_MAX; i++)
		n += is_drive(fs, i);
	f->drive = calloc(n ? n : 1, sizeof(*f->drive));
	if (!f->drive)
		err = -ENOMEM;
	for (uint32_t i = 0; i <= STORE_DRIVES_MAX && !err; i++) {
		if (!is_drive(fs, i))
			continue;
		err = take_drive(fs, i, &f->drive[f->drives]);
		f->bytes_read += f->drive[f->drives++].stats.bytes;
	}
	pthread_mutex_unlock(&fs->store->lock);
	return err;
}

static double ratio(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0;
}

int fs_figures_take(const struct fs *fs, struct fs_figures *f)
{
	int err;

	*f = (struct fs_figures){ .store = utf8_copy(fs->store->dir),
				  .mode = fs->passthrough ? "passthrough" : "direct",
				  .uptime_s = (double)(clock_ns() - fs->started_ns) * 1e-9,
				  .budget = fs->budget,
				  .slots = fs->budget.slots,
				  .huge_pages = backing_source_huge(fs->source),
				  .experts = fs->store->experts };
	hotstore_stats(fs->hot, &f->hot);
	f->used = f->budget.fixed + f->hot.policy.used + f->hot.ready_bytes + f->hot.mapped_bytes;
	if (fs->hotdir)
		hotdir_stats(fs->hotdir, &f->hot_dir);
	if (fs->usage)
		usage_stats(fs->usage, &f->usage);
	f->recording = f->usage.recording;
	f->hit_rate = ratio(f->hot.hits, f->hot.opens);
	f->hit_rate_1m = ratio(f->hot.hits_1m, f->hot.opens_1m);
	err = f->store ? take_drives(fs, f) : -ENOMEM;
	if (err)
		fs_figures_free(f);
	return err;
}

void fs_figures_free(struct fs_figures *f)
{
	for (uint32_t i = 0; i < f->drives; i++)
		free(f->drive[i].path);
	free(f->drive);
	free(f->store);
	*f = (struct fs_figures){ 0 };
}
