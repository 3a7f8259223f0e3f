/* SPDX-License-Identifier: Apache-2.0
 *
 * The words of a command line, for all subcommands; see expertctl.h.
 */
#include "tools/expertctl/expertctl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int ctl_usage(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fputs("expertctl: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputs("; see expertctl --help\n", stderr);
	va_end(ap);
	return 2;
}

int ctl_split(char **argv, const char **words, int max, int *n, const char *flag, bool *set)
{
	bool options = true;

	*n = 0;
	for (; *argv; argv++) {
		if (options && strcmp(*argv, "--") == 0)
			options = false;
		else if (options && flag && strcmp(*argv, flag) == 0)
			*set = true;
		else if (options && (*argv)[0] == '-')
			return ctl_usage("there is no option %s here", *argv);
		else if (*n == max)
			return ctl_usage("%s is one word too many", *argv);
		else
			words[(*n)++] = *argv;
	}
	return 0;
}

bool ctl_take_mount(const char ***words, int *n, const char **mount)
{
	if (*n == 0 || !strchr((*words)[0], '/'))
		return false;
	*mount = *(*words)++;
	(*n)--;
	return true;
}
