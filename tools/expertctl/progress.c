/* SPDX-License-Identifier: Apache-2.0
 *
 * A line of progress; see progress.h.
 */
#include "tools/expertctl/progress.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "expertfs/clock.h"
#include "expertfs/size.h"

#define TERMINAL_NS 100000000u
#define FILE_NS     10000000000u

void ctl_progress_begin(struct ctl_progress *p, const char *what)
{
	*p = (struct ctl_progress){ .what = what, .start_ns = clock_ns() };
	p->shown_ns = p->start_ns;
}

static void time_text(double seconds, char *buf, size_t bytes)
{
	uint64_t s = seconds < 1e9 ? (uint64_t)(seconds + 0.5) : 1000000000u;

	if (s < 90)
		snprintf(buf, bytes, "%" PRIu64 " s", s);
	else if (s < 5400)
		snprintf(buf, bytes, "%" PRIu64 " min", (s + 30) / 60);
	else
		snprintf(buf, bytes, "%" PRIu64 " h %" PRIu64 " min", s / 3600, s / 60 % 60);
}

void ctl_progress_show(struct ctl_progress *p, uint64_t done, uint64_t total)
{
	bool terminal = isatty(STDERR_FILENO);
	uint64_t now = clock_ns();
	char a[16], b[16], c[16], left[48];
	double rate;

	if (now - p->shown_ns < (terminal ? TERMINAL_NS : FILE_NS) || done == 0)
		return;
	p->shown_ns = now;
	rate = (double)done / ((double)(now - p->start_ns) / 1e9);
	time_text(total > done ? (double)(total - done) / rate : 0, left, sizeof(left));
	fprintf(stderr, "%s%s: %s of %s, %s/s, %s left%s", terminal ? "\r" : "", p->what,
		size_text(done, a), size_text(total, b), size_text((uint64_t)rate, c), left,
		terminal ? "\033[K" : "\n");
}

void ctl_progress_clear(const struct ctl_progress *p)
{
	if (p->shown_ns > p->start_ns && isatty(STDERR_FILENO))
		fputs("\r\033[K", stderr);
}
