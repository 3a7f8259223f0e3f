/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine as its programs see it: a model loaded, with one context of tokens.
 *
 *	modelfile_load(dir, &file, why);          what the model is; small, loads nothing
 *	engine_plan(file, &some, &need, &options, why); context and chunk, chosen by the memory
 *	engine_memory(file, &options, &memory, why); what loading would take
 *	engine_open(file, &options, &e, why);     loads the dense tensors
 *	engine_feed(e, ids, n, why);              tokens join the context, in order
 *	engine_logits(e, logits, why);            what the model expects next
 *	engine_close(e); modelfile_free(file);
 *
 * Who owns what: the caller owns the modelfile, which must outlive the engine, and all arrays
 * passed in; the engine owns weights, cache, buffers and threads. One thread at a time may call an
 * engine. After an error of engine_feed() the context is as before it, but for the logits of its
 * last token.
 *
 * Same tokens, same logits, bit for bit: whatever the number of threads, the chunk, the mode of the
 * mount or what is cached; and the way a context was fed (at once, in pieces, token by token), but
 * for long prompts (ATTENTION_PROMPT tokens at once) of models with latent attention, which takes
 * another form then and rounds otherwise (attention.h). With a session there are none.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/kvcache.h"
#include "engine/limits.h"
#include "engine/lookahead.h"
#include "engine/modelfile.h"
#include "engine/mount.h"
#include "engine/progress.h"

/* Tokens that can be checked at once behind the one that is certain, at most. */
#define ENGINE_DRAFT_MAX 15

/* Rows that go through a layer together by default: the more, the fewer times a long prompt opens
 * each expert; 1,024 take 426 MB of buffers for GLM-5.2 with 16 threads. engine_plan() chooses
 * between MIN, below which the matrix products get slow, with 77 MB, and MAX, with 1,415 MB. */
#define ENGINE_CHUNK     1024
#define ENGINE_CHUNK_MIN 64
#define ENGINE_CHUNK_MAX 4096

/* Tokens of a context that nobody asked to be of another length. */
#define ENGINE_CTX 4096

struct engine_options {
	int threads;     /* 0: machine_cores() */
	int ctx;         /* tokens; 1 .. config.max_positions; 0 for engine_plan(): choose */
	int chunk;       /* 0: ENGINE_CHUNK (for engine_plan(): choose); never more than ctx */
	uint64_t memory; /* bytes that the program may take; 0: what the machine leaves */
	bool session; /* there is one (session.h): its memory counts, long prompts stay absorbed */
	enum kv_type kv;
	bool float_activations; /* compute.h */
	int draft; /* most tokens to guess at once, up to ENGINE_DRAFT_MAX; 0: no MTP layer */
	enum lookahead_mode lookahead;
	bool profile; /* book where the time goes, between engine_profile_begin() and _end() */
	const struct progress *progress; /* may be NULL; must outlive the engine */
};

/* What a context will be used for. */
struct engine_need {
	int least;  /* tokens that must fit, the prompt's */
	int wanted; /* tokens that should */
	int feed;   /* most tokens that are fed at once */
};

struct engine_memory {
	uint64_t dense, kv, buffers, total; /* bytes */
	uint64_t available;
	const char *limit; /* what available is, for a sentence */
};

struct engine_stats {
	uint64_t experts_opened, expert_bytes;
	double waited_s; /* for experts, with nothing else to do */
	struct lookahead_stats lookahead;
};

struct engine;

/* Completes in->ctx and in->chunk where they are 0 by what memory allows; -ENOMEM with the numbers if
 * the least does not fit. What is given stays, but for a chunk longer than the context, and is not
 * checked here. Opens nothing. */
int engine_plan(const struct modelfile *file, const struct engine_options *in,
		const struct engine_need *need, struct engine_options *out, char *why);

/* Fills out; -ENOMEM with the sentence if available is below total. */
int engine_memory(const struct modelfile *file, const struct engine_options *o,
		  struct engine_memory *out, char *why);

/* Checks the memory as above and loads. 0 or negative errno with the sentence. */
int engine_open(const struct modelfile *file, const struct engine_options *o, struct engine **out,
		char *why);
void engine_close(struct engine *e); /* NULL is fine */

enum serve_mode engine_mode(const struct engine *e);
/* Tokens in the context, and how many it can hold. */
int engine_position(const struct engine *e);
int engine_ctx(const struct engine *e);
/* Rows that go through a layer together at most. */
int engine_chunk(const struct engine *e);
/* Back to an empty context. */
void engine_reset(struct engine *e);

/* -ERANGE if the context cannot hold n more; -EINVAL for an id outside the vocabulary; or an error
 * of the mount. */
int engine_feed(struct engine *e, const int32_t *ids, int n, char *why);

/* [vocab] after the last token fed; there must be one. -EDOM if the model gave something that is no
 * number. */
int engine_logits(struct engine *e, float *logits, char *why);

/* engine_feed() that hands out the logits after every one of the n tokens: rows first ..
 * first + count - 1 of them in order, [count][vocab], valid during the call only. They are those
 * of the sequence as it is at the end of the feed (indexer.h, INDEX_REFERENCE_LENGTH). */
typedef void engine_rows_fn(void *arg, int first, int count, const float *logits);
int engine_feed_rows(struct engine *e, const int32_t *ids, int n, engine_rows_fn *fn, void *arg,
		     char *why);

/* Speculation: guess tokens, have them checked together, keep what was right (speculate.c).
 *
 *	engine_may_draft(e)
 *	engine_draft(e, id, logits, why);              id comes next; logits of what may follow it,
 *	engine_draft(e, guess, logits, why);           of what may follow that, ...
 *	engine_feed_drafts(e, ids, n, &logits, &rows, why);   id and the guesses
 *	engine_keep(e, kept);                          those that were right, id among them
 *
 * Whether a model has the layer for it: options.draft must be 0 if not. */
bool engine_can_draft(const struct modelfile *file);
/* Whether guesses are of use now: there is an MTP layer and something to guess from, and
 * engine_feed_drafts() will take more than one token. */
bool engine_may_draft(const struct engine *e);
/* The MTP layer takes in what was fed since it last did: part of the next engine_draft(), or now,
 * if that is not to take long. */
void engine_prepare_drafts(struct engine *e);
/* logits [vocab]. Positions behind the context's end cannot be guessed: -ERANGE. The context is not
 * changed. */
int engine_draft(struct engine *e, int32_t token, float *logits, char *why);
/* As engine_feed() of the tokens one by one: logits [*rows][vocab] are those after each, to the
 * bit; the engine's, until its next call. 1 <= n <= options.draft + 1. *rows may be less than n:
 * what comes after those must be fed anew (ties, indexer.h; values that are no numbers). */
int engine_feed_drafts(struct engine *e, const int32_t *ids, int n, const float **logits, int *rows,
		       char *why);
/* Right after engine_feed_drafts(): only the first `rows` of its rows stay in the context, >= 1. */
void engine_keep(struct engine *e, int rows);

/* -- Keeping a context over the end of the program (session.h) --
 *
 * What is kept of a token is a row of bytes; how many, and of how many layers, is the same for all
 * tokens of an engine. */
struct engine_row {
	int layers;
	size_t bytes;
};
struct engine_row engine_row(const struct engine *e);

/* The tokens of the context; valid until the engine is closed. */
const int32_t *engine_ids(const struct engine *e);
/* How many of them, from the front, have rows that stay as they are when the context grows: all but
 * for the ties of indexer.h, which are decided anew up to INDEX_REFERENCE_LENGTH tokens. */
int engine_settled(const struct engine *e);
/* The first token whose keys were decided by such a tie; INT_MAX if there is none. */
int engine_first_tie(const struct engine *e);

/* Rows of tokens first .. first + n - 1 < engine_ctx(), as an array of n * engine_row().bytes; and
 * back from an array of `of` rows the first n of them. */
void engine_get_rows(const struct engine *e, int first, int n, void *to);
void engine_put_rows(struct engine *e, int first, int n, int of, const void *from);
/* The context is these n < engine_ctx() tokens, whose rows were put: those of a context that began
 * with them, whose first tie this is. The next call must be a feed: there are no logits. */
void engine_resume(struct engine *e, const int32_t *ids, int n, int first_tie);

void engine_get_stats(struct engine *e, struct engine_stats *out);

/* Where the time goes (profile.h). A phase begins, or the last one ends; nothing without
 * options.profile. */
void engine_profile_begin(struct engine *e, enum profile_phase phase);
void engine_profile_end(struct engine *e);
/* For profile_enter() around what the caller does itself; and what has been booked. */
struct profile *engine_profile(struct engine *e);
/* What limited the phases. Measures for some tenths of a second. 0 or
 * negative errno with the sentence. */
int engine_limits(struct engine *e, struct limits *out, char *why);

#endif
