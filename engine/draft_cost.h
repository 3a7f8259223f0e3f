/* SPDX-License-Identifier: Apache-2.0
 *
 * What speculation costs, for the profile: the time to guess and to check, and the experts that were
 * opened for guesses alone.
 *
 * Which rows of a pass were wrong is known only when the caller has looked at their logits. So a pass
 * that checks guesses counts each expert with the first row that chose it: if that row is given up,
 * so are all behind it, and nobody else wanted the expert. Those of the MTP layer count in full.
 * Costs nothing while the profile is off.
 *
 *	draft_cost_guess(d); the MTP layer runs; draft_cost_guessed(d);
 *	draft_cost_check(d, n); n rows go through the layers; draft_cost_checked(d);
 *	draft_cost_keep(d, kept, n);   maybe again, with fewer
 */
#ifndef ENGINE_DRAFT_COST_H
#define ENGINE_DRAFT_COST_H

#include "engine/experts.h"
#include "engine/modelfile.h"
#include "engine/profile.h"

#define DRAFT_COST_ROWS 16 /* of a pass that checks guesses, at most */

struct draft_cost {
	/* Not owned. */
	const struct modelfile *file;
	struct experts *experts;
	struct profile *profile; /* what comes out is in its `drafts` */
	/* Between guess and guessed. */
	enum profile_part part;
	struct experts_stats before;
	/* Between check and checked, and until the rows are kept or given up. */
	bool checking;
	double since;                                  /* outside() */
	struct profile_experts first[DRAFT_COST_ROWS]; /* by the first row that chose them */
};

/* All time until draft_cost_guessed() is speculation. */
void draft_cost_guess(struct draft_cost *d);
void draft_cost_guessed(struct draft_cost *d);

/* n <= DRAFT_COST_ROWS */
void draft_cost_check(struct draft_cost *d, int n);
void draft_cost_checked(struct draft_cost *d);
/* The rows of a layer chose these experts, n of them: entries start[id] .. start[id + 1] of row[] are the
 * rows that chose expert id, in ascending order (moe.h). d may be NULL. */
void draft_cost_layer(struct draft_cost *d, int layer, const int32_t *ids, int n,
		      const int32_t *start, const int32_t *row);
/* Of the `rows` rows left of the last pass that checked guesses the first `kept` are right. */
void draft_cost_keep(struct draft_cost *d, int kept, int rows);

#endif
