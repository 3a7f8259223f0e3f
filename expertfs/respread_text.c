/* SPDX-License-Identifier: Apache-2.0
 *
 * What is shown of the tasks and the drives: the text of .expertfs/drives; see respread.h.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/clock.h"
#include "expertfs/hotdir.h"
#include "expertfs/respread_parts.h"

/* Experts that are counted while the store's lock is held: some microseconds. */
#define COUNT_AT_ONCE 256

static const char *const states[] = {
	"queued", "running", "stopped", "done", "cancelled", "refused"
};

static void put(json_t *o, const char *key, uint64_t v)
{
	json_object_set_new(o, key, json_integer((json_int_t)v));
}

/* What is not UTF-8 is shown with question marks. */
static void put_text(json_t *o, const char *key, const char *text)
{
	json_t *j = json_string(text);
	char *copy = j ? NULL : strdup(text);

	for (char *c = copy; c && *c; c++)
		if (*c & 0x80)
			*c = '?';
	json_object_set_new(o, key, j ? j : json_string(copy));
	free(copy);
}

/* Rate and time left of a task that runs. Lock held. */
static void status_of(const struct task *t, struct respread_status *out)
{
	double seconds = (double)(clock_ns() - t->started_ns) * 1e-9;

	*out = t->status;
	if (out->state != RESPREAD_RUNNING || out->bytes_done == 0 || seconds <= 0)
		return;
	out->bytes_per_s = (double)out->bytes_done / seconds;
	out->seconds_left = (double)(out->bytes_total - out->bytes_done) / out->bytes_per_s;
}

void respread_status(struct respread *r, struct respread_status *out)
{
	*out = (struct respread_status){ 0 };
	pthread_mutex_lock(&r->lock);
	for (const struct task *t = r->now ? r->now : r->first; t; t = t->next) {
		status_of(t, out);
		if (t == r->now || t->status.state == RESPREAD_QUEUED)
			break;
	}
	pthread_mutex_unlock(&r->lock);
}

static json_t *task_json(const struct task *t)
{
	json_t *o = json_object();
	struct respread_status s;

	status_of(t, &s);
	put(o, "id", s.id);
	put_text(o, "command", t->line);
	put_text(o, "state", states[s.state]);
	put(o, "experts_done", s.experts_done);
	put(o, "experts_total", s.experts_total);
	put(o, "bytes_done", s.bytes_done);
	put(o, "bytes_total", s.bytes_total);
	json_object_set_new(o, "bytes_per_s", json_real(s.bytes_per_s));
	json_object_set_new(o, "seconds_left", json_real(s.seconds_left));
	if (s.error[0])
		put_text(o, "error", s.error);
	return o;
}

/* The number of the drive that is leaving, or UINT32_MAX. */
static uint32_t leaving(struct respread *r)
{
	uint32_t d = UINT32_MAX;

	pthread_mutex_lock(&r->lock);
	if (r->now && r->now->job.kind == SPREAD_REMOVE)
		d = r->now->job.drive;
	pthread_mutex_unlock(&r->lock);
	return d;
}

struct counts {
	uint64_t experts[STORE_DRIVES_MAX + 1], bytes[STORE_DRIVES_MAX + 1];
};

static void count_list(const struct extent_list *l, struct counts *c)
{
	for (uint32_t x = 0; l && x < l->n; x++) {
		bool first = true;
		for (uint32_t y = 0; y < x; y++)
			first = first && l->x[y].drive != l->x[x].drive;
		c->experts[l->x[x].drive] += first;
		c->bytes[l->x[x].drive] += l->x[x].length;
	}
}

static void count(struct store *s, struct counts *c)
{
	for (uint32_t i = 0; i < s->experts;) {
		pthread_mutex_lock(&s->lock);
		for (uint32_t end = i + COUNT_AT_ONCE; i < end && i < s->experts; i++) {
			count_list(s->expert[i].packed, c);
			count_list(s->expert[i].hot, c);
		}
		pthread_mutex_unlock(&s->lock);
	}
}

/* NULL if no drive has this number. */
static json_t *drive_json(struct respread *r, uint32_t n, uint32_t leaves, const struct counts *c)
{
	struct store *s = r->cfg.store;
	struct drive_stats st = { 0 };
	json_t *o = NULL;

	/* Under the lock a drive does not go. */
	pthread_mutex_lock(&s->lock);
	struct drive *d = r->cfg.loader->drive[n];
	const char *path = n < STORE_HOT_DRIVE ? s->drive[n].path : d ? drive_path(d) : NULL;
	if (path && (o = json_object()) != NULL) {
		if (d)
			drive_stats(d, &st);
		put(o, "number", n);
		put_text(o, "path", path);
		put_text(o, "state",
			 n == STORE_HOT_DRIVE ? "hot"
			 : !d                 ? "missing"
			 : n == leaves        ? "leaving"
			 : st.failing         ? "failing"
					      : "ok");
	}
	pthread_mutex_unlock(&s->lock);
	if (!o)
		return NULL;
	put(o, "speed", st.speed);
	put(o, "experts", c->experts[n]);
	put(o, "bytes", c->bytes[n]);
	put(o, "bytes_read", st.bytes);
	put(o, "reads", st.reads);
	put(o, "errors", st.errors);
	put(o, "in_flight", st.in_flight);
	put(o, "queued",
	    st.queued[DRIVE_DEMAND] + st.queued[DRIVE_PREFETCH] + st.queued[DRIVE_PROMOTION]);
	return o;
}

static json_t *hot_json(struct hotdir *h)
{
	struct hotdir_stats s;

	hotdir_stats(h, &s);
	return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I}", "slots", (json_int_t)s.slots, "experts",
			 (json_int_t)s.experts, "bytes", (json_int_t)s.bytes, "promotions",
			 (json_int_t)s.promotions, "demotions", (json_int_t)s.demotions, "errors",
			 (json_int_t)s.errors);
}

char *respread_text(struct respread *r, struct hotdir *h)
{
	json_t *all = json_object(), *tasks = json_array(), *drives = json_array(), *one;
	struct counts *c = calloc(1, sizeof(*c));
	uint32_t leaves = leaving(r);
	char *text = NULL;

	pthread_mutex_lock(&r->lock);
	for (const struct task *t = r->first; t; t = t->next)
		json_array_append_new(tasks, task_json(t));
	pthread_mutex_unlock(&r->lock);
	if (c) {
		count(r->cfg.store, c);
		for (uint32_t n = 0; n <= STORE_HOT_DRIVE; n++)
			if ((one = drive_json(r, n, leaves, c)) != NULL)
				json_array_append_new(drives, one);
		json_object_set(all, "tasks", tasks);
		json_object_set(all, "drives", drives);
		if (h)
			json_object_set_new(all, "hot_dir", hot_json(h));
		text = json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
	}
	json_decref(tasks);
	json_decref(drives);
	json_decref(all);
	free(c);
	return text;
}
