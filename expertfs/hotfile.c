/* SPDX-License-Identifier: Apache-2.0
 *
 * Slots in a file; see hotfile.h.
 */
#include "expertfs/hotfile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "expertfs/fail.h"
#include "expertfs/size.h"
#include "expertfs/storelock.h"
#include "expertfs/xxh3.h"
#include "expertfs/yield.h"

_Static_assert(sizeof(struct hot_head) == 48, "hot_head has no hidden padding");
_Static_assert(sizeof(struct slot_head) == 56, "slot_head has no hidden padding");

struct hot_file {
	char path[PATH_MAX];
	int fd;
	uint8_t id[STORE_ID_SIZE];
	uint64_t slot_bytes;
	uint32_t slots;
	void *block; /* SHARD_ALIGN bytes to read and write heads with */
};

static uint64_t slot_at(const struct hot_file *f, uint32_t slot)
{
	return SHARD_ALIGN + (uint64_t)slot * f->slot_bytes;
}

uint64_t hot_file_offset(const struct hot_file *f, uint32_t slot)
{
	return slot_at(f, slot) + SHARD_ALIGN;
}

const char *hot_file_path(const struct hot_file *f)
{
	return f->path;
}

uint32_t hot_file_slots(const struct hot_file *f)
{
	return f->slots;
}

static int read_block(struct hot_file *f, uint64_t at)
{
	ssize_t n = pread(f->fd, f->block, SHARD_ALIGN, (off_t)at);

	return n < 0 ? -errno : n < (ssize_t)SHARD_ALIGN ? -EIO : 0;
}

static int write_block(struct hot_file *f, uint64_t at, const void *head, size_t size)
{
	memset(f->block, 0, SHARD_ALIGN);
	memcpy(f->block, head, size);
	int err = direct_write(f->fd, f->block, SHARD_ALIGN, at, NULL);
	return err ? err : fdatasync(f->fd) == 0 ? 0 : -errno;
}

bool hot_file_head(struct hot_file *f, uint32_t slot, struct slot_head *h)
{
	if (read_block(f, slot_at(f, slot)) != 0)
		return false;
	memcpy(h, f->block, sizeof(*h));
	return memcmp(h->magic, SLOT_MAGIC, sizeof(h->magic)) == 0 &&
	       h->check == XXH3_64bits(h, offsetof(struct slot_head, check)) &&
	       memcmp(h->store_id, f->id, STORE_ID_SIZE) == 0 && h->expert_bytes > 0 &&
	       h->expert_bytes <= f->slot_bytes - SHARD_ALIGN;
}

int hot_file_empty(struct hot_file *f, uint32_t slot)
{
	return write_block(f, slot_at(f, slot), "", 0);
}

int hot_file_fill(struct hot_file *f, uint32_t slot, const struct slot_head *head, const void *data,
		  const struct writer_pause *pause)
{
	struct slot_head h = *head;
	int err = hot_file_empty(f, slot);

	if (err)
		return err;
	err = direct_write(f->fd, data, shard_round_up(h.expert_bytes), hot_file_offset(f, slot),
			   pause);
	if (!err && fdatasync(f->fd) != 0)
		err = -errno;
	if (err)
		return err; /* empty still */
	memcpy(h.magic, SLOT_MAGIC, sizeof(h.magic));
	memcpy(h.store_id, f->id, STORE_ID_SIZE);
	h.check = XXH3_64bits(&h, offsetof(struct slot_head, check));
	err = write_block(f, slot_at(f, slot), &h, sizeof(h));
	if (err)
		hot_file_empty(f, slot);
	return err;
}

/* FOLDER/NAME.hot from a shard's .../NAME.shard. */
static int make_path(struct hot_file *f, const struct store *s, const char *folder, char *why)
{
	char shard[PATH_MAX] = "store.shard", *name, *dot;

	for (uint32_t d = 0; d < s->drives; d++)
		if (s->drive[d].path) {
			snprintf(shard, sizeof(shard), "%s", s->drive[d].path);
			break;
		}
	name = basename(shard);
	dot = strrchr(name, '.');
	if (dot && dot != name)
		*dot = 0;
	if (snprintf(f->path, sizeof(f->path), "%s/%s.hot", folder, name) >= (int)sizeof(f->path))
		return fail(why, ENAMETOOLONG, "%.200s...: the path is too long", folder);
	return 0;
}

/* 1: a hot file of this store and these slots; 0: to be made anew. */
static int look(struct hot_file *f, char *why)
{
	struct hot_head h;
	struct stat st;

	if (fstat(f->fd, &st) != 0)
		return fail(why, errno, "%s: %s", f->path, strerror(errno));
	if (S_ISREG(st.st_mode) && st.st_size == 0)
		return 0;
	if (!S_ISREG(st.st_mode) || read_block(f, 0) != 0 ||
	    memcmp(f->block, HOT_MAGIC, sizeof(h.magic)) != 0)
		return fail(why, EEXIST, "%s is there and is no hot store: move it away", f->path);
	memcpy(&h, f->block, sizeof(h));
	return h.version == 1 && h.check == XXH3_64bits(&h, offsetof(struct hot_head, check)) &&
	       h.slot_bytes == f->slot_bytes && memcmp(h.store_id, f->id, STORE_ID_SIZE) == 0;
}

static int make_anew(struct hot_file *f)
{
	struct hot_head h = { .version = 1, .slot_bytes = f->slot_bytes };

	memcpy(h.magic, HOT_MAGIC, sizeof(h.magic));
	memcpy(h.store_id, f->id, STORE_ID_SIZE);
	h.check = XXH3_64bits(&h, offsetof(struct hot_head, check));
	if (ftruncate(f->fd, 0) != 0)
		return -errno;
	return write_block(f, 0, &h, sizeof(h));
}

/* What the file takes already counts as free. */
static int check_room(const struct hot_file *f, uint64_t bytes, char *why)
{
	char a[16], b[16];
	struct statvfs v;
	struct stat st;

	if (fstatvfs(f->fd, &v) != 0 || fstat(f->fd, &st) != 0)
		return fail(why, errno, "%s: %s", f->path, strerror(errno));
	uint64_t room = (uint64_t)v.f_bavail * v.f_frsize + (uint64_t)st.st_blocks * 512;
	if (room < bytes)
		return fail(why, ENOSPC, "--hot-dir-size %s: the drive of %s has %s free",
			    size_text(bytes, a), f->path, size_text(room, b));
	return 0;
}

/* For us alone; a daemon that was killed may have it a little longer (storelock.h). */
static bool lock(const struct hot_file *f)
{
	for (int ms = 0; flock(f->fd, LOCK_EX | LOCK_NB) != 0; ms += 20) {
		if (errno != EWOULDBLOCK)
			return true; /* no locks here */
		if (ms >= STORE_DYING_MS)
			return false;
		sleep_ms(20);
	}
	return true;
}

static int prepare(struct hot_file *f, uint64_t bytes, char *why)
{
	bool direct;
	int err;

	f->fd = direct_open(f->path, O_RDWR | O_CREAT, &direct);
	if (f->fd < 0)
		return fail(why, -f->fd, "%s: %s", f->path, strerror(-f->fd));
	if (!lock(f))
		return fail(why, EBUSY, "%s is used by another daemon", f->path);
	err = look(f, why);
	if (err < 0)
		return err;
	if (err == 0 && (err = make_anew(f)) != 0)
		return fail(why, -err, "%s: %s", f->path, strerror(-err));
	err = check_room(f, bytes, why);
	if (err)
		return err;
	/* To its full length at once: later writes need no sync of the length. */
	if (ftruncate(f->fd, (off_t)slot_at(f, f->slots)) != 0 || fsync(f->fd) != 0)
		return fail(why, errno, "%s: %s", f->path, strerror(errno));
	return 0;
}

int hot_file_open(const struct store *s, const char *folder, uint64_t bytes, struct hot_file **out,
		  char *why)
{
	struct hot_file *f = calloc(1, sizeof(*f));
	uint64_t slots;
	char a[16], b[16];
	int err = 0;

	if (!f)
		return fail(why, ENOMEM, "out of memory");
	f->fd = -1;
	memcpy(f->id, s->id, STORE_ID_SIZE);
	f->slot_bytes = record_bytes(s->max_expert_bytes);
	slots = bytes < SHARD_ALIGN ? 0 : (bytes - SHARD_ALIGN) / f->slot_bytes;
	f->slots = slots < s->experts ? (uint32_t)slots : s->experts;
	if (slots == 0)
		err = fail(why, EINVAL, "--hot-dir-size %s: one expert takes %s",
			   size_text(bytes, a), size_text(f->slot_bytes + SHARD_ALIGN, b));
	if (!err && posix_memalign(&f->block, SHARD_ALIGN, SHARD_ALIGN) != 0) {
		f->block = NULL;
		err = fail(why, ENOMEM, "out of memory");
	}
	err = err ? err : make_path(f, s, folder, why);
	err = err ? err : prepare(f, slot_at(f, f->slots), why);
	if (err)
		hot_file_close(f);
	else
		*out = f;
	return err;
}

void hot_file_close(struct hot_file *f)
{
	if (!f)
		return;
	if (f->fd >= 0)
		close(f->fd);
	free(f->block);
	free(f);
}
