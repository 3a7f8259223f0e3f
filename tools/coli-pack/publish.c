/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a pack: the store appears, or everything is removed. See output.h.
 */
#include "tools/coli-pack/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expertfs/disk.h"
#include "expertfs/fail.h"
#include "tools/coli-pack/state.h"
#include "tools/coli-pack/textfile.h"

static const char *const own_files[] = { STATE_NAME,       STATE_NEW,           "dense.bin",
					 "model.json",     "tokenizer.json",    "catalog.db",
					 "shards",         "shards.new",        "catalog.db-wal",
					 "catalog.db-shm", "catalog.db-journal" };

static int sync_dir(const char *path, char *why)
{
	int err = sync_folder(path);

	return err ? fail(why, -err, "cannot sync the folder %s: %s", path, strerror(-err)) : 0;
}

/* Never over something that is there. File systems without such a rename get a look before it. */
static int rename_new(const char *from, const char *to, char *why)
{
	struct stat st;

	if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno == EINVAL || errno == ENOSYS) {
		if (lstat(to, &st) == 0)
			errno = EEXIST;
		else if (rename(from, to) == 0)
			return 0;
	}
	return fail(why, errno, "cannot rename %s to %s: %s", from, to, strerror(errno));
}

static int sync_file(int fd, const char *path, char *why)
{
	if (fsync(fd) != 0)
		return fail(why, errno, "cannot write %s: %s", path, strerror(errno));
	return 0;
}

int output_publish(struct output *o, char *why)
{
	int err = sync_file(o->dense_fd, o->dense_path, why);

	for (uint32_t i = 0; err == 0 && i < o->drives; i++)
		err = sync_file(o->shard[i].fd, shard_out_name(&o->shard[i]), why);
	err = err ? err : sync_dir(o->partial, why);
	for (uint32_t i = 0; err == 0 && !o->inside && i < o->drives; i++) {
		struct shard_out *s = &o->shard[i];
		if (!s->published)
			err = rename_new(s->writing, s->path, why);
		err = err ? err : sync_dir(s->dir, why);
	}
	err = err ? err : rename_new(o->partial, o->store, why);
	err = err ? err : sync_dir(o->parent, why);
	if (err)
		return err;
	/* Only now: as long as there is a STORE.partial, it can be resumed. */
	if (unlinkat(o->dir_fd, STATE_NAME, 0) != 0 && errno != ENOENT)
		return fail(why, errno, "cannot remove %s/" STATE_NAME ": %s", o->store,
			    strerror(errno));
	return 0;
}

static void remove_shard(const struct output *o, const char *path)
{
	if (output_owns_shard(path, o->store_id, true))
		unlink(path);
}

int output_remove(struct output *o, char *why)
{
	char *shard = text_format("%s.shard", o->name);

	if (!shard)
		return fail(why, ENOMEM, "out of memory");
	for (uint32_t i = 0; !o->inside && i < o->drives; i++) {
		remove_shard(o, o->shard[i].writing);
		if (output_owns_shard(o->shard[i].path, o->store_id, false))
			unlink(o->shard[i].path);
	}
	for (size_t i = 0; o->dir_fd >= 0 && i < sizeof(own_files) / sizeof(*own_files); i++)
		unlinkat(o->dir_fd, own_files[i], 0);
	if (o->dir_fd >= 0)
		unlinkat(o->dir_fd, shard, 0);
	free(shard);
	if (rmdir(o->partial) != 0 && errno != ENOENT)
		return fail(why, errno, "cannot remove %s: %s", o->partial, strerror(errno));
	return 0;
}
