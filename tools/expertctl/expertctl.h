/* SPDX-License-Identifier: Apache-2.0
 *
 * expertctl: the subcommands that main.c calls, each in a file of its own. A subcommand takes its
 * own words, reports its own errors on stderr and returns the exit status.
 */
#ifndef EXPERTCTL_H
#define EXPERTCTL_H

#include <stdbool.h>

#define CTL_DEFAULT_MOUNT "/mnt/experts"

struct ctl_command {
	const char *name;
	const char *usage;       /* what follows its name: "[MOUNT] [--json]" */
	const char *about;       /* some words for --help; further lines begin after a newline */
	int (*run)(char **argv); /* the words after the name, NULL at the end */
};

extern const struct ctl_command ctl_drives, ctl_add_drive, ctl_remove_drive, ctl_move;
extern const struct ctl_command ctl_pin, ctl_unpin, ctl_warm, ctl_evict;
extern const struct ctl_command ctl_rebuild, ctl_usage_table, ctl_verify;
extern const struct ctl_command ctl_stats, ctl_top, ctl_policy, ctl_trace, ctl_export;

/* Exit status 2, and the sentence why: for a command line that makes no sense. */
__attribute__((format(printf, 1, 2))) int ctl_usage(const char *fmt, ...);

/* The words of a subcommand: operands into words[], at most max of them; the flag `flag` ("--json")
 * if it is one of this subcommand (NULL: none). 0, or the exit status of a usage error. */
int ctl_split(char **argv, const char **words, int max, int *n, const char *flag, bool *set);

/* True if words[0] names the mount (it has a slash); it is taken off, else *mount stays. */
bool ctl_take_mount(const char ***words, int *n, const char **mount);

#endif
