/* SPDX-License-Identifier: Apache-2.0
 *
 * The control files, and what an open one does; see control.h.
 */
#include "expertfs/control.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/fail.h"
#include "expertfs/fs.h"
#include "expertfs/hotdir.h"
#include "expertfs/log.h"
#include "expertfs/respread.h"
#include "expertfs/select.h"
#include "expertfs/stats.h"
#include "expertfs/tracer.h"
#include "expertfs/usage.h"

#define TOP_EXPERTS 100 /* a tall terminal */

/* Buffers of stdio, of cat, and the kernel's largest request are multiples of it. */
#define BUFFER   1024
#define LINE_END 65536 /* bytes of a line that is waited for */

struct control {
	const struct control_file *file;
	pthread_mutex_t lock; /* all below */
	char *text;
	char *begun;               /* of a line whose end has not been written yet; NULL: none */
	struct control_caller who; /* by him */
};

/* -- what is read --------------------------------------------------------------------------------- */

static char *read_stats(struct fs *fs)
{
	return fs_stats_json(fs);
}

static char *read_metrics(struct fs *fs)
{
	return fs_metrics_text(fs);
}

static char *read_map(struct fs *fs)
{
	return fs_map_text(fs);
}

static char *read_top(struct fs *fs)
{
	return fs_top_text(fs, TOP_EXPERTS);
}

static char *read_drives(struct fs *fs)
{
	return respread_text(fs->respread, fs->hotdir);
}

static char *read_nothing(struct fs *fs)
{
	(void)fs;
	return strdup("");
}

static char *read_policy(struct fs *fs)
{
	struct hotstore_stats h;
	char *text;

	hotstore_stats(fs->hot, &h);
	return asprintf(&text, "%s\n", h.spec) < 0 ? NULL : text;
}

/* A line for each expert that passes; info is the picture of all. */
static char *list_experts(struct fs *fs, const char *head,
			  int (*line)(FILE *f, const struct store_expert *e,
				      const struct hot_info *info))
{
	struct hot_info *info = malloc(fs->store->experts * sizeof(*info));
	char *text = NULL;
	size_t size;
	FILE *f = info ? open_memstream(&text, &size) : NULL;

	if (f) {
		hotstore_snapshot(fs->hot, info);
		fputs(head, f);
		for (uint32_t i = 0; i < fs->store->experts; i++)
			line(f, &fs->store->expert[i], &info[i]);
		if (fclose(f) != 0) {
			free(text);
			text = NULL;
		}
	}
	free(info);
	return text;
}

static int usage_line(FILE *f, const struct store_expert *e, const struct hot_info *info)
{
	static const char *const states[] = { "cold", "loading", "resident" };

	return fprintf(f, "%u,%u,%.6g,%llu,%llu,%llu,%llu,%s\n", e->layer, e->expert, info->heat,
		       (unsigned long long)info->uses, (unsigned long long)info->loads,
		       (unsigned long long)info->last_use, (unsigned long long)info->load_ns,
		       states[info->state]);
}

static char *read_usage(struct fs *fs)
{
	return list_experts(fs, "layer,expert,heat,uses,loads,last_use,load_ns,state\n",
			    usage_line);
}

static int pinned_line(FILE *f, const struct store_expert *e, const struct hot_info *info)
{
	return info->pinned ? fprintf(f, "%u/%u\n", e->layer, e->expert) : 0;
}

static char *read_pinned(struct fs *fs)
{
	return list_experts(fs, "", pinned_line);
}

static char *read_trace(struct fs *fs)
{
	char line[PATH_MAX + 256], *text;

	pthread_mutex_lock(&fs->trace_lock);
	if (fs->tracer)
		tracer_status(fs->tracer, line, sizeof(line));
	else
		snprintf(line, sizeof(line), "off");
	pthread_mutex_unlock(&fs->trace_lock);
	return asprintf(&text, "%s\n", line) < 0 ? NULL : text;
}

/* -- what is written ------------------------------------------------------------------------------ */

/* What a line does to each expert that it names, whatever comes of the others: "unpin all" meets many
 * that are not pinned. The first failure is told. */
struct order {
	const struct control_file *file;
	struct hotstore *hot;
	int err;
	uint32_t failed; /* index */
};

static void obey(void *arg, uint32_t index)
{
	struct order *o = arg;
	int err = o->file->order(o->hot, index);

	if (err && !o->err) {
		o->err = err;
		o->failed = index;
	}
}

static int give_order(struct fs *fs, const struct control_file *f, const char *line, char *why)
{
	struct order o = { .file = f, .hot = fs->hot };
	int err = select_experts(fs->store, fs->hot, line, obey, &o, why);

	if (!o.err)
		return err;
	return fail(why, -o.err, "expert %u/%u %s: %s", fs->store->expert[o.failed].layer,
		    fs->store->expert[o.failed].expert, f->cannot,
		    o.err == -ENOSPC   ? "there is no room for it in memory"
		    : o.err == -ENOENT ? "it is not"
		    : o.err == -ENXIO  ? "it is not in memory"
		    : o.err == -EBUSY  ? "a reader has it open or mapped, or it is pinned"
				       : strerror(-o.err));
}

/* A guess that cannot be followed is no error: the engine goes on. */
static int order_prefetch(struct hotstore *h, uint32_t index)
{
	hotstore_load(h, index, HOT_PREFETCH);
	return 0;
}

static int order_warm(struct hotstore *h, uint32_t index)
{
	int err = hotstore_load(h, index, HOT_WARM);

	return err == -EEXIST ? 0 : err;
}

/* What is not in memory is where it should be. */
static int order_evict(struct hotstore *h, uint32_t index)
{
	int err = hotstore_evict(h, index);

	return err == -ENOENT ? 0 : err;
}

static int write_policy(struct fs *fs, const struct control_caller *who, const char *line,
			char *why)
{
	int err = hotstore_set_policy(fs->hot, line);

	(void)who;
	if (err)
		return fail(why, -err,
			    "the daemon knows no policy \"%s\"; cachesim --list has the names and "
			    "their parameters",
			    line);
	log_line(LOG_INFO, "policy %s", line);
	return 0;
}

static int write_drives(struct fs *fs, const struct control_caller *who, const char *line,
			char *why)
{
	const struct user by = { who->uid, who->gid };
	int err = respread_command_by(fs->respread, line, &by, why);

	if (!err)
		log_line(LOG_INFO, "drives: %s", line);
	return err;
}

static void on_use(void *arg, uint64_t now, uint32_t index)
{
	const struct fs *fs = arg;
	const struct store_expert *e = &fs->store->expert[index];

	tracer_open(fs->tracer, now, e->layer, e->expert);
}

/* Whether there is a trace (recording says which it should be) is ours to change until end_change(). The
 * lock is not held meanwhile: a file may be slow, and who looks at the status must not wait for it. */
static int begin_change(struct fs *fs, bool recording, char *why)
{
	int err = 0;

	pthread_mutex_lock(&fs->trace_lock);
	if (fs->trace_busy)
		err = fail(why, EBUSY, "a trace is being begun or ended at this moment");
	else if (recording && !fs->tracer)
		err = fail(why, ENOENT, "no trace is being recorded");
	else if (!recording && fs->tracer)
		err = fail(why, EBUSY, "a trace is being recorded already");
	else
		fs->trace_busy = true;
	pthread_mutex_unlock(&fs->trace_lock);
	return err;
}

static void end_change(struct fs *fs)
{
	pthread_mutex_lock(&fs->trace_lock);
	fs->trace_busy = false;
	pthread_mutex_unlock(&fs->trace_lock);
}

static void set_tracer(struct fs *fs, struct tracer *t)
{
	pthread_mutex_lock(&fs->trace_lock);
	fs->tracer = t;
	pthread_mutex_unlock(&fs->trace_lock);
}

static int start_trace(struct fs *fs, const struct control_caller *who, const char *path, char *why)
{
	struct tracer *t;
	int err = begin_change(fs, false, why);

	if (err)
		return err;
	err = tracer_start(path, who->uid, who->gid, fs->store, &t, why);
	if (!err) {
		set_tracer(fs, t);
		hotstore_watch(fs->hot, on_use, fs);
		log_line(LOG_INFO, "recording a trace into %s", path);
	}
	end_change(fs);
	return err;
}

static int stop_trace(struct fs *fs, char *why)
{
	int err = begin_change(fs, true, why);
	struct tracer *t;

	if (err)
		return err;
	t = fs->tracer;
	hotstore_watch(fs->hot, NULL, NULL);
	set_tracer(fs, NULL);
	log_line(LOG_INFO, "the recording ends");
	err = tracer_stop(t, why);
	end_change(fs);
	return err;
}

void control_stop_trace(struct fs *fs)
{
	char why[WHY_MAX];

	if (fs->tracer && stop_trace(fs, why) != 0)
		log_line(LOG_ERR, "%s", why);
}

static int write_trace(struct fs *fs, const struct control_caller *who, const char *line, char *why)
{
	if (strncmp(line, "start ", 6) == 0)
		return start_trace(fs, who, line + 6, why);
	if (strcmp(line, "stop") == 0)
		return stop_trace(fs, why);
	return fail(why, EINVAL, "\"%s\": it is \"start FILE\" or \"stop\"", line);
}

static int write_usage(struct fs *fs, const struct control_caller *who, const char *line, char *why)
{
	(void)who;
	return strcmp(line, "flush") == 0 ? usage_flush(fs->usage, why)
					  : fail(why, EINVAL, "\"%s\": it is \"flush\"", line);
}

/* -- the table ------------------------------------------------------------------------------------ */

static const struct control_file files[] = {
	{ "stats.json", 0444, .read = read_stats },
	{ "metrics", 0444, .read = read_metrics },
	{ "map", 0444, .read = read_map },
	{ "top", 0444, .read = read_top },
	{ "usage", 0644, .read = read_usage, .write = write_usage },
	{ "policy", 0644, .read = read_policy, .write = write_policy },
	{ "prefetch", 0200, read_nothing, .order = order_prefetch,
	  .cannot = "cannot be prefetched" },
	{ "used", 0200, read_nothing, .order = hotstore_use,
	  .cannot = "cannot have been used without an open" },
	{ "pin", 0644, read_pinned, .order = hotstore_pin, .cannot = "cannot be pinned" },
	{ "unpin", 0200, read_nothing, .order = hotstore_unpin, .cannot = "cannot be unpinned" },
	{ "warm", 0200, read_nothing, .order = order_warm, .cannot = "cannot be loaded" },
	{ "evict", 0200, read_nothing, .order = order_evict, .cannot = "cannot be evicted" },
	{ "drives", 0644, .read = read_drives, .write = write_drives },
	{ "trace", 0644, .read = read_trace, .write = write_trace },
};

const struct control_file *control_file(uint64_t i)
{
	return i < sizeof(files) / sizeof(*files) ? &files[i] : NULL;
}

/* -- an open one ---------------------------------------------------------------------------------- */

/* Cuts text apart. */
static int obey_lines(const struct control_file *f, struct fs *fs, const struct control_caller *who,
		      char *text, char *why)
{
	char *save;
	int err = 0;

	for (char *line = strtok_r(text, "\n", &save); line && !err;
	     line = strtok_r(NULL, "\n", &save)) {
		size_t n = strlen(line);
		while (n > 0 && line[n - 1] == ' ')
			line[--n] = 0;
		if (n > 0)
			err = f->order ? give_order(fs, f, line, why)
				       : f->write(fs, who, line, why);
	}
	return err;
}

struct control *control_open(const struct control_file *f, struct fs *fs)
{
	struct control *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->file = f;
	c->text = f->read(fs);
	if (!c->text) {
		free(c);
		return NULL;
	}
	pthread_mutex_init(&c->lock, NULL);
	return c;
}

void control_close(struct control *c, struct fs *fs)
{
	char *line = c->begun, why[WHY_MAX] = "out of memory";

	if (line && obey_lines(c->file, fs, &c->who, line, why) != 0)
		log_line(LOG_WARNING, "what was written to .expertfs/%s last: %s", c->file->name,
			 why);
	free(line);
	pthread_mutex_destroy(&c->lock);
	free(c->text);
	free(c);
}

size_t control_read(struct control *c, char *buf, size_t size, uint64_t off)
{
	size_t total, n;

	pthread_mutex_lock(&c->lock);
	total = strlen(c->text);
	n = off >= total ? 0 : size < total - off ? size : (size_t)(total - off);
	memcpy(buf, c->text + (n ? off : 0), n);
	pthread_mutex_unlock(&c->lock);
	return n;
}

/* From now on this is what is to be read. */
static void set_text(struct control *c, const char *text)
{
	char *copy = strdup(text);

	if (!copy)
		return;
	pthread_mutex_lock(&c->lock);
	free(c->text);
	c->text = copy;
	pthread_mutex_unlock(&c->lock);
}

/* What was begun before, and text. NULL: out of memory. */
static char *take_begun(struct control *c, const char *text, size_t size)
{
	size_t n;
	char *all;

	pthread_mutex_lock(&c->lock);
	n = c->begun ? strlen(c->begun) : 0;
	all = malloc(n + size + 1);
	if (all) {
		memcpy(all, c->begun ? c->begun : "", n);
		memcpy(all + n, text, size);
		all[n + size] = 0;
		free(c->begun);
		c->begun = NULL;
	}
	pthread_mutex_unlock(&c->lock);
	return all;
}

/* Who writes more than his buffer holds cuts it anywhere, and half a name is the name of another
 * expert. So if a write of size bytes may end within a line, that line is taken off `all` and kept. */
static int keep_begun(struct control *c, const struct control_caller *who, char *all, size_t size)
{
	size_t n = strlen(all);
	char *line = strrchr(all, '\n'), *kept;

	line = line ? line + 1 : all;
	if (size % BUFFER || !*line || all[n - 1] == ' ' || strlen(line) > LINE_END)
		return 0;
	kept = strdup(line);
	if (!kept)
		return -ENOMEM;
	*line = 0;
	pthread_mutex_lock(&c->lock);
	free(c->begun); /* two who write at once spoil each other's lines in any case */
	c->begun = kept;
	c->who = *who;
	pthread_mutex_unlock(&c->lock);
	return 0;
}

static void drop_begun(struct control *c)
{
	pthread_mutex_lock(&c->lock);
	free(c->begun);
	c->begun = NULL;
	pthread_mutex_unlock(&c->lock);
}

int control_write(struct control *c, struct fs *fs, const struct control_caller *who,
		  const char *text, size_t size)
{
	char why[WHY_MAX] = "", *all;
	int err = 0;

	/* What stands behind it would be passed over in silence. */
	if (memchr(text, 0, size))
		err = fail(why, EINVAL, "what is written holds a zero byte");
	all = err ? NULL : take_begun(c, text, size);
	if (!err)
		err = all ? keep_begun(c, who, all, size) : -ENOMEM;
	if (!err)
		err = obey_lines(c->file, fs, who, all, why);
	free(all);
	if (err)
		drop_begun(c);
	if (err && why[0])
		set_text(c, why);
	return err;
}
