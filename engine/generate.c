/* SPDX-License-Identifier: Apache-2.0
 *
 * Continuing a prompt.
 */
#include "engine/generate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/clock.h"
#include "engine/fail.h"

bool generation_ends(const struct generation *g, int32_t id)
{
	for (int i = 0; i < g->eos_n; i++)
		if (g->eos[i] == id)
			return true;
	return false;
}

/* Between two writes of a session: what a kill may cost. The drive is waited for only after the prompt
 * and at the end. */
#define SAVE_EVERY 1.0 /* seconds */

static bool interrupted(struct generation *g)
{
	if (!g->interrupted || !g->interrupted())
		return false;
	g->stop = STOP_INTERRUPTED;
	return true;
}

/* The prompt's tokens into the context. With a session a chunk at a time, each saved when it is
 * done: through the layers they go in such chunks anyway. */
static int feed_prompt(struct engine *e, struct generation *g, char *why)
{
	int step = g->session ? engine_chunk(e) : g->prompt_n, r = 0;

	if (!g->session)
		engine_reset(e);
	g->restored = g->prompt_done = engine_position(e);
	while (!r && g->prompt_done < g->prompt_n && !interrupted(g)) {
		int left = g->prompt_n - g->prompt_done, n = left < step ? left : step;
		r = engine_feed(e, g->prompt + g->prompt_done, n, why);
		g->prompt_done += r ? 0 : n;
		if (!r && g->session)
			r = kv_session_save(g->session, n == left, why);
	}
	return r;
}

/* logits are those after the last token fed. */
static int decode(struct engine *e, struct sampler *s, struct generation *g, int most,
		  const float *logits, double start, char *why)
{
	double first = 0, saved = start;

	while (g->made < most && !interrupted(g)) {
		profile_enter(engine_profile(e), PART_HEAD);
		int32_t id = sampler_pick(s, logits);
		profile_enter(engine_profile(e), PART_OTHER);
		g->ids[g->made++] = id;
		if (g->made == 1) {
			first = clock_seconds();
			g->first_s = first - start;
		}
		int r = g->token ? g->token(g->arg, id, why) : 0;
		if (!r && generation_ends(g, id)) {
			g->stop = STOP_EOS;
			break;
		}
		if (!r && g->made < most)
			r = speculate_next(&g->spec, id, most - g->made, &logits, why);
		if (!r && g->session && clock_seconds() - saved >= SAVE_EVERY) {
			speculate_settle(&g->spec);
			r = kv_session_save(g->session, false, why);
			saved = clock_seconds();
		}
		if (r)
			return r;
	}
	g->decode_s = g->made ? clock_seconds() - first : 0;
	return 0;
}

int generate(struct engine *e, struct sampler *s, int vocab, struct generation *g, char *why)
{
	size_t bytes = (size_t)vocab * sizeof(float);
	/* The last token needs no place in the context: nothing is computed from it. */
	int room = engine_ctx(e) - g->prompt_n + 1, most = g->n < room ? g->n : room;
	float *logits = malloc(bytes);
	double start = clock_seconds();

	g->made = 0;
	g->stop = STOP_LENGTH;
	g->first_s = g->decode_s = 0;
	g->spec = (struct speculation){ 0 };
	g->logits = g->want_logits ? malloc(bytes) : NULL;
	g->ids = malloc(((size_t)(most > 0 ? most : 0) + 1) * sizeof(*g->ids));
	if (!logits || !g->ids || (g->want_logits && !g->logits)) {
		free(logits);
		return fail(why, ENOMEM, "no memory for %zu bytes of logits", bytes);
	}
	engine_profile_begin(e, PROFILE_PROMPT);
	int r = feed_prompt(e, g, why);
	bool whole = !r && g->prompt_done == g->prompt_n;
	if (whole)
		r = engine_logits(e, logits, why);
	g->prompt_s = clock_seconds() - start;
	engine_profile_begin(e, PROFILE_DECODE);
	if (whole && !r && g->logits)
		memcpy(g->logits, logits, bytes);
	if (whole && !r)
		r = speculate_start(&g->spec, e, s, vocab, g->draft, g->draft_max, why);
	if (whole && !r)
		r = decode(e, s, g, most, logits, start, why);
	speculate_end(&g->spec);
	engine_profile_end(e);
	if (!whole) {
		free(g->logits);
		g->logits = NULL;
	}
	if (g->session) {
		int saved = kv_session_save(g->session, true, r ? NULL : why);
		r = r ? r : saved;
	}
	free(logits);
	return r;
}

void generation_free(struct generation *g)
{
	free(g->ids);
	free(g->logits);
	g->ids = NULL;
	g->logits = NULL;
}
