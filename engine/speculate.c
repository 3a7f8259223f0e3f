/* SPDX-License-Identifier: Apache-2.0
 *
 * Speculation.
 */
#include "engine/speculate.h"

#include <errno.h>
#include <stdlib.h>

#include "engine/clock.h"
#include "engine/fail.h"

int speculate_start(struct speculation *s, struct engine *e, const struct sampler *sampler,
		    int vocab, int wanted, int max, char *why)
{
	*s = (struct speculation){
		.engine = e, .sampler = sampler, .wanted = wanted, .vocab = (size_t)vocab
	};
	draft_length_init(&s->length, max);
	s->logits = malloc(s->vocab * sizeof(float));
	return s->logits ? 0 : fail(why, ENOMEM, "no memory for %d logits", vocab);
}

void speculate_settle(struct speculation *s)
{
	if (s->guesses && s->rows)
		engine_keep(s->engine, s->at + 1);
	if (s->rows && s->measured)
		draft_length_step(&s->length, s->at + 1, s->seconds);
	s->rows = 0;
}

/* How many tokens to guess now. */
static int choose(struct speculation *s, int left)
{
	int wanted = s->wanted == DRAFT_AUTO ? draft_length_next(&s->length) : s->wanted;
	int guesses = wanted < left ? wanted : left - 1;

	if (guesses && !engine_may_draft(s->engine))
		guesses = 0;
	s->measured = guesses == wanted;
	return guesses;
}

static int guess(struct speculation *s, char *why)
{
	double begin = clock_seconds();

	for (int i = 0; i < s->guesses; i++) {
		int r = engine_draft(s->engine, s->ids[i], s->logits, why);
		if (r)
			return r;
		s->ids[i + 1] = sampler_likeliest(s->sampler, s->logits);
	}
	s->guess_s += clock_seconds() - begin;
	s->steps++;
	s->drafted += s->guesses;
	return 0;
}

static int step(struct speculation *s, char *why)
{
	int r;

	if (s->guesses) {
		r = guess(s, why);
		return r ? r
			 : engine_feed_drafts(s->engine, s->ids, s->guesses + 1, &s->row, &s->rows,
					      why);
	}
	s->row = s->logits;
	r = engine_feed(s->engine, s->ids, 1, why);
	r = r ? r : engine_logits(s->engine, s->logits, why);
	s->rows = r ? 0 : 1;
	return r;
}

int speculate_next(struct speculation *s, int32_t id, int left, const float **logits, char *why)
{
	int before = s->guesses;

	if (s->at + 1 < s->rows && s->ids[s->at + 1] == id) {
		s->accepted++;
		*logits = s->row + (size_t)++s->at * s->vocab;
		return 0;
	}
	speculate_settle(s);
	s->ids[0] = id;
	s->at = 0;
	s->guesses = choose(s, left);
	/* What the layer has missed while nothing was guessed is no part of what a guess costs. */
	if (s->guesses && !before)
		engine_prepare_drafts(s->engine);
	double begin = clock_seconds();
	int r = step(s, why);
	s->seconds = clock_seconds() - begin;
	*logits = s->row;
	return r;
}

void speculate_end(struct speculation *s)
{
	speculate_settle(s);
	free(s->logits);
	s->logits = NULL;
}
