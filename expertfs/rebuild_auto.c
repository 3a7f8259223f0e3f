/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a store for a daemon: a catalog that is no good is made anew on the way. See rebuild.h.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expertfs/catalog.h"
#include "expertfs/fail.h"
#include "expertfs/log.h"
#include "expertfs/rebuild.h"
#include "expertfs/shardfind.h"
#include "expertfs/storelock.h"

static bool is_file(const char *dir, const char *name)
{
	char path[PATH_MAX];
	struct stat st;

	return snprintf(path, sizeof(path), "%s/%s", dir, name) < (int)sizeof(path) &&
	       stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* Is it a store that lacks nothing but a good catalog? An interrupted pack is none yet: coli-pack
 * goes on with it. */
static bool only_catalog_is_bad(const char *dir, int err)
{
	for (int i = 0; i < STORE_FILES; i++)
		if (!is_file(dir, store_file_names[i]))
			return false;
	if (is_file(dir, "pack.state"))
		return false;
	return err == -EBADMSG || (err == -ENOENT && !is_file(dir, "catalog.db"));
}

/* A shard that is missing may be one of another store, with this store's catalog beside it. */
static bool is_foreign(const struct store *s)
{
	for (uint32_t i = 0; i < s->drives; i++)
		if (s->drive[i].missing)
			return shard_catalog_foreign(s->dir, s->id);
	return false;
}

static void say(void *arg, const char *line)
{
	(void)arg;
	log_line(LOG_WARNING, "%s", line);
}

static int rebuild_now(const char *dir, int lock, const char *reason, char *why)
{
	const struct rebuild_options o = { .say = say };
	struct rebuild_report r = { 0 };
	char inner[WHY_MAX];
	int err;

	log_line(LOG_WARNING, "%s; making the catalog anew from the shards", reason);
	err = store_lock_change(lock, dir, STORE_ALONE, STORE_DYING_MS, inner);
	if (!err) {
		err = rebuild_alone(dir, &o, &r, inner);
		if (store_lock_change(lock, dir, STORE_SERVED, STORE_DYING_MS,
				      err ? NULL : inner) != 0)
			err = -ENOLCK;
	}
	if (err)
		return fail(why, -err, "the catalog of %.400s cannot be made anew: %.500s", dir,
			    inner);
	log_line(LOG_WARNING,
		 "%s: a new catalog of %" PRIu32 " experts on %" PRIu32
		 " drives, with the usage of %" PRIu64 " of them",
		 dir, r.experts, r.drives, r.usage);
	return 0;
}

/* A catalog that says where everything is, and yet is damaged: in the usage, say. If it cannot be
 * made anew (another daemon serves the store, a drive is away), it does for now; but not without the
 * lock. */
static int replace_damaged(const char *dir, int lock, struct store **s, const char *reason,
			   char *why)
{
	struct store *now = NULL;
	char inner[WHY_MAX];

	int err = rebuild_now(dir, lock, reason, inner);

	if (err && err != -ENOLCK) {
		log_line(LOG_WARNING, "%s; going on with the old one", inner);
		return 0;
	}
	store_close(*s);
	*s = NULL;
	err = err ? fail(why, -err, "%s", inner) : store_open(dir, &now, why);
	*s = now;
	return err;
}

static int open_locked(const char *dir, int lock, struct store **out, char *why)
{
	char reason[WHY_MAX], missing[WHY_MAX];
	int err = store_open(dir, out, missing);

	if (!err && is_foreign(*out)) {
		store_close(*out);
		snprintf(reason, sizeof(reason), "%.900s/catalog.db is that of another store", dir);
	} else if (err && only_catalog_is_bad(dir, err)) {
		snprintf(reason, sizeof(reason), "%s", missing);
	} else {
		snprintf(why, WHY_MAX, "%s", missing);
		if (!err && catalog_check((*out)->dir, reason) == -EBADMSG)
			err = replace_damaged(dir, lock, out, reason, why);
		return err;
	}
	err = rebuild_now(dir, lock, reason, why);
	return err ? err : store_open(dir, out, why);
}

int store_open_or_rebuild(const char *dir, struct store **out, int *lock, char *why)
{
	int err = store_lock(dir, STORE_SERVED, lock, why);

	if (err)
		return err;
	err = open_locked(dir, *lock, out, why);
	if (err) {
		close(*lock);
		*lock = -1;
	}
	return err;
}
