/* SPDX-License-Identifier: Apache-2.0
 *
 * expertctl export: a store as the plain directory that the mount would show, for engines without a
 * daemon and as the baseline of measurements.
 *
 * All is written into DIR.partial, which becomes DIR when the last byte is on the drive: DIR is
 * whole or not there. Each extent's checksum is verified on the way; an expert whose first copy is
 * bad comes from a replica.
 */
#include "tools/expertctl/expertctl.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "expertfs/fail.h"
#include "expertfs/size.h"
#include "expertfs/store.h"
#include "expertfs/storelock.h"
#include "tools/expertctl/progress.h"

#define COPY_BYTES (1u << 20)

struct export
{
	struct store *store;
	int *drive;   /* the open shards, -1 if not */
	char *buffer; /* of the largest expert, or COPY_BYTES if that is more */
	char target[PATH_MAX - 16], partial[PATH_MAX - 8], parent[PATH_MAX];
	bool made;            /* partial is there, and ours */
	uint64_t total, done; /* bytes */
	struct ctl_progress progress;
	int lock; /* of the store; -1: none */
};

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
	(void)sig;
	interrupted = 1;
}

static int check_interrupt(char *why)
{
	return interrupted ? fail(why, EINTR, "interrupted; nothing was kept") : 0;
}

static void progress(struct export *x, uint64_t bytes)
{
	x->done += bytes;
	ctl_progress_show(&x->progress, x->done, x->total);
}

/* -- writing --------------------------------------------------------------------------------------
 */

static int write_all(int fd, const char *path, const char *data, uint64_t bytes, char *why)
{
	while (bytes > 0) {
		ssize_t n = write(fd, data, bytes);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail(why, errno, "%s: %s", path, strerror(errno));
		data += n;
		bytes -= (uint64_t)n;
	}
	return 0;
}

/* Makes path and writes it. An error of close() is one of writing (NFS, quota). */
static int write_file(const char *path, const char *data, uint64_t bytes, char *why)
{
	int err, fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	if (fd < 0)
		return fail(why, errno, "%s: %s", path, strerror(errno));
	err = write_all(fd, path, data, bytes, why);
	if (close(fd) != 0 && err == 0)
		err = fail(why, errno, "%s: %s", path, strerror(errno));
	return err;
}

static int copy_bytes(struct export *x, int from, const char *source, int to, const char *path,
		      char *why)
{
	int err = 0;

	while (err == 0) {
		ssize_t n = read(from, x->buffer, COPY_BYTES);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail(why, errno, "%s: %s", source, strerror(errno));
		if (n == 0)
			break;
		err = write_all(to, path, x->buffer, (uint64_t)n, why);
		progress(x, (uint64_t)n);
		err = err ? err : check_interrupt(why);
	}
	return err;
}

static int copy_file(struct export *x, const char *name, char *why)
{
	char source[PATH_MAX], path[PATH_MAX];
	int from, to, err;

	/* store_open() found the source, so it fits; the partial's name is shorter than its array.
	 */
	snprintf(source, sizeof(source), "%s/%s", x->store->dir, name);
	if (snprintf(path, sizeof(path), "%s/%s", x->partial, name) >= (int)sizeof(path))
		return fail(why, ENAMETOOLONG, "%s: the path is too long", x->partial);
	from = open(source, O_RDONLY | O_CLOEXEC);
	if (from < 0)
		return fail(why, errno, "%s: %s", source, strerror(errno));
	to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (to < 0) {
		err = fail(why, errno, "%s: %s", path, strerror(errno));
		close(from);
		return err;
	}
	err = copy_bytes(x, from, source, to, path, why);
	close(from);
	if (close(to) != 0 && err == 0)
		err = fail(why, errno, "%s: %s", path, strerror(errno));
	return err;
}

/* -- reading experts ------------------------------------------------------------------------------
 */

static int read_extent(struct export *x, const struct store_expert *e, const struct extent *part,
		       char *why)
{
	const char *path = x->store->drive[part->drive].path;
	char *data = x->buffer + part->expert_offset;
	uint64_t n = 0;

	if (x->drive[part->drive] < 0)
		return fail(why, ENOENT, "%s is missing", path);
	while (n < part->length) {
		ssize_t got = pread(x->drive[part->drive], data + n, part->length - n,
				    (off_t)(part->offset + n));
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return fail(why, errno, "%s: expert %u/%u: %s", path, e->layer, e->expert,
				    strerror(errno));
		if (got == 0)
			return fail(why, EIO,
				    "%s is truncated: expert %u/%u ends after %" PRIu64
				    " of %" PRIu64 " bytes",
				    path, e->layer, e->expert, n, part->length);
		n += (uint64_t)got;
	}
	if (payload_check(data, part->length) != part->check)
		return fail(why, EBADMSG,
			    "%s is damaged: the checksum of expert %u/%u does not hold", path,
			    e->layer, e->expert);
	return 0;
}

/* Copy after copy until one is whole. The sentence tells of the first fault, and says if replicas
 * were tried. The extents of a copy lie together. */
static int read_expert(struct export *x, const struct store_expert *e, char *why)
{
	const struct extent_list *l = e->packed; /* nobody moves experts in this process */
	char other[WHY_MAX];
	int first = 0;

	for (uint32_t i = 0; i < l->n;) {
		uint16_t copy = l->x[i].copy;
		int err = 0;
		for (; i < l->n && l->x[i].copy == copy; i++)
			if (err == 0)
				err = read_extent(x, e, &l->x[i], first ? other : why);
		if (err == 0) {
			if (first) {
				ctl_progress_clear(&x->progress);
				fprintf(stderr, "expertctl: warning: %s; a replica was good\n",
					why);
			}
			return 0;
		}
		first = first ? first : err;
	}
	return first;
}

static int export_expert(struct export *x, const struct store_expert *e, char *why)
{
	char path[PATH_MAX];
	int n, err = read_expert(x, e, why);

	if (err)
		return err;
	n = snprintf(path, sizeof(path), "%s/experts/%03u/%03u", x->partial, e->layer, e->expert);
	if (n >= (int)sizeof(path))
		return fail(why, ENAMETOOLONG, "%s: the path is too long", x->partial);
	err = write_file(path, x->buffer, e->bytes, why);
	progress(x, e->bytes);
	return err;
}

static int make_folder(const char *parent, const char *inner, char *why)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s%s", parent, inner) >= (int)sizeof(path))
		return fail(why, ENAMETOOLONG, "%s: the path is too long", parent);
	return mkdir(path, 0755) == 0 ? 0 : fail(why, errno, "%s: %s", path, strerror(errno));
}

static int export_experts(struct export *x, char *why)
{
	int err = make_folder(x->partial, "/experts", why);

	for (uint32_t i = 0; err == 0 && i < x->store->experts; i++) {
		const struct store_expert *e = &x->store->expert[i];
		char inner[32];
		if (i == 0 || e->layer != e[-1].layer) {
			snprintf(inner, sizeof(inner), "/experts/%03u", e->layer);
			err = make_folder(x->partial, inner, why);
		}
		err = err ? err : export_expert(x, e, why);
		err = err ? err : check_interrupt(why);
	}
	return err;
}

/* -- before and after -----------------------------------------------------------------------------
 */

static int set_paths(struct export *x, const char *dir, char *why)
{
	size_t n = strlen(dir);
	const char *slash;
	struct stat st;

	while (n > 1 && dir[n - 1] == '/')
		n--;
	if (n == 0 || n >= sizeof(x->target))
		return fail(why, EINVAL, "the name of the folder to write is %s",
			    n ? "too long" : "empty");
	memcpy(x->target, dir, n);
	snprintf(x->partial, sizeof(x->partial), "%s.partial", x->target);
	slash = strrchr(x->target, '/');
	snprintf(x->parent, sizeof(x->parent), "%.*s", slash ? (int)(slash - x->target) + 1 : 1,
		 slash ? x->target : ".");
	if (lstat(x->target, &st) == 0)
		return fail(why, EEXIST, "%s exists already", x->target);
	if (lstat(x->partial, &st) == 0)
		return fail(why, EEXIST,
			    "%s is in the way, left by an export that was killed; remove it",
			    x->partial);
	return 0;
}

/* All that will be written, and whether there is room for it: whole blocks, and one for each
 * folder. */
static int check_space(struct export *x, char *why)
{
	const struct store *s = x->store;
	uint64_t need = (uint64_t)(s->layers_end + 2) * SHARD_ALIGN, room;
	char path[PATH_MAX], a[16], b[16];
	struct statvfs fs;
	struct stat st;

	for (int i = 0; i < STORE_FILES; i++) {
		snprintf(path, sizeof(path), "%s/%s", s->dir, store_file_names[i]);
		if (stat(path, &st) != 0)
			return fail(why, errno, "%s: %s", path, strerror(errno));
		x->total += (uint64_t)st.st_size;
		need += shard_round_up((uint64_t)st.st_size);
	}
	for (uint32_t i = 0; i < s->experts; i++) {
		x->total += s->expert[i].bytes;
		need += shard_round_up(s->expert[i].bytes);
	}
	if (statvfs(x->parent, &fs) != 0)
		return fail(why, errno, "%s: %s", x->parent, strerror(errno));
	room = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (room < need)
		return fail(why, ENOSPC, "%s needs %s and there are %s free", x->target,
			    size_text(need, a), size_text(room, b));
	return 0;
}

static int open_drives(struct export *x, char *why)
{
	x->drive = malloc(x->store->drives * sizeof(*x->drive));
	if (!x->drive)
		return fail(why, ENOMEM, "out of memory");
	for (uint32_t i = 0; i < x->store->drives; i++)
		x->drive[i] = -1;
	for (uint32_t i = 0; i < x->store->drives; i++) {
		if (!x->store->drive[i].path || x->store->drive[i].missing)
			continue;
		x->drive[i] = open(x->store->drive[i].path, O_RDONLY | O_CLOEXEC);
		if (x->drive[i] < 0)
			return fail(why, errno, "%s: %s", x->store->drive[i].path, strerror(errno));
	}
	return 0;
}

static int get_buffer(struct export *x, char *why)
{
	uint64_t bytes = x->store->max_expert_bytes;
	char text[16];

	x->buffer = malloc(bytes > COPY_BYTES ? bytes : COPY_BYTES);
	return x->buffer
		       ? 0
		       : fail(why, ENOMEM, "no memory for an expert of %s", size_text(bytes, text));
}

static int sync_folder(const char *path, int (*sync)(int fd), char *why)
{
	int err = 0, fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || sync(fd) != 0)
		err = fail(why, errno, "%s: %s", path, strerror(errno));
	if (fd >= 0)
		close(fd);
	return err;
}

/* Everything on the drive, then the name. Nothing that has come to that name meanwhile is replaced.
 */
static int publish(struct export *x, char *why)
{
	int err = sync_folder(x->partial, syncfs, why);

	if (err)
		return err;
	if (renameat2(AT_FDCWD, x->partial, AT_FDCWD, x->target, RENAME_NOREPLACE) != 0 &&
	    ((errno != EINVAL && errno != ENOSYS) || rename(x->partial, x->target) != 0))
		return fail(why, errno, "%s: %s", x->target, strerror(errno));
	x->made = false;
	return sync_folder(x->parent, fsync, why);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

static void finish(struct export *x)
{
	if (x->made)
		nftw(x->partial, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	for (uint32_t i = 0; x->drive && i < x->store->drives; i++)
		if (x->drive[i] >= 0)
			close(x->drive[i]);
	free(x->drive);
	free(x->buffer);
	store_close(x->store);
	if (x->lock >= 0)
		close(x->lock);
	free(x);
}

static int export_all(struct export *x, const char *store, const char *dir, char *why)
{
	int err = set_paths(x, dir, why);

	/* Nobody moves experts meanwhile. */
	err = err ? err : store_lock(store, STORE_SERVED, &x->lock, why);
	err = err ? err : store_open(store, &x->store, why);
	if (err == 0 && x->store->lost)
		err = -ENOENT; /* why says which shard is not there */
	err = err ? err : check_space(x, why);
	err = err ? err : open_drives(x, why);
	err = err ? err : get_buffer(x, why);
	err = err ? err : make_folder(x->partial, "", why);
	x->made = err == 0;
	for (int i = 0; err == 0 && i < STORE_FILES; i++)
		err = copy_file(x, store_file_names[i], why);
	err = err ? err : export_experts(x, why);
	return err ? err : publish(x, why);
}

static int export(const char *store, const char *dir)
{
	const struct sigaction act = { .sa_handler = on_signal };
	struct export *x = calloc(1, sizeof(*x));
	char why[WHY_MAX], bytes[16];
	int err;

	if (!x) {
		fputs("expertctl: out of memory\n", stderr);
		return 1;
	}
	x->lock = -1;
	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	sigaction(SIGHUP, &act, NULL);
	ctl_progress_begin(&x->progress, "export");
	err = export_all(x, store, dir, why);
	ctl_progress_clear(&x->progress);
	if (err)
		fprintf(stderr, "expertctl: %s\n", why);
	else
		printf("%s: %" PRIu32 " experts, %s in all\n", x->target, x->store->experts,
		       size_text(x->done, bytes));
	finish(x);
	return err ? 1 : 0;
}

static int run(char **argv)
{
	const char *words[2];
	int n, status = ctl_split(argv, words, 2, &n, NULL, NULL);

	if (status)
		return status;
	if (n < 2)
		return ctl_usage("export needs a STORE and a DIR");
	return export(words[0], words[1]);
}

const struct ctl_command ctl_export = {
	.name = "export",
	.usage = "STORE DIR",
	.about = "write STORE as a plain directory, which coli-engine reads without a daemon",
	.run = run,
};
