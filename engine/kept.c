/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of mappings that are kept.
 */
#include "engine/kept.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "engine/machine.h"

/* Asking takes 0.1 to 0.2 ms; so many layers take a second or more. */
#define ASK_EVERY 256

/* vm.max_map_count is 65,530 unless somebody has changed it, and others map as well. */
#define MOST 32768

#define NAME 24 /* of an expert: two numbers of nine digits at most, "/", a blank and a zero */

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

static uint64_t bytes_of(const struct modelfile *file)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < layers_of(file); i++)
		if (file->layer_layout[i])
			bytes += file->layer_layout[i]->bytes * (uint64_t)file->config.experts;
	return bytes;
}

/* Of a plain folder. */
static bool in_memory(const struct modelfile *file)
{
	struct statfs fs;

	if (statfs(file->dir, &fs) == 0 && fs.f_type == TMPFS_MAGIC)
		return true;
	return bytes_of(file) <= machine_memory().bytes;
}

static bool worth_it(const struct modelfile *file, enum serve_mode mode)
{
	return experts_of(file) <= MOST &&
	       (mode == SERVE_PASSTHROUGH || (mode == SERVE_PLAIN && in_memory(file)));
}

static int open_used(const char *dir)
{
	char path[4096];

	if (snprintf(path, sizeof(path), "%s/.expertfs/used", dir) >= (int)sizeof(path))
		return -1;
	return open(path, O_WRONLY | O_CLOEXEC);
}

int kept_init(struct kept *k, const struct modelfile *file, enum serve_mode mode)
{
	*k = (struct kept){ .file = file, .asked = ASK_EVERY, .fd = -1 };
	if (!worth_it(file, mode))
		return 0;
	if (mode == SERVE_PLAIN)
		k->on = true;
	else
		k->fd = open_used(file->dir);
	if (!k->on && k->fd < 0)
		return 0;
	k->map = calloc(experts_of(file), sizeof(*k->map));
	if (k->map)
		return 0;
	if (k->fd >= 0)
		close(k->fd);
	return -ENOMEM;
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
	if (!k->map)
		return;
	kept_tell(k);
	let_go(k);
	if (k->fd >= 0)
		close(k->fd);
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
	bool all = mount->mode == SERVE_PLAIN || all_fit(mount);
	return experts_of(file) * (sizeof(void *) + (all ? TABLES : 0));
}

void kept_look(struct kept *k)
{
	struct mount_stats now;

	if (k->fd < 0 || ++k->asked < ASK_EVERY)
		return;
	k->asked = 0;
	kept_tell(k);
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

bool kept_use(struct kept *k, int layer, int expert)
{
	if (k->line_bytes + NAME > sizeof(k->line))
		kept_tell(k);
	if (!kept_find(k, layer, expert))
		return false;
	if (k->fd < 0)
		return true;
	k->line_bytes += (size_t)sprintf(k->line + k->line_bytes, "%d/%d ", layer, expert);
	return true;
}

void kept_tell(struct kept *k)
{
	size_t n = k->line_bytes;

	k->line_bytes = 0;
	if (n == 0 || write(k->fd, k->line, n) == (ssize_t)n)
		return;
	let_go(k);
	k->on = false;
}

bool kept_put(struct kept *k, int layer, int expert, void *map)
{
	if (k->on)
		*place(k, layer, expert) = map;
	return k->on;
}
