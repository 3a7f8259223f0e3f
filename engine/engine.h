/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine as its programs see it: a model loaded, with one context of tokens.
 *
 *	modelfile_load(dir, &file, why);          what the model is; small, loads nothing
 *	engine_memory(file, &options, &need, why) what loading would take
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
 * Same tokens, same logits, bit for bit: whatever the number of threads, the way a context was
 * fed (at once, in pieces, token by token), the mode of the mount or what is cached.
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

/* Rows that go through a layer together by default: the more, the fewer times a long prompt opens
 * each expert; 1,024 take 370 MB of buffers for GLM-5.2. */
#define ENGINE_CHUNK 1024

struct engine_options {
	int threads; /* 0: machine_cores() */
	int ctx;     /* tokens; 1 .. config.max_positions */
	int chunk;   /* 0: ENGINE_CHUNK; never more than ctx */
	enum kv_type kv;
	bool float_activations; /* compute.h */
	enum lookahead_mode lookahead;
	bool profile; /* book where the time goes, between engine_profile_begin() and _end() */
	const struct progress *progress; /* may be NULL; must outlive the engine */
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

/* Fills out; -ENOMEM with the sentence if available is below total. */
int engine_memory(const struct modelfile *file, const struct engine_options *o,
		  struct engine_memory *out, char *why);

/* Checks the memory as above and loads. 0 or negative errno with the sentence. */
int engine_open(const struct modelfile *file, const struct engine_options *o, struct engine **out,
		char *why);
void engine_close(struct engine *e); /* NULL is fine */

int engine_threads(const struct engine *e);
enum serve_mode engine_mode(const struct engine *e);
/* Tokens in the context, and how many it can hold. */
int engine_position(const struct engine *e);
int engine_ctx(const struct engine *e);
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

void engine_get_stats(struct engine *e, struct engine_stats *out);

/* Where the time goes (profile.h). A phase begins, or the last one ends; nothing without
 * options.profile. */
void engine_profile_begin(struct engine *e, enum profile_phase phase);
void engine_profile_end(struct engine *e);
/* For profile_enter() around what the caller does itself; and what has been booked. */
struct profile *engine_profile(struct engine *e);
/* What limited the phases, which had so many tokens each. Measures for some tenths of a second. 0 or
 * negative errno with the sentence. */
int engine_limits(struct engine *e, const int tokens[PROFILE_PHASES], struct limits *out,
		  char *why);

#endif
