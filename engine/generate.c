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

static bool is_eos(const struct generation *g, int32_t id)
{
	for (int i = 0; i < g->eos_n; i++)
		if (g->eos[i] == id)
			return true;
	return false;
}

/* logits are those after the last token fed. */
static int decode(struct engine *e, struct sampler *s, struct generation *g, int most,
		  float *logits, double start, char *why)
{
	double first = 0;

	while (g->made < most) {
		profile_enter(engine_profile(e), PART_HEAD);
		int32_t id = sampler_pick(s, logits);
		profile_enter(engine_profile(e), PART_OTHER);
		g->ids[g->made++] = id;
		if (g->made == 1) {
			first = clock_seconds();
			g->first_s = first - start;
		}
		int r = g->token ? g->token(g->arg, id, why) : 0;
		if (!r && is_eos(g, id)) {
			g->stop = STOP_EOS;
			break;
		}
		if (!r && g->made < most)
			r = engine_feed(e, &id, 1, why);
		if (!r && g->made < most)
			r = engine_logits(e, logits, why);
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
	g->logits = g->want_logits ? malloc(bytes) : NULL;
	g->ids = malloc(((size_t)(most > 0 ? most : 0) + 1) * sizeof(*g->ids));
	if (!logits || !g->ids || (g->want_logits && !g->logits)) {
		free(logits);
		return fail(why, ENOMEM, "no memory for %zu bytes of logits", bytes);
	}
	engine_reset(e);
	engine_profile_begin(e, PROFILE_PROMPT);
	int r = engine_feed(e, g->prompt, g->prompt_n, why);
	if (!r)
		r = engine_logits(e, logits, why);
	g->prompt_s = clock_seconds() - start;
	engine_profile_begin(e, PROFILE_DECODE);
	if (!r && g->logits)
		memcpy(g->logits, logits, bytes);
	if (!r)
		r = decode(e, s, g, most, logits, start, why);
	engine_profile_end(e);
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
