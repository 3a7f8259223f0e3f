/* SPDX-License-Identifier: Apache-2.0
 *
 * A made-up root folder for unit tests, with files of /proc and /sys/fs/cgroup in it, under $TMPDIR. Setup and
 * teardown of cmocka; include it behind <cmocka.h>.
 */
#ifndef TESTS_MADE_ROOT_H
#define TESTS_MADE_ROOT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char root[256];

/* A file at root's path, with the folders it lies in. */
static inline void put(const char *path, const char *text)
{
	char full[1024];

	snprintf(full, sizeof(full), "%s%s", root, path);
	for (char *slash = strchr(full + strlen(root) + 1, '/'); slash;
	     slash = strchr(slash + 1, '/')) {
		*slash = 0;
		mkdir(full, 0777);
		*slash = '/';
	}
	FILE *f = fopen(full, "w");
	if (!f)
		fail_msg("cannot write %s", full);
	fputs(text, f);
	fclose(f);
}

static inline int new_root(void **state)
{
	const char *tmp = getenv("TMPDIR");

	(void)state;
	snprintf(root, sizeof(root), "%s/root.XXXXXX", tmp ? tmp : "/tmp");
	return mkdtemp(root) ? 0 : -1;
}

static inline int drop_root(void **state)
{
	char command[300];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf '%s'", root);
	return system(command);
}

#endif
