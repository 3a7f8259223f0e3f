/* SPDX-License-Identifier: Apache-2.0
 *
 * Appending records to a shard, and giving their space back; see record.h.
 */
#include "expertfs/record.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expertfs/fail.h"
#include "expertfs/size.h"

struct fresh {
	struct record_head head;
	uint64_t at; /* of the head */
};

struct shard_out {
	char *path;
	int fd;
	bool direct;
	uint8_t id[STORE_ID_SIZE];
	uint64_t end;  /* of the last record, sealed or not */
	uint64_t kept; /* of the last that the catalog names, or of the file at the open */
	void *block;   /* SHARD_ALIGN bytes to write heads from */
	uint32_t n;    /* heads that are not written yet */
	struct fresh fresh[RECORD_BATCH];
};

static int cannot(const struct shard_out *o, const char *what, int err, char *why)
{
	return fail(why, -err, "%s: cannot %s: %s", o->path, what, strerror(-err));
}

/* Is there a head of this store and drive in the file, and nothing else? */
static bool is_empty_shard(int fd, const uint8_t store_id[STORE_ID_SIZE], uint32_t drive)
{
	_Alignas(SHARD_ALIGN) char block[SHARD_ALIGN];
	struct shard_head h;
	struct stat st;

	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size != SHARD_ALIGN ||
	    pread(fd, block, sizeof(block), 0) != (ssize_t)sizeof(block))
		return false;
	memcpy(&h, block, sizeof(h));
	return shard_head_is(&h, store_id, drive);
}

int shard_create(const char *path, const uint8_t store_id[STORE_ID_SIZE], uint32_t drive, char *why)
{
	_Alignas(SHARD_ALIGN) char block[SHARD_ALIGN] = { 0 };
	struct shard_head h = { .drive = drive, .drives = drive + 1 };
	char folder[PATH_MAX];
	int err = 0, fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

	if (fd < 0 && errno == EEXIST) {
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || !is_empty_shard(fd, store_id, drive))
			err = fail(why, EEXIST, "%s exists already: move it away first", path);
		if (fd >= 0)
			close(fd);
		return err;
	}
	if (fd < 0)
		return fail(why, errno, "%s: %s", path, strerror(errno));
	memcpy(h.store_id, store_id, STORE_ID_SIZE);
	shard_head_seal(&h);
	memcpy(block, &h, sizeof(h));
	err = direct_write(fd, block, sizeof(block), 0, NULL);
	if (!err && fsync(fd) != 0)
		err = -errno;
	if (close(fd) != 0 && !err)
		err = -errno;
	snprintf(folder, sizeof(folder), "%s", path);
	err = err ? err : sync_folder(dirname(folder));
	if (err) {
		unlink(path);
		return fail(why, -err, "%s: %s", path, strerror(-err));
	}
	return 0;
}

/* Is it the shard that it should be? Leaves its end in o->end. */
static int check(struct shard_out *o, uint32_t drive, uint64_t known, char *why)
{
	struct shard_head h;
	struct stat st;

	if (fstat(o->fd, &st) != 0 || pread(o->fd, o->block, SHARD_ALIGN, 0) < 0)
		return cannot(o, "read it", -errno, why);
	memcpy(&h, o->block, sizeof(h));
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size < known ||
	    !shard_head_is(&h, o->id, drive))
		return fail(why, EBADMSG, "%s is damaged, or not the shard of drive %" PRIu32,
			    o->path, drive);
	o->end = o->kept = shard_round_up((uint64_t)st.st_size);
	return 0;
}

static struct shard_out *new_out(const char *path, const uint8_t store_id[STORE_ID_SIZE])
{
	struct shard_out *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->fd = -1;
	o->path = strdup(path);
	memcpy(o->id, store_id, STORE_ID_SIZE);
	if (posix_memalign(&o->block, SHARD_ALIGN, SHARD_ALIGN) != 0)
		o->block = NULL;
	if (!o->path || !o->block) {
		shard_out_close(o);
		return NULL;
	}
	return o;
}

int shard_out_open(const char *path, const uint8_t store_id[STORE_ID_SIZE], uint32_t drive,
		   uint64_t known, struct shard_out **out, char *why)
{
	struct shard_out *o = new_out(path, store_id);
	int err;

	if (!o)
		return fail(why, ENOMEM, "out of memory");
	o->fd = direct_open(path, O_RDWR, &o->direct);
	err = o->fd < 0 ? fail(why, -o->fd, "%s: %s", path, strerror(-o->fd))
			: check(o, drive, known, why);
	if (err)
		shard_out_close(o);
	else
		*out = o;
	return err;
}

void shard_out_close(struct shard_out *o)
{
	if (!o)
		return;
	if (o->fd >= 0)
		close(o->fd);
	free(o->block);
	free(o->path);
	free(o);
}

uint64_t shard_out_end(const struct shard_out *o)
{
	return o->end;
}

int record_append(struct shard_out *o, const struct record_head *h, const void *payload,
		  const struct writer_pause *pause, uint64_t *offset, char *why)
{
	uint64_t padded = shard_round_up(h->part_bytes);
	char text[16];
	int err;

	if (o->n == RECORD_BATCH)
		return fail(why, ENOBUFS, "%s: too many records at once", o->path);
	err = direct_write(o->fd, payload, padded, o->end + SHARD_ALIGN, pause);
	if (err == -ENOSPC || err == -EDQUOT)
		return fail(why, -err, "the drive of %s is full: a record of %s did not fit",
			    o->path, size_text(padded + SHARD_ALIGN, text));
	if (err)
		return cannot(o, "write to it", err, why);
	if (!o->direct) {
		sync_file_range(o->fd, (off_t)o->end, (off_t)(padded + SHARD_ALIGN),
				SYNC_FILE_RANGE_WRITE);
	}
	o->fresh[o->n++] = (struct fresh){ *h, o->end };
	*offset = o->end + SHARD_ALIGN;
	o->end += record_bytes(h->part_bytes);
	return 0;
}

static int sync_data(struct shard_out *o, char *why)
{
	if (fdatasync(o->fd) != 0)
		return cannot(o, "write to it", -errno, why);
	if (!o->direct) /* nobody reads it from the page cache but the proof, which must not */
		posix_fadvise(o->fd, 0, 0, POSIX_FADV_DONTNEED);
	return 0;
}

int record_seal(struct shard_out *o, char *why)
{
	int err = o->n ? sync_data(o, why) : 0;

	for (uint32_t i = 0; i < o->n && !err; i++) {
		struct record_head h = o->fresh[i].head;
		memcpy(h.store_id, o->id, STORE_ID_SIZE);
		record_head_seal(&h);
		memset(o->block, 0, SHARD_ALIGN);
		memcpy(o->block, &h, sizeof(h));
		err = direct_write(o->fd, o->block, SHARD_ALIGN, o->fresh[i].at, NULL);
		if (err)
			cannot(o, "write to it", err, why);
	}
	err = err || o->n == 0 ? err : sync_data(o, why);
	if (!err)
		o->n = 0;
	return err;
}

void record_keep(struct shard_out *o)
{
	o->kept = o->end;
}

void record_withdraw(struct shard_out *o)
{
	/* If it cannot be cut off it stays as what it is: records that no catalog names. */
	if (o->end > o->kept && ftruncate(o->fd, (off_t)o->kept) == 0)
		o->end = o->kept;
	o->n = 0;
}

bool record_at(struct shard_out *o, uint64_t at, struct record_head *h)
{
	if (pread(o->fd, o->block, SHARD_ALIGN, (off_t)at) != (ssize_t)SHARD_ALIGN)
		return false;
	memcpy(h, o->block, sizeof(*h));
	return record_head_is(h, o->id);
}

int shard_out_cut(struct shard_out *o, uint64_t end)
{
	if (ftruncate(o->fd, (off_t)end) != 0)
		return -errno;
	o->end = o->kept = end;
	return 0;
}

int record_punch(struct shard_out *o, unsigned layer, unsigned expert, uint64_t offset,
		 uint64_t length, char *why)
{
	struct record_head h;

	if (offset < 2 * (uint64_t)SHARD_ALIGN || !record_at(o, offset - SHARD_ALIGN, &h) ||
	    h.layer != layer || h.expert != expert || h.part_bytes != length)
		return fail(why, EBADMSG,
			    "%s: what lies before %" PRIu64 " is not the head of expert %u/%u",
			    o->path, offset, layer, expert);
	if (fallocate(o->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		      (off_t)(offset - SHARD_ALIGN), (off_t)record_bytes(length)) != 0)
		return cannot(o, "give space back", -errno, why);
	return 0;
}
