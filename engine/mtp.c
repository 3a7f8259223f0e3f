/* SPDX-License-Identifier: Apache-2.0
 *
 * The MTP layer.
 */
#include "engine/mtp.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "engine/fail.h"
#include "engine/min.h"
#include "engine/norm.h"

static void lay_out(struct mtp *m, const struct model_config *c, int chunk, struct arena *a)
{
	size_t hidden = (size_t)c->hidden;

	m->room = chunk + 1;
	m->hidden = arena_take(a, (size_t)m->room * hidden, sizeof(float));
	m->next = arena_take(a, (size_t)m->room, sizeof(*m->next));
	m->joint =
		arena_take(a, (size_t)min_int(m->room, ATTENTION_ROWS) * 2 * hidden, sizeof(float));
	m->x = arena_take(a, hidden, sizeof(float));
}

size_t mtp_bytes(const struct model_config *c, int chunk)
{
	struct mtp m;
	struct arena a = { NULL, 0 };

	lay_out(&m, c, chunk, &a);
	return a.used;
}

int mtp_init(struct mtp *m, struct forward *forward, char *why)
{
	size_t bytes = mtp_bytes(forward->config, forward->chunk);
	struct arena a = { NULL, 0 };

	*m = (struct mtp){ .forward = forward, .guessed = -1 };
	m->memory = bytes == SIZE_MAX ? NULL : aligned_alloc(64, bytes);
	if (!m->memory)
		return fail(why, ENOMEM, "no memory for %zu bytes to speculate with", bytes);
	a.base = m->memory;
	lay_out(m, forward->config, forward->chunk, &a);
	return 0;
}

void mtp_free(struct mtp *m)
{
	free(m->memory);
	m->memory = NULL;
}

/* hidden [n][hidden] -> what the layer begins with, in place; n <= ATTENTION_ROWS. */
static void join(struct mtp *m, const int32_t *next, float *hidden, int n)
{
	const struct forward *f = m->forward;
	const struct mtp_weights *w = &f->weights->mtp;
	int size = f->config->hidden;
	float eps = f->config->norm_eps;

	for (int i = 0; i < n; i++) {
		float *embed = m->joint + (size_t)i * 2 * (size_t)size, *g = embed + size;
		kernel()->dequant(&w->embed, next[i], 1, embed, 0);
		rms_norm(embed, embed, w->embed_norm, size, eps);
		rms_norm(g, hidden + (size_t)i * (size_t)size, w->hidden_norm, size, eps);
	}
	matmul(f->compute, &w->join, m->joint, 2 * (size_t)size, n, hidden, (size_t)size);
}

/* What n rows, n <= chunk, begin with, in place. */
static void join_all(struct mtp *m, const int32_t *next, int position, float *hidden, int n)
{
	size_t size = (size_t)m->forward->config->hidden;

	for (int i = 0; i < n; i += ATTENTION_ROWS)
		join(m, next + i, hidden + (size_t)i * size, min_int(n - i, ATTENTION_ROWS));
	forward_positions(m->forward, position, n);
}

/* The room of the model's sets, which it writes anew in each run. Ties go to the lower key: nothing
 * here is to be as in the reference. */
static struct index_sets own_sets(const struct forward *f)
{
	struct index_sets sets = f->sets;

	sets.length = INT_MAX;
	sets.long_prompt = false;
	return sets;
}

/* The n rows due, n <= chunk, as those that are only looked back at: nobody guesses from them, so they
 * need no experts. */
static void keep(struct mtp *m, int n)
{
	struct forward *f = m->forward;
	struct index_sets sets = own_sets(f);

	join_all(m, m->next, m->first, m->hidden, n);
	forward_keys(f, &f->weights->mtp.layer, f->config->layers, m->first, m->hidden, n, &sets);
}

/* m->x, the row that is guessed from, through the layer. */
static int run(struct mtp *m, int32_t next, int position, char *why)
{
	struct forward *f = m->forward;
	struct index_sets sets = own_sets(f);

	join_all(m, &next, position, m->x, 1);
	f->moe.progress = NULL; /* the last pass's */
	return forward_layer(f, &f->weights->mtp.layer, f->config->layers, position, m->x, 1, &sets,
			     why);
}

static float *row(const struct mtp *m, int i)
{
	return m->hidden + (size_t)i * (size_t)m->forward->config->hidden;
}

void mtp_catch_up(struct mtp *m)
{
	int n = m->due - 1;

	if (n < 1)
		return;
	keep(m, n);
	memcpy(m->hidden, row(m, n), (size_t)m->forward->config->hidden * sizeof(float));
	m->first += n;
	m->due = 1;
}

void mtp_follow(struct mtp *m, const int32_t *ids, int position, int n)
{
	m->guessed = -1;
	if (position != m->first + m->due)
		m->due = 0;
	if (m->due)
		m->next[m->due - 1] = ids[0];
	if (m->due + n > m->room)
		mtp_catch_up(m);
	if (!m->due)
		m->first = position;
	forward_normed(m->forward, 0, n, row(m, m->due));
	memcpy(m->next + m->due, ids + 1, (size_t)(n - 1) * sizeof(*ids));
	m->due += n;
}

void mtp_cut(struct mtp *m, int position)
{
	m->guessed = -1;
	if (position < m->first + m->due)
		m->due = position > m->first ? position - m->first : 0;
}

/* The last of the rows due goes through the layer and becomes m->x, before its norm. */
static int begin(struct mtp *m, int32_t token, char *why)
{
	mtp_catch_up(m);
	m->due = 0;
	memcpy(m->x, m->hidden, (size_t)m->forward->config->hidden * sizeof(float));
	int r = run(m, token, m->first, why);
	if (r)
		return r;
	m->guessed = ++m->first;
	return 0;
}

int mtp_guess(struct mtp *m, int32_t token, float *logits, char *why)
{
	const struct forward *f = m->forward;
	const struct mtp_weights *w = &f->weights->mtp;
	int r;

	if (m->due)
		r = begin(m, token, why);
	else if (m->guessed < 0)
		return fail(why, EINVAL, "there is nothing to guess a token from");
	else if (m->guessed >= f->ctx)
		return fail(why, ERANGE, "no token can be guessed behind the end of the context");
	else
		r = run(m, token, m->guessed++, why);
	if (r) {
		m->guessed = -1;
		return r;
	}
	rms_norm(m->x, m->x, w->norm, f->config->hidden, f->config->norm_eps);
	matmul(f->compute, &w->head, m->x, (size_t)f->config->hidden, 1, logits,
	       (size_t)f->config->vocab);
	return 0;
}
