/* SPDX-License-Identifier: Apache-2.0
 *
 * stats.json: the daemon's figures, one consistent text an open. README.md lists the members.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/figures.h"

#define DECIMALS 6

static json_t *value_json(const struct figure *f, const void *base)
{
	switch (f->type) {
	case COUNT:
		return json_integer((json_int_t)figure_count(f, base));
	case BOOL:
		return json_boolean(figure_count(f, base));
	default:
		return json_real(figure_value(f, base));
	}
}

/* Puts a value at a path: "memory.budget" goes into the object "memory", which is made if need be.
 * jansson passes NULL on: what cannot be allocated is left out. */
static void put(json_t *object, const char *path, json_t *value)
{
	const char *dot = strchr(path, '.');
	char outer[32];
	json_t *inner;

	if (!dot) {
		json_object_set_new(object, path, value);
		return;
	}
	snprintf(outer, sizeof(outer), "%.*s", (int)(dot - path), path);
	inner = json_object_get(object, outer);
	if (!inner) {
		inner = json_object();
		json_object_set_new(object, outer, inner);
	}
	json_object_set_new(inner, dot + 1, value);
}

static void put_table(json_t *object, const struct figure *table, const void *base)
{
	for (const struct figure *f = table; f->member; f++)
		put(object, f->member, value_json(f, base));
}

static json_t *drive_json(const struct drive_figures *d)
{
	json_t *o = json_object();

	put(o, "number", json_integer((json_int_t)d->number));
	put(o, "path", json_string(d->path));
	put(o, "role", json_string(d->role));
	put(o, "state", json_string(d->state));
	put_table(o, drive_figure_table, d);
	return o;
}

char *figures_json(const struct fs_figures *f)
{
	json_t *all = json_object(), *drives = json_array();
	char *text;

	put(all, "version", json_integer(1));
	put(all, "store", json_string(f->store));
	put(all, "mode", json_string(f->mode));
	put(all, "io", json_string(f->io));
	put(all, "policy", json_string(f->hot.spec));
	put_table(all, fs_figure_table, f);
	for (uint32_t i = 0; i < f->drives; i++)
		json_array_append_new(drives, drive_json(&f->drive[i]));
	put(all, "drives", drives);
	text = json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(DECIMALS));
	json_decref(all);
	return text;
}

char *fs_stats_json(const struct fs *fs)
{
	struct fs_figures f;
	char *text;

	if (fs_figures_take(fs, &f) != 0)
		return NULL;
	text = figures_json(&f);
	fs_figures_free(&f);
	return text;
}
