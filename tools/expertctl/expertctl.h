/* SPDX-License-Identifier: Apache-2.0
 *
 * expertctl: the subcommands that main.c calls. Each takes its own words, reports its own errors on
 * stderr and returns the exit status.
 */
#ifndef EXPERTCTL_H
#define EXPERTCTL_H

#include <stdbool.h>

/* Exit status 2, and the sentence why: for a command line that makes no sense. */
__attribute__((format(printf, 1, 2))) int ctl_usage(const char *fmt, ...);

/* Shows MOUNT/.expertfs/stats.json, as a table or as it is. */
int ctl_stats(const char *mount, bool json);

/* Shows the policy of MOUNT's daemon (n == 0), or makes it words[0] with the parameters words[1..]
 * (key=value). */
int ctl_policy(const char *mount, const char *const *words, int n);

/* Writes the plain directory of the store into dir, which must not exist. */
int ctl_export(const char *store, const char *dir);

#endif
