/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of a profile.
 */
#include "engine/report_profile.h"

#include <stdio.h>

/* The order in which parts are shown. */
static const enum profile_part shown[] = { PART_ATTENTION, PART_ROUTER, PART_EXPERTS,
					   PART_WAIT,      PART_HEAD,   PART_SPECULATION,
					   PART_OTHER };

/* In JSON a member's name, so without spaces; here for people. */
static const char *const label[PROFILE_PARTS] = {
	[PART_OTHER] = "all else",
	[PART_ATTENTION] = "attention",
	[PART_ROUTER] = "router",
	[PART_EXPERTS] = "experts, dense layers",
	[PART_WAIT] = "waiting for experts",
	[PART_HEAD] = "logits, sampling",
	[PART_SPECULATION] = "speculation",
};

static const char *const unit[LIMITS] = { "GB/s", "GB/s", "billion multiply-adds/s" };

json_t *count_or_null(int64_t n)
{
	return n >= 0 ? json_integer(n) : json_null();
}

json_t *positive_or_null(double v)
{
	return v > 0 ? json_real(v) : json_null();
}

static double share(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0;
}

static json_t *experts_json(const struct profile_experts *e)
{
	json_t *o = json_object();

	json_object_set_new(o, "opened", json_integer((json_int_t)e->opened));
	json_object_set_new(o, "bytes", json_integer((json_int_t)e->bytes));
	return o;
}

/* All that were opened for guesses alone. */
static struct profile_experts extra_experts(const struct profile_drafts *d)
{
	return (struct profile_experts){ d->mtp.opened + d->wrong.opened,
					 d->mtp.bytes + d->wrong.bytes };
}

static json_t *drafts_json(const struct profile_drafts *d, const struct profile_counts *c)
{
	struct profile_experts extra = extra_experts(d);
	json_t *o = json_object();

	json_object_set_new(o, "check_s", json_real(d->check_s));
	json_object_set_new(o, "rows", json_integer((json_int_t)d->rows));
	json_object_set_new(o, "wrong_rows", json_integer((json_int_t)d->wrong_rows));
	json_object_set_new(o, "mtp_experts", experts_json(&d->mtp));
	json_object_set_new(o, "wrong_experts", experts_json(&d->wrong));
	json_object_set_new(o, "share_of_experts", json_real(share(extra.opened, c->experts)));
	json_object_set_new(o, "share_of_bytes", json_real(share(extra.bytes, c->expert_bytes)));
	return o;
}

static json_t *phase_json(const struct profile_report *r, enum profile_phase phase)
{
	const struct profile_counts *c = &r->profile->counts[phase];
	enum limit nearest = limit_nearest(r->limits, phase);
	json_t *o = json_object(), *of = json_object();

	json_object_set_new(o, "tokens", json_integer(r->tokens[phase]));
	json_object_set_new(o, "seconds", json_real(profile_seconds(r->profile, phase)));
	for (int i = 0; i < PROFILE_PARTS; i++)
		json_object_set_new(o, profile_part_name((enum profile_part)i),
				    json_real(r->profile->seconds[phase][i]));
	json_object_set_new(o, "experts_opened", json_integer((json_int_t)c->experts));
	json_object_set_new(o, "expert_bytes", json_integer((json_int_t)c->expert_bytes));
	json_object_set_new(o, "bytes_read", count_or_null(c->bytes_read));
	json_object_set_new(o, "drafts", drafts_json(&r->profile->drafts[phase], c));
	for (int i = 0; i < LIMITS; i++)
		json_object_set_new(of, limit_name((enum limit)i),
				    json_real(limit_share(r->limits, phase, (enum limit)i)));
	json_object_set_new(o, "share_of", of);
	json_object_set_new(o, "limit",
			    limit_share(r->limits, phase, nearest) > 0
				    ? json_string(limit_name(nearest))
				    : json_null());
	return o;
}

json_t *profile_json(const struct profile_report *r)
{
	json_t *o = json_object(), *most = json_object();

	for (int i = 0; i < PROFILE_PHASES; i++)
		json_object_set_new(o, profile_phase_name((enum profile_phase)i),
				    phase_json(r, (enum profile_phase)i));
	for (int i = 0; i < LIMITS; i++)
		json_object_set_new(most, limit_name((enum limit)i), json_real(r->limits->most[i]));
	json_object_set_new(o, "most_per_s", most);
	return o;
}

static double per_token_ms(const struct profile_report *r, enum profile_phase phase, double s)
{
	return r->tokens[phase] > 0 ? 1e3 * s / r->tokens[phase] : 0;
}

static void line(const struct profile_report *r, const char *what, const double *s)
{
	fprintf(stderr, "  %-22s", what);
	for (int i = 0; i < PROFILE_PHASES; i++) {
		double all = profile_seconds(r->profile, (enum profile_phase)i);
		fprintf(stderr, " %10.3f %5.1f %%", per_token_ms(r, (enum profile_phase)i, s[i]),
			all > 0 ? 100 * s[i] / all : 0);
	}
	fputc('\n', stderr);
}

static void limit_line(const struct profile_report *r, enum profile_phase phase)
{
	enum limit nearest = limit_nearest(r->limits, phase);

	if (r->tokens[phase] <= 0)
		return;
	fprintf(stderr, "%-8s nearest to the limit of the %s", profile_phase_name(phase),
		limit_name(nearest));
	for (int i = 0; i < LIMITS; i++)
		if (r->limits->most[i] > 0)
			fprintf(stderr, "; %s %.4g of %.4g %s, %.0f %%", limit_name((enum limit)i),
				r->limits->used[phase][i] / 1e9, r->limits->most[i] / 1e9, unit[i],
				100 * limit_share(r->limits, phase, (enum limit)i));
	fputc('\n', stderr);
}

/* What guesses cost beside the time to make them, which has a line of its own in the table. */
static void drafts_line(const struct profile_report *r, enum profile_phase phase)
{
	const struct profile_drafts *d = &r->profile->drafts[phase];
	const struct profile_counts *c = &r->profile->counts[phase];
	struct profile_experts extra = extra_experts(d);

	if (!d->rows && !extra.opened)
		return;
	fprintf(stderr,
		"%-8s passes that check guesses: %.3f ms a token, %llu of their %llu rows wrong\n",
		profile_phase_name(phase), per_token_ms(r, phase, d->check_s),
		(unsigned long long)d->wrong_rows, (unsigned long long)d->rows);
	fprintf(stderr,
		"%-8s experts for guesses alone: %llu (%llu for the MTP layer, %llu for wrong "
		"rows), %.2f GB; %.1f %% of all, %.1f %% of their bytes\n",
		profile_phase_name(phase), (unsigned long long)extra.opened,
		(unsigned long long)d->mtp.opened, (unsigned long long)d->wrong.opened,
		(double)extra.bytes / 1e9, 100 * share(extra.opened, c->experts),
		100 * share(extra.bytes, c->expert_bytes));
}

void profile_lines(const struct profile_report *r)
{
	double s[PROFILE_PHASES];

	fprintf(stderr, "profile, ms a token      %18s %18s\n", profile_phase_name(PROFILE_PROMPT),
		profile_phase_name(PROFILE_DECODE));
	for (size_t i = 0; i < sizeof(shown) / sizeof(*shown); i++) {
		for (int k = 0; k < PROFILE_PHASES; k++)
			s[k] = r->profile->seconds[k][shown[i]];
		line(r, label[shown[i]], s);
	}
	for (int k = 0; k < PROFILE_PHASES; k++)
		s[k] = profile_seconds(r->profile, (enum profile_phase)k);
	line(r, "together", s);
	for (int k = 0; k < PROFILE_PHASES; k++)
		drafts_line(r, (enum profile_phase)k);
	for (int k = 0; k < PROFILE_PHASES; k++)
		limit_line(r, (enum profile_phase)k);
}

json_t *lookahead_json(const struct lookahead_stats *s, const struct guess_counts *g)
{
	json_t *o = json_object();

	json_object_set_new(o, "mode", json_string(lookahead_mode_name(s->mode)));
	json_object_set_new(o, "verdict", json_string(s->verdict));
	json_object_set_new(o, "guesses", json_integer((json_int_t)s->guesses));
	json_object_set_new(o, "loaded", count_or_null(g->loaded));
	json_object_set_new(o, "used", count_or_null(g->used));
	json_object_set_new(o, "wasted", count_or_null(g->wasted));
	json_object_set_new(o, "trials", json_integer(s->trials));
	json_object_set_new(o, "token_with_s", positive_or_null(s->on_s));
	json_object_set_new(o, "token_without_s", positive_or_null(s->off_s));
	return o;
}

void lookahead_lines(const struct lookahead_stats *s, const struct guess_counts *g)
{
	if (!s->guesses)
		return;
	fprintf(stderr, "ahead    %s, %llu guesses", s->verdict, (unsigned long long)s->guesses);
	if (g->loaded >= 0 && g->used >= 0 && g->wasted >= 0)
		fprintf(stderr, ": %lld loaded, %lld used, %lld wasted", (long long)g->loaded,
			(long long)g->used, (long long)g->wasted);
	if (s->trials)
		fprintf(stderr, "; a token took %.1f ms with, %.1f ms without", 1e3 * s->on_s,
			1e3 * s->off_s);
	fputc('\n', stderr);
}
