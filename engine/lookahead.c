/* SPDX-License-Identifier: Apache-2.0
 *
 * Guesses about the next layer, and the thread that writes them to the daemon.
 *
 * The line to be written is under the lock; one that nobody has written yet is overwritten, as a
 * guess about a layer that has passed is worth nothing. All else is the caller's.
 */
#include "engine/lookahead.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/arena.h"
#include "engine/fail.h"
#include "engine/norm.h"
#include "engine/router.h"

/* Rows of a prompt that vote; and experts named for them at most, which is what the daemon's queue
 * holds (PREFETCH in its README). */
#define ROWS  64
#define NAMES 128
#define LINE  (NAMES * 12) /* "1023/65535 " */

/* A guess by one row of a prompt is right too seldom: with it, a cold prompt of 64 tokens (8 of 128
 * experts each) read 7 % more than it needed, without it 3 %. Of a longer one so many are named that
 * the drive does not come to the end of them before the next layer: there only the surest, those that
 * 24 of all its rows would name, going by those that are asked. So of 2,600 that a prompt of 512 named
 * none was for nothing; in one of 80 it takes six votes for as much. */
#define PROMPT_VOTES 2
#define LONG_VOTES   24
#define MOST_VOTES   6
#define LEAST_VOTES  3

struct lookahead {
	const struct model_config *config;
	const char *reason; /* why there is none; NULL: there is */
	struct lookahead_trial trial;
	uint64_t guesses;
	int most; /* experts named at a time: half of what the daemon's memory holds */
	int best; /* of a token's choices, so many are named */
	/* The last guess. */
	char guess[LINE];
	size_t guess_bytes; /* 0: sent, or none */
	int guess_names;
	/* Work. */
	void *memory;
	float *x, *logits, *score; /* [ROWS][hidden], [ROWS][experts] twice */
	struct choice *choice;     /* [ROWS][topk] */
	int32_t *votes;            /* [experts] */
	/* The thread. */
	int fd;
	bool started, stop;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wanted;
	char line[LINE];
	size_t line_bytes;
};

static void lay_out(struct lookahead *a, const struct model_config *c, struct arena *m)
{
	a->x = arena_take(m, ROWS * (size_t)c->hidden, sizeof(float));
	a->logits = arena_take(m, ROWS * (size_t)c->experts, sizeof(float));
	a->score = arena_take(m, ROWS * (size_t)c->experts, sizeof(float));
	a->choice = arena_take(m, ROWS * (size_t)c->topk, sizeof(*a->choice));
	a->votes = arena_take(m, (size_t)c->experts, sizeof(*a->votes));
}

size_t lookahead_bytes(const struct model_config *c)
{
	struct lookahead a;
	struct arena m = { NULL, 0 };

	lay_out(&a, c, &m);
	return m.used;
}

/* What cannot be written is lost: a guess is no promise. */
static void *writer(void *arg)
{
	struct lookahead *a = arg;
	char line[LINE];

	pthread_mutex_lock(&a->lock);
	for (;;) {
		while (!a->stop && !a->line_bytes)
			pthread_cond_wait(&a->wanted, &a->lock);
		if (!a->line_bytes) /* what was sent is written, also at the end */
			break;
		size_t n = a->line_bytes;
		memcpy(line, a->line, n);
		a->line_bytes = 0;
		pthread_mutex_unlock(&a->lock);
		ssize_t written = write(a->fd, line, n);
		(void)written;
		pthread_mutex_lock(&a->lock);
	}
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

static int begin(struct lookahead *a, char *why)
{
	struct arena m = { NULL, 0 };

	a->memory = aligned_alloc(64, lookahead_bytes(a->config));
	if (!a->memory)
		return fail(why, ENOMEM, "no memory to look ahead");
	m.base = a->memory;
	lay_out(a, a->config, &m);
	int r = pthread_create(&a->thread, NULL, writer, a);
	if (r)
		return fail(why, r, "cannot start the thread that looks ahead: %s", strerror(r));
	a->started = true;
	return 0;
}

/* So many choices that the drive gets half a token's, as far as one can tell from the share of all experts that memory
 * holds; three quarters at most, as the last ones are wrong too often. */
static int choices_named(int topk, const struct mount_stats *stats)
{
	double missing = stats->experts > stats->slots
				 ? 1 - (double)stats->slots / (double)stats->experts
				 : 0;
	double n = missing > 0.5 ? topk / 2.0 / missing : topk;

	return n < topk * 0.75 ? (int)(n + 0.5) : (int)(topk * 0.75 + 0.5);
}

/* NULL if there can be lookahead; opens the daemon's file. */
static const char *reason_against(struct lookahead *a, const char *dir,
				  const struct mount_stats *stats)
{
	char path[4096];

	if (stats->mode == SERVE_PLAIN)
		return "no daemon";
	if (a->trial.mode == LOOKAHEAD_OFF)
		return "off";
	/* Where the daemon does not tell how much it holds, nothing is put at risk. */
	a->most = stats->slots < 2 ? 0 : stats->slots / 2 < NAMES ? (int)(stats->slots / 2) : NAMES;
	if (a->most < a->config->topk)
		return "no memory to load ahead into";
	a->best = choices_named(a->config->topk, stats);
	if (snprintf(path, sizeof(path), "%s/.expertfs/prefetch", dir) >= (int)sizeof(path))
		return "the daemon takes no guesses";
	a->fd = open(path, O_WRONLY | O_CLOEXEC);
	if (a->fd < 0)
		return errno == EACCES ? "only the store's owner may write guesses"
				       : "the daemon takes no guesses";
	return NULL;
}

int lookahead_start(const struct modelfile *file, const struct mount_stats *stats,
		    enum lookahead_mode mode, struct lookahead **out, char *why)
{
	struct lookahead *a = calloc(1, sizeof(*a));
	int r = 0;

	*out = NULL;
	if (!a)
		return fail(why, ENOMEM, "no memory to look ahead");
	a->config = &file->config;
	a->fd = -1;
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->wanted, NULL);
	trial_begin(&a->trial, mode);
	a->reason = reason_against(a, file->dir, stats);
	if (!a->reason)
		r = begin(a, why);
	if (r)
		lookahead_stop(a);
	else
		*out = a;
	return r;
}

void lookahead_stop(struct lookahead *a)
{
	if (!a)
		return;
	pthread_mutex_lock(&a->lock);
	a->stop = true;
	pthread_cond_signal(&a->wanted);
	pthread_mutex_unlock(&a->lock);
	if (a->started)
		pthread_join(a->thread, NULL);
	if (a->fd >= 0)
		close(a->fd);
	pthread_cond_destroy(&a->wanted);
	pthread_mutex_destroy(&a->lock);
	free(a->memory);
	free(a);
}

/* The experts with the most votes, and `least` of them, as a line. */
static void write_guess(struct lookahead *a, int layer, int least)
{
	a->guess_bytes = 0;
	for (a->guess_names = 0; a->guess_names < a->most; a->guess_names++) {
		int best = 0;
		for (int e = 1; e < a->config->experts; e++)
			if (a->votes[e] > a->votes[best])
				best = e;
		if (a->votes[best] < least)
			break;
		a->votes[best] = 0;
		a->guess_bytes += (size_t)sprintf(a->guess + a->guess_bytes, "%d/%d ", layer, best);
	}
	if (a->guess_bytes)
		a->guess[a->guess_bytes - 1] = '\n';
}

/* Of a token's choice number k: those that are named, the best one most. */
static int certainty(const struct choice *choice, int topk, int k, int best)
{
	int left = best;

	for (int i = 0; i < topk && left > 0; i++)
		left -= choice[i].weight > choice[k].weight;
	return left;
}

/* Votes by which an expert is named for a prompt of m rows. */
static int votes_needed(int m)
{
	if (m <= ROWS)
		return PROMPT_VOTES;
	int votes = (LONG_VOTES * ROWS + m - 1) / m;
	return votes > MOST_VOTES ? MOST_VOTES : votes < LEAST_VOTES ? LEAST_VOTES : votes;
}

void lookahead_guess(struct lookahead *a, const struct compute *cp, const struct layer_weights *l,
		     int layer, const float *h, int m)
{
	if (a->reason || (m <= LOOKAHEAD_DECODE_ROWS && !a->trial.on))
		return;
	const struct model_config *c = a->config;
	size_t hidden = (size_t)c->hidden, experts = (size_t)c->experts, topk = (size_t)c->topk;
	bool decode = m <= LOOKAHEAD_DECODE_ROWS;
	int rows = m < ROWS ? m : ROWS;

	for (size_t i = 0; i < (size_t)rows; i++)
		rms_norm(a->x + i * hidden, h + (i * (size_t)m / (size_t)rows) * hidden,
			 l->ffn_norm, c->hidden, c->norm_eps);
	matmul(cp, &l->router, a->x, hidden, rows, a->logits, experts);
	add_bias(a->logits, l->logit_bias, rows, c->experts);
	memset(a->votes, 0, experts * sizeof(*a->votes));
	for (size_t i = 0; i < (size_t)rows; i++) {
		router_choose(c, a->logits + i * experts, l->router_bias, a->score + i * experts,
			      a->choice + i * topk);
		for (size_t k = 0; k < topk; k++)
			a->votes[a->choice[i * topk + k].expert] +=
				decode ? certainty(a->choice + i * topk, (int)topk, (int)k, a->best)
				       : 1;
	}
	write_guess(a, layer, decode ? 1 : votes_needed(m));
	if (decode) /* all of this layer's are being opened */
		lookahead_send(a);
}

void lookahead_send(struct lookahead *a)
{
	if (!a->guess_bytes)
		return;
	pthread_mutex_lock(&a->lock);
	memcpy(a->line, a->guess, a->guess_bytes);
	a->line_bytes = a->guess_bytes;
	pthread_cond_signal(&a->wanted);
	pthread_mutex_unlock(&a->lock);
	a->guesses += (uint64_t)a->guess_names;
	a->guess_bytes = 0;
}

void lookahead_step(struct lookahead *a, int m, double seconds, double waited)
{
	a->guess_bytes = 0;
	if (!a->reason && m <= LOOKAHEAD_DECODE_ROWS)
		trial_token(&a->trial, seconds, waited);
}

void lookahead_get_stats(const struct lookahead *a, struct lookahead_stats *out)
{
	*out = (struct lookahead_stats){ .mode = a->trial.mode,
					 .verdict = a->reason          ? a->reason
						    : a->trial.verdict ? "on"
								       : "off",
					 .guesses = a->guesses,
					 .trials = a->trial.trials,
					 .on_s = a->trial.on_s,
					 .off_s = a->trial.off_s };
}
