/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a store: the catalog, and then whether the files are what the catalog says.
 */
#include "expertfs/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expertfs/catalog.h"
#include "expertfs/fail.h"

static int check_shard(const struct store *s, uint32_t drive, char *why)
{
	const struct store_drive *d = &s->drive[drive];
	struct shard_head h;
	struct stat st;
	int err = 0, fd = open(d->path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT)
		return fail(why, ENOENT,
			    "%s: the shard of drive %" PRIu32 " is missing; is the drive mounted?",
			    d->path, drive);
	if (fd < 0)
		return fail(why, errno, "%s: %s", d->path, strerror(errno));
	if (fstat(fd, &st) != 0)
		err = fail(why, errno, "%s: %s", d->path, strerror(errno));
	else if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != d->bytes)
		err = fail(why, EBADMSG,
			   "%s is damaged: it has %" PRIu64 " bytes and should have %" PRIu64,
			   d->path, (uint64_t)st.st_size, d->bytes);
	else if (pread(fd, &h, sizeof(h), 0) != (ssize_t)sizeof(h) || !shard_head_valid(&h))
		err = fail(why, EBADMSG, "%s is damaged: its first block is not that of a shard",
			   d->path);
	else if (memcmp(h.store_id, s->id, STORE_ID_SIZE) != 0 || h.drive != drive ||
		 h.drives != s->drives)
		err = fail(why, EBADMSG,
			   "%s belongs to another store, or to another drive of this one", d->path);
	close(fd);
	return err;
}

const char *const store_file_names[STORE_FILES] = { "model.json", "tokenizer.json", "dense.bin" };

static int check_file(const struct store *s, const char *name, char *why)
{
	struct stat st;
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/%s", s->dir, name) >= (int)sizeof(path))
		return fail(why, ENAMETOOLONG, "%s: the path is too long", s->dir);
	if (stat(path, &st) != 0)
		return fail(why, errno, "%s is not a store: %s: %s", s->dir, name, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return fail(why, EBADMSG, "%s is not a store: %s is not a file", s->dir, name);
	return 0;
}

static int check_files(const struct store *s, char *why)
{
	int err = 0;

	for (int i = 0; !err && i < STORE_FILES; i++)
		err = check_file(s, store_file_names[i], why);
	return err ? err : check_file(s, "catalog.db", why);
}

static void measure(struct store *s)
{
	for (uint32_t i = 0; i < s->experts; i++) {
		const struct store_expert *e = &s->expert[i];
		if (e->bytes > s->max_expert_bytes)
			s->max_expert_bytes = e->bytes;
		if (e->layer >= s->layers_end)
			s->layers_end = e->layer + 1u;
		if (e->expert >= s->experts_per_layer)
			s->experts_per_layer = e->expert + 1u;
		s->total_bytes += e->bytes;
	}
}

int store_open(const char *dir, struct store **out, char *why)
{
	struct store *s = calloc(1, sizeof(*s));
	struct stat st;
	int err = 0;

	if (!s)
		return fail(why, ENOMEM, "out of memory");
	s->dir = realpath(dir, NULL);
	if (!s->dir || stat(s->dir, &st) != 0)
		err = fail(why, errno, "%s: %s", dir, strerror(errno));
	else if (!S_ISDIR(st.st_mode))
		err = fail(why, ENOTDIR, "%s is not a store: not a folder", dir);
	err = err ? err : check_files(s, why);
	err = err ? err : catalog_load(s, why);
	for (uint32_t i = 0; err == 0 && i < s->drives; i++)
		err = check_shard(s, i, why);
	if (err) {
		store_close(s);
		return err;
	}
	measure(s);
	*out = s;
	return 0;
}

void store_close(struct store *s)
{
	if (!s)
		return;
	for (uint32_t i = 0; i < s->drives; i++)
		free(s->drive[i].path);
	free(s->drive);
	free(s->expert);
	free(s->extent);
	free(s->dir);
	free(s);
}

const struct store_expert *store_find(const struct store *s, unsigned layer, unsigned expert)
{
	uint32_t lo = 0, hi = s->experts;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		const struct store_expert *e = &s->expert[mid];
		if (e->layer == layer && e->expert == expert)
			return e;
		if (e->layer < layer || (e->layer == layer && e->expert < expert))
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}
