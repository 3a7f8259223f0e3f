/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory, counted before it is taken; context and chunk chosen by it.
 *
 * How the choice is made, and why:
 *
 * - What a run is known to need comes first: a context for the prompt and what is to be made of it, at
 *   the smallest chunk. If even the prompt does not fit, that is refused with the numbers.
 * - Then the chunk: each expert is opened once a layer and chunk, so a chunk of twice the rows reads a
 *   long prompt's experts half as often. It is never longer than the prompt, where it would only
 *   take memory.
 * - Then, with --memory, the context gets the rest: the memory was given to us. Without, it stays at what
 *   is usual (ENGINE_CTX) or needed: of a longer one nothing would be used, and what is announced
 *   should be there when it is used, while the daemon and others take theirs.
 * - Choices leave alone a sixteenth of what the machine has available, and what the daemon of this
 *   mount may still take of its own budget (its hot store fills as experts are used, and
 *   MemAvailable does not know that yet). A run that does not fit into the rest, but into all that
 *   is available, is let through at the least it needs: the daemon gives way under pressure.
 */
#include "engine/plan.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "engine/bytes.h"
#include "engine/fail.h"
#include "engine/forward.h"
#include "engine/machine.h"
#include "engine/min.h"
#include "engine/mtp.h"
#include "engine/sampler.h"
#include "engine/session.h"

/* Set aside for what the program takes beside what is counted: stacks of its threads, the C library's
 * own. A bound by judgement, not by measurement. */
#define UNCOUNTED ((uint64_t)4 << 20)

/* What the program takes or gives back between the choice and the check of it. */
#define DRIFT ((uint64_t)1 << 20)

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
	if (o->draft < 0 || o->draft > ENGINE_DRAFT_MAX)
		return fail(why, ERANGE, "%d tokens to guess at once are not between 0 and %d",
			    o->draft, ENGINE_DRAFT_MAX);
	if (o->draft && !engine_can_draft(file))
		return fail(why, EINVAL, "%s has no MTP layer to guess tokens with", file->dir);
	return 0;
}

int plan_rows(const struct engine_options *o)
{
	int rows = o->chunk > o->draft + 1 ? o->chunk : o->draft + 1;

	return rows < o->ctx ? rows : o->ctx;
}

int plan_cache_layers(const struct modelfile *file, const struct engine_options *o)
{
	return file->config.layers + (o->draft ? 1 : 0);
}

/* Asked once, not at each step of a search: both look at files. */
static int see_mount(const struct modelfile *file, struct plan *p, char *why)
{
	int r = mount_stats(file->dir, &p->mount, why);

	p->experts = r ? 0 : experts_bytes(file, &p->mount);
	return r;
}

/* Of the vocabulary's size: the engine's rows of logits, and what those have who draw from them (of this
 * token, of the prompt, of a guess; a sampler). */
static size_t vocabulary_bytes(const struct model_config *c)
{
	return (FORWARD_LOGIT_ROWS + 3) * (size_t)c->vocab * sizeof(float) +
	       sampler_bytes(c->vocab);
}

static void count_memory(const struct modelfile *file, struct plan *p)
{
	const struct model_config *c = &file->config;
	const struct engine_options *o = &p->options;
	struct engine_memory *m = &p->memory;
	size_t forward = forward_bytes(c, o->ctx, plan_rows(o), o->threads);

	m->dense = file->dense_bytes - (o->draft ? 0 : file->extra_bytes);
	m->kv = kvcache_bytes(c, plan_cache_layers(file, o), o->ctx, o->kv);
	m->buffers = compute_bytes(o->threads, weights_max_cols(c)) + p->experts +
		     lookahead_bytes(c) + vocabulary_bytes(c) + (size_t)o->ctx * sizeof(int32_t);
	if (o->session)
		m->buffers += kv_session_bytes(kvcache_bytes(c, c->layers, 1, o->kv), o->ctx);
	/* What no machine has (SIZE_MAX) must not wrap round. */
	m->buffers = forward > SIZE_MAX / 4 ? SIZE_MAX / 4 : m->buffers + forward;
	if (o->draft)
		m->buffers += mtp_bytes(c, plan_rows(o));
	if (o->profile)
		m->buffers += limits_bytes(file, o->threads);
	m->total = m->dense + m->kv + m->buffers;
}

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* What --memory leaves: what the program has already is part of it. */
static uint64_t room_of_option(const struct engine_options *o)
{
	return o->memory ? less(o->memory, machine_own_memory() + UNCOUNTED) : UINT64_MAX;
}

/* Sets what is available. */
static void find_room(struct plan *p)
{
	uint64_t option = room_of_option(&p->options);
	struct memory_room room = machine_memory();

	p->memory.available = room.bytes;
	p->memory.limit = room.limit;
	if (option < room.bytes) {
		p->memory.available = option;
		p->memory.limit = "--memory, less what the program itself takes";
	}
}

static int too_little(const struct modelfile *file, const struct engine_memory *m, const char *what,
		      char *why)
{
	char total[BYTES_TEXT], dense[BYTES_TEXT], kv[BYTES_TEXT], buffers[BYTES_TEXT],
		room[BYTES_TEXT];

	return fail(why, ENOMEM,
		    "%s needs %s of memory%s (dense tensors %s, key-value cache %s, buffers %s), "
		    "but only %s are available (%s)",
		    file->dir, bytes_text(m->total, total), what, bytes_text(m->dense, dense),
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

int engine_plan_make(const struct modelfile *file, const struct engine_options *in, struct plan *p,
		     char *why)
{
	int r = complete(file, in, &p->options, why);

	if (!r)
		r = check_files(file, why);
	if (!r)
		r = see_mount(file, p, why);
	if (r)
		return r;
	count_memory(file, p);
	find_room(p);
	return p->memory.total > p->memory.available ? too_little(file, &p->memory, "", why) : 0;
}

int engine_memory(const struct modelfile *file, const struct engine_options *o,
		  struct engine_memory *out, char *why)
{
	struct plan p;
	int r = engine_plan_make(file, o, &p, why);

	if (!r || r == -ENOMEM)
		*out = p.memory;
	return r;
}

/* -- The choice ----------------------------------------------------------------------------------- */

struct choice_of {
	const struct modelfile *file;
	struct plan *plan;
	uint64_t budget;
};

/* What choices may take. to_come: of the daemon. */
static uint64_t budget(const struct engine_options *o, uint64_t to_come)
{
	uint64_t room = machine_memory().bytes, machine = less(room, room / 16 + to_come);
	uint64_t option = less(room_of_option(o), DRIFT);

	return option < machine ? option : machine;
}

static bool fits(const struct choice_of *c, int ctx, int chunk)
{
	c->plan->options.ctx = ctx;
	c->plan->options.chunk = chunk < ctx ? chunk : ctx;
	count_memory(c->file, c->plan);
	return c->plan->memory.total <= c->budget;
}

/* The largest number of [lo, hi] that fits, as context or as chunk, beside the other one; lo - 1 if
 * there is none. More of either never takes less memory. */
static int most(const struct choice_of *c, int lo, int hi, bool ctx, int other)
{
	int bad = hi + 1;

	for (lo = lo - 1; bad - lo > 1;) {
		int middle = lo + (bad - lo) / 2;
		if (ctx ? fits(c, middle, other) : fits(c, other, middle))
			lo = middle;
		else
			bad = middle;
	}
	return lo;
}

/* ctx 0 or chunk 0: to be chosen. False if what is needed at least does not fit. */
static bool choose(const struct choice_of *c, const struct engine_need *need, int *ctx, int *chunk)
{
	int max = c->file->config.max_positions;
	int usual = min_int(max, need->wanted > ENGINE_CTX ? need->wanted : ENGINE_CTX);
	int rows = min_int(need->feed, ENGINE_CHUNK_MAX), least = min_int(rows, ENGINE_CHUNK_MIN);
	bool choose_ctx = !*ctx, choose_chunk = !*chunk;

	if (!choose_chunk)
		least = *chunk;
	if (choose_ctx)
		*ctx = most(c, need->least, usual, true, least);
	if (choose_ctx ? *ctx < need->least : !fits(c, *ctx, least))
		return false;
	if (choose_chunk)
		*chunk = most(c, least, min_int(rows, *ctx), false, *ctx);
	if (choose_ctx && c->plan->options.memory)
		*ctx = most(c, *ctx, max, true, *chunk);
	return true;
}

/* How many tokens would have fitted with this chunk. */
static int refuse(const struct choice_of *c, const struct engine_need *need, int chunk, char *why)
{
	int fitting = most(c, 1, need->least, true, chunk);
	char what[128];

	fits(c, need->least, chunk);
	if (fitting < 1)
		return too_little(c->file, &c->plan->memory, "", why);
	snprintf(what, sizeof(what), " for a prompt of %d tokens, of which %d would fit",
		 need->least, fitting);
	return too_little(c->file, &c->plan->memory, what, why);
}

int engine_plan(const struct modelfile *file, const struct engine_options *in,
		const struct engine_need *need, struct engine_options *out, char *why)
{
	struct plan p = { .options = *in };
	struct choice_of c = { file, &p, 0 };
	int ctx = in->ctx, chunk = in->chunk, r = see_mount(file, &p, why);

	*out = *in;
	if (r)
		return r;
	if (!p.options.threads)
		p.options.threads = machine_cores();
	find_room(&p);
	c.budget = budget(&p.options, p.mount.memory_to_come);
	if (!choose(&c, need, &ctx, &chunk)) {
		ctx = in->ctx ? in->ctx : need->least;
		chunk = in->chunk ? in->chunk : min_int(need->feed, ENGINE_CHUNK_MIN);
		c.budget = p.memory.available;
		if (!in->ctx && !fits(&c, ctx, chunk))
			return refuse(&c, need, chunk, why);
	}
	out->ctx = ctx;
	out->chunk = min_int(chunk, ctx);
	return 0;
}
