/* SPDX-License-Identifier: Apache-2.0
 *
 * expertctl policy: shows, switches or tunes the eviction policy of a mounted daemon, through the
 * file MOUNT/.expertfs/policy.
 */
#include "tools/expertctl/expertctl.h"

#include <errno.h>
#include <stdio.h>

#include "expertfs/fail.h"
#include "tools/expertctl/mountfile.h"

#define MAX_WORDS      16
#define LINE_MAX_BYTES 256

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

static int policy(const char *mount, const char *const *words, int n)
{
	char why[WHY_MAX], line[LINE_MAX_BYTES];
	int err;

	if (n == 0)
		err = mountfile_print(mount, "policy", why);
	else if (join(words, n, line) != 0)
		err = fail(why, ENAMETOOLONG, "the policy and its parameters are too long");
	else
		err = mountfile_write(mount, "policy", line, why);
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
