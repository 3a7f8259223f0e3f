/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading what the daemon shows of itself, and telling it what to do; see mountfile.h.
 */
#include "tools/expertctl/mountfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expertfs/fail.h"

#define FIRST_ROOM (64u << 10) /* more than most of the files have */

static int open_failed(const char *mount, const char *name, int err, char *why)
{
	struct stat st;

	/* What a daemon that was killed leaves: the mount is there, nobody serves it. */
	if (err == ENOTCONN || err == ECONNABORTED)
		return fail(
			why, err,
			"the daemon of %s has died and left its mount behind; fusermount3 -u %s "
			"removes it",
			mount, mount);
	if (err != ENOENT && err != ENOTDIR)
		return fail(why, err, "%s/.expertfs/%s: %s", mount, name, strerror(err));
	if (stat(mount, &st) != 0)
		return fail(why, errno, "%s: %s", mount, strerror(errno));
	return fail(why, err, "no store is mounted on %s: there is no .expertfs/%s", mount, name);
}

/* All of fd, of which stat tells no size. */
static int read_all(int fd, const char *path, char **text, size_t *bytes, char *why)
{
	size_t room = FIRST_ROOM, n = 0;
	char *buf = malloc(room + 1);

	while (buf) {
		ssize_t got = read(fd, buf + n, room - n);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			int err = errno;
			free(buf);
			return fail(why, err, "%s: %s", path, strerror(err));
		}
		if (got == 0) {
			buf[n] = '\0';
			*text = buf;
			*bytes = n;
			return 0;
		}
		n += (size_t)got;
		if (n == room) {
			char *grown = room < MOUNTFILE_MAX ? realloc(buf, room * 2 + 1) : NULL;
			if (!grown)
				break;
			buf = grown;
			room *= 2;
		}
	}
	free(buf);
	if (n >= MOUNTFILE_MAX)
		return fail(why, EFBIG, "%s has more than %u bytes: it is not the daemon's", path,
			    MOUNTFILE_MAX);
	return fail(why, ENOMEM, "%s: out of memory", path);
}

int mountfile_read(const char *mount, const char *name, char **text, size_t *bytes, char *why)
{
	char path[PATH_MAX];
	int err, fd;

	if (snprintf(path, sizeof(path), "%s/.expertfs/%s", mount, name) >= (int)sizeof(path))
		return fail(why, ENAMETOOLONG, "%.60s...: the path is too long", mount);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return open_failed(mount, name, errno, why);
	err = read_all(fd, path, text, bytes, why);
	close(fd);
	return err;
}

int mountfile_print(const char *mount, const char *name, char *why)
{
	char *text = NULL;
	size_t bytes = 0;
	int err = mountfile_read(mount, name, &text, &bytes, why);

	if (err)
		return err;
	fwrite(text, 1, bytes, stdout);
	free(text);
	return fflush(stdout) == 0 ? 0 : fail(why, errno, "standard output: %s", strerror(errno));
}

bool mountfile_is_store(const char *path)
{
	char name[PATH_MAX];

	return snprintf(name, sizeof(name), "%s/catalog.db", path) < (int)sizeof(name) &&
	       access(name, F_OK) == 0;
}

/* One write is one order to the daemon, so it is cut at the ends of lines only. */
#define WRITE_BYTES (64u << 10)

static size_t whole_lines(const char *text)
{
	size_t n = strlen(text);

	if (n <= WRITE_BYTES)
		return n;
	for (n = WRITE_BYTES; n > 0 && text[n - 1] != '\n'; n--)
		;
	return n ? n : WRITE_BYTES;
}

int mountfile_write(const char *mount, const char *name, const char *text, char *why)
{
	char path[PATH_MAX], said[WHY_MAX];
	int err = 0, fd;
	ssize_t n;

	if (snprintf(path, sizeof(path), "%s/.expertfs/%s", mount, name) >= (int)sizeof(path))
		return fail(why, ENAMETOOLONG, "%.60s...: the path is too long", mount);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return open_failed(mount, name, errno, why);
	while (*text && !err) {
		n = write(fd, text, whole_lines(text));
		if (n > 0) {
			text += n;
			continue;
		}
		err = n < 0 ? -errno : -EIO;
		n = pread(fd, said, sizeof(said) - 1, 0); /* control.h: the sentence */
		said[n > 0 ? n : 0] = '\0';
		if (n > 0)
			fail(why, -err, "%s", said);
		else
			fail(why, -err, "%s: %s", path, strerror(-err));
	}
	close(fd);
	return err;
}

bool mountfile_is_mount(const char *word)
{
	char path[PATH_MAX];
	struct stat st;

	if (*word == '/' || *word == '.')
		return true;
	return snprintf(path, sizeof(path), "%s/.expertfs", word) < (int)sizeof(path) &&
	       stat(path, &st) == 0;
}
