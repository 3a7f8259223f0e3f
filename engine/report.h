/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run says at its end: one JSON object, or a few lines for people.
 */
#ifndef ENGINE_REPORT_H
#define ENGINE_REPORT_H

#include "engine/generate.h"
#include "engine/report_profile.h"

struct run_report {
	const struct generation *g;
	const struct engine_stats *stats;
	enum serve_mode mode;
	int64_t hits, misses; /* of the daemon during the run; -1: unknown */
	bool can_draft;       /* the model has an MTP layer */
	struct guess_counts guess;
	const struct profile_report *profile; /* NULL: none was asked for */
	bool seeded;                          /* tokens were drawn, by this seed */
	uint64_t seed;
	const char *text; /* without end token and special tokens; any bytes */
	size_t text_bytes;
	int vocab;
};

/* Tokens a second for count tokens in s seconds; 0 if that is not known. */
double report_rate(int count, double s);

/* To stdout. 0 or negative errno with the sentence. */
int report_json(const struct run_report *r, char *why);
/* To stderr. */
void report_lines(const struct run_report *r);

#endif
