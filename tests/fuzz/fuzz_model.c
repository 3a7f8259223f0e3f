/* SPDX-License-Identifier: Apache-2.0
 *
 * model.json with the config.json in it: what the engine believes of a mount.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_json.h"

#include "engine/fail.h"
#include "engine/modelfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct modelfile *m;
	char why[WHY_MAX];

	if (modelfile_parse((const char *)data, size, "fuzz", "fuzz", &m, why) != 0)
		return 0;
	for (size_t i = 0; i < m->tensors; i++) {
		const struct tensor *t = &m->tensor[i];
		if (t->offset + t->bytes > m->dense_file[t->part].bytes)
			abort();
	}
	for (int i = 0; i < m->layouts; i++)
		for (int k = 0; k < EXPERT_MATRICES; k++)
			for (int e = 0; e < m->config.experts; e++) {
				const struct tensor *t = &m->layout[i].matrix[k];
				if (expert_matrix_offset(t, e) + t->bytes > m->layout[i].bytes)
					abort();
			}
	modelfile_free(m);
	return 0;
}
