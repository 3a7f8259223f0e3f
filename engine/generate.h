/* SPDX-License-Identifier: Apache-2.0
 *
 * Continuing a prompt, token by token.
 */
#ifndef ENGINE_GENERATE_H
#define ENGINE_GENERATE_H

#include "engine/engine.h"
#include "engine/sampler.h"
#include "engine/speculate.h"
#include "engine/session.h"

enum stop_reason { STOP_LENGTH, STOP_EOS, STOP_INTERRUPTED };

struct generation {
	/* In. */
	const int32_t *prompt;
	int prompt_n, n; /* n: most tokens to make; fewer if the context ends */
	const int32_t *eos;
	int eos_n;
	bool want_logits;
	int draft;     /* tokens to guess ahead: DRAFT_AUTO, or up to draft_max */
	int draft_max; /* the engine's options.draft */
	/* Called for each token as soon as it is chosen; an error (negative errno) ends the run.
	 * May be NULL. */
	int (*token)(void *arg, int32_t id, char *why);
	void *arg;
	/* Restored, its engine's context being the beginning of the prompt: what is computed is
	 * saved as it comes, also when the run ends with an error. NULL: none; the context is
	 * emptied first. */
	struct kv_session *session;
	/* Asked before each token and each chunk of the prompt; true ends the run. May be NULL. */
	bool (*interrupted)(void);
	/* Out. */
	int restored;    /* tokens of the prompt that were in the context already */
	int prompt_done; /* tokens of the prompt in the context; all, unless interrupted */
	int32_t *ids;    /* made, the end token included; free() */
	int made;
	float *logits; /* after the prompt, if wanted; free() */
	enum stop_reason stop;
	double prompt_s;         /* the prompt, but for what was restored, through the model */
	double first_s;          /* from the start until the first token was chosen */
	double decode_s;         /* for the made - 1 tokens after the first */
	struct speculation spec; /* its counts */
};

/* Whether this token ends it. */
bool generation_ends(const struct generation *g, int32_t id);

/* 0 or negative errno with the sentence; what `out` owns is
 * the caller's to free in any case. */
int generate(struct engine *e, struct sampler *s, int vocab, struct generation *g, char *why);
void generation_free(struct generation *g);

#endif
