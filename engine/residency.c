/* SPDX-License-Identifier: Apache-2.0
 *
 * The map of the daemon's memory, one layer of it.
 */
#include "engine/residency.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/mount.h"

#define MAP_MAX ((size_t)64 << 20) /* 1,024 layers of 65,536 experts */

/* The characters of a layer's experts; NULL if it has no line. */
static const char *line_of(const char *text, int layer)
{
	char head[16];
	size_t n = (size_t)snprintf(head, sizeof(head), "\n%03d ", layer);
	const char *at = strstr(text, head);

	return at ? at + n : NULL;
}

bool residency_parse(const char *text, int layer, bool *in_memory, int n)
{
	const char *line = line_of(text, layer);

	if (!line || strcspn(line, "\n") < (size_t)n)
		return false;
	for (int i = 0; i < n; i++)
		in_memory[i] = line[i] >= 'A' && line[i] <= 'T';
	return true;
}

bool residency_read(const char *dir, int layer, bool *in_memory, int n)
{
	char path[4096], *text = NULL;
	size_t bytes = 0;

	if (snprintf(path, sizeof(path), "%s/.expertfs/map", dir) >= (int)sizeof(path) ||
	    read_whole(path, MAP_MAX, &text, &bytes) != 0)
		return false;
	bool told = residency_parse(text, layer, in_memory, n);
	free(text);
	return told;
}
