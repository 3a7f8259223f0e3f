/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces of all three formats: what cachesim replays.
 */
#include "tests/fuzz/fuzz.h"

#include "expertfs/fail.h"
#include "tools/cachesim/trace.h"

static void check(const struct trace *t)
{
	size_t at = 0;

	if ((uint64_t)t->layers * t->experts > TRACE_MAX_EXPERTS || trace_total(t) >> 63)
		abort();
	for (size_t e = 0; e < t->events; e++) {
		uint32_t layer = t->uses[at].key >> 16;
		if (t->ends[e] <= at || t->ends[e] > t->n_uses || layer >= t->layers ||
		    !t->bytes[layer])
			abort();
		for (; at < t->ends[e]; at++)
			if (t->uses[at].key >> 16 != layer ||
			    (t->uses[at].key & 0xffff) >= t->experts || !t->uses[at].weight)
				abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *path = fuzz_file(data, size, 0, ".trace");
	char why[WHY_MAX];
	struct trace *t;

	for (int join = 0; join < 2; join++) {
		const struct trace_options o = { .join_prompt = join };
		if (trace_read(path, &o, &t, why) != 0)
			continue;
		check(t);
		trace_free(t);
	}
	return 0;
}
