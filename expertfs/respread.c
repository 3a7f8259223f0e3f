/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread, its queue and its commands; see respread.h.
 */
#include "expertfs/respread.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "expertfs/log.h"
#include "expertfs/respread_parts.h"
#include "expertfs/storelock.h"
#include "expertfs/yield.h"

#define WAITING_MAX  16
#define FINISHED_MAX 8   /* that are still shown */
#define LOST_MS      200 /* before a lock that was lost is asked for again */
#define LOCK_STEP_MS 20

uint64_t respread_memory(const struct store *s)
{
	/* A plan: its steps, the order of all places, the candidates of an expert; JSON of a move. */
	return mover_memory(s) + (uint64_t)s->experts * 128;
}

void task_free(struct task *t)
{
	if (!t)
		return;
	spread_job_free(&t->job);
	free(t->line);
	free(t->folder);
	free(t);
}

int respread_ask(void *arg)
{
	struct respread *r = arg;
	int err;

	pthread_mutex_lock(&r->lock);
	err = r->stop ? -EINTR : r->cancel ? -ECANCELED : 0;
	pthread_mutex_unlock(&r->lock);
	return err;
}

/* -- the queue ---------------------------------------------------------------------------------- */

static bool is_over(const struct task *t)
{
	return t->status.state >= RESPREAD_DONE;
}

/* Lock held. */
static void append(struct respread *r, struct task *t)
{
	if (r->last)
		r->last->next = t;
	else
		r->first = t;
	r->last = t;
	t->status.id = ++r->last_id;
}

/* Only the last few that are over stay. Lock held. */
static void forget_old(struct respread *r)
{
	uint32_t over = 0;

	for (struct task *t = r->first; t; t = t->next)
		over += is_over(t);
	/* In order: what is over is at the front. */
	for (; over > FINISHED_MAX && r->first && is_over(r->first); over--) {
		struct task *t = r->first;
		r->first = t->next;
		if (!r->first)
			r->last = NULL;
		task_free(t);
	}
}

static void say_end(const struct task *t, int err, const char *why)
{
	const struct respread_status *s = &t->status;

	if (!err)
		log_line(LOG_INFO, "%s: done, %" PRIu32 " experts moved", t->line, s->experts_done);
	else if (err == -EINTR)
		log_line(LOG_INFO, "%s: interrupted after %" PRIu32 " of %" PRIu32 " experts",
			 t->line, s->experts_done, s->experts_total);
	else if (err == -ECANCELED)
		log_line(LOG_INFO, "%s: cancelled; what has been moved stays moved", t->line);
	else
		log_line(LOG_ERR, "%s: %s", t->line, why);
}

/* After a task has ended so. */
static void settle(struct respread *r, struct task *t, int err, const char *why)
{
	char sentence[WHY_MAX];
	bool forget = t->begun && (!err || err == -ECANCELED);

	if (forget && task_forget(r, sentence) != 0)
		log_line(LOG_ERR, "%s", sentence);
	pthread_mutex_lock(&r->lock);
	t->status.state = !err                ? RESPREAD_DONE
			  : err == -ECANCELED ? RESPREAD_CANCELLED
			  : t->begun          ? RESPREAD_STOPPED
					      : RESPREAD_REFUSED;
	snprintf(t->status.error, sizeof(t->status.error), "%s",
		 err && err != -ECANCELED && err != -EINTR ? why : "");
	if (is_over(t)) {
		r->now = NULL;
		r->cancel = false;
		forget_old(r);
	}
	pthread_mutex_unlock(&r->lock);
}

/* -- the store's lock --------------------------------------------------------------------------- */

/* Another process has the store alone, and may move what this one knows the place of. */
static void lose(struct respread *r, const char *why)
{
	if (!r->lost)
		log_line(LOG_ERR, "%s, which may move experts: umount the store and mount it anew",
			 why);
	r->lost = true;
	r->cfg.store->doubtful = true;
	pthread_mutex_lock(&r->lock);
	r->writable = false;
	snprintf(r->unwritable, sizeof(r->unwritable), "%.900s: mount the store anew first", why);
	pthread_mutex_unlock(&r->lock);
}

/* Nobody else may have the store alone while it is served, whatever has become of it. */
static void regain(struct respread *r)
{
	if (r->lost &&
	    store_lock_change(r->cfg.lock, r->cfg.store->dir, STORE_SERVED, 0, NULL) == 0) {
		log_line(LOG_WARNING, "%s: its lock is there again", r->cfg.store->dir);
		r->lost = false;
	}
}

/* While experts move no other daemon may serve the store: it would look in the old places. */
static int lock_alone(struct respread *r, char *why)
{
	const char *dir = r->cfg.store->dir;
	int err = 0, told = 0;

	if (r->cfg.lock < 0)
		return 0;
	for (int ms = 0; ms <= STORE_DYING_MS; ms += LOCK_STEP_MS) {
		err = store_lock_change(r->cfg.lock, dir, STORE_ALONE, 0, why);
		told = err ? respread_ask(r) : 0;
		if (!err || told)
			break;
		sleep_ms(LOCK_STEP_MS);
	}
	if (err == -ENOLCK)
		lose(r, why);
	if (err == -EBUSY && !told)
		fail(why, EBUSY, "%s is in use by somebody else as well", dir);
	return told ? told : err;
}

static void lock_shared(struct respread *r)
{
	char why[WHY_MAX];

	if (r->cfg.lock >= 0 && store_lock_change(r->cfg.lock, r->cfg.store->dir, STORE_SERVED,
						  STORE_DYING_MS, why) != 0)
		lose(r, why);
}

/* -- the thread --------------------------------------------------------------------------------- */

/* Until somebody has a word, or a lost lock is to be asked for. Lock held. */
static void rest(struct respread *r)
{
	struct timespec until;

	if (!r->lost) {
		pthread_cond_wait(&r->wake, &r->lock);
		return;
	}
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += LOST_MS * 1000000l;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_cond_timedwait(&r->wake, &r->lock, &until);
	regain(r);
}

/* Waits for something to do. NULL: stop. */
static struct task *next_task(struct respread *r)
{
	struct task *t = NULL;

	pthread_mutex_lock(&r->lock);
	for (;;) {
		if (r->stop)
			break;
		if (r->now && (r->go_on || r->cancel)) {
			t = r->now;
			break;
		}
		for (t = r->now ? NULL : r->first; t && t->status.state != RESPREAD_QUEUED;)
			t = t->next;
		if (t)
			break;
		rest(r);
	}
	t = r->stop ? NULL : t;
	r->now = t ? t : r->now;
	r->go_on = false;
	if (t) {
		t->status.state = RESPREAD_RUNNING;
		t->status.error[0] = 0;
	}
	pthread_mutex_unlock(&r->lock);
	return t;
}

/* False, and why: the catalog cannot be written, or must not be any more. */
static bool may_write(struct respread *r, char *why)
{
	bool may;

	pthread_mutex_lock(&r->lock);
	may = r->writable;
	if (!may)
		fail(why, 0, "experts cannot be moved: %s", r->unwritable);
	pthread_mutex_unlock(&r->lock);
	return may;
}

static void run(struct respread *r, struct task *t)
{
	char why[WHY_MAX] = "";
	int err = respread_ask(r);

	if (!err)
		err = may_write(r, why) ? lock_alone(r, why) : -EROFS;
	if (!err) {
		err = task_run(r, t, why);
		lock_shared(r);
	}
	say_end(t, err, why);
	settle(r, t, err, why);
}

static void release(struct respread *r)
{
	catalog_close(r->catalog);
	while (r->first) {
		struct task *t = r->first;
		r->first = t->next;
		task_free(t);
	}
	while (r->gone_n)
		free(r->gone[--r->gone_n]);
	free(r->gone);
	pthread_cond_destroy(&r->wake);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

/* The task that was interrupted is the first one. */
static void take_up(struct respread *r)
{
	char why[WHY_MAX];
	struct task *t = NULL;

	if (task_load(r, &t, why) != 0)
		log_line(LOG_ERR, "%s", why);
	if (!t)
		return;
	log_line(LOG_INFO, "going on with what was interrupted: %s", t->line);
	append(r, t);
	r->now = t;
	r->go_on = true;
}

static void *thread_main(void *arg)
{
	struct respread *r = arg;
	char why[WHY_MAX];
	struct task *t;

	/* What looks left behind may be what another daemon is about to name. */
	if (r->writable && lock_alone(r, why) == 0) {
		mover_tidy(r->cfg.store, r->cfg.loader, r->catalog);
		lock_shared(r);
	}
	while ((t = next_task(r)) != NULL)
		run(r, t);
	return NULL;
}

int respread_start(const struct respread_config *cfg, struct respread **out, char *why)
{
	struct respread *r = calloc(1, sizeof(*r));
	int err;

	if (!r)
		return fail(why, ENOMEM, "out of memory");
	r->cfg = *cfg;
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->wake, NULL);
	/* A GGUF file is read, and never written to. */
	if (cfg->store->gguf)
		fail(r->unwritable, 0, "%s is a GGUF file, which coli-pack can make a store of",
		     cfg->store->gguf);
	else
		r->writable = catalog_open(cfg->store->dir, &r->catalog, r->unwritable) == 0;
	if (r->writable)
		take_up(r);
	err = pthread_create(&r->thread, NULL, thread_main, r);
	if (err) {
		release(r);
		return fail(why, err, "cannot start the thread that moves experts: %s",
			    strerror(err));
	}
	*out = r;
	return 0;
}

void respread_stop(struct respread *r)
{
	if (!r)
		return;
	pthread_mutex_lock(&r->lock);
	r->stop = true;
	pthread_cond_signal(&r->wake);
	pthread_mutex_unlock(&r->lock);
	pthread_join(r->thread, NULL);
	release(r);
}

/* -- commands ----------------------------------------------------------------------------------- */

/* The first word of *text, cut off; NULL: there is none. */
static char *cut_word(char **text)
{
	char *start = *text + strspn(*text, " \t"), *end = start + strcspn(start, " \t");

	*text = *end ? end + 1 : end;
	*end = 0;
	return *start ? start : NULL;
}

static bool same_file(const char *a, const char *b)
{
	char *x = realpath(a, NULL), *y = realpath(b, NULL);
	bool same = x && y ? strcmp(x, y) == 0 : strcmp(a, b) == 0;

	free(x);
	free(y);
	return same;
}

/* path: of the shard, or its folder. */
static bool is_drive_at(const char *shard, const char *path)
{
	char folder[PATH_MAX];

	snprintf(folder, sizeof(folder), "%s", shard);
	return same_file(shard, path) || same_file(dirname(folder), path);
}

/* The number of a drive by its number or path. */
static int find_drive(struct respread *r, const char *word, uint32_t *drive, char *why)
{
	struct store *s = r->cfg.store;
	char *end, *path;
	unsigned long n = strtoul(word, &end, 10);
	bool number = *word && !*end && isdigit((unsigned char)*word);

	for (uint32_t d = 0; d < STORE_DRIVES_MAX; d++) {
		bool found;
		pthread_mutex_lock(&s->lock);
		path = d < s->drives && s->drive[d].path ? strdup(s->drive[d].path) : NULL;
		pthread_mutex_unlock(&s->lock);
		found = path && (number ? n == d : is_drive_at(path, word));
		free(path);
		if (found) {
			*drive = d;
			return 0;
		}
	}
	return fail(why, ENOENT, "%s: the store has no such drive", word);
}

struct picked {
	struct spread_job *job; /* with room for all experts */
	bool *taken;
};

/* Each once, however often the words name it. */
static void pick(void *arg, uint32_t index)
{
	const struct picked *p = arg;

	if (!p->taken[index])
		p->job->expert[p->job->experts++] = index;
	p->taken[index] = true;
}

static int pick_experts(struct respread *r, struct task *t, const char *words, char *why)
{
	uint32_t all = r->cfg.store->experts;
	struct picked p = { &t->job, calloc(all, sizeof(*p.taken)) };
	int err = 0;

	t->job.expert = calloc(all, sizeof(*t->job.expert));
	if (!p.taken || !t->job.expert)
		err = fail(why, ENOMEM, "out of memory");
	else if (words[strspn(words, " \t")])
		err = r->cfg.select(r->cfg.select_arg, words, pick, &p, why);
	free(p.taken);
	if (!err && t->job.experts == 0)
		err = fail(why, EINVAL, "move: which experts? move N 3/17 4/0-15");
	return err;
}

/* What is left of the line but "equal": to its end, since a path may have spaces. */
static const char *rest_of(struct task *t, const char *words)
{
	words += strspn(words, " \t");
	t->equal = strncmp(words, "equal", 5) == 0 && strspn(words + 5, " \t") > 0;
	if (t->equal)
		words += 5 + strspn(words + 5, " \t");
	return words;
}

static int parse_add(struct task *t, const char *words, char *why)
{
	const char *path = rest_of(t, words);

	if (path[0] != '/')
		return fail(why, EINVAL, "add: a folder by its absolute path");
	t->job.kind = SPREAD_ADD;
	t->folder = strdup(path);
	return t->folder ? 0 : fail(why, ENOMEM, "out of memory");
}

static int parse_remove(struct respread *r, struct task *t, const char *words, char *why)
{
	const char *drive = rest_of(t, words);

	t->job.kind = SPREAD_REMOVE;
	return drive[0] ? find_drive(r, drive, &t->job.drive, why)
			: fail(why, EINVAL, "remove: which drive?");
}

static int parse_move(struct respread *r, struct task *t, char *words, char *why)
{
	const char *drive = cut_word(&words);
	int err = drive ? find_drive(r, drive, &t->job.drive, why)
			: fail(why, EINVAL, "move: to which drive?");

	t->job.kind = SPREAD_MOVE;
	return err ? err : pick_experts(r, t, words, why);
}

/* Cuts `words` apart. */
static int parse(struct respread *r, char *words, struct task *t, char *why)
{
	const char *verb = cut_word(&words);

	if (verb && strcmp(verb, "add") == 0)
		return parse_add(t, words, why);
	if (verb && strcmp(verb, "remove") == 0)
		return parse_remove(r, t, words, why);
	if (verb && strcmp(verb, "move") == 0)
		return parse_move(r, t, words, why);
	return fail(why, EINVAL,
		    "\"%s\": it is one of add DIR, remove N, move N EXPERTS, continue, cancel",
		    verb ? verb : "");
}

/* Lock held. */
static void cancel_all(struct respread *r)
{
	for (struct task *t = r->first; t; t = t->next)
		if (t->status.state == RESPREAD_QUEUED)
			t->status.state = RESPREAD_CANCELLED;
	r->cancel = r->now != NULL;
}

static int control(struct respread *r, const char *line, char *why)
{
	int err = 0;

	pthread_mutex_lock(&r->lock);
	if (strcmp(line, "cancel") == 0)
		cancel_all(r);
	else if (r->now && r->now->status.state == RESPREAD_STOPPED)
		r->go_on = true;
	else
		err = fail(why, EINVAL, "continue: nothing has stopped");
	pthread_cond_signal(&r->wake);
	pthread_mutex_unlock(&r->lock);
	return err;
}

static int enqueue(struct respread *r, struct task *t, char *why)
{
	uint32_t waiting = 0;
	int err = 0;

	pthread_mutex_lock(&r->lock);
	for (struct task *o = r->first; o; o = o->next)
		waiting += o->status.state == RESPREAD_QUEUED;
	if (r->now && r->now->status.state == RESPREAD_STOPPED)
		err = fail(why, EBUSY, "\"%s\" has stopped: continue or cancel it first",
			   r->now->line);
	else if (waiting >= WAITING_MAX)
		err = fail(why, EBUSY, "%u commands wait already", waiting);
	if (!err)
		append(r, t);
	pthread_cond_signal(&r->wake);
	pthread_mutex_unlock(&r->lock);
	return err;
}

static int read_line(struct respread *r, const char *line, struct task *t, char *why)
{
	char *words = strdup(line);
	int err;

	t->line = strdup(line);
	if (!words || !t->line)
		err = fail(why, ENOMEM, "out of memory");
	else
		err = parse(r, words, t, why);
	free(words);
	return err;
}

int respread_command(struct respread *r, const char *line, char *why)
{
	const struct user we = { geteuid(), getegid() };

	return respread_command_by(r, line, &we, why);
}

int respread_command_by(struct respread *r, const char *line, const struct user *by, char *why)
{
	struct task *t;
	int err;

	if (!may_write(r, why))
		return -EROFS;
	if (strcmp(line, "cancel") == 0 || strcmp(line, "continue") == 0)
		return control(r, line, why);
	t = calloc(1, sizeof(*t));
	if (!t)
		return fail(why, ENOMEM, "out of memory");
	t->by = *by;
	err = read_line(r, line, t, why);
	err = err ? err : enqueue(r, t, why);
	if (err)
		task_free(t);
	return err;
}
