/* SPDX-License-Identifier: Apache-2.0
 *
 * Small files whole, and exact reads. See textfile.h.
 */
#include "tools/coli-pack/textfile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expertfs/fail.h"

int text_open(const char *path, struct stat *st, char *why)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return fail(why, errno, "cannot open %s: %s", path, strerror(errno));
	if (fstat(fd, st) == 0 && S_ISREG(st->st_mode))
		return fd;
	close(fd);
	return fail(why, EINVAL, "%s is not a regular file", path);
}

int text_read_at(int fd, const char *path, void *buf, size_t bytes, uint64_t offset, char *why)
{
	char *to = buf;

	for (size_t got = 0; got < bytes;) {
		ssize_t n = pread(fd, to + got, bytes - got, (off_t)(offset + got));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail(why, errno, "cannot read %s: %s", path, strerror(errno));
		if (n == 0)
			return fail(why, EINVAL,
				    "%s is truncated: it ends at byte %" PRIu64
				    ", %zu bytes were expected from byte %" PRIu64 " on",
				    path, offset + got, bytes, offset);
		got += (size_t)n;
	}
	return 0;
}

int text_write_at(int fd, const char *path, const void *buf, size_t bytes, uint64_t offset,
		  char *why)
{
	const char *from = buf;

	for (size_t put = 0; put < bytes;) {
		ssize_t n = pwrite(fd, from + put, bytes - put, (off_t)(offset + put));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return fail(why, n < 0 ? errno : EIO, "cannot write %s: %s", path,
				    strerror(n < 0 ? errno : EIO));
		put += (size_t)n;
	}
	return 0;
}

int text_load(const char *path, size_t max, char **text, size_t *bytes, char *why)
{
	struct stat st = { 0 };
	int fd = text_open(path, &st, why), err;

	if (fd < 0)
		return fd;
	*text = NULL;
	*bytes = (size_t)st.st_size;
	if (*bytes > max) {
		err = fail(why, EFBIG, "%s has %zu bytes; at most %zu are accepted", path, *bytes,
			   max);
	} else if (!(*text = malloc(*bytes + 1))) {
		err = fail(why, ENOMEM, "out of memory for the %zu bytes of %s", *bytes, path);
	} else {
		err = text_read_at(fd, path, *text, *bytes, 0, why);
		(*text)[*bytes] = '\0';
	}
	close(fd);
	if (err) {
		free(*text);
		*text = NULL;
	}
	return err;
}

/* The library's own text is not shown, since it quotes the input. */
int object_parse(const char *path, const char *text, size_t bytes, json_t **out, char *why)
{
	json_error_t where;
	json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);

	if (json_is_object(root)) {
		*out = root;
		return 0;
	}
	if (!root)
		return fail(why, EINVAL, "%s is not valid JSON (line %d, column %d)", path,
			    where.line, where.column);
	json_decref(root);
	return fail(why, EINVAL, "%s is not a JSON object", path);
}

int object_load(const char *path, size_t max, json_t **out, char *why)
{
	size_t bytes;
	char *text;
	int err = text_load(path, max, &text, &bytes, why);

	if (err == 0) {
		err = object_parse(path, text, bytes, out, why);
		free(text);
	}
	return err;
}

int text_save(const char *path, const char *text, size_t bytes, char *why)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666), err;

	if (fd < 0)
		return fail(why, errno, "cannot create %s: %s", path, strerror(errno));
	err = text_write_at(fd, path, text, bytes, 0, why);
	if (err == 0 && fsync(fd) != 0)
		err = fail(why, errno, "cannot write %s: %s", path, strerror(errno));
	if (close(fd) != 0 && err == 0)
		err = fail(why, errno, "cannot write %s: %s", path, strerror(errno));
	return err;
}

char *text_format(const char *fmt, ...)
{
	char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	int n = vasprintf(&text, fmt, ap);
	va_end(ap);
	return n < 0 ? NULL : text;
}
