/* SPDX-License-Identifier: Apache-2.0
 *
 * GGUF files: header, stacks of experts, model.json, which the engine reads, tokenizer.json; and what
 * coli-pack plans to make of them. The file is made longer than its header, so that tensors have
 * somewhere to lie.
 */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "engine/modelfile.h"
#include "expertfs/fail.h"
#include "expertfs/gguf_model.h"
#include "tools/coli-pack/gguf.h"

#define FILE_SIZE ((size_t)2 << 20)

static void plan(const char *path)
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *path = fuzz_file(data, size, FILE_SIZE, ".gguf");
	struct gguf_experts x;
	struct modelfile *model;
	char why[WHY_MAX], *text;
	struct gguf *g;

	if (gguf_open(path, &g, why) != 0)
		return 0;
	if (gguf_experts_find(g, &x, why) == 0) {
		/* Every expert's slices lie within the file and, one after the other, in its own. */
		for (uint32_t i = 0; i < x.layers; i++)
			for (uint32_t e = 0; e < x.layer[i].experts; e++) {
				uint64_t at = 0;
				for (int m = 0; m < GGUF_MATRICES; m++) {
					const struct gguf_slices *s = &x.layer[i].matrix[m];
					uint64_t place = gguf_slice_place(s, e);
					if (gguf_slice_offset(s, e) + s->bytes > g->part[0].bytes ||
					    place / 4096 * 4096 < at ||
					    place + s->bytes > x.layer[i].bytes)
						abort();
					at = (place + s->bytes + 4095) / 4096 * 4096;
				}
			}
		if (gguf_model_json(g, &x, &text, why) == 0) {
			if (modelfile_parse(text, strlen(text), "fuzz", "fuzz", &model, why) == 0)
				modelfile_free(model);
			free(text);
		}
		gguf_experts_free(&x);
		plan(path);
	}
	if (gguf_vocab_json(g, &text, why) == 0)
		free(text);
	gguf_close(g);
	return 0;
}
