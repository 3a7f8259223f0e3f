/* SPDX-License-Identifier: Apache-2.0
 *
 * The profile of a run and what became of its guesses, for people and as JSON.
 */
#ifndef ENGINE_REPORT_PROFILE_H
#define ENGINE_REPORT_PROFILE_H

#include <jansson.h>

#include "engine/limits.h"
#include "engine/lookahead.h"

struct profile_report {
	const struct profile *profile;
	const struct limits *limits;
	int tokens[PROFILE_PHASES];
};

/* Of the daemon during the run, guesses of other programs among them; -1: unknown. */
struct guess_counts {
	int64_t loaded, used, wasted;
};

/* New references; NULL: no memory. */
json_t *profile_json(const struct profile_report *r);
json_t *lookahead_json(const struct lookahead_stats *s, const struct guess_counts *g);
/* JSON's null for what is not known: counts below 0, amounts that are not above it. */
json_t *count_or_null(int64_t n);
json_t *positive_or_null(double v);

/* To stderr: a table, and a line for each phase that says what limited it. */
void profile_lines(const struct profile_report *r);
/* To stderr; nothing if nothing was foretold. */
void lookahead_lines(const struct lookahead_stats *s, const struct guess_counts *g);

#endif
