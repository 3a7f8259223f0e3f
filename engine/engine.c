/* SPDX-License-Identifier: Apache-2.0
 *
 * A model loaded, with one context: ties model file, dense tensors, expert pool and forward pass
 * together.
 */
#include "engine/engine.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/clock.h"
#include "engine/fail.h"
#include "engine/forward.h"
#include "engine/mtp.h"
#include "engine/plan.h"

_Static_assert(ENGINE_DRAFT_MAX + 1 <= DRAFT_COST_ROWS, "all rows of a pass with guesses");
_Static_assert(ENGINE_DRAFT_MAX + 1 <= LOOKAHEAD_DECODE_ROWS, "a draft is no prompt");

struct engine {
	const struct modelfile *file;
	struct engine_options options; /* completed */
	enum serve_mode mode;
	struct dense dense;
	struct weights weights;
	struct compute compute;
	struct experts *experts;
	struct lookahead *lookahead;
	struct profile profile;
	struct forward forward;
	struct mtp mtp; /* if options.draft */
	struct draft_cost cost;
	float *rows;   /* [FORWARD_LOGIT_ROWS][vocab]; NULL until needed */
	int32_t *ids;  /* [ctx], those of the context */
	int tied_from; /* rows from here on depend on the length of the sequence; INT_MAX: none */
	int first_tie; /* the lowest tied_from since the context was empty */
	int position;
	int last;   /* row of the last token in the last chunk; -1: nothing fed */
	int drafts; /* rows that the last engine_feed_drafts() left in the context */
};

static int load(struct engine *e, char *why)
{
	const struct engine_options *o = &e->options;
	struct plan plan;
	int r = engine_plan_make(e->file, o, &plan, why);

	if (r)
		return r;
	e->options = plan.options;
	e->mode = plan.mount.mode;
	e->ids = malloc((size_t)o->ctx * sizeof(*e->ids));
	if (!e->ids)
		r = fail(why, ENOMEM, "no memory for a context of %d tokens", o->ctx);
	if (!r)
		r = dense_open(&e->dense, e->file, e->mode, o->draft > 0, o->progress, why);
	if (!r)
		r = weights_bind(&e->weights, &e->dense, o->draft > 0, why);
	if (!r)
		r = compute_init(&e->compute, o->threads, weights_max_cols(&e->file->config), why);
	if (!r)
		r = experts_start(e->file, e->mode, &e->experts, why);
	if (!r)
		r = lookahead_start(e->file, &plan.mount, o->lookahead, &e->lookahead, why);
	if (r)
		return r;
	e->compute.float_activations = o->float_activations;
	e->forward.config = &e->file->config;
	e->forward.weights = &e->weights;
	e->forward.compute = &e->compute;
	e->forward.experts = e->experts;
	e->forward.profile = e->forward.moe.profile = &e->profile;
	e->forward.moe.lookahead = e->lookahead;
	e->forward.moe.drafts = &e->cost;
	e->forward.absorbed = o->session;
	e->cost = (struct draft_cost){ .file = e->file,
				       .experts = e->experts,
				       .profile = &e->profile };
	r = forward_init(&e->forward, plan_cache_layers(e->file, o), o->ctx, plan_rows(o), o->kv,
			 why);
	return r || !o->draft ? r : mtp_init(&e->mtp, &e->forward, why);
}

int engine_open(const struct modelfile *file, const struct engine_options *o, struct engine **out,
		char *why)
{
	struct engine *e = calloc(1, sizeof(*e));

	*out = NULL;
	if (!e)
		return fail(why, ENOMEM, "no memory to open %s", file->dir);
	e->file = file;
	e->last = -1;
	e->tied_from = e->first_tie = INT_MAX;
	e->options = *o;
	int r = load(e, why);
	if (r)
		engine_close(e);
	else
		*out = e;
	return r;
}

void engine_close(struct engine *e)
{
	if (!e)
		return;
	mtp_free(&e->mtp);
	forward_free(&e->forward);
	lookahead_stop(e->lookahead);
	experts_stop(e->experts);
	compute_free(&e->compute);
	weights_free(&e->weights);
	dense_close(&e->dense);
	free(e->rows);
	free(e->ids);
	free(e);
}

enum serve_mode engine_mode(const struct engine *e)
{
	return e->mode;
}

int engine_position(const struct engine *e)
{
	return e->position;
}

int engine_ctx(const struct engine *e)
{
	return e->options.ctx;
}

int engine_chunk(const struct engine *e)
{
	return e->options.chunk;
}

void engine_reset(struct engine *e)
{
	e->position = 0;
	e->tied_from = e->first_tie = INT_MAX;
	e->last = -1;
	mtp_cut(&e->mtp, 0);
}

static int check_ids(const struct engine *e, const int32_t *ids, int n, char *why)
{
	int vocab = e->file->config.vocab;

	for (int i = 0; i < n; i++)
		if (ids[i] < 0 || ids[i] >= vocab)
			return fail(why, EINVAL, "token %d is not in the vocabulary of %d", ids[i],
				    vocab);
	return 0;
}

static int check_tokens(const struct engine *e, const int32_t *ids, int n, char *why)
{
	if (n < 1 || n > e->options.ctx - e->position)
		return fail(why, ERANGE, "%d tokens do not fit: the context holds %d and has %d", n,
			    e->options.ctx, e->position);
	return check_ids(e, ids, n, why);
}

/* A model that gives NaN or infinity is broken: its argmax would be a wrong token. */
static int check_finite(const struct engine *e, const float *logits, size_t n, char *why)
{
	for (size_t i = 0; i < n; i++)
		if (!isfinite(logits[i]))
			return fail(why, EDOM,
				    "the model in %s computes values that are not numbers",
				    e->file->dir);
	return 0;
}

static int hand_out(struct engine *e, int done, int m, engine_rows_fn *fn, void *arg, char *why)
{
	size_t vocab = (size_t)e->file->config.vocab;

	for (int i = 0; i < m; i += FORWARD_LOGIT_ROWS) {
		int n = m - i < FORWARD_LOGIT_ROWS ? m - i : FORWARD_LOGIT_ROWS;
		forward_logits(&e->forward, i, n, e->rows);
		int r = check_finite(e, e->rows, (size_t)n * vocab, why);
		if (r)
			return r;
		fn(arg, done + i, n, e->rows);
	}
	return 0;
}

/* One chunk through the layers, timed for those who compare. */
static int run_chunk(struct engine *e, const int32_t *ids, int position, int m,
		     const struct progress *progress, int done, int n, char *why)
{
	struct experts_stats before, after;
	double begin = clock_seconds();

	experts_get_stats(e->experts, &before);
	int r = forward_run(&e->forward, ids, position, m, progress, done, n, why);
	experts_tell(e->experts);
	experts_get_stats(e->experts, &after);
	lookahead_step(e->lookahead, m, clock_seconds() - begin, after.waited_s - before.waited_s);
	if (r || !e->options.draft || position < e->position) /* a second time: followed before */
		return r;
	draft_cost_guess(&e->cost);
	mtp_follow(&e->mtp, ids, position, m);
	draft_cost_guessed(&e->cost);
	return r;
}

/* Tokens through the layers, chunk by chunk. fn may be NULL. */
static int run(struct engine *e, const int32_t *ids, int position, int n, engine_rows_fn *fn,
	       void *arg, char *why)
{
	/* One token is the ordinary case of decoding: nothing to report. */
	const struct progress *progress = n > 1 ? e->options.progress : NULL;
	int r = 0, m = 0;

	for (int done = 0; done < n && !r; done += m) {
		m = n - done < e->options.chunk ? n - done : e->options.chunk;
		r = run_chunk(e, ids + done, position + done, m, progress, done, n, why);
		if (!r && fn)
			r = hand_out(e, done, m, fn, arg, why);
	}
	e->last = r ? -1 : m - 1;
	return r;
}

/* Rows whose keys were decided by a tie are what they are only for one length of the sequence
 * (indexer.h): they are computed anew, so that a context is the same however it was fed. */
static int run_tied_again(struct engine *e, char *why)
{
	int from = e->tied_from;

	if (from >= e->position || e->position > INDEX_REFERENCE_LENGTH)
		return 0;
	return run(e, e->ids + from, from, e->position - from, NULL, NULL, why);
}

/* The tokens from e->position to length are in the context. */
static void grow(struct engine *e, const int32_t *ids, int length)
{
	memcpy(e->ids + e->position, ids, (size_t)(length - e->position) * sizeof(*ids));
	e->tied_from = e->forward.sets.tied_from;
	if (e->tied_from < e->first_tie)
		e->first_tie = e->tied_from;
	e->position = length;
}

static int feed(struct engine *e, const int32_t *ids, int n, engine_rows_fn *fn, void *arg,
		char *why)
{
	int r = check_tokens(e, ids, n, why), length = e->position + n;

	if (r)
		return r;
	e->last = -1;
	forward_expect(&e->forward, e->position, length);
	r = run_tied_again(e, why);
	r = r ? r : run(e, ids, e->position, n, fn, arg, why);
	if (!r)
		grow(e, ids, length);
	return r;
}

int engine_feed(struct engine *e, const int32_t *ids, int n, char *why)
{
	return feed(e, ids, n, NULL, NULL, why);
}

static int make_rows(struct engine *e, char *why)
{
	size_t count = FORWARD_LOGIT_ROWS * (size_t)e->file->config.vocab;

	if (!e->rows)
		e->rows = malloc(count * sizeof(float));
	return e->rows ? 0 : fail(why, ENOMEM, "no memory for %zu logits", count);
}

int engine_feed_rows(struct engine *e, const int32_t *ids, int n, engine_rows_fn *fn, void *arg,
		     char *why)
{
	int r = make_rows(e, why);

	return r ? r : feed(e, ids, n, fn, arg, why);
}

int engine_logits(struct engine *e, float *logits, char *why)
{
	if (e->last < 0)
		return fail(why, EINVAL, "there is no token to continue");
	forward_logits(&e->forward, e->last, 1, logits);
	return check_finite(e, logits, (size_t)e->file->config.vocab, why);
}

bool engine_can_draft(const struct modelfile *file)
{
	return weights_have_mtp(file);
}

/* While rows are tied every further token has them computed anew: there is no checking several at
 * once then. Only small test models come to that. */
bool engine_may_draft(const struct engine *e)
{
	return e->options.draft && e->last >= 0 && e->tied_from >= e->position;
}

void engine_prepare_drafts(struct engine *e)
{
	draft_cost_guess(&e->cost);
	if (e->options.draft)
		mtp_catch_up(&e->mtp);
	draft_cost_guessed(&e->cost);
}

int engine_draft(struct engine *e, int32_t token, float *logits, char *why)
{
	size_t vocab = (size_t)e->file->config.vocab;

	if (!engine_may_draft(e))
		return fail(why, EINVAL, "there is nothing to guess a token from");
	int r = check_ids(e, &token, 1, why);
	draft_cost_guess(&e->cost);
	r = r ? r : mtp_guess(&e->mtp, token, logits, why);
	draft_cost_guessed(&e->cost);
	return r ? r : check_finite(e, logits, vocab, why);
}

/* How many rows count of the n that were computed as if one by one. Those behind a tied one do not:
 * it should have been computed anew for them (indexer.h). One without numbers is left to be fed on
 * its own, as it may never be. */
static int rows_that_count(const struct engine *e, int n)
{
	size_t vocab = (size_t)e->file->config.vocab;
	int tied = e->forward.sets.tied_from, count = 1;

	while (count < n && e->position + count <= tied &&
	       !check_finite(e, e->rows + (size_t)count * vocab, vocab, NULL))
		count++;
	return count;
}

static int feed_several(struct engine *e, const int32_t *ids, int n, int *rows, char *why)
{
	int r = check_tokens(e, ids, n, why);

	if (r)
		return r;
	e->last = -1;
	forward_expect(&e->forward, e->position, INDEX_GROWING);
	draft_cost_check(&e->cost, n);
	r = run_chunk(e, ids, e->position, n, NULL, 0, n, why);
	if (!r)
		forward_logits(&e->forward, 0, n, e->rows);
	draft_cost_checked(&e->cost);
	if (r)
		return r;
	r = check_finite(e, e->rows, (size_t)e->file->config.vocab, why);
	if (r)
		return r;
	*rows = rows_that_count(e, n);
	grow(e, ids, e->position + n);
	e->drafts = n;
	engine_keep(e, *rows);
	return 0;
}

int engine_feed_drafts(struct engine *e, const int32_t *ids, int n, const float **logits, int *rows,
		       char *why)
{
	int r = n > e->options.draft + 1
			? fail(why, EINVAL, "%d tokens are too many to be checked at once", n)
			: make_rows(e, why);

	if (r)
		return r;
	*logits = e->rows;
	if (n > 1 && engine_may_draft(e))
		return feed_several(e, ids, n, rows, why);
	r = feed(e, ids, 1, NULL, NULL, why);
	r = r ? r : engine_logits(e, e->rows, why);
	if (!r)
		*rows = e->drafts = 1;
	return r;
}

void engine_keep(struct engine *e, int rows)
{
	draft_cost_keep(&e->cost, rows, e->drafts);
	e->position -= e->drafts - rows;
	if (e->tied_from >= e->position)
		e->tied_from = INT_MAX;
	if (e->first_tie >= e->position)
		e->first_tie = INT_MAX;
	e->last = rows - 1;
	e->drafts = rows;
	if (e->options.draft)
		mtp_cut(&e->mtp, e->position);
}

struct engine_row engine_row(const struct engine *e)
{
	int layers = e->file->config.layers;

	return (struct engine_row){ layers, kvcache_position_bytes(&e->forward.kv, layers) };
}

const int32_t *engine_ids(const struct engine *e)
{
	return e->ids;
}

int engine_settled(const struct engine *e)
{
	return e->tied_from < e->position ? e->tied_from : e->position;
}

int engine_first_tie(const struct engine *e)
{
	return e->first_tie;
}

void engine_get_rows(const struct engine *e, int first, int n, void *to)
{
	kvcache_copy_out(&e->forward.kv, e->file->config.layers, first, n, to);
}

void engine_put_rows(struct engine *e, int first, int n, int of, const void *from)
{
	kvcache_copy_in(&e->forward.kv, e->file->config.layers, first, n, of, from);
}

void engine_resume(struct engine *e, const int32_t *ids, int n, int first_tie)
{
	engine_reset(e);
	memcpy(e->ids, ids, (size_t)n * sizeof(*ids));
	e->position = n;
	e->first_tie = first_tie < n ? first_tie : INT_MAX;
	/* Tied rows of a short context are computed anew by the next feed, whatever length they
	 * were computed for; those of a long one stand as they are. */
	e->tied_from = n <= INDEX_REFERENCE_LENGTH ? e->first_tie : INT_MAX;
}

void engine_get_stats(struct engine *e, struct engine_stats *out)
{
	struct experts_stats s;

	experts_get_stats(e->experts, &s);
	*out = (struct engine_stats){ .experts_opened = s.opened,
				      .expert_bytes = s.bytes,
				      .waited_s = s.waited_s };
	lookahead_get_stats(e->lookahead, &out->lookahead);
}

static struct profile_counts count_now(const struct engine *e)
{
	struct mount_stats mount;
	struct experts_stats experts;
	bool told = mount_stats(e->file->dir, &mount, NULL) == 0;

	experts_get_stats(e->experts, &experts);
	return (struct profile_counts){ experts.opened, experts.bytes,
					told ? mount.bytes_read : -1 };
}

void engine_profile_begin(struct engine *e, enum profile_phase phase)
{
	if (!e->options.profile)
		return;
	const struct profile_counts now = count_now(e);
	profile_begin(&e->profile, phase, &now);
}

void engine_profile_end(struct engine *e)
{
	if (!e->options.profile)
		return;
	const struct profile_counts now = count_now(e);
	profile_end(&e->profile, &now);
}

struct profile *engine_profile(struct engine *e)
{
	return &e->profile;
}

int engine_limits(struct engine *e, struct limits *out, char *why)
{
	struct mount_stats mount = { .drive_speed = 0 };
	int r = mount_stats(e->file->dir, &mount, why);

	if (r)
		return r;
	r = limits_find(&e->dense, &e->compute, &e->profile, mount.drive_speed, out);
	return r ? fail(why, -r, "the limits of this machine cannot be measured: %s", strerror(-r))
		 : 0;
}
