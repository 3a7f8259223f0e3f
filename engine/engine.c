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
#include <sys/stat.h>

#include "engine/bytes.h"
#include "engine/clock.h"
#include "engine/fail.h"
#include "engine/forward.h"
#include "engine/machine.h"

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
	float *rows;   /* [FORWARD_LOGIT_ROWS][vocab], for engine_feed_rows(); NULL until then */
	int32_t *ids;  /* of the first INDEX_REFERENCE_LENGTH positions, for tied rows */
	int tied_from; /* rows from here on depend on the length of the sequence; INT_MAX: none */
	int position;
	int last; /* row of the last token in the last chunk; -1: nothing fed */
};

static int complete(const struct modelfile *file, const struct engine_options *in,
		    struct engine_options *o, char *why)
{
	*o = *in;
	if (!o->threads)
		o->threads = machine_cores();
	if (o->ctx < 1 || o->ctx > file->config.max_positions)
		return fail(why, ERANGE,
			    "a context of %d tokens is not between 1 and the model's %d", o->ctx,
			    file->config.max_positions);
	if (!o->chunk)
		o->chunk = ENGINE_CHUNK;
	if (o->chunk > o->ctx)
		o->chunk = o->ctx;
	return 0;
}

static void count_memory(const struct modelfile *file, const struct engine_options *o,
			 enum serve_mode mode, struct engine_memory *out)
{
	const struct model_config *c = &file->config;
	struct memory_room room = machine_memory();
	size_t forward = forward_bytes(c, o->ctx, o->chunk, o->threads);

	out->dense = file->dense_bytes;
	out->kv = kvcache_bytes(c, o->ctx, o->kv);
	out->buffers = compute_bytes(o->threads, weights_max_cols(c)) + experts_bytes(file, mode) +
		       lookahead_bytes(c) + (size_t)c->vocab * sizeof(float);
	/* What no machine has (SIZE_MAX) must not wrap round. */
	out->buffers = forward > SIZE_MAX / 4 ? SIZE_MAX / 4 : out->buffers + forward;
	out->total = out->dense + out->kv + out->buffers;
	out->available = room.bytes;
	out->limit = room.limit;
}

static int check_memory(const struct modelfile *file, const struct engine_memory *m, char *why)
{
	char total[BYTES_TEXT], dense[BYTES_TEXT], kv[BYTES_TEXT], buffers[BYTES_TEXT],
		room[BYTES_TEXT];

	if (m->total <= m->available)
		return 0;
	return fail(why, ENOMEM,
		    "%s needs %s of memory (dense tensors %s, key-value cache %s, buffers %s), but "
		    "only %s are "
		    "available (%s)",
		    file->dir, bytes_text(m->total, total), bytes_text(m->dense, dense),
		    bytes_text(m->kv, kv), bytes_text(m->buffers, buffers),
		    bytes_text(m->available, room), m->limit);
}

/* What can be known to be wrong before anything is loaded. */
static int check_files(const struct modelfile *file, char *why)
{
	char path[4096];
	struct stat st;

	if (snprintf(path, sizeof(path), "%s/experts", file->dir) >= (int)sizeof(path))
		return fail(why, ENAMETOOLONG, "the name of the mount is too long");
	if (stat(path, &st) == 0)
		return dense_check(file, why);
	if (errno == ENOENT)
		return fail(
			why, ENOENT,
			"%s holds model.json but no experts: is it a store that is not mounted?",
			file->dir);
	return mount_fail(why, errno, file->dir, "the folder", path);
}

int engine_memory(const struct modelfile *file, const struct engine_options *in,
		  struct engine_memory *out, char *why)
{
	struct engine_options o;
	struct mount_stats stats;
	int r = complete(file, in, &o, why);

	if (!r)
		r = check_files(file, why);
	if (!r)
		r = mount_stats(file->dir, &stats, why);
	if (r)
		return r;
	count_memory(file, &o, stats.mode, out);
	return check_memory(file, out, why);
}

static int load(struct engine *e, char *why)
{
	const struct engine_options *o = &e->options;
	struct mount_stats stats;
	struct engine_memory memory;
	int r = check_files(e->file, why);

	if (!r)
		r = mount_stats(e->file->dir, &stats, why);
	if (r)
		return r;
	e->mode = stats.mode;
	count_memory(e->file, o, e->mode, &memory);
	r = check_memory(e->file, &memory, why);
	if (!r)
		r = dense_open(&e->dense, e->file, e->mode, o->progress, why);
	if (!r)
		r = weights_bind(&e->weights, &e->dense, why);
	if (!r)
		r = compute_init(&e->compute, o->threads, weights_max_cols(&e->file->config), why);
	if (!r)
		r = experts_start(e->file, e->mode, &e->experts, why);
	if (!r)
		r = lookahead_start(e->file, &stats, o->lookahead, &e->lookahead, why);
	if (r)
		return r;
	e->compute.float_activations = o->float_activations;
	e->forward.config = &e->file->config;
	e->forward.weights = &e->weights;
	e->forward.compute = &e->compute;
	e->forward.experts = e->experts;
	e->forward.profile = e->forward.moe.profile = &e->profile;
	e->forward.moe.lookahead = e->lookahead;
	return forward_init(&e->forward, o->ctx, o->chunk, o->kv, why);
}

int engine_open(const struct modelfile *file, const struct engine_options *o, struct engine **out,
		char *why)
{
	struct engine *e = calloc(1, sizeof(*e));
	int r;

	*out = NULL;
	if (!e)
		return fail(why, ENOMEM, "no memory to open %s", file->dir);
	e->file = file;
	e->last = -1;
	e->tied_from = INT_MAX;
	e->ids = malloc(INDEX_REFERENCE_LENGTH * sizeof(*e->ids));
	r = e->ids ? complete(file, o, &e->options, why)
		   : fail(why, ENOMEM, "no memory to open %s", file->dir);
	if (!r)
		r = load(e, why);
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

int engine_threads(const struct engine *e)
{
	return e->options.threads;
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

void engine_reset(struct engine *e)
{
	e->position = 0;
	e->tied_from = INT_MAX;
	e->last = -1;
}

static int check_tokens(const struct engine *e, const int32_t *ids, int n, char *why)
{
	int vocab = e->file->config.vocab;

	if (n < 1 || n > e->options.ctx - e->position)
		return fail(why, ERANGE, "%d tokens do not fit: the context holds %d and has %d", n,
			    e->options.ctx, e->position);
	for (int i = 0; i < n; i++)
		if (ids[i] < 0 || ids[i] >= vocab)
			return fail(why, EINVAL, "token %d is not in the vocabulary of %d", ids[i],
				    vocab);
	return 0;
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

/* One chunk, timed for those who compare. */
static int run_chunk(struct engine *e, const int32_t *ids, int position, int m,
		     const struct progress *progress, int done, int n, char *why)
{
	struct experts_stats before, after;
	double begin = clock_seconds();

	experts_get_stats(e->experts, &before);
	int r = forward_run(&e->forward, ids, position, m, progress, done, n, why);
	experts_get_stats(e->experts, &after);
	lookahead_step(e->lookahead, m, clock_seconds() - begin, after.waited_s - before.waited_s);
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

static int feed(struct engine *e, const int32_t *ids, int n, engine_rows_fn *fn, void *arg,
		char *why)
{
	int r = check_tokens(e, ids, n, why), length = e->position + n;

	if (r)
		return r;
	e->last = -1;
	forward_expect(&e->forward, length);
	r = run_tied_again(e, why);
	r = r ? r : run(e, ids, e->position, n, fn, arg, why);
	if (r)
		return r;
	for (int i = e->position; i < length && i < INDEX_REFERENCE_LENGTH; i++)
		e->ids[i] = ids[i - e->position];
	e->tied_from = length <= INDEX_REFERENCE_LENGTH ? e->forward.sets.tied_from : INT_MAX;
	e->position = length;
	return 0;
}

int engine_feed(struct engine *e, const int32_t *ids, int n, char *why)
{
	return feed(e, ids, n, NULL, NULL, why);
}

int engine_feed_rows(struct engine *e, const int32_t *ids, int n, engine_rows_fn *fn, void *arg,
		     char *why)
{
	size_t count = FORWARD_LOGIT_ROWS * (size_t)e->file->config.vocab;

	if (!e->rows)
		e->rows = malloc(count * sizeof(float));
	if (!e->rows)
		return fail(why, ENOMEM, "no memory for %zu logits", count);
	return feed(e, ids, n, fn, arg, why);
}

int engine_logits(struct engine *e, float *logits, char *why)
{
	if (e->last < 0)
		return fail(why, EINVAL, "there is no token to continue");
	forward_logits(&e->forward, e->last, 1, logits);
	return check_finite(e, logits, (size_t)e->file->config.vocab, why);
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
	return (struct profile_counts){ experts.bytes, told ? mount.bytes_read : -1 };
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

int engine_limits(struct engine *e, const int tokens[PROFILE_PHASES], struct limits *out, char *why)
{
	struct mount_stats mount = { .drive_speed = 0 };
	int r = mount_stats(e->file->dir, &mount, why);

	if (r)
		return r;
	r = limits_find(e->file, &e->compute, e->dense.base, &e->profile, tokens, mount.drive_speed,
			out);
	return r ? fail(why, -r, "no memory to measure the limits of this machine") : 0;
}
