/* SPDX-License-Identifier: Apache-2.0
 *
 * GGUF files: header, stacks of experts, model.json, which the engine reads, tokenizer.json; and what
 * coli-pack plans to make of them. The file is made longer than its header, so that tensors have
 * somewhere to lie.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	fuzz_gguf(fuzz_file(data, size, FUZZ_GGUF_BYTES, ".gguf"));
	return 0;
}
