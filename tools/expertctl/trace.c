/* SPDX-License-Identifier: Apache-2.0
 *
 * expertctl trace: has a mounted daemon record which experts are opened, through the file
 * MOUNT/.expertfs/trace. The daemon creates the trace; cachesim replays it.
 */
#include "tools/expertctl/expertctl.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "expertfs/fail.h"
#include "tools/expertctl/mountfile.h"

enum { MAX_WORDS = 3 };

/* The daemon works in another folder than we do. */
static int start(const char *mount, const char *file, char *why)
{
	char here[PATH_MAX] = "", line[PATH_MAX + 16];

	if (file[0] != '/' && !getcwd(here, sizeof(here)))
		return fail(why, errno, "the working directory is not known: %s", strerror(errno));
	if (strchr(file, '\n') || strchr(here, '\n'))
		return fail(why, EINVAL, "a trace's path must be one line");
	if (snprintf(line, sizeof(line), "start %s%s%s\n", here, here[0] ? "/" : "", file) >=
	    (int)sizeof(line))
		return fail(why, ENAMETOOLONG, "%.60s...: the path is too long", file);
	return mountfile_write(mount, "trace", line, why);
}

static int run(char **argv)
{
	const char *room[MAX_WORDS], **words = room, *mount = CTL_DEFAULT_MOUNT;
	int n, err, status = ctl_split(argv, room, MAX_WORDS, &n, NULL, NULL);
	char why[WHY_MAX];

	if (status)
		return status;
	if (!ctl_take_mount(&words, &n, &mount) && n > 1 && strcmp(words[0], "start") != 0) {
		mount = *words++; /* what else could it be */
		n--;
	}
	if (n == 2 && strcmp(words[0], "start") == 0)
		err = start(mount, words[1], why);
	else if (n == 1 && strcmp(words[0], "stop") == 0)
		err = mountfile_write(mount, "trace", "stop\n", why);
	else if (n == 1 && strcmp(words[0], "status") == 0)
		err = mountfile_print(mount, "trace", why);
	else
		return ctl_usage("trace needs start FILE, stop, or status");
	if (err)
		fprintf(stderr, "expertctl: %s\n", why);
	return err ? 1 : 0;
}

const struct ctl_command ctl_trace = {
	.name = "trace",
	.usage = "[MOUNT] start FILE | stop | status",
	.about = "record which experts are opened, for cachesim to replay",
	.run = run,
};
