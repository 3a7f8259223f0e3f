/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread that carries usage between the hot store and catalog.db; see usage.h.
 */
#include "expertfs/usage.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "expertfs/catalog.h"
#include "expertfs/clock.h"
#include "expertfs/fail.h"
#include "expertfs/log.h"
#include "expertfs/storelock.h"

/* The hot store has enough to load: some of it will be done by then. */
#define FILL_WAIT_MS 5
#define PASS_MS      200 /* before those that did not come are asked for again */
#define PASSES       5   /* without one more that came */
/* A heat that differs by less than this share from the catalog's may stay there. */
#define FADED        0.05
#define FADED_AT_END 0.001
/* What SQLite keeps of a connection: its page cache (catalog_open()) and some. */
#define SQLITE_BYTES (320u << 10)

struct warm {
	uint32_t index;
	float heat;
};

struct usage {
	struct usage_config cfg;
	struct catalog *catalog; /* NULL: not recording. The thread's once it runs */
	int lock_fd;             /* -1, or STORE_RECORDED */
	struct hot_info *now, *written;
	struct warm *warm; /* of the fill that runs, hottest first */
	pthread_t thread;
	bool failing; /* the last flush failed: said once */

	pthread_mutex_t lock; /* all below */
	pthread_cond_t woken, flushed;
	bool stop, fill;
	uint64_t flushes_asked, flushes_done; /* by usage_flush() */
	int flush_err;
	char flush_why[WHY_MAX];
	struct usage_stats stats;
};

uint64_t usage_memory(uint64_t experts)
{
	return experts * (2 * sizeof(struct hot_info) + sizeof(struct warm)) + SQLITE_BYTES;
}

/* -- to the catalog -------------------------------------------------------------------------------
 */

static bool changed(const struct hot_info *now, const struct hot_info *old, double faded)
{
	return now->uses != old->uses || now->loads != old->loads ||
	       now->last_use != old->last_use || now->load_ns != old->load_ns ||
	       fabs(now->heat - old->heat) > faded * old->heat;
}

static int put_rows(struct usage *u, double faded, uint64_t *rows, char *why)
{
	const struct store *s = u->cfg.store;
	uint64_t clock = 0;
	char text[24];
	int err = 0;

	for (uint32_t i = 0; i < s->experts && !err; i++) {
		const struct hot_info *n = &u->now[i];
		const struct usage_row row = { .layer = s->expert[i].layer,
					       .expert = s->expert[i].expert,
					       .heat = n->heat,
					       .uses = n->uses,
					       .loads = n->loads,
					       .last_use = n->last_use,
					       .load_ns = n->load_ns };
		clock += n->uses;
		if (!changed(n, &u->written[i], faded))
			continue;
		++*rows;
		err = catalog_usage_put(u->catalog, &row, why);
	}
	if (err || *rows == 0)
		return err;
	snprintf(text, sizeof(text), "%" PRIu64, clock);
	return catalog_meta_put(u->catalog, "clock", text, why);
}

static void flush_done(struct usage *u, int err, uint64_t rows, const char *why)
{
	if (err && !u->failing)
		log_line(LOG_WARNING, "usage cannot be written, and is kept in memory: %s", why);
	if (!err && u->failing)
		log_line(LOG_INFO, "usage is written again");
	u->failing = err != 0;
	pthread_mutex_lock(&u->lock);
	u->stats.errors += err != 0;
	u->stats.flushes += !err && rows;
	u->stats.rows += err ? 0 : rows;
	u->flush_err = err;
	snprintf(u->flush_why, sizeof(u->flush_why), "%s", why);
	pthread_mutex_unlock(&u->lock);
}

static void flush(struct usage *u, double faded)
{
	char why[WHY_MAX] = "";
	uint64_t rows = 0;
	int err;

	if (!u->catalog)
		return;
	hotstore_snapshot(u->cfg.hot, u->now);
	err = catalog_begin(u->catalog, why);
	if (!err) {
		err = put_rows(u, faded, &rows, why);
		if (err || rows == 0)
			catalog_rollback(u->catalog);
		else
			err = catalog_commit(u->catalog, why);
	}
	/* The heat of a row that was left out stays the one that the catalog has. */
	for (uint32_t i = 0; !err && rows && i < u->cfg.store->experts; i++)
		if (changed(&u->now[i], &u->written[i], faded))
			u->written[i] = u->now[i];
	flush_done(u, err, rows, why);
}

/* -- to the hot store -----------------------------------------------------------------------------
 */

static int hotter(const void *a, const void *b)
{
	const struct warm *x = a, *y = b;

	if (x->heat != y->heat)
		return x->heat < y->heat ? 1 : -1;
	return x->index < y->index ? -1 : x->index > y->index;
}

/* Which experts are worth it now. */
static uint32_t choose(struct usage *u)
{
	uint32_t n = 0;

	hotstore_snapshot(u->cfg.hot, u->now);
	for (uint32_t i = 0; i < u->cfg.store->experts; i++)
		if (u->now[i].heat >= u->cfg.floor && u->now[i].state == HOT_COLD)
			u->warm[n++] = (struct warm){ i, (float)u->now[i].heat };
	qsort(u->warm, n, sizeof(*u->warm), hotter);
	return n;
}

/* What a fill has come to. */
struct fill {
	uint32_t first, n, at; /* experts worth it at its begin, in this pass; the next one */
	unsigned pass;         /* since the last one that came to something */
	uint64_t wake;         /* not before */
	bool running;
};

static void begin_fill(struct usage *u, struct fill *f)
{
	*f = (struct fill){ .n = choose(u), .running = true };
	f->first = f->n;
	pthread_mutex_lock(&u->lock);
	u->fill = false;
	u->stats.filling = USAGE_FILLING;
	u->stats.warm = f->n;
	u->stats.asked = 0;
	pthread_mutex_unlock(&u->lock);
}

static void end_fill(struct usage *u, struct fill *f, bool full)
{
	f->running = false;
	pthread_mutex_lock(&u->lock);
	u->stats.filling = USAGE_FILLED;
	u->stats.asked = f->first - (f->n - f->at);
	pthread_mutex_unlock(&u->lock);
	if (f->first)
		log_line(LOG_INFO,
			 "usage: %" PRIu32 " of the %" PRIu32
			 " experts that were used most are in memory%s",
			 f->first - (f->n - f->at), f->first, full ? ", which is full" : "");
}

/* All were asked for. The hot store may have had to drop some, say while its memory was being made:
 * those are asked for again, unless that has come to nothing a few times (they may be damaged). */
static void next_pass(struct usage *u, struct fill *f)
{
	uint32_t n = choose(u);

	f->pass = n < f->n ? 0 : f->pass + 1;
	f->n = n;
	f->at = 0;
	f->wake = clock_ns() + PASS_MS * UINT64_C(1000000);
	if (n == 0 || f->pass == PASSES)
		end_fill(u, f, false);
}

/* Goes on until the queue is full or there is nothing left to ask for. */
static void go_on_filling(struct usage *u, struct fill *f)
{
	uint64_t asked = 0;
	int err = 0;

	while (f->at < f->n) {
		err = hotstore_load(u->cfg.hot, u->warm[f->at].index, HOT_FILL);
		if (err == -EAGAIN || err == -ENOSPC)
			break;
		asked += err == 0;
		f->at++; /* it is on its way, or there already */
	}
	f->wake = clock_ns() + FILL_WAIT_MS * UINT64_C(1000000);
	pthread_mutex_lock(&u->lock);
	u->stats.asked += f->n == f->first ? asked : 0;
	pthread_mutex_unlock(&u->lock);
	if (err == -ENOSPC)
		end_fill(u, f, true);
	else if (f->at == f->n)
		next_pass(u, f);
}

/* -- the thread -----------------------------------------------------------------------------------
 */

/* Sleeps until the time has come, or a fill, a flush or the end is asked for. False: the end. */
static bool sleep_until(struct usage *u, uint64_t ns)
{
	const struct timespec t = { .tv_sec = (time_t)(ns / 1000000000u),
				    .tv_nsec = (long)(ns % 1000000000u) };
	bool stop;

	pthread_mutex_lock(&u->lock);
	while (!u->stop && !u->fill && u->flushes_asked == u->flushes_done &&
	       pthread_cond_timedwait(&u->woken, &u->lock, &t) == 0)
		;
	stop = u->stop;
	pthread_mutex_unlock(&u->lock);
	return !stop;
}

static bool fill_asked(struct usage *u)
{
	bool asked;

	pthread_mutex_lock(&u->lock);
	asked = u->fill;
	pthread_mutex_unlock(&u->lock);
	return asked;
}

static uint64_t flushes_asked(struct usage *u)
{
	uint64_t asked;

	pthread_mutex_lock(&u->lock);
	asked = u->flushes_asked;
	pthread_mutex_unlock(&u->lock);
	return asked;
}

/* Those who asked before the flush began have what they wanted. */
static void flushes_done(struct usage *u, uint64_t asked)
{
	pthread_mutex_lock(&u->lock);
	u->flushes_done = asked;
	pthread_cond_broadcast(&u->flushed);
	pthread_mutex_unlock(&u->lock);
}

static void *usage_main(void *arg)
{
	struct usage *u = arg;
	const uint64_t period = u->cfg.flush_ms * UINT64_C(1000000);
	uint64_t next = clock_ns() + period, asked, done = 0;
	struct fill f = { .running = false };

	do {
		if (fill_asked(u))
			begin_fill(u, &f);
		if (f.running && clock_ns() >= f.wake)
			go_on_filling(u, &f);
		asked = flushes_asked(u);
		if (clock_ns() >= next || asked != done) {
			flush(u, FADED);
			flushes_done(u, asked);
			done = asked;
			next = clock_ns() + period;
		}
	} while (sleep_until(u, f.running && f.wake < next ? f.wake : next));
	asked = flushes_asked(u);
	flush(u, FADED_AT_END);
	flushes_done(u, asked);
	return NULL;
}

/* -- start and end --------------------------------------------------------------------------------
 */

static int seed(void *arg, const struct usage_row *row)
{
	struct usage *u = arg;
	const struct store *s = u->cfg.store;
	uint32_t index = store_index(s, row->layer, row->expert);
	struct hot_info info = { .heat = row->heat,
				 .uses = row->uses,
				 .loads = row->loads,
				 .last_use = row->last_use,
				 .load_ns = row->load_ns };

	if (index == STORE_NO_EXPERT)
		return 0;
	/* Each open is one use and adds 1 to the heat, so more than that it cannot be. */
	if (info.heat > (double)info.uses)
		info.heat = (double)info.uses;
	u->written[index] = info;
	hotstore_seed(u->cfg.hot, index, &info);
	u->stats.known++;
	return 0;
}

/* Opens for writing if this daemon is the one to record, else for reading. */
static int open_catalog(struct usage *u, char *why)
{
	const char *dir = u->cfg.store->dir;
	int err = store_lock(dir, STORE_RECORDED, &u->lock_fd, why);

	err = err ? err : catalog_open(dir, &u->catalog, why);
	err = err ? err : catalog_lazy(u->catalog, why);
	if (!err) {
		u->stats.recording = true;
		return 0;
	}
	log_line(LOG_WARNING, "usage is not recorded: %s", why);
	catalog_close(u->catalog);
	u->catalog = NULL;
	return catalog_open_read(dir, &u->catalog, why);
}

static void read_usage(struct usage *u)
{
	char why[WHY_MAX];
	int err = open_catalog(u, why);

	err = err ? err : catalog_usage_each(u->catalog, seed, u, why);
	if (err)
		log_line(LOG_WARNING, "the usage of last time cannot be read: %s", why);
	if (!u->stats.recording) {
		catalog_close(u->catalog);
		u->catalog = NULL;
	}
}

static void free_usage(struct usage *u)
{
	catalog_close(u->catalog);
	if (u->lock_fd >= 0)
		close(u->lock_fd);
	pthread_cond_destroy(&u->woken);
	pthread_cond_destroy(&u->flushed);
	pthread_mutex_destroy(&u->lock);
	free(u->now);
	free(u->written);
	free(u->warm);
	free(u);
}

static struct usage *new_usage(const struct usage_config *cfg)
{
	struct usage *u = calloc(1, sizeof(*u));
	pthread_condattr_t attr;

	if (!u)
		return NULL;
	u->cfg = *cfg;
	if (u->cfg.flush_ms == 0)
		u->cfg.flush_ms = USAGE_FLUSH_MS;
	if (u->cfg.floor <= 0)
		u->cfg.floor = USAGE_FLOOR;
	u->lock_fd = -1;
	pthread_mutex_init(&u->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&u->woken, &attr);
	pthread_cond_init(&u->flushed, NULL);
	pthread_condattr_destroy(&attr);
	u->now = calloc(cfg->store->experts, sizeof(*u->now));
	u->written = calloc(cfg->store->experts, sizeof(*u->written));
	u->warm = calloc(cfg->store->experts, sizeof(*u->warm));
	if (u->now && u->written && u->warm)
		return u;
	free_usage(u);
	return NULL;
}

int usage_start(const struct usage_config *cfg, struct usage **out, char *why)
{
	struct usage *u = new_usage(cfg);
	int err;

	if (!u)
		return fail(why, ENOMEM, "out of memory for the usage of %" PRIu32 " experts",
			    cfg->store->experts);
	read_usage(u);
	u->fill = u->stats.known > 0 && !cfg->no_warm_start;
	err = pthread_create(&u->thread, NULL, usage_main, u);
	if (err) {
		free_usage(u);
		return fail(why, err, "cannot start the thread of the usage: %s", strerror(err));
	}
	*out = u;
	return 0;
}

void usage_stop(struct usage *u)
{
	if (!u)
		return;
	pthread_mutex_lock(&u->lock);
	u->stop = true;
	pthread_cond_signal(&u->woken);
	pthread_mutex_unlock(&u->lock);
	pthread_join(u->thread, NULL);
	free_usage(u);
}

int usage_flush(struct usage *u, char *why)
{
	uint64_t mine;
	int err;

	pthread_mutex_lock(&u->lock);
	if (!u->stats.recording) {
		pthread_mutex_unlock(&u->lock);
		return fail(why, EROFS, "usage is not recorded here");
	}
	mine = ++u->flushes_asked;
	pthread_cond_signal(&u->woken);
	while (u->flushes_done < mine)
		pthread_cond_wait(&u->flushed, &u->lock);
	err = u->flush_err ? fail(why, -u->flush_err, "%s", u->flush_why) : 0;
	pthread_mutex_unlock(&u->lock);
	return err;
}

void usage_fill(struct usage *u)
{
	pthread_mutex_lock(&u->lock);
	u->fill = true;
	pthread_cond_signal(&u->woken);
	pthread_mutex_unlock(&u->lock);
}

void usage_stats(struct usage *u, struct usage_stats *out)
{
	pthread_mutex_lock(&u->lock);
	*out = u->stats;
	pthread_mutex_unlock(&u->lock);
}
