/* SPDX-License-Identifier: Apache-2.0
 *
 * A mount's mode and counters, and its errors in words.
 */
#include "engine/mount.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/fail.h"
#include "engine/jsonread.h"

static const char *const mode_names[] = { "plain", "passthrough", "direct" };

const char *serve_mode_name(enum serve_mode mode)
{
	return mode_names[mode];
}

/* A daemon that dies fails what is in flight with whatever fits; asking for the mount itself tells.
 */
static int daemon_gone(int err, const char *dir)
{
	struct stat st;

	if (err == ENOTCONN || err == ECONNABORTED)
		return 1;
	return stat(dir, &st) != 0 && (errno == ENOTCONN || errno == ECONNABORTED);
}

/* Unmounted while it is in use, the folder shows what it had before. */
static bool unmounted(int err, const char *dir)
{
	char model[4096];

	snprintf(model, sizeof(model), "%s/model.json", dir);
	return err == ENOENT && access(model, F_OK) != 0 && errno == ENOENT;
}

int mount_fail(char *why, int err, const char *dir, const char *what, const char *path)
{
	char stats[4096];

	if (daemon_gone(err, dir))
		return fail(why, err, "the expertfs daemon behind %s is gone", dir);
	if (unmounted(err, dir))
		return fail(why, err, "%s holds no model any more: was it unmounted?", dir);
	snprintf(stats, sizeof(stats), "%s/.expertfs/stats.json", dir);
	if (err == EIO && access(stats, F_OK) == 0)
		return fail(why, err,
			    "%s %s cannot be read: the daemon reports a damaged or missing record "
			    "(EIO); "
			    "its log says which drive",
			    what, path);
	return fail(why, err, "%s %s cannot be read: %s", what, path, strerror(err));
}

int read_descriptor(int fd, size_t max, char **data, size_t *bytes)
{
	size_t room = 65536, n = 0;
	char *buf = malloc(room);

	while (buf) {
		ssize_t got = read(fd, buf + n, room - n - 1);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 || n > max) {
			int err = got < 0 ? errno : EFBIG;
			free(buf);
			return -err;
		}
		if (got == 0) {
			buf[n] = 0;
			*data = buf;
			*bytes = n;
			return 0;
		}
		n += (size_t)got;
		if (room - n < 2) {
			char *more = realloc(buf, room *= 2);
			if (!more)
				free(buf);
			buf = more;
		}
	}
	return -ENOMEM;
}

int read_whole(const char *path, size_t max, char **data, size_t *bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	int r = read_descriptor(fd, max, data, bytes);
	close(fd);
	return r;
}

int read_at(int fd, void *to, size_t n, uint64_t at)
{
	for (size_t done = 0; done < n;) {
		ssize_t got = pread(fd, (char *)to + done, n - done, (off_t)(at + done));
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -EIO;
		done += (size_t)got;
	}
	return 0;
}

static int count(const struct json_in *in, const char *key, int64_t *out, char *why)
{
	return in_int(in, key, 0, INT64_MAX, -1, out, why);
}

/* The member's object; one without members if it is not there, as in older daemons. */
static struct json_in member(const struct json_in *in, const char *key)
{
	return (struct json_in){ in_at(in, key), in->where };
}

/* What is not known of one drive is not known of all. */
static int sum_speed(const struct json_in *in, double *out, char *why)
{
	const json_t *drives = in_at(in, "drives"), *one;
	size_t i;

	*out = 0;
	json_array_foreach(drives, i, one)
	{
		struct json_in d = { one, in->where };
		double speed;
		int r = in_number(&d, "speed", 0, 1e15, 0, &speed, why);
		if (r)
			return r;
		if (speed == 0) {
			*out = 0;
			return 0;
		}
		*out += speed;
	}
	return 0;
}

/* What the daemon's hot store has yet to grow by. */
static int read_memory(const struct json_in *in, struct mount_stats *out, char *why)
{
	int64_t budget = 0, needed = 0, used = 0;
	int r = in_int(in, "budget", 0, INT64_MAX, 0, &budget, why);

	if (!r) /* an older daemon does not tell */
		r = in_int(in, "needed", 0, INT64_MAX, budget, &needed, why);
	if (!r)
		r = in_int(in, "used", 0, INT64_MAX, 0, &used, why);
	out->memory_to_come = needed > used ? (uint64_t)(needed - used) : 0;
	return r;
}

static int read_counts(const struct json_in *in, struct mount_stats *out, char *why)
{
	const struct json_in memory = member(in, "memory"), prefetch = member(in, "prefetch"),
			     experts = member(in, "experts");
	int r = count(in, "hits", &out->hits, why);

	if (!r)
		r = count(in, "misses", &out->misses, why);
	if (!r)
		r = count(in, "bytes_read", &out->bytes_read, why);
	if (!r)
		r = count(&experts, "total", &out->experts, why);
	if (!r)
		r = count(&memory, "slots", &out->slots, why);
	if (!r)
		r = read_memory(&memory, out, why);
	if (!r)
		r = count(&memory, "hot_store", &out->hot_store, why);
	if (!r)
		r = count(&memory, "capacity", &out->capacity, why);
	if (!r)
		r = count(&prefetch, "loaded", &out->prefetch_loaded, why);
	if (!r)
		r = count(&prefetch, "used", &out->prefetch_used, why);
	if (!r)
		r = count(&prefetch, "wasted", &out->prefetch_wasted, why);
	return r ? r : sum_speed(in, &out->drive_speed, why);
}

static int parse_stats(const char *text, size_t bytes, const char *path, struct mount_stats *out,
		       char *why)
{
	json_error_t err;
	json_t *root = json_loadb(text, bytes, 0, &err);
	struct json_in in = { root, path };
	const char *mode;

	if (!root)
		return fail(why, EINVAL, "%s is not JSON: line %d: %s", path, err.line, err.text);
	int r = in_text(&in, "mode", NULL, &mode, why);
	if (!r)
		r = read_counts(&in, out, why);
	if (!r && strcmp(mode, mode_names[SERVE_PASSTHROUGH]) == 0)
		out->mode = SERVE_PASSTHROUGH;
	else if (!r && strcmp(mode, mode_names[SERVE_DIRECT]) == 0)
		out->mode = SERVE_DIRECT;
	else if (!r)
		r = fail(why, EINVAL, "%s names a mode \"%s\" that this engine does not know", path,
			 mode);
	json_decref(root);
	return r;
}

int mount_stats(const char *dir, struct mount_stats *out, char *why)
{
	char path[4096], *text = NULL;
	size_t bytes = 0;

	*out = (struct mount_stats){ .mode = SERVE_PLAIN,
				     .hits = -1,
				     .misses = -1,
				     .experts = -1,
				     .slots = -1,
				     .hot_store = -1,
				     .capacity = -1,
				     .bytes_read = -1,
				     .prefetch_loaded = -1,
				     .prefetch_used = -1,
				     .prefetch_wasted = -1 };
	if (snprintf(path, sizeof(path), "%s/.expertfs/stats.json", dir) >= (int)sizeof(path))
		return fail(why, ENAMETOOLONG, "the name of the mount is too long");
	int r = read_whole(path, 1 << 24, &text, &bytes);
	if (r == -ENOENT || r == -ENOTDIR)
		return 0;
	if (r)
		return mount_fail(why, -r, dir, "the daemon's", path);
	r = parse_stats(text, bytes, path, out, why);
	free(text);
	return r;
}
