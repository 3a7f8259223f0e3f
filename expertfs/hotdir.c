/* SPDX-License-Identifier: Apache-2.0
 *
 * Which experts go to the hot drive and which leave it; see hotdir.h.
 *
 *	free -> (filled, durably) -> ready -> store_set_hot(NULL) -> leaving -> (unread) -> free
 *
 * The thread does all of that but the step from ready to leaving, which hotdir_bad() may do as well.
 */
#include "expertfs/hotdir.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "expertfs/fail.h"
#include "expertfs/hotfile.h"
#include "expertfs/log.h"
#include "expertfs/size.h"
#include "expertfs/yield.h"

/* Loaded twice is no accident any more. */
#define PROMOTE_FROM 2.0
/* A newcomer must be worth the writing: clearly more popular than the one that goes for it. */
#define MARGIN_TIMES 1.5
#define MARGIN_PLUS  1.0
/* So seldom that the slot may as well be free. */
#define FORGET_BELOW 0.1
/* What a copy from the last run begins with: it has been popular, and has to show it again. */
#define RETURNED 1.0
/* Copies at one look: with one look a second the writing stays in the background. */
#define AT_A_TIME 4
/* The packed place must be this much slower than the hot one, or there is nothing to win. */
#define WORTH_TIMES 1.1
/* A slot that was found damaged so often is not used again. */
#define BAD_MAX 2

#define NOBODY UINT32_MAX

enum slot_state { SLOT_FREE, SLOT_READY, SLOT_LEAVING, SLOT_DEAD };

struct slot {
	enum slot_state state;
	uint32_t index;          /* of the expert; ready and leaving */
	unsigned bad;            /* times that it was found damaged */
	bool damaged;            /* leaving because of that */
	struct extent_list *old; /* leaving: not free before nobody reads it */
};

struct hotdir {
	struct hotdir_config cfg;
	struct hot_file *file;
	struct drive *drive;
	dev_t device;
	void *buf;
	/* The thread's: of each expert. */
	double *score;
	uint64_t *last, *now; /* loads at the last look, and now */
	pthread_t thread;
	bool running;
	bool told; /* that the drive cannot be written */

	pthread_mutex_t lock; /* all below; store.lock is taken inside it */
	pthread_cond_t wake;
	struct slot *slot;
	uint32_t *slot_of; /* of each expert; NOBODY: none */
	bool stop;
	struct hotdir_stats stats;
};

static const struct urgency background = { DRIVE_PROMOTION };

uint64_t hotdir_memory(const struct store *s)
{
	return shard_round_up(s->max_expert_bytes) +
	       s->experts * (sizeof(double) + 2 * sizeof(uint64_t) + sizeof(uint32_t) +
			     sizeof(struct slot));
}

static int asked_to_stop(void *arg)
{
	struct hotdir *h = arg;
	bool stop;

	pthread_mutex_lock(&h->lock);
	stop = h->stop;
	pthread_mutex_unlock(&h->lock);
	return stop ? -EINTR : 0;
}

static int before_write(void *arg)
{
	struct hotdir *h = arg;

	return yield_to_readers(h->drive, asked_to_stop, h);
}

/* -- slots -------------------------------------------------------------------------------------- */

static bool is_outside(struct hotdir *h, uint32_t index)
{
	bool outside;

	pthread_mutex_lock(&h->lock);
	outside = h->slot_of[index] == NOBODY;
	pthread_mutex_unlock(&h->lock);
	return outside;
}

static int publish(struct hotdir *h, uint32_t n, uint32_t index, uint64_t check)
{
	struct extent_list *l = extent_list_new(1), *old;

	if (!l)
		return -ENOMEM;
	l->x[0] = (struct extent){ .offset = hot_file_offset(h->file, n),
				   .length = h->cfg.store->expert[index].bytes,
				   .check = check,
				   .drive = STORE_HOT_DRIVE };
	pthread_mutex_lock(&h->lock);
	old = store_set_hot(h->cfg.store, index, l);
	h->slot[n].state = SLOT_READY;
	h->slot[n].index = index;
	h->slot_of[index] = n;
	h->stats.experts++;
	h->stats.bytes += h->cfg.store->expert[index].bytes;
	pthread_mutex_unlock(&h->lock);
	store_drop(h->cfg.store, old);
	return 0;
}

/* Takes an expert off the drive: nobody begins to read it from now on. Lock held. */
static void leave(struct hotdir *h, uint32_t n, bool damaged)
{
	struct slot *s = &h->slot[n];

	s->old = store_set_hot(h->cfg.store, s->index, NULL);
	s->state = SLOT_LEAVING;
	s->damaged = damaged;
	h->slot_of[s->index] = NOBODY;
	h->stats.experts--;
	h->stats.bytes -= h->cfg.store->expert[s->index].bytes;
	h->stats.demotions++;
}

void hotdir_bad(void *arg, uint32_t index)
{
	struct hotdir *h = arg;
	uint32_t n;

	pthread_mutex_lock(&h->lock);
	n = h->slot_of[index];
	if (n != NOBODY) {
		const struct store_expert *e = &h->cfg.store->expert[index];
		h->stats.errors++;
		h->slot[n].bad++;
		leave(h, n, true);
		log_line(LOG_WARNING, "%s: the copy of expert %u/%u is damaged and forgotten",
			 hot_file_path(h->file), e->layer, e->expert);
	}
	pthread_mutex_unlock(&h->lock);
}

/* Slots that are left and not read any more become free. */
static void reap(struct hotdir *h)
{
	for (uint32_t n = 0; n < hot_file_slots(h->file); n++) {
		struct slot *s = &h->slot[n];
		struct extent_list *old = NULL;
		bool damaged;
		pthread_mutex_lock(&h->lock);
		if (s->state == SLOT_LEAVING && store_unread(h->cfg.store, s->old)) {
			old = s->old;
			s->old = NULL;
		}
		damaged = s->damaged;
		pthread_mutex_unlock(&h->lock);
		if (!old)
			continue;
		store_drop(h->cfg.store, old);
		/* An expert that is only forgotten may come back with the next start. */
		if (damaged)
			hot_file_empty(h->file, n);
		pthread_mutex_lock(&h->lock);
		s->state = s->bad >= BAD_MAX ? SLOT_DEAD : SLOT_FREE;
		s->damaged = false;
		pthread_mutex_unlock(&h->lock);
	}
}

/* Makes what the last run has left readable. */
static void take_up(struct hotdir *h)
{
	struct store *s = h->cfg.store;
	struct hotdir_stats st;
	char text[16];

	for (uint32_t n = 0; n < hot_file_slots(h->file) && !asked_to_stop(h); n++) {
		struct slot_head head;
		if (!hot_file_head(h->file, n, &head) || head.layer > UINT16_MAX ||
		    head.expert > UINT16_MAX)
			continue;
		uint32_t index = store_index(s, head.layer, head.expert);
		if (index == STORE_NO_EXPERT || s->expert[index].bytes != head.expert_bytes ||
		    !is_outside(h, index))
			continue;
		if (publish(h, n, index, head.payload_check) == 0)
			h->score[index] = RETURNED;
	}
	hotdir_stats(h, &st);
	log_line(LOG_INFO, "hot drive %s: %" PRIu64 " of %" PRIu64 " slots are taken, %s",
		 hot_file_path(h->file), st.experts, st.slots, size_text(st.bytes, text));
}

/* -- who is worth it ---------------------------------------------------------------------------- */

/* Counts the loads since the last look; older ones fade by the loads, not by the time. */
static void count_loads(struct hotdir *h)
{
	uint32_t experts = h->cfg.store->experts;
	double sum = 0, fade;

	if (h->cfg.loads)
		h->cfg.loads(h->cfg.arg, h->now);
	else
		hotstore_loads(h->cfg.hot, h->now);
	for (uint32_t i = 0; i < experts; i++)
		sum += (double)(h->now[i] - h->last[i]);
	fade = exp2(-sum / ((double)HOTDIR_HALF_LIFE * experts));
	for (uint32_t i = 0; i < experts && sum > 0; i++) {
		h->score[i] = h->score[i] * fade + (double)(h->now[i] - h->last[i]);
		h->last[i] = h->now[i];
	}
}

struct speeds {
	double hot;                     /* bytes/s; 0: not known */
	double drive[STORE_DRIVES_MAX]; /* likewise */
	bool same[STORE_DRIVES_MAX];    /* lies on the hot drive's own device */
};

static void look_at_drives(struct hotdir *h, struct speeds *v)
{
	struct store *s = h->cfg.store;
	struct drive_stats d;
	struct stat st;

	*v = (struct speeds){ 0 };
	drive_stats(h->drive, &d);
	v->hot = (double)d.speed;
	for (uint32_t n = 0; n < STORE_DRIVES_MAX; n++) {
		char path[PATH_MAX] = "";
		pthread_mutex_lock(&s->lock);
		if (n < s->drives && h->cfg.loader->drive[n]) {
			drive_stats(h->cfg.loader->drive[n], &d);
			v->drive[n] = (double)d.speed;
			snprintf(path, sizeof(path), "%s", s->drive[n].path);
		}
		pthread_mutex_unlock(&s->lock);
		v->same[n] = path[0] && stat(path, &st) == 0 && st.st_dev == h->device;
	}
}

/* Whether one copy of the expert comes as fast from where it lies: its drives read side by side. */
static bool copy_is_fast(const struct speeds *v, const struct extent_list *l, unsigned copy,
			 uint64_t bytes)
{
	double longest = 0;
	bool elsewhere = false;

	for (uint32_t i = 0; i < l->n; i++) {
		uint64_t there = 0;
		uint32_t d = l->x[i].drive;
		if (l->x[i].copy != copy)
			continue;
		elsewhere = elsewhere || !v->same[d];
		if (!v->same[d] && v->drive[d] <= 0)
			return false; /* not known: believed slower, as the user says */
		for (uint32_t j = 0; j < l->n; j++)
			there += l->x[j].copy == copy && l->x[j].drive == d ? l->x[j].length : 0;
		double speed = v->same[d] ? v->hot : v->drive[d];
		if (speed > 0 && (double)there / speed > longest)
			longest = (double)there / speed;
	}
	return !elsewhere || (v->hot > 0 && longest < WORTH_TIMES * (double)bytes / v->hot);
}

static bool is_worth_it(struct hotdir *h, const struct speeds *v, uint32_t index)
{
	struct place p;
	bool fast = false;

	store_take(h->cfg.store, index, &p);
	for (unsigned c = 0; c < extent_list_copies(p.packed); c++)
		fast = fast || copy_is_fast(v, p.packed, c, h->cfg.store->expert[index].bytes);
	store_give(h->cfg.store, &p);
	return !fast;
}

/* The most popular expert that is not there; NOBODY: none is popular enough. */
static uint32_t best_outside(struct hotdir *h, const struct speeds *v)
{
	uint32_t best = NOBODY;

	for (uint32_t i = 0; i < h->cfg.store->experts; i++)
		if (h->score[i] >= PROMOTE_FROM &&
		    (best == NOBODY || h->score[i] > h->score[best]) && is_outside(h, i) &&
		    is_worth_it(h, v, i))
			best = i;
	return best;
}

/* -- the thread --------------------------------------------------------------------------------- */

/* A free slot, or NOBODY; *coldest: the ready one whose expert is least popular, or NOBODY. */
static uint32_t find_slot(struct hotdir *h, uint32_t *coldest)
{
	uint32_t found = NOBODY;

	*coldest = NOBODY;
	pthread_mutex_lock(&h->lock);
	for (uint32_t n = 0; n < hot_file_slots(h->file); n++) {
		const struct slot *s = &h->slot[n];
		if (s->state == SLOT_FREE && found == NOBODY)
			found = n;
		if (s->state == SLOT_READY &&
		    (*coldest == NOBODY || h->score[s->index] < h->score[h->slot[*coldest].index]))
			*coldest = n;
	}
	pthread_mutex_unlock(&h->lock);
	return found;
}

static void leave_if_ready(struct hotdir *h, uint32_t n)
{
	pthread_mutex_lock(&h->lock);
	if (h->slot[n].state == SLOT_READY)
		leave(h, n, false);
	pthread_mutex_unlock(&h->lock);
}

/* Where the drive is full for good, slot after slot is given up, and the rest is used. */
static void say_unwritable(struct hotdir *h, uint32_t n, int err)
{
	pthread_mutex_lock(&h->lock);
	h->stats.errors++;
	if (++h->slot[n].bad >= BAD_MAX)
		h->slot[n].state = SLOT_DEAD;
	pthread_mutex_unlock(&h->lock);
	if (!h->told)
		log_line(LOG_ERR, "%s cannot be written: %s", hot_file_path(h->file),
			 strerror(-err));
	h->told = true;
}

/* Copies an expert into a free slot. */
static int copy_in(struct hotdir *h, uint32_t n, uint32_t index)
{
	const struct store_expert *e = &h->cfg.store->expert[index];
	const struct writer_pause pause = { before_write, h };
	struct loader l = *h->cfg.loader;
	char why[WHY_MAX];
	int err;

	l.verify = VERIFY_ALWAYS;
	err = load_expert(&l, index, &background, h->buf, why);
	if (err) {
		h->score[index] = 0; /* whoever opens it is told */
		return err;
	}
	struct slot_head head = { .layer = e->layer,
				  .expert = e->expert,
				  .expert_bytes = e->bytes,
				  .payload_check = payload_check(h->buf, e->bytes) };
	err = hot_file_fill(h->file, n, &head, h->buf, &pause);
	if (err && err != -EINTR)
		say_unwritable(h, n, err);
	err = err ? err : publish(h, n, index, head.payload_check);
	if (!err) {
		h->told = false;
		pthread_mutex_lock(&h->lock);
		h->stats.promotions++;
		pthread_mutex_unlock(&h->lock);
	}
	return err;
}

/* One expert more, if one is popular enough for the room there is. False: no. */
static bool promote(struct hotdir *h, const struct speeds *v)
{
	uint32_t index = best_outside(h, v), coldest, slot;

	if (index == NOBODY)
		return false;
	slot = find_slot(h, &coldest);
	if (slot == NOBODY && coldest != NOBODY) {
		double most = h->score[h->slot[coldest].index] * MARGIN_TIMES + MARGIN_PLUS;
		if (h->score[index] < most)
			return false;
		leave_if_ready(h, coldest);
		for (int i = 0; i < 100 && slot == NOBODY && !asked_to_stop(h); i++) {
			reap(h);
			slot = find_slot(h, &coldest);
			if (slot == NOBODY)
				sleep_ms(1);
		}
	}
	return slot != NOBODY && !asked_to_stop(h) && copy_in(h, slot, index) == 0;
}

static void forget_cool(struct hotdir *h)
{
	for (uint32_t n = 0; n < hot_file_slots(h->file); n++) {
		pthread_mutex_lock(&h->lock);
		if (h->slot[n].state == SLOT_READY && h->score[h->slot[n].index] < FORGET_BELOW)
			leave(h, n, false);
		pthread_mutex_unlock(&h->lock);
	}
}

/* False: stop. */
static bool rest(struct hotdir *h)
{
	unsigned ms = h->cfg.period_ms ? h->cfg.period_ms : 1000;
	struct timespec until;
	bool stop;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long)(ms % 1000) * 1000000;
	until.tv_sec += ms / 1000 + until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&h->lock);
	while (!h->stop && pthread_cond_timedwait(&h->wake, &h->lock, &until) != ETIMEDOUT)
		;
	stop = h->stop;
	pthread_mutex_unlock(&h->lock);
	return !stop;
}

static void *thread_main(void *arg)
{
	struct hotdir *h = arg;
	struct speeds v;

	take_up(h);
	while (rest(h)) {
		count_loads(h);
		look_at_drives(h, &v);
		forget_cool(h);
		reap(h);
		for (int i = 0; i < AT_A_TIME && promote(h, &v); i++)
			;
	}
	return NULL;
}

/* -- begin and end ------------------------------------------------------------------------------ */

/* Where all experts lie on the hot drive's device already there is nothing to win. */
static int check_device(struct hotdir *h, char *why)
{
	const struct store *s = h->cfg.store;
	bool elsewhere = false;
	struct stat st;

	if (stat(h->cfg.folder, &st) != 0)
		return fail(why, errno, "--hot-dir %s: %s", h->cfg.folder, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return fail(why, ENOTDIR, "--hot-dir %s is not a folder", h->cfg.folder);
	h->device = st.st_dev;
	for (uint32_t d = 0; d < s->drives; d++)
		if (s->drive[d].path && !s->drive[d].missing)
			elsewhere = elsewhere || stat(s->drive[d].path, &st) != 0 ||
				    st.st_dev != h->device;
	return elsewhere ? 0
			 : fail(why, EINVAL,
				"--hot-dir %s lies on the drive of the store itself: it would win "
				"nothing",
				h->cfg.folder);
}

static int make_tables(struct hotdir *h, char *why)
{
	uint32_t experts = h->cfg.store->experts;

	h->score = calloc(experts, sizeof(*h->score));
	h->last = calloc(experts, sizeof(*h->last));
	h->now = calloc(experts, sizeof(*h->now));
	h->slot_of = calloc(experts, sizeof(*h->slot_of));
	h->slot = calloc(hot_file_slots(h->file), sizeof(*h->slot));
	if (posix_memalign(&h->buf, SHARD_ALIGN, shard_round_up(h->cfg.store->max_expert_bytes)))
		h->buf = NULL;
	if (!h->score || !h->last || !h->now || !h->slot_of || !h->slot || !h->buf)
		return fail(why, ENOMEM, "out of memory for the hot drive's tables");
	for (uint32_t i = 0; i < experts; i++)
		h->slot_of[i] = NOBODY;
	h->stats.slots = hot_file_slots(h->file);
	/* What was loaded before the start counts as seen. */
	count_loads(h);
	memset(h->score, 0, experts * sizeof(*h->score));
	return 0;
}

static void set_drive(struct hotdir *h, struct drive *d)
{
	pthread_mutex_lock(&h->cfg.store->lock);
	h->cfg.loader->drive[STORE_HOT_DRIVE] = d;
	pthread_mutex_unlock(&h->cfg.store->lock);
}

int hotdir_open(const struct hotdir_config *cfg, struct hotdir **out, char *why)
{
	struct hotdir *h = calloc(1, sizeof(*h));
	pthread_condattr_t monotonic;
	int err;

	if (!h)
		return fail(why, ENOMEM, "out of memory");
	h->cfg = *cfg;
	pthread_mutex_init(&h->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&h->wake, &monotonic);
	pthread_condattr_destroy(&monotonic);
	err = check_device(h, why);
	err = err ? err : hot_file_open(cfg->store, cfg->folder, cfg->bytes, &h->file, why);
	err = err ? err : make_tables(h, why);
	err = err ? err : drive_open(hot_file_path(h->file), cfg->io, &h->drive, why);
	if (!err) {
		set_drive(h, h->drive);
		err = pthread_create(&h->thread, NULL, thread_main, h);
		h->running = err == 0;
		if (err)
			err = fail(why, err, "cannot start the hot drive's thread: %s",
				   strerror(err));
	}
	if (err)
		hotdir_close(h);
	else
		*out = h;
	return err;
}

void hotdir_stop(struct hotdir *h)
{
	if (!h || !h->running)
		return;
	pthread_mutex_lock(&h->lock);
	h->stop = true;
	pthread_cond_signal(&h->wake);
	pthread_mutex_unlock(&h->lock);
	pthread_join(h->thread, NULL);
	h->running = false;
}

void hotdir_close(struct hotdir *h)
{
	if (!h)
		return;
	hotdir_stop(h);
	for (uint32_t i = 0; h->slot_of && i < h->cfg.store->experts; i++)
		if (h->slot_of[i] != NOBODY)
			store_drop(h->cfg.store, store_set_hot(h->cfg.store, i, NULL));
	for (uint32_t n = 0; h->slot && n < hot_file_slots(h->file); n++)
		store_drop(h->cfg.store, h->slot[n].old);
	if (h->drive)
		set_drive(h, NULL);
	drive_close(h->drive);
	hot_file_close(h->file);
	free(h->buf);
	free(h->slot);
	free(h->slot_of);
	free(h->now);
	free(h->last);
	free(h->score);
	pthread_cond_destroy(&h->wake);
	pthread_mutex_destroy(&h->lock);
	free(h);
}

void hotdir_stats(struct hotdir *h, struct hotdir_stats *out)
{
	pthread_mutex_lock(&h->lock);
	*out = h->stats;
	pthread_mutex_unlock(&h->lock);
}
