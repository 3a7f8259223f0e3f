/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a GGUF model as a store; see gguf_store.h.
 */
#include "expertfs/gguf_store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expertfs/catalog.h"
#include "expertfs/disk.h"
#include "expertfs/fail.h"
#include "expertfs/gguf_model.h"
#include "expertfs/log.h"
#include "expertfs/storelock.h"
#include "expertfs/xxh3.h"

/* -- the experts ----------------------------------------------------------------------------------
 */

/* The file's experts are the same ones as long as this is: headers, sizes and times of all files.
 */
static void identify(const struct gguf *g, uint8_t id[STORE_ID_SIZE])
{
	uint64_t facts[GGUF_PARTS_MAX][4] = { { 0 } };
	XXH128_canonical_t canonical;

	for (uint32_t i = 0; i < g->parts; i++) {
		facts[i][0] = g->part[i].header_check;
		facts[i][1] = g->part[i].bytes;
		facts[i][2] = (uint64_t)g->part[i].mtime.tv_sec;
		facts[i][3] = (uint64_t)g->part[i].mtime.tv_nsec;
	}
	XXH128_canonicalFromHash(&canonical, XXH3_128bits(facts, g->parts * sizeof(facts[0])));
	memcpy(id, canonical.digest, STORE_ID_SIZE);
}

static struct extent_list *list_of(const struct gguf_layer *l, uint32_t expert)
{
	struct extent_list *list = extent_list_new(GGUF_MATRICES);

	for (int m = 0; list && m < GGUF_MATRICES; m++)
		list->x[m] = (struct extent){
			.offset = gguf_slice_offset(&l->matrix[m], expert),
			.length = l->matrix[m].bytes,
			.expert_offset = gguf_slice_place(&l->matrix[m], expert),
			.drive = (uint16_t)gguf_slice_tensor(&l->matrix[m], expert)->part
		};
	if (list)
		list->unchecked = true;
	return list;
}

static int add_experts(struct store *s, const struct gguf_experts *x, char *why)
{
	uint64_t all = 0;

	for (uint32_t i = 0; i < x->layers; i++)
		all += x->layer[i].experts;
	s->expert = calloc(all + 1, sizeof(*s->expert));
	for (uint32_t i = 0; s->expert && i < x->layers; i++) {
		const struct gguf_layer *l = &x->layer[i];
		for (uint32_t e = 0; e < l->experts; e++) {
			struct store_expert *to = &s->expert[s->experts];
			*to = (struct store_expert){ .layer = l->layer,
						     .expert = (uint16_t)e,
						     .bytes = l->bytes,
						     .packed = list_of(l, e) };
			if (!to->packed)
				return fail(why, ENOMEM, "out of memory");
			s->experts++;
		}
	}
	return s->expert ? 0
			 : fail(why, ENOMEM, "out of memory for %llu experts",
				(unsigned long long)all);
}

static int add_drives(struct store *s, const struct gguf *g, char *why)
{
	s->drive = calloc(STORE_DRIVES_MAX + 1, sizeof(*s->drive));
	if (!s->drive)
		return fail(why, ENOMEM, "out of memory");
	for (uint32_t i = 0; i < g->parts; i++) {
		s->drive[i] = (struct store_drive){ .path = strdup(g->part[i].path),
						    .bytes = g->part[i].bytes,
						    .written = g->part[i].mtime };
		if (!s->drive[i].path)
			return fail(why, ENOMEM, "out of memory");
		s->drives = i + 1;
	}
	s->files = STORE_FILES + g->parts - 1;
	return 0;
}

/* -- the folder -----------------------------------------------------------------------------------
 */

static int path_in(const struct store *s, const char *name, const char *end, char path[PATH_MAX],
		   char *why)
{
	if (snprintf(path, PATH_MAX, "%s/%s%s", s->dir, name, end) < PATH_MAX)
		return 0;
	return fail(why, ENAMETOOLONG, "%s: the path is too long", s->dir);
}

/* Made if it is not there. */
static int open_folder(struct store *s, const char *path, const char *state, char *why)
{
	char beside[PATH_MAX];

	if (snprintf(beside, sizeof(beside), "%s.expertfs", path) >= (int)sizeof(beside))
		return fail(why, ENAMETOOLONG, "%s: the path is too long", path);
	if (mkdir(state ? state : beside, 0777) != 0 && errno != EEXIST)
		return state ? fail(why, errno, "--state %s: %s", state, strerror(errno))
			     : fail(why, errno,
				    "%s, for what is learned of the model, cannot be made (%s): "
				    "say "
				    "--state DIR",
				    beside, strerror(errno));
	s->dir = realpath(state ? state : beside, NULL);
	return s->dir ? 0 : fail(why, errno, "%s: %s", state ? state : beside, strerror(errno));
}

/* What is put here replaces what is there, so nothing of anybody else's may be: a folder is taken
 * that has no file of these names, or whose dense.bin is a link to a GGUF file, or to one that has
 * gone since. put_files() makes that link first. */
static int check_folder(const struct store *s, char *why)
{
	const char *const names[] = { store_file_names[STORE_FILES - 1], "catalog.db",
				      store_file_names[0], store_file_names[1] };
	char path[PATH_MAX];
	struct stat st;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		int err = path_in(s, names[i], "", path, why);
		if (err)
			return err;
		bool there = lstat(path, &st) == 0;
		if (!there && errno != ENOENT)
			return fail(why, errno, "%s: %s", path, strerror(errno));
		if (i == 0 && there && S_ISLNK(st.st_mode) &&
		    (gguf_is(path) || access(path, F_OK) != 0))
			return 0;
		if (there)
			return fail(why, EEXIST,
				    "%s is not a GGUF file's: what is learned of one would replace "
				    "it; say --state and another folder",
				    path);
	}
	return 0;
}

static bool holds(const char *path, const char *text)
{
	size_t n = strlen(text), got = 0;
	char *now = malloc(n + 1);
	FILE *f = now ? fopen(path, "re") : NULL;
	bool same = false;

	if (f) {
		got = fread(now, 1, n + 1, f);
		same = got == n && memcmp(now, text, n) == 0;
		fclose(f);
	}
	free(now);
	return same;
}

/* Writes a file of the folder anew, unless it holds just this. Another daemon may have the old one
 * open, so it is replaced, not changed. */
static int put_file(const struct store *s, const char *name, const char *text, char *why)
{
	char path[PATH_MAX];
	int err = path_in(s, name, "", path, why);
	FILE *f;

	if (err || holds(path, text))
		return err;
	err = replace_begin(path, &f, why);
	if (err)
		return err;
	fputs(text, f);
	return replace_end(f, path, why);
}

static int put_link(const struct store *s, const char *name, const char *target, char *why)
{
	char path[PATH_MAX], fresh[PATH_MAX], now[PATH_MAX];
	int err = path_in(s, name, "", path, why);
	ssize_t n;

	err = err ? err : path_in(s, name, ".new", fresh, why);
	if (err)
		return err;
	n = readlink(path, now, sizeof(now));
	if (n == (ssize_t)strlen(target) && memcmp(now, target, (size_t)n) == 0)
		return 0;
	unlink(fresh);
	if (symlink(target, fresh) != 0 || rename(fresh, path) != 0)
		return fail(why, errno, "%s: %s", path, strerror(errno));
	return 0;
}

static int put_files(const struct store *s, const struct gguf *g, const struct gguf_experts *x,
		     char *why)
{
	char *model = NULL, *tokenizer = NULL, name[STORE_NAME_ROOM];
	int err = gguf_model_json(g, x, &model, why);

	err = err ? err : gguf_vocab_json(g, &tokenizer, why);
	for (uint32_t i = 0; i < g->parts && !err; i++)
		err = put_link(s, store_file_name(STORE_FILES - 1 + i, name), g->part[i].path, why);
	err = err ? err : put_file(s, store_file_names[0], model, why);
	err = err ? err : put_file(s, store_file_names[1], tokenizer, why);
	free(model);
	free(tokenizer);
	return err;
}

/* -- the catalog ----------------------------------------------------------------------------------
 */

/* 1: DIR/catalog.db is there and of this model; 0: it is not, or is no good, and why says so. */
static int catalog_is_ours(const struct store *s, char *why)
{
	uint8_t id[STORE_ID_SIZE];
	char *have = NULL;
	struct catalog *c;
	int err = catalog_open_read(s->dir, &c, why);

	if (!err) {
		err = catalog_meta_get(c, "store_id", &have, why);
		catalog_close(c);
	}
	if (err)
		return err == -EBADMSG || err == -ENOENT ? 0 : err;
	bool ours = id_from_hex(have, id) == 0 && memcmp(id, s->id, STORE_ID_SIZE) == 0;
	free(have);
	if (!ours)
		fail(why, 0, "%s/catalog.db is of another model, or the model's file has changed",
		     s->dir);
	return ours;
}

/* An empty catalog in the place of what is there. */
static int make_catalog(const struct store *s, char *why)
{
	static const char *const ends[] = { "", "-wal", "-shm" };
	char path[PATH_MAX];
	struct catalog *c;
	int err = 0;

	for (int i = 2; i >= 0 && !err; i--) {
		err = path_in(s, "catalog.db", ends[i], path, why);
		if (!err && unlink(path) != 0 && errno != ENOENT)
			err = fail(why, errno, "%s: %s", path, strerror(errno));
	}
	err = err ? err : catalog_create(path, s->id, &c, why);
	return err ? err : catalog_finish(c, why);
}

/* Fills the folder. Nothing in it changes while another model is served from it: its lock cannot be
 * had alone then. The files go first, since they are what tells that the folder is one of ours
 * (check_folder()); a start that is cut off behind them finds another model's catalog once more.
 * Usage of the file as it was says nothing about the file as it is. */
static int fill_folder(const struct store *s, const struct gguf *g, const struct gguf_experts *x,
		       int lock, char *why)
{
	char reason[WHY_MAX] = "", path[PATH_MAX];
	int err = path_in(s, "catalog.db", "", path, why), ours;
	bool there = !err && access(path, F_OK) == 0;

	if (err)
		return err;
	ours = there ? catalog_is_ours(s, reason) : 0;
	if (ours < 0)
		return fail(why, -ours, "%s", reason);
	if (ours)
		return put_files(s, g, x, why);
	err = store_lock_change(lock, s->dir, STORE_ALONE, STORE_DYING_MS, why);
	if (!err && there)
		log_line(LOG_WARNING, "%s: usage begins anew", reason);
	err = err ? err : put_files(s, g, x, why);
	err = err ? err : make_catalog(s, why);
	return err ? err : store_lock_change(lock, s->dir, STORE_SERVED, STORE_DYING_MS, why);
}

static int fill(struct store *s, const struct gguf *g, const char *path, const char *state,
		int *lock, char *why)
{
	struct gguf_experts x = { 0 };
	int err = gguf_experts_find(g, &x, why);

	s->gguf = err ? NULL : strdup(g->part[0].path);
	if (!err && !s->gguf)
		err = fail(why, ENOMEM, "out of memory");
	identify(g, s->id);
	err = err ? err : add_drives(s, g, why);
	err = err ? err : add_experts(s, &x, why);
	err = err ? err : open_folder(s, path, state, why);
	err = err ? err : store_lock(s->dir, STORE_SERVED, lock, why);
	err = err ? err : check_folder(s, why);
	err = err ? err : fill_folder(s, g, &x, *lock, why);
	gguf_experts_free(&x);
	return err;
}

int gguf_store_open(const char *path, const char *state, struct store **out, int *lock, char *why)
{
	struct gguf *g = NULL;
	struct store *s;
	int err = gguf_open(path, &g, why);

	*lock = -1;
	if (err)
		return err;
	s = store_new();
	err = s ? fill(s, g, path, state, lock, why) : fail(why, ENOMEM, "out of memory");
	gguf_close(g);
	if (!err) {
		store_measure(s);
		why[0] = 0;
		*out = s;
		return 0;
	}
	store_close(s);
	if (*lock >= 0)
		close(*lock);
	*lock = -1;
	return err;
}
