/* SPDX-License-Identifier: Apache-2.0
 *
 * Safetensors files: what coli-pack reads first.
 */
#include "tests/fuzz/fuzz.h"

#include "expertfs/fail.h"
#include "tools/coli-pack/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct st_file f;
	char why[WHY_MAX];

	if (st_open(fuzz_file(data, size, 0, ".safetensors"), &f, why) != 0)
		return 0;
	for (size_t i = 0; i < f.tensors; i++)
		if (f.tensor[i].offset + f.tensor[i].bytes > size)
			abort();
	st_close(&f);
	return 0;
}
