/* SPDX-License-Identifier: Apache-2.0
 *
 * draft_logits DIR COUNT ID...: what the MTP layer of a model guesses after a prompt, as JSON for
 * test_draft.sh: the token that the model itself takes next, and the logits of COUNT guesses behind
 * it, each made from the best of the one before.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/engine.h"
#include "engine/fail.h"

static int best(const float *logits, int vocab)
{
	int at = 0;

	for (int i = 1; i < vocab; i++)
		if (logits[i] > logits[at])
			at = i;
	return at;
}

/* One token at a time, so that rows are due singly and guesses begin from several. */
static int feed(struct engine *e, char **ids, int n, char *why)
{
	int r = 0;

	for (int i = 0; i < n && !r; i++) {
		int32_t id = atoi(ids[i]);
		r = engine_feed(e, &id, 1, why);
		if (!r && i % 3 == 1)
			engine_prepare_drafts(e);
	}
	return r;
}

static int guess(struct engine *e, int vocab, int count, json_t *out, char *why)
{
	float *logits = malloc((size_t)vocab * sizeof(*logits));
	int r = logits ? engine_logits(e, logits, why) : -1;
	json_t *guesses = json_array();

	for (int i = 0; i <= count && !r; i++) {
		int32_t token = best(logits, vocab);
		json_t *all = json_array();
		if (!i)
			json_object_set_new(out, "next", json_integer(token));
		for (int k = 0; i && k < vocab; k++)
			json_array_append_new(all, json_real(logits[k]));
		if (i)
			json_array_append(guesses, all);
		json_decref(all);
		if (i < count)
			r = engine_draft(e, token, logits, why);
	}
	json_object_set_new(out, "guesses", guesses);
	free(logits);
	return r;
}

int main(int argc, char **argv)
{
	const struct engine_options o = { .threads = 1, .ctx = 256, .draft = 8 };
	struct modelfile *file = NULL;
	struct engine *e = NULL;
	json_t *out = json_object();
	char why[WHY_MAX] = "usage";
	int r = argc > 3 ? modelfile_load(argv[1], &file, why) : -1;

	r = r ? r : engine_open(file, &o, &e, why);
	r = r ? r : feed(e, argv + 3, argc - 3, why);
	r = r ? r : guess(e, file->config.vocab, atoi(argv[2]), out, why);
	if (r)
		fprintf(stderr, "draft_logits: %s\n", why);
	else
		json_dumpf(out, stdout, JSON_REAL_PRECISION(9));
	json_decref(out);
	engine_close(e);
	modelfile_free(file);
	return r ? 1 : 0;
}
