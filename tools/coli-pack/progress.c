/* SPDX-License-Identifier: Apache-2.0
 *
 * The progress line. See progress.h.
 */
#include "tools/coli-pack/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "expertfs/clock.h"
#include "expertfs/size.h"

#define SECOND 1000000000ull

void pack_progress_start(struct pack_progress *p, uint64_t total, uint64_t earlier)
{
	*p = (struct pack_progress){ .total = total,
				     .done = earlier,
				     .earlier = earlier,
				     .started = clock_ns(),
				     .terminal = isatty(STDERR_FILENO) };
	p->shown = p->started;
}

void pack_progress_text(const struct pack_progress *p, uint64_t now, char *buf, unsigned bytes)
{
	double seconds = (double)(now - p->started) / (double)SECOND;
	double rate = seconds > 0 ? (double)(p->done - p->earlier) / seconds : 0;
	double percent = p->total ? 100.0 * (double)p->done / (double)p->total : 100;
	uint64_t left = rate > 0 ? (uint64_t)((double)(p->total - p->done) / rate + 0.5) : 0;
	char done[16], total[16], speed[16], time_left[32] = "";

	if (rate > 0)
		snprintf(time_left, sizeof(time_left),
			 ", %" PRIu64 ":%02" PRIu64 ":%02" PRIu64 " left", left / 3600,
			 left / 60 % 60, left % 60);
	snprintf(buf, bytes, "%5.1f %%  %s of %s, %s/s%s", percent, size_text(p->done, done),
		 size_text(p->total, total), size_text((uint64_t)rate, speed), time_left);
}

void pack_progress_add(struct pack_progress *p, uint64_t bytes)
{
	uint64_t now = clock_ns();
	char line[160];

	p->done += bytes;
	if (now - p->shown < (p->terminal ? SECOND / 2 : 10 * SECOND))
		return;
	p->shown = now;
	pack_progress_text(p, now, line, sizeof(line));
	/* "erase to the end of the line", as every terminal has it */
	fprintf(stderr, p->terminal ? "\r%s\033[K" : "%s\n", line);
	p->line_open = p->terminal;
}

void pack_progress_end(struct pack_progress *p)
{
	if (p->line_open)
		fputc('\n', stderr);
	p->line_open = false;
}

double pack_progress_seconds(const struct pack_progress *p)
{
	return (double)(clock_ns() - p->started) / (double)SECOND;
}
