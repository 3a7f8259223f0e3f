/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding the shards of a store; see shardfind.h.
 */
#include "expertfs/shardfind.h"

#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "expertfs/fail.h"

enum origin { GIVEN, LISTED, FOLDER, CATALOG };

struct finder {
	const char *dir;
	shard_say *say;
	void *arg;
	struct shard_files *out;
	bool have_id;
	uint32_t good; /* shards that held, and were of the store */
	int err;       /* for callbacks that cannot return it */
	char *why;
};

__attribute__((format(printf, 2, 3))) static void tell(const struct finder *f, const char *fmt, ...)
{
	char line[WHY_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	f->say(f->arg, line);
}

static bool same_file(const struct shard_scan *a, const struct shard_scan *b)
{
	struct stat x, y;

	return fstat(a->fd, &x) == 0 && fstat(b->fd, &y) == 0 && x.st_dev == y.st_dev &&
	       x.st_ino == y.st_ino;
}

static void note_drive(struct shard_files *out, uint32_t number)
{
	if (number >= out->drives)
		out->drives = number + 1;
}

/* A shard that holds: into its place, unless that is taken. Takes s over. */
static int place(struct finder *f, struct shard_scan *s, enum origin origin, char *why)
{
	struct shard_files *out = f->out;
	uint32_t number = s->head.drive;
	struct shard_scan *there = out->scan[number];
	int err = 0;

	if (!there) {
		out->scan[number] = s;
		note_drive(out, number);
		return 0;
	}
	if (!same_file(there, s) && origin == GIVEN)
		err = fail(why, EEXIST, "%s and %s both say that they are drive %" PRIu32,
			   there->path, s->path, number);
	else if (!same_file(there, s))
		tell(f, "%s is left out: %s is drive %" PRIu32 " as well", s->path, there->path,
		     number);
	shard_scan_close(s);
	free(s);
	return err;
}

/* The first shard decides which store it is. */
static int check_id(struct finder *f, const struct shard_scan *s, char *why)
{
	if (s->head.drive >= STORE_DRIVES_MAX)
		return fail(why, EBADMSG, "%s says that it is drive %" PRIu32, s->path,
			    s->head.drive);
	if (!f->have_id)
		memcpy(f->out->id, s->head.store_id, STORE_ID_SIZE);
	f->have_id = true;
	return memcmp(f->out->id, s->head.store_id, STORE_ID_SIZE) == 0
		       ? 0
		       : fail(why, EBADMSG, "%s belongs to another store", s->path);
}

/* Opens path and puts it into its place. What is wrong with it is returned. */
static int add(struct finder *f, const char *path, enum origin origin, char *why)
{
	struct shard_scan *s = malloc(sizeof(*s));
	int err;

	if (!s)
		return fail(why, ENOMEM, "out of memory");
	err = shard_scan_open(s, path, why);
	err = err ? err : check_id(f, s, why);
	if (!err) {
		f->good++;
		return place(f, s, origin, why);
	}
	shard_scan_close(s);
	free(s);
	return err;
}

/* A drive that should be there at path, which is as the list has it. */
static int add_expected(struct finder *f, uint32_t number, const char *path, enum origin origin,
			char *why)
{
	char full[PATH_MAX], reason[WHY_MAX];
	int err;

	if (snprintf(full, sizeof(full), "%s%s%s", path[0] == '/' ? "" : f->dir,
		     path[0] == '/' ? "" : "/", path) >= (int)sizeof(full))
		return fail(why, ENAMETOOLONG, "%s: the path of drive %" PRIu32 " is too long",
			    f->dir, number);
	err = add(f, full, origin, reason);
	if (err == -ENOMEM)
		return fail(why, ENOMEM, "out of memory");
	if (f->out->scan[number])
		return 0; /* this one, or one that came first */
	tell(f, "%s", err ? reason : "the list of shards has another order than the shards");
	note_drive(f->out, number);
	free(f->out->missing[number]);
	f->out->missing[number] = strdup(path);
	return f->out->missing[number] ? 0 : fail(why, ENOMEM, "out of memory");
}

/* All shards in a folder; those of other stores are nobody's fault. */
static int add_folder(struct finder *f, const char *dir, enum origin origin, char *why)
{
	char pattern[PATH_MAX * 2 + 16], reason[WHY_MAX], *p = pattern;
	glob_t g;
	int err = 0;

	for (const char *s = dir; *s && p < pattern + sizeof(pattern) - 16; s++) {
		if (strchr("*?[\\", *s))
			*p++ = '\\';
		*p++ = *s;
	}
	sprintf(p, "/*.shard");
	if (glob(pattern, 0, NULL, &g) != 0)
		return 0;
	for (size_t i = 0; i < g.gl_pathc && !err; i++) {
		int bad = add(f, g.gl_pathv[i], origin, reason);
		if (bad == -ENOMEM || bad == -EEXIST)
			err = fail(why, -bad, "%s", reason);
		else if (bad)
			tell(f, "%s; it is left out", reason);
	}
	globfree(&g);
	return err;
}

static int add_given(struct finder *f, const char *path, char *why)
{
	uint32_t before = f->good;
	struct stat st;
	int err;

	if (stat(path, &st) != 0)
		return fail(why, errno, "%s: %s", path, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return add(f, path, GIVEN, why);
	err = add_folder(f, path, GIVEN, why);
	return err || f->good > before
		       ? err
		       : fail(why, ENOENT, "%s has no shard of the store in it", path);
}

/* STORE/shards; *there says whether it is. */
static int add_list(struct finder *f, bool *there, char *why)
{
	char path[PATH_MAX], *line = NULL;
	size_t room = 0;
	int err = 0;
	FILE *in;

	if (snprintf(path, sizeof(path), "%s/shards", f->dir) >= (int)sizeof(path))
		return fail(why, ENAMETOOLONG, "%s: the path is too long", f->dir);
	in = fopen(path, "re");
	*there = in != NULL;
	if (!in)
		return errno == ENOENT ? 0 : fail(why, errno, "%s: %s", path, strerror(errno));
	for (uint32_t i = 0; !err && getline(&line, &room, in) >= 0; i++) {
		line[strcspn(line, "\n")] = 0;
		if (i >= STORE_DRIVES_MAX)
			err = fail(why, EBADMSG, "%s has more than %d lines", path,
				   STORE_DRIVES_MAX);
		else if (*line && strcmp(line, "-") != 0)
			err = add_expected(f, i, line, LISTED, why);
	}
	free(line);
	fclose(in);
	return err;
}

static void add_old(void *arg, int64_t number, const char *path)
{
	struct finder *f = arg;

	if (f->err || number < 0 || number >= STORE_DRIVES_MAX || f->out->scan[number])
		return;
	f->err = add_expected(f, (uint32_t)number, path, CATALOG, f->why);
}

/* Without a list, the heads say how many drives there were when the store was packed. */
static int expect_heads(struct finder *f, char *why)
{
	uint32_t drives = 0;

	for (uint32_t i = 0; i < f->out->drives; i++)
		if (f->out->scan[i] && f->out->scan[i]->head.drives > drives)
			drives = f->out->scan[i]->head.drives;
	for (uint32_t i = 0; i < drives && i < STORE_DRIVES_MAX; i++) {
		if (f->out->scan[i] || f->out->missing[i])
			continue;
		note_drive(f->out, i);
		f->out->missing[i] = strdup("");
		if (!f->out->missing[i])
			return fail(why, ENOMEM, "out of memory");
	}
	return 0;
}

int shard_find(const char *dir, const char *const *given, uint32_t n, struct salvage *old,
	       shard_say *say, void *arg, struct shard_files *out, char *why)
{
	struct finder f = { .dir = dir, .say = say, .arg = arg, .out = out, .why = why };
	bool listed = false;
	int err = 0;

	*out = (struct shard_files){ 0 };
	for (uint32_t i = 0; i < n && !err; i++)
		err = add_given(&f, given[i], why);
	err = err ? err : add_list(&f, &listed, why);
	err = err ? err : add_folder(&f, dir, FOLDER, why);
	if (!err && !listed && !(f.have_id && salvage_foreign(old, out->id))) {
		salvage_drives(old, add_old, &f);
		err = f.err;
	}
	if (!err && !listed)
		err = expect_heads(&f, why);
	for (uint32_t i = 0; i < out->drives; i++) {
		if (out->scan[i]) {
			free(out->missing[i]);
			out->missing[i] = NULL;
		}
	}
	if (!err && !f.have_id)
		err = fail(why, ENOENT,
			   "no shard of %s was found: name the folders of its drives (expertctl "
			   "rebuild %s --drive FOLDER...)",
			   dir, dir);
	return err;
}

void shard_files_free(struct shard_files *f)
{
	for (uint32_t i = 0; i < STORE_DRIVES_MAX; i++) {
		if (f->scan[i])
			shard_scan_close(f->scan[i]);
		free(f->scan[i]);
		free(f->missing[i]);
	}
	*f = (struct shard_files){ 0 };
}

static void say_nothing(void *arg, const char *line)
{
	(void)arg;
	(void)line;
}

bool shard_catalog_foreign(const char *dir, const uint8_t id[STORE_ID_SIZE])
{
	struct shard_files *files = malloc(sizeof(*files));
	char why[WHY_MAX];
	bool foreign;

	if (!files)
		return false;
	foreign = shard_find(dir, NULL, 0, NULL, say_nothing, NULL, files, why) == 0 &&
		  memcmp(files->id, id, STORE_ID_SIZE) != 0;
	shard_files_free(files);
	free(files);
	return foreign;
}
