/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.json, and a text through whatever it makes.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_json.h"

#include "engine/fail.h"
#include "engine/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char text[] = "Once, \xc3\xa9 1234\n\n  <|user|> it's \xff\xe2\x96\x81 end";
	struct tokenizer *t;
	char why[WHY_MAX];
	int32_t *ids;
	size_t n;

	if (tokenizer_load(fuzz_file(data, size, 0, ".json"), &t, why) != 0)
		return 0;
	if (tokenizer_encode(t, text, sizeof(text) - 1, TOKENIZER_ADD_SPECIAL, &ids, &n, why) ==
	    0) {
		for (size_t i = 0; i < n; i++)
			if (!tokenizer_has(t, ids[i]))
				abort();
		free(ids);
	}
	tokenizer_free(t);
	return 0;
}
