/* SPDX-License-Identifier: Apache-2.0
 *
 * Names, room and life cycle of what is written. See output.h; publish.c has the end of it.
 */
#include "tools/coli-pack/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "expertfs/fail.h"
#include "expertfs/size.h"
#include "tools/coli-pack/textfile.h"

static int no_memory(char *why)
{
	return fail(why, ENOMEM, "out of memory");
}

/* store has no trailing slashes, and is cut at the last one. */
static int split_store(struct output *o, char *store, const char **name, char *why)
{
	char *slash = strrchr(store, '/');

	*name = slash ? slash + 1 : store;
	if (!**name || strcmp(*name, ".") == 0 || strcmp(*name, "..") == 0)
		return fail(why, EINVAL, "\"%s\" cannot be the name of a store", store);
	/* The names of shards are lines in STORE/shards and in pack.state. */
	if (strchr(store, '\n'))
		return fail(why, EINVAL, "a store cannot have a line break in its name");
	if (slash)
		*slash = '\0';
	o->parent = realpath(!slash ? "." : slash == store ? "/" : store, NULL);
	if (!o->parent)
		return fail(why, errno, "cannot open the folder %s for the store: %s",
			    slash ? store : ".", strerror(errno));
	return 0;
}

static int name_store(struct output *o, const char *store, char *why)
{
	char *copy = strdup(store);
	const char *name;

	if (!copy)
		return no_memory(why);
	for (size_t n = strlen(copy); n > 1 && copy[n - 1] == '/'; n--)
		copy[n - 1] = '\0';
	int err = split_store(o, copy, &name, why);
	if (err == 0 && o->parent) {
		const char *parent = o->parent[1] ? o->parent : "";
		o->store = text_format("%s/%s", parent, name);
		o->partial = text_format("%s/%s.partial", parent, name);
		o->dense_path = text_format("%s/%s.partial/dense.bin", parent, name);
		if (!o->store || !o->partial || !o->dense_path)
			err = no_memory(why);
		else
			o->name = strrchr(o->store, '/') + 1;
	}
	free(copy);
	return err;
}

static int name_shard(struct output *o, uint32_t i, const char *drive, char *why)
{
	struct shard_out *s = &o->shard[i];
	struct stat st, other;

	if (!drive) {
		s->dir = text_format("%s", o->partial);
		s->path = text_format("%s/%s.shard", o->store, o->name);
		s->writing = text_format("%s/%s.shard", o->partial, o->name);
		return s->dir && s->path && s->writing ? 0 : no_memory(why);
	}
	s->dir = realpath(drive, NULL);
	if (!s->dir || stat(s->dir, &st) != 0)
		return fail(why, errno, "cannot open the drive folder %s: %s", drive,
			    strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return fail(why, ENOTDIR, "the drive %s is not a folder", drive);
	if (strchr(s->dir, '\n'))
		return fail(why, EINVAL, "a drive folder cannot have a line break in its name");
	for (uint32_t j = 0; j < i; j++)
		if (stat(o->shard[j].dir, &other) == 0 && other.st_dev == st.st_dev &&
		    other.st_ino == st.st_ino)
			return fail(why, EINVAL, "the drive folder %s is given twice", drive);
	s->path = text_format("%s/%s.shard", s->dir[1] ? s->dir : "", o->name);
	s->writing = text_format("%s.partial", s->path ? s->path : "");
	return s->path && s->writing ? 0 : no_memory(why);
}

int output_name(const char *store, char *const *drive, uint32_t n, struct output **out, char *why)
{
	struct output *o = calloc(1, sizeof(*o));

	if (!o)
		return no_memory(why);
	o->dense_fd = o->dir_fd = -1;
	o->inside = n == 0;
	o->drives = n ? n : 1;
	o->shard = calloc(o->drives, sizeof(*o->shard));
	if (!o->shard) {
		free(o);
		return no_memory(why);
	}
	for (uint32_t i = 0; i < o->drives; i++)
		o->shard[i].fd = -1;
	int err = name_store(o, store, why);
	for (uint32_t i = 0; err == 0 && i < o->drives; i++)
		err = name_shard(o, i, n ? drive[i] : NULL, why);
	if (err)
		output_close(o);
	else
		*out = o;
	return err;
}

void output_close(struct output *o)
{
	if (!o)
		return;
	for (uint32_t i = 0; i < o->drives; i++) {
		free(o->shard[i].dir);
		free(o->shard[i].path);
		free(o->shard[i].writing);
		if (o->shard[i].fd >= 0)
			close(o->shard[i].fd);
	}
	if (o->dense_fd >= 0)
		close(o->dense_fd);
	if (o->dir_fd >= 0)
		close(o->dir_fd);
	free(o->shard);
	free(o->store);
	free(o->parent);
	free(o->partial);
	free(o->dense_path);
	free(o);
}

bool output_same_device(const struct output *o, uint32_t a, uint32_t b)
{
	struct stat x, y;

	return stat(o->shard[a].dir, &x) == 0 && stat(o->shard[b].dir, &y) == 0 &&
	       x.st_dev == y.st_dev;
}

/* What is on disk already of a file that will have `planned` bytes. */
static uint64_t present(const char *path, uint64_t planned)
{
	struct stat st;

	if (stat(path, &st) != 0)
		return 0;
	uint64_t bytes = (uint64_t)st.st_blocks * 512;
	return bytes < planned ? bytes : planned;
}

static int check_device(const struct output *o, const struct plan *p, uint64_t other,
			const char *dir, char *why)
{
	struct stat home, here, st;
	struct statvfs vfs;
	uint64_t need = 0;
	char a[16], b[16];

	if (stat(o->parent, &home) != 0 || stat(dir, &here) != 0 || statvfs(dir, &vfs) != 0)
		return fail(why, errno, "cannot look at the file system of %s: %s", dir,
			    strerror(errno));
	if (home.st_dev == here.st_dev)
		need += p->dense_bytes - present(o->dense_path, p->dense_bytes) + other;
	for (uint32_t i = 0; i < o->drives; i++) {
		const struct shard_out *s = &o->shard[i];
		if (stat(o->inside ? o->parent : s->dir, &st) == 0 && st.st_dev == here.st_dev)
			need += p->place.shard_bytes[i] -
				present(shard_out_name(s), p->place.shard_bytes[i]);
	}
	uint64_t room = (uint64_t)vfs.f_bavail * vfs.f_frsize;
	if (need > room)
		return fail(why, ENOSPC,
			    "too little disk: %s needs %s for this store and has %s free", dir,
			    size_text(need, a), size_text(room, b));
	return 0;
}

int output_check_room(const struct output *o, const struct plan *p, uint64_t other_bytes, char *why)
{
	int err = check_device(o, p, other_bytes, o->parent, why);

	for (uint32_t i = 0; err == 0 && !o->inside && i < o->drives; i++)
		err = check_device(o, p, other_bytes, o->shard[i].dir, why);
	return err;
}

/* The lock is of use only on the folder that bears the name now: the one that was opened may have
 * become a finished store meanwhile. */
int output_lock(struct output *o, char *why)
{
	struct stat locked, named;
	int fd = open(o->partial, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return fail(why, errno, "cannot open %s: %s", o->partial, strerror(errno));
	if (flock(fd, LOCK_EX | LOCK_NB) != 0 || fstat(fd, &locked) != 0 ||
	    stat(o->partial, &named) != 0 || locked.st_dev != named.st_dev ||
	    locked.st_ino != named.st_ino) {
		close(fd);
		return fail(why, EBUSY, "%s: another coli-pack is writing it", o->partial);
	}
	o->dir_fd = fd;
	return 0;
}

int output_create(struct output *o, char *why)
{
	if (getrandom(o->store_id, sizeof(o->store_id), 0) != (ssize_t)sizeof(o->store_id))
		return fail(why, EIO, "cannot get random bytes for the store's id");
	if (mkdir(o->partial, 0777) != 0 && errno != EEXIST)
		return fail(why, errno, "cannot create %s: %s", o->partial, strerror(errno));
	int err = output_lock(o, why);
	o->fresh = err == 0;
	return err;
}

bool output_owns_shard(const char *path, const uint8_t store_id[STORE_ID_SIZE], bool even_empty)
{
	struct shard_head h;
	struct stat st;
	int fd = text_open(path, &st, NULL);
	bool ours;

	if (fd < 0)
		return false;
	if (st.st_size < (off_t)SHARD_ALIGN)
		ours = even_empty;
	else
		ours = text_read_at(fd, path, &h, sizeof(h), 0, NULL) == 0 &&
		       shard_head_valid(&h) && memcmp(h.store_id, store_id, STORE_ID_SIZE) == 0;
	close(fd);
	return ours;
}

static int open_shard(struct output *o, uint32_t i, char *why)
{
	struct shard_out *s = &o->shard[i];
	const char *path = shard_out_name(s);
	char block[SHARD_ALIGN] = { 0 };
	struct shard_head h = { .drive = i, .drives = o->drives };

	s->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (s->fd < 0)
		return fail(why, errno, "cannot create %s: %s", path, strerror(errno));
	memcpy(h.store_id, o->store_id, STORE_ID_SIZE);
	shard_head_seal(&h);
	if (output_owns_shard(path, o->store_id, false))
		return 0;
	/* New, or killed before the head was whole; after damage all is written anew. */
	memcpy(block, &h, sizeof(h));
	if (ftruncate(s->fd, 0) != 0)
		return fail(why, errno, "cannot truncate %s: %s", path, strerror(errno));
	return text_write_at(s->fd, path, block, sizeof(block), 0, why);
}

int output_open_files(struct output *o, uint64_t dense_bytes, char *why)
{
	int err = 0;

	/* At its full size at once: the zeros between the parts need not be written. */
	o->dense_fd = open(o->dense_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (o->dense_fd < 0 || ftruncate(o->dense_fd, (off_t)dense_bytes) != 0)
		return fail(why, errno, "cannot create %s: %s", o->dense_path, strerror(errno));
	for (uint32_t i = 0; err == 0 && i < o->drives; i++)
		err = open_shard(o, i, why);
	return err;
}
