/* SPDX-License-Identifier: Apache-2.0
 *
 * How far the pack is: on a terminal one line that is rewritten, elsewhere a line now and then.
 */
#ifndef COLI_PACK_PROGRESS_H
#define COLI_PACK_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct pack_progress {
	uint64_t total, done;    /* bytes of the checkpoint */
	uint64_t earlier;        /* part of done that an earlier run did */
	uint64_t started, shown; /* clock_ns() */
	bool terminal;
	bool line_open; /* a line without its end stands on the terminal */
};

void pack_progress_start(struct pack_progress *p, uint64_t total, uint64_t earlier);
void pack_progress_add(struct pack_progress *p, uint64_t bytes);
/* Leaves the cursor at the start of a line. */
void pack_progress_end(struct pack_progress *p);
double pack_progress_seconds(const struct pack_progress *p);

/* The line, without end. Pure: for the tests. now in nanoseconds. */
void pack_progress_text(const struct pack_progress *p, uint64_t now, char *buf, unsigned bytes);

#endif
