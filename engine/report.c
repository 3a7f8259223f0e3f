/* SPDX-License-Identifier: Apache-2.0
 *
 * The report of a run.
 */
#include "engine/report.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/fail.h"
#include "engine/utf8.h"

#define DRAFT_VERDICT 64

double report_rate(int count, double s)
{
	return count > 0 && s > 0 ? count / s : 0;
}

static json_t *id_list(const int32_t *ids, int n)
{
	json_t *list = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(list, json_integer(ids[i]));
	return list;
}

static json_t *number_list(const float *x, int n)
{
	json_t *list = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(list, json_real(x[i]));
	return list;
}

/* JSON text must be UTF-8; a model's bytes need not be. */
static json_t *text_value(const char *text, size_t bytes)
{
	struct utf8_stream stream = { 0 };
	char *shown = malloc(UTF8_STREAM_ROOM(bytes) + 3);
	json_t *value = NULL;

	if (shown) {
		size_t n = utf8_stream_push(&stream, text, bytes, shown);
		n += utf8_stream_flush(&stream, shown + n);
		value = json_stringn(shown, n);
	}
	free(shown);
	return value;
}

/* Tokens of the prompt that went through the model. */
static int computed(const struct generation *g)
{
	return g->prompt_done - g->restored;
}

static const char *stop_name(enum stop_reason stop)
{
	static const char *const names[] = { "length", "eos", "interrupted" };

	return names[stop];
}

/* What became of --draft, in a few words. */
static void draft_verdict(const struct run_report *r, char text[DRAFT_VERDICT])
{
	const struct speculation *s = &r->g->spec;
	const struct draft_length *d = &s->length;

	if (!r->can_draft)
		snprintf(text, DRAFT_VERDICT, "off: the model has no MTP layer");
	else if (r->g->draft == 0)
		snprintf(text, DRAFT_VERDICT, "off, as asked for");
	else if (r->g->draft > 0)
		snprintf(text, DRAFT_VERDICT, "%d, as asked for", r->g->draft);
	else if (!(d->rate[0] > 0))
		snprintf(text, DRAFT_VERDICT, "too few tokens to measure");
	else if (!d->best)
		snprintf(text, DRAFT_VERDICT, "off: faster without");
	else
		snprintf(text, DRAFT_VERDICT, "%d: faster", draft_length_of(d->best));
}

static double tokens_per_step(const struct speculation *s)
{
	return s->steps ? (double)(s->steps + s->accepted) / s->steps : 0;
}

/* Tokens a second by how many were guessed, where that was tried. */
static json_t *draft_rates(const struct draft_length *d)
{
	json_t *o = json_object();
	char key[16];

	for (int i = 0; i < DRAFT_LENGTHS; i++) {
		snprintf(key, sizeof(key), "%d", draft_length_of(i));
		if (d->rate[i] > 0)
			json_object_set_new(o, key, json_real(d->rate[i]));
	}
	return o;
}

static json_t *draft_value(const struct run_report *r)
{
	const struct speculation *s = &r->g->spec;
	char verdict[DRAFT_VERDICT];
	json_t *o = json_object();

	draft_verdict(r, verdict);
	json_object_set_new(o, "verdict", json_string(verdict));
	json_object_set_new(o, "steps", json_integer(s->steps));
	json_object_set_new(o, "drafted", json_integer(s->drafted));
	json_object_set_new(o, "accepted", json_integer(s->accepted));
	json_object_set_new(o, "tokens_per_step", positive_or_null(tokens_per_step(s)));
	json_object_set_new(o, "seconds", json_real(s->guess_s));
	json_object_set_new(o, "rates", draft_rates(&s->length));
	return o;
}

static void fill(json_t *o, const struct run_report *r)
{
	const struct generation *g = r->g;

	json_object_set_new(o, "prompt_ids", id_list(g->prompt, g->prompt_n));
	json_object_set_new(o, "ids", id_list(g->ids, g->made));
	json_object_set_new(o, "text", text_value(r->text, r->text_bytes));
	if (g->logits)
		json_object_set_new(o, "logits", number_list(g->logits, r->vocab));
	json_object_set_new(o, "seed", r->seeded ? json_integer((json_int_t)r->seed) : json_null());
	json_object_set_new(o, "stop", json_string(stop_name(g->stop)));
	json_object_set_new(o, "time_to_first_token_s", positive_or_null(g->first_s));
	json_object_set_new(o, "prompt_tokens_per_s",
			    positive_or_null(report_rate(computed(g), g->prompt_s)));
	json_object_set_new(o, "decode_tokens_per_s",
			    positive_or_null(report_rate(g->made - 1, g->decode_s)));
	json_object_set_new(o, "draft", draft_value(r));
	json_object_set_new(o, "experts_opened",
			    json_integer((json_int_t)r->stats->experts_opened));
	json_object_set_new(o, "expert_bytes", json_integer((json_int_t)r->stats->expert_bytes));
	json_object_set_new(o, "expert_wait_s", json_real(r->stats->waited_s));
	json_object_set_new(o, "hits", count_or_null(r->hits));
	json_object_set_new(o, "misses", count_or_null(r->misses));
	json_object_set_new(o, "session_restored", count_or_null(g->session ? g->restored : -1));
	json_object_set_new(o, "lookahead", lookahead_json(&r->stats->lookahead, &r->guess));
	if (r->profile)
		json_object_set_new(o, "profile", profile_json(r->profile));
	json_object_set_new(o, "mode", json_string(serve_mode_name(r->mode)));
}

int report_json(const struct run_report *r, char *why)
{
	json_t *o = json_object();

	if (o)
		fill(o, r);
	/* Nine digits give back every float. An element that could not be allocated is missing
	 * then. */
	char *text = o ? json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
	int err = 0;
	if (!text || !json_object_get(o, "mode") || !json_object_get(o, "text"))
		err = fail(why, ENOMEM, "no memory for the report");
	else if (puts(text) < 0 || fflush(stdout) != 0)
		err = fail(why, EIO, "the report cannot be written to standard output");
	free(text);
	json_decref(o);
	return err;
}

static const char *const stop_words[] = { "as many as asked for or fit", "ended by the model",
					  "interrupted" };

static void draft_line(const struct run_report *r)
{
	const struct speculation *s = &r->g->spec;
	char verdict[DRAFT_VERDICT];

	if (!s->steps)
		return;
	draft_verdict(r, verdict);
	fprintf(stderr,
		"guesses  %d of %d right, %.2f tokens a step with guesses; guessing ahead: %s\n",
		s->accepted, s->drafted, tokens_per_step(s), verdict);
}

void report_lines(const struct run_report *r)
{
	const struct generation *g = r->g;

	/* Off the last line of the text, which on a terminal stands just before. */
	fprintf(stderr,
		"\nprompt   %d tokens in %.2f s (%.1f tokens/s), first token after %.2f s\n",
		computed(g), g->prompt_s, report_rate(computed(g), g->prompt_s), g->first_s);
	fprintf(stderr, "made     %d tokens in %.2f s", g->made, g->decode_s);
	if (g->made > 1)
		fprintf(stderr, " (%.1f tokens/s)", report_rate(g->made - 1, g->decode_s));
	fprintf(stderr, ", %s", stop_words[g->stop]);
	if (r->seeded)
		fprintf(stderr, ", seed %llu", (unsigned long long)r->seed);
	fputc('\n', stderr);
	draft_line(r);
	fprintf(stderr, "experts  %llu opened, %.2f GB, waited %.2f s",
		(unsigned long long)r->stats->experts_opened, (double)r->stats->expert_bytes / 1e9,
		r->stats->waited_s);
	if (r->hits >= 0 && r->misses >= 0)
		fprintf(stderr, ", %lld hits and %lld misses", (long long)r->hits,
			(long long)r->misses);
	fprintf(stderr, ", mode %s\n", serve_mode_name(r->mode));
	lookahead_lines(&r->stats->lookahead, &r->guess);
	if (r->profile)
		profile_lines(r->profile);
}
