/* SPDX-License-Identifier: Apache-2.0
 *
 * expertctl: looks at a running daemon, which shows itself as files below MOUNT/.expertfs, and
 * works on stores. The subcommands are in files of their own; here is the command line.
 */
#include "tools/expertctl/expertctl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_MOUNT "/mnt/experts"
#define MAX_WORDS     16

static const char help[] =
	"usage: expertctl stats [MOUNT] [--json]\n"
	"       expertctl policy [MOUNT] [NAME [KEY=VALUE...]]\n"
	"       expertctl export STORE DIR\n"
	"\n"
	"  stats    show what the daemon of MOUNT (default " DEFAULT_MOUNT ") holds and does:\n"
	"           mode, memory, hit rate, experts, drives; --json: its stats.json as it is\n"
	"  policy   show the eviction policy, switch to another one, or tune it; what is in\n"
	"           memory stays\n"
	"  export   write STORE as a plain directory, which coli-engine reads without a daemon\n"
	"\n"
	"  -h, --help    this text\n"
	"\n"
	"Exit status: 0, 1 after an error, 2 if the command line makes no sense.\n";

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

/* The words of a subcommand: operands into words[], at most max of them; the flag --json if it is
 * one of this subcommand (json not NULL). 0, or the exit status of a usage error. */
static int split(char **argv, const char **words, int max, int *n, bool *json)
{
	bool options = true;

	*n = 0;
	for (; *argv; argv++) {
		if (options && strcmp(*argv, "--") == 0)
			options = false;
		else if (options && json && strcmp(*argv, "--json") == 0)
			*json = true;
		else if (options && (*argv)[0] == '-')
			return ctl_usage("there is no option %s here", *argv);
		else if (*n == max)
			return ctl_usage("%s is one word too many", *argv);
		else
			words[(*n)++] = *argv;
	}
	return 0;
}

static int run_stats(char **argv)
{
	const char *mount = DEFAULT_MOUNT;
	bool json = false;
	int n, status = split(argv, &mount, 1, &n, &json);

	return status ? status : ctl_stats(mount, json);
}

/* A first word with a slash is the mount. */
static int run_policy(char **argv)
{
	const char *words[MAX_WORDS], *mount = DEFAULT_MOUNT;
	int n, status = split(argv, words, MAX_WORDS, &n, NULL), first = 0;

	if (status)
		return status;
	if (n > 0 && strchr(words[0], '/'))
		mount = words[first++];
	return ctl_policy(mount, words + first, n - first);
}

static int run_export(char **argv)
{
	const char *words[2];
	int n, status = split(argv, words, 2, &n, NULL);

	if (status)
		return status;
	if (n < 2)
		return ctl_usage("export needs a STORE and a DIR");
	return ctl_export(words[0], words[1]);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(char **argv);
	} commands[] = { { "stats", run_stats },
			 { "policy", run_policy },
			 { "export", run_export } };

	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			fputs(help, stdout);
			return fflush(stdout) == 0 ? 0 : 1;
		}
	}
	if (argc < 2)
		return ctl_usage("what to do is missing");
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (strcmp(argv[1], commands[i].name) == 0)
			return commands[i].run(argv + 2);
	return ctl_usage("there is no subcommand %s", argv[1]);
}
