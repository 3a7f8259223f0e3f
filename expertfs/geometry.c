/* SPDX-License-Identifier: Apache-2.0
 *
 * "experts": {"count": 256, "layouts": [{"layers": [3, 4, ...], ...}, ...]} of model.json; see
 * geometry.h.
 */
#include "expertfs/geometry.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>

#include "expertfs/store.h"

#define NUMBERS_MAX (UINT16_MAX + 1)

/* Checks all layers; with each, also calls it. */
static int walk(const json_t *experts, void (*each)(void *arg, unsigned layer, unsigned expert),
		void *arg)
{
	json_int_t count = json_integer_value(json_object_get(experts, "count"));
	const json_t *layouts = json_object_get(experts, "layouts"), *layout, *layer;
	size_t i, k, layers = 0;

	if (count < 1 || count > NUMBERS_MAX)
		return -ENODATA;
	json_array_foreach(layouts, i, layout)
	{
		json_array_foreach(json_object_get(layout, "layers"), k, layer)
		{
			json_int_t n = json_integer_value(layer);
			if (!json_is_integer(layer) || n < 0 || n >= NUMBERS_MAX ||
			    ++layers > STORE_EXPERTS_MAX / (size_t)count)
				return -ENODATA;
			for (json_int_t e = 0; each && e < count; e++)
				each(arg, (unsigned)n, (unsigned)e);
		}
	}
	return layers ? 0 : -ENODATA;
}

int geometry_each(const char *dir, void (*each)(void *arg, unsigned layer, unsigned expert),
		  void *arg)
{
	char path[PATH_MAX];
	const json_t *experts;
	json_t *root;
	int err;

	if (snprintf(path, sizeof(path), "%s/model.json", dir) >= (int)sizeof(path))
		return -ENODATA;
	root = json_load_file(path, 0, NULL);
	experts = json_object_get(root, "experts");
	err = walk(experts, NULL, NULL);
	if (!err)
		walk(experts, each, arg);
	json_decref(root);
	return err;
}
