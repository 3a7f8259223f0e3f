/* SPDX-License-Identifier: Apache-2.0
 *
 * Lookahead: the next layer's router runs early, on the state at hand, and what it would choose is
 * written to the mount's .expertfs/prefetch. The daemon loads guesses behind all demand, so a token's
 * are written at once: the drive goes on with them without a pause. With GLM-5.2's sizes, where most is
 * read, that made a token 12 % quicker than writing them when all of this layer had arrived. A prompt's
 * wait until then: what this layer has not opened yet should not go for them.
 *
 * The state at hand is the one behind this layer's attention. Measured on the tale model, 9,500
 * choices: of those of the next layer it finds 0.70; with the shared expert added 0.70; when the
 * layer is complete 0.72, but by then most of the time is over in which a guess helps. A token's first
 * guess is right in 0.91 of the cases there, the fourth and last in 0.49; with the random weights of
 * bench-engine the first of 8 in 0.99, the fifth in 0.8, the last in 0.5. A wrong one takes time of the
 * drive that is the narrowest place, so only the better ones are named, the best first: half of them where
 * nearly all has to be read, more where some lie in memory (of 8, 6 were 5 % quicker than 4 with a quarter
 * in memory, and slower with nothing).
 *
 * Whether guesses pay depends on drive, memory and model: other engines report from 34 % more to 38 %
 * fewer tokens. So with LOOKAHEAD_AUTO the engine compares: some tokens with guesses against some
 * without, now and then anew, and keeps what was quicker. In a prompt many rows vote, and what is
 * guessed is used (of 512 tokens 1,296 of 1,298, of 64 tokens 760 of 800): there a guess is always made
 * unless LOOKAHEAD_OFF.
 *
 * A guess is no use of an expert and changes no result. One thread at a time may call.
 */
#ifndef ENGINE_LOOKAHEAD_H
#define ENGINE_LOOKAHEAD_H

#include "engine/compute.h"
#include "engine/lookahead_trial.h"
#include "engine/modelfile.h"
#include "engine/mount.h"
#include "engine/weights.h"

/* Up to so many rows are tokens that are being made, with drafts for the next ones. */
#define LOOKAHEAD_DECODE_ROWS 16

struct lookahead_stats {
	enum lookahead_mode mode;
	const char *verdict; /* "on", "off", or why there is no lookahead: "no daemon", ... */
	uint64_t guesses;    /* experts named to the daemon */
	int trials;
	double on_s, off_s; /* seconds a token in the last trial; 0: none */
};

struct lookahead;

/* stats: of file's mount. Without a daemon, without memory to load ahead into, or without the right
 * to write guesses there is no lookahead, which is no error: lookahead_get_stats() tells. 0 or
 * negative errno with the sentence. */
int lookahead_start(const struct modelfile *file, const struct mount_stats *stats,
		    enum lookahead_mode mode, struct lookahead **out, char *why);
void lookahead_stop(struct lookahead *a); /* NULL is fine */

/* Bytes that lookahead_start() takes. */
size_t lookahead_bytes(const struct model_config *c);

/* Guesses what `layer`, whose weights are l, will choose for the rows h [m][hidden]; to be called when
 * all of the layer before has been asked for. Of many rows only some are looked at. What is guessed of up
 * to LOOKAHEAD_DECODE_ROWS is sent at once. Does nothing while there is no lookahead. */
void lookahead_guess(struct lookahead *a, const struct compute *cp, const struct layer_weights *l,
		     int layer, const float *h, int m);
/* Hands the last guess, unless that was done, to the thread that writes, once. Never blocks for longer than that thread
 * takes to copy a line. */
void lookahead_send(struct lookahead *a);

/* A forward pass of m rows has taken so many seconds, `waited` of them for experts. */
void lookahead_step(struct lookahead *a, int m, double seconds, double waited);

void lookahead_get_stats(const struct lookahead *a, struct lookahead_stats *out);

#endif
