/* SPDX-License-Identifier: Apache-2.0
 *
 * What is done with a GGUF model of one file or several, by the fuzzers of both: whatever is found lies
 * within its file, and all that can be made of it is made.
 */
#ifndef TESTS_FUZZ_GGUF_H
#define TESTS_FUZZ_GGUF_H

#include <stdlib.h>
#include <string.h>

#include "engine/modelfile.h"
#include "expertfs/fail.h"
#include "expertfs/gguf_model.h"
#include "tools/coli-pack/gguf.h"

#define FUZZ_GGUF_BYTES ((size_t)2 << 20) /* of a file: behind its header tensors lie somewhere */

static inline void fuzz_gguf_plan(const char *path)
{
	static const uint64_t speed = 1;
	const struct spread one = { .replicas = 1, .drives = 1, .speed = &speed };
	const struct pack_options o = { .bits = 4, .dense_bits = 8, .group = 64 };
	struct checkpoint *ck;
	char why[WHY_MAX];
	struct plan *p;

	if (gguf_ckpt_open(path, &ck, why) != 0)
		return;
	if (plan_make(ck, &o, &one, &p, why) == 0)
		plan_free(p);
	ckpt_close(ck);
}

static inline void fuzz_gguf_check_tensors(const struct gguf *g)
{
	for (size_t i = 0; i < g->tensors; i++) {
		const struct gguf_tensor *t = &g->tensor[i];
		if (t->part >= g->parts || t->offset > g->part[t->part].bytes ||
		    t->bytes > g->part[t->part].bytes - t->offset || gguf_tensor(g, t->name) != t)
			abort();
	}
}

/* Every expert's slices lie within their files and, one after the other, in its own. */
static inline void fuzz_gguf_check_expert(const struct gguf *g, const struct gguf_layer *l,
					  uint32_t e)
{
	uint64_t at = 0;

	for (int m = 0; m < GGUF_MATRICES; m++) {
		const struct gguf_slices *s = &l->matrix[m];
		const struct gguf_part *file = &g->part[gguf_slice_tensor(s, e)->part];
		uint64_t place = gguf_slice_place(s, e);
		if (gguf_slice_offset(s, e) + s->bytes > file->bytes || place / 4096 * 4096 < at ||
		    place + s->bytes > l->bytes)
			abort();
		at = (place + s->bytes + 4095) / 4096 * 4096;
	}
}

static inline void fuzz_gguf_models(const struct gguf *g, const struct gguf_experts *x)
{
	struct modelfile *model;
	char why[WHY_MAX], *text;

	if (gguf_model_json(g, x, &text, why) != 0)
		return;
	if (modelfile_parse(text, strlen(text), "fuzz", "fuzz", &model, why) == 0)
		modelfile_free(model);
	free(text);
}

/* Whether it has experts. */
static inline bool fuzz_gguf(const char *path)
{
	struct gguf_experts x;
	char why[WHY_MAX], *text;
	struct gguf *g;
	bool found;

	if (gguf_open(path, &g, why) != 0)
		return false;
	fuzz_gguf_check_tensors(g);
	found = gguf_experts_find(g, &x, why) == 0;
	if (found) {
		for (uint32_t i = 0; i < x.layers; i++)
			for (uint32_t e = 0; e < x.layer[i].experts; e++)
				fuzz_gguf_check_expert(g, &x.layer[i], e);
		fuzz_gguf_models(g, &x);
		gguf_experts_free(&x);
		fuzz_gguf_plan(path);
	}
	if (gguf_vocab_json(g, &text, why) == 0)
		free(text);
	gguf_close(g);
	return found;
}

#endif
