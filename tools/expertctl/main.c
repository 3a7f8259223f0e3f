/* SPDX-License-Identifier: Apache-2.0
 *
 * expertctl: looks at a running daemon, which shows itself as files below MOUNT/.expertfs, and
 * works on stores. The subcommands are in files of their own; here is the command line.
 */
#include "tools/expertctl/expertctl.h"

#include <stdio.h>
#include <string.h>

/* In the order of --help. */
/* clang-format off: one a line */
static const struct ctl_command *const commands[] = {
	&ctl_stats, &ctl_top,    &ctl_policy,    &ctl_pin,          &ctl_unpin, &ctl_warm,
	&ctl_evict, &ctl_drives, &ctl_add_drive, &ctl_remove_drive, &ctl_move,  &ctl_usage_table,
	&ctl_trace, &ctl_export, &ctl_verify,    &ctl_rebuild,
};
/* clang-format on */
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

/* Every line of about after its own indentation. */
static void print_about(const struct ctl_command *c)
{
	const char *text = c->about, *end;

	printf("  %-14s", c->name);
	while ((end = strchr(text, '\n')) != NULL) {
		printf("%.*s\n  %14s", (int)(end - text), text, "");
		text = end + 1;
	}
	puts(text);
}

static int help(void)
{
	for (size_t i = 0; i < COMMANDS; i++)
		printf("%s expertctl %s %s\n", i ? "      " : "usage:", commands[i]->name,
		       commands[i]->usage);
	puts("\nMOUNT is " CTL_DEFAULT_MOUNT " if it is not given.\n");
	for (size_t i = 0; i < COMMANDS; i++)
		print_about(commands[i]);
	puts("\n  -h, --help    this text; --version\n\n"
	     "Exit status: 0, 1 after an error, 2 if the command line makes no sense.");
	return fflush(stdout) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
			return help();
		if (strcmp(argv[i], "--version") == 0)
			return puts("expertctl " EXPERTFS_VERSION) >= 0 && fflush(stdout) == 0 ? 0
											       : 1;
	}
	if (argc < 2)
		return ctl_usage("what to do is missing");
	for (size_t i = 0; i < COMMANDS; i++)
		if (strcmp(argv[1], commands[i]->name) == 0)
			return commands[i]->run(argv + 2);
	return ctl_usage("there is no subcommand %s", argv[1]);
}
