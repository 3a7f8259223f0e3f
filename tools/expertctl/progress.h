/* SPDX-License-Identifier: Apache-2.0
 *
 * The line of progress of a subcommand that takes long, on stderr: it rewrites itself on a
 * terminal; elsewhere there is one now and then.
 */
#ifndef EXPERTCTL_PROGRESS_H
#define EXPERTCTL_PROGRESS_H

#include <stdint.h>

struct ctl_progress {
	const char *what; /* the subcommand */
	uint64_t start_ns, shown_ns;
};

void ctl_progress_begin(struct ctl_progress *p, const char *what);
/* done of total bytes, with rate and time left. */
void ctl_progress_show(struct ctl_progress *p, uint64_t done, uint64_t total);
/* The line makes room for another one, or for the end. */
void ctl_progress_clear(const struct ctl_progress *p);

#endif
