/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the time of a run goes.
 *
 * At every moment the one computing thread is in one part of one phase; profile_enter() looks at the
 * clock and books what has passed on the part that it leaves. So the parts of a phase add up to its
 * time, whatever was forgotten: that is in "other". Off, a call is one comparison; on, one look at
 * the clock, some 30 ns, three times an expert.
 */
#ifndef ENGINE_PROFILE_H
#define ENGINE_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/clock.h"

enum profile_phase { PROFILE_PROMPT, PROFILE_DECODE, PROFILE_PHASES };

enum profile_part {
	PART_OTHER,
	PART_ATTENTION,
	PART_ROUTER,      /* of this layer, and of the next one if it looks ahead */
	PART_EXPERTS,     /* feed-forward: chosen, shared and dense */
	PART_WAIT,        /* for experts, with nothing else to do */
	PART_HEAD,        /* logits and sampling */
	PART_SPECULATION, /* drafts */
	PROFILE_PARTS
};

/* "prompt", "decode"; "attention", "router", ... */
const char *profile_phase_name(enum profile_phase phase);
const char *profile_part_name(enum profile_part part);

/* What was counted outside of the profile, when a phase began or ended. */
struct profile_counts {
	uint64_t experts, expert_bytes; /* opened */
	int64_t bytes_read;             /* by the daemon from drives; -1: not known */
};

struct profile_experts {
	uint64_t opened, bytes;
};

/* What speculation costs beside PART_SPECULATION (draft_cost.h). */
struct profile_drafts {
	/* Passes that check guesses, their certain first row included; the time is in other parts. */
	double check_s;
	uint64_t rows, wrong_rows; /* of these passes; those given up */
	/* Opened by the MTP layer; by nobody but rows given up. */
	struct profile_experts mtp, wrong;
};

struct profile {
	bool on, held; /* held: all goes to the part that it is in, see profile_hold() */
	enum profile_phase phase;
	enum profile_part part;
	double since; /* clock_seconds(): begin of the part */
	struct profile_counts before;
	/* Out. */
	double seconds[PROFILE_PHASES][PROFILE_PARTS];
	struct profile_counts counts[PROFILE_PHASES];
	/* Passes through the model's layers, and rows in them all: drafts that were wrong as well. */
	uint64_t passes[PROFILE_PHASES], rows[PROFILE_PHASES];
	struct profile_drafts drafts[PROFILE_PHASES];
};

/* From now on time is spent in this part. Returns the one before, for those that come back to it. */
static inline enum profile_part profile_enter(struct profile *p, enum profile_part part)
{
	enum profile_part before = p->part;

	if (!p->on || p->held)
		return before;
	double now = clock_seconds();
	p->seconds[p->phase][before] += now - p->since;
	p->since = now;
	p->part = part;
	return before;
}

/* All until profile_release(), whatever it enters, is time spent in this part; then the part before
 * goes on. */
static inline enum profile_part profile_hold(struct profile *p, enum profile_part part)
{
	enum profile_part before = profile_enter(p, part);

	p->held = true;
	return before;
}

static inline void profile_release(struct profile *p, enum profile_part before)
{
	p->held = false;
	profile_enter(p, before);
}

/* A pass of m rows is done. */
static inline void profile_pass(struct profile *p, int m)
{
	p->passes[p->phase]++;
	p->rows[p->phase] += (uint64_t)m;
}

/* A phase begins: the first one, or behind another one. now: the counts at this moment. */
void profile_begin(struct profile *p, enum profile_phase phase, const struct profile_counts *now);
/* The last one ends. */
void profile_end(struct profile *p, const struct profile_counts *now);

/* The sum of its parts. */
double profile_seconds(const struct profile *p, enum profile_phase phase);

#endif
