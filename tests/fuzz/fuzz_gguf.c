/* SPDX-License-Identifier: Apache-2.0
 *
 * GGUF files: header, stacks of experts, model.json, tokenizer.json. The file is made longer than
 * its header, so that tensors have somewhere to lie.
 */
#include "tests/fuzz/fuzz.h"

#include "expertfs/fail.h"
#include "expertfs/gguf_model.h"

#define FILE_SIZE ((size_t)2 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gguf_experts x;
	char why[WHY_MAX], *text;
	struct gguf *g;

	if (gguf_open(fuzz_file(data, size, FILE_SIZE, ".gguf"), &g, why) != 0)
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
		if (gguf_model_json(g, &x, &text, why) == 0)
			free(text);
		gguf_experts_free(&x);
	}
	if (gguf_vocab_json(g, &text, why) == 0)
		free(text);
	gguf_close(g);
	return 0;
}
