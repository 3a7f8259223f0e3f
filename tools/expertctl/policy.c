/* SPDX-License-Identifier: Apache-2.0
 *
 * expertctl policy: shows, switches or tunes the eviction policy of a mounted daemon, through the
 * file MOUNT/.expertfs/policy.
 */
#include "tools/expertctl/expertctl.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "expertfs/fail.h"

#define MAX_WORDS 16
#define LINE_MAX_BYTES 256

static int open_policy(const char *mount, int how, char *why)
{
	char path[PATH_MAX];
	int fd;

	if (snprintf(path, sizeof(path), "%s/.expertfs/policy", mount) >= (int)sizeof(path))
		return fail(why, ENAMETOOLONG, "%.60s...: the path is too long", mount);
	fd = open(path, how | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	if (errno == ENOTCONN || errno == ECONNABORTED)
		return fail(why, errno, "the daemon of %s has died and left its mount behind",
			    mount);
	if (errno == ENOENT)
		return fail(why, ENOENT, "no store is mounted on %s: there is no .expertfs/policy",
			    mount);
	return fail(why, errno, "%s: %s", path, strerror(errno));
}

static int show(const char *mount, char *why)
{
	char line[LINE_MAX_BYTES];
	int fd = open_policy(mount, O_RDONLY, why);
	ssize_t n;

	if (fd < 0)
		return fd;
	n = read(fd, line, sizeof(line) - 1);
	if (n < 0)
		fail(why, errno, "%s/.expertfs/policy: %s", mount, strerror(errno));
	close(fd);
	if (n < 0)
		return -EIO;
	line[n] = 0;
	fputs(line, stdout);
	return 0;
}

/* "NAME" and "key=value" words -> "NAME:key=value,key=value". */
static int join(const char *const *words, int n, char *line)
{
	size_t at = 0;

	for (int i = 0; i < n; i++) {
		int more = snprintf(line + at, LINE_MAX_BYTES - at, "%s%s",
				    i == 0   ? ""
				    : i == 1 ? ":"
					     : ",",
				    words[i]);
		at += (size_t)more;
		if (at >= LINE_MAX_BYTES)
			return -ENAMETOOLONG;
	}
	return 0;
}

static int set(const char *mount, const char *line, char *why)
{
	int fd = open_policy(mount, O_WRONLY, why), err = 0;

	if (fd < 0)
		return fd;
	if (write(fd, line, strlen(line)) < 0)
		err = errno == EINVAL
			      ? fail(why, EINVAL,
				     "the daemon of %s knows no policy \"%s\"; cachesim --list "
				     "has the names and their parameters",
				     mount, line)
			      : fail(why, errno, "%s/.expertfs/policy: %s", mount, strerror(errno));
	close(fd);
	return err;
}

static int policy(const char *mount, const char *const *words, int n)
{
	char why[WHY_MAX], line[LINE_MAX_BYTES];
	int err;

	if (n == 0)
		err = show(mount, why);
	else if (join(words, n, line) != 0)
		err = fail(why, ENAMETOOLONG, "the policy and its parameters are too long");
	else
		err = set(mount, line, why);
	if (err)
		fprintf(stderr, "expertctl: %s\n", why);
	return err ? 1 : 0;
}

static int run(char **argv)
{
	const char *room[MAX_WORDS], **words = room, *mount = CTL_DEFAULT_MOUNT;
	int n, status = ctl_split(argv, room, MAX_WORDS, &n, NULL, NULL);

	if (status)
		return status;
	ctl_take_mount(&words, &n, &mount);
	return policy(mount, words, n);
}

const struct ctl_command ctl_policy = {
	.name = "policy",
	.usage = "[MOUNT] [NAME [KEY=VALUE...]]",
	.about = "show the eviction policy, switch to another one, or tune it; what is in memory\n"
		 "stays",
	.run = run,
};
