/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of mappings that are kept.
 */
#include "engine/kept.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Asking takes 0.1 to 0.2 ms; so many layers take a second or more. */
#define ASK_EVERY 256

/* vm.max_map_count is 65,530 unless somebody has changed it, and others map as well. */
#define MOST 32768

/* Page tables of a mapping whose end is no whole huge page. */
#define TABLES 8192

static size_t layers_of(const struct modelfile *file)
{
	return (size_t)file->config.layers + (size_t)file->config.extra_layers;
}

static size_t experts_of(const struct modelfile *file)
{
	return layers_of(file) * (size_t)file->config.experts;
}

static bool worth_it(const struct modelfile *file, enum serve_mode mode)
{
	return mode == SERVE_PASSTHROUGH && experts_of(file) <= MOST;
}

int kept_init(struct kept *k, const struct modelfile *file, enum serve_mode mode)
{
	*k = (struct kept){ .file = file, .asked = ASK_EVERY };
	if (!worth_it(file, mode))
		return 0;
	k->map = calloc(experts_of(file), sizeof(*k->map));
	return k->map ? 0 : -ENOMEM;
}

static void let_go(struct kept *k)
{
	size_t experts = (size_t)k->file->config.experts;

	for (size_t i = 0; i < experts_of(k->file); i++)
		if (k->map[i]) {
			munmap(k->map[i], k->file->layer_layout[i / experts]->bytes);
			k->map[i] = NULL;
		}
}

void kept_free(struct kept *k)
{
	if (k->map)
		let_go(k);
	free(k->map);
	k->map = NULL;
}

static bool all_fit(const struct mount_stats *s)
{
	return s->experts > 0 && s->slots >= s->experts && s->hot_store > 0 &&
	       s->capacity >= s->hot_store;
}

size_t kept_bytes(const struct modelfile *file, const struct mount_stats *mount)
{
	if (!worth_it(file, mount->mode))
		return 0;
	return experts_of(file) * (sizeof(void *) + (all_fit(mount) ? TABLES : 0));
}

void kept_look(struct kept *k)
{
	struct mount_stats now;

	if (!k->map || ++k->asked < ASK_EVERY)
		return;
	k->asked = 0;
	k->on = mount_stats(k->file->dir, &now, NULL) == 0 && all_fit(&now);
	if (!k->on)
		let_go(k);
}

static void **place(const struct kept *k, int layer, int expert)
{
	return &k->map[(size_t)layer * (size_t)k->file->config.experts + (size_t)expert];
}

void *kept_find(const struct kept *k, int layer, int expert)
{
	return k->on ? *place(k, layer, expert) : NULL;
}

bool kept_put(struct kept *k, int layer, int expert, void *map)
{
	if (k->on)
		*place(k, layer, expert) = map;
	return k->on;
}
