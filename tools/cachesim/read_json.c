/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces as JSON lines, one for each token (those of sqliteai/waste): {"tok": 1, "layers": [[6,
 * 8], [7]]} gives the experts of layer 0, of layer 1 and so on. Each layer of a token is an event.
 */
#include "tools/cachesim/trace.h"

#include <errno.h>
#include <jansson.h>

#include "expertfs/fail.h"

static int take_layer(struct trace *t, size_t layer, const json_t *experts, char *why)
{
	int err = trace_event(t, t->events, why);
	const json_t *expert;
	size_t k;

	if (!err && !json_is_array(experts))
		err = fail(why, EINVAL, "layer %zu is no list", layer);
	for (k = 0; !err && k < json_array_size(experts); k++) {
		expert = json_array_get(experts, k);
		if (!json_is_integer(expert) || json_integer_value(expert) < 0)
			err = fail(why, EINVAL, "layer %zu holds something that is no expert",
				   layer);
		else
			err = trace_use(t, layer, (uint64_t)json_integer_value(expert), 1, why);
	}
	return err;
}

int trace_line_json(struct trace *t, const char *line, char *why)
{
	json_error_t error;
	json_t *token = json_loads(line, JSON_REJECT_DUPLICATES, &error);
	const json_t *layers = json_object_get(token, "layers");
	int err = 0;

	if (!token)
		return fail(why, EINVAL, "not JSON: %s", error.text);
	if (!json_is_array(layers))
		err = fail(why, EINVAL, "the token has no list \"layers\"");
	for (size_t layer = 0; !err && layer < json_array_size(layers); layer++)
		err = take_layer(t, layer, json_array_get(layers, layer), why);
	json_decref(token);
	return err;
}
