/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the daemon's lines go.
 */
#include "expertfs/log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

static _Atomic bool use_syslog; /* threads log while the step into the background is taken */

void log_to_syslog(void)
{
	openlog("expertfs", LOG_PID, LOG_DAEMON);
	use_syslog = true;
}

void log_line(int priority, const char *fmt, ...)
{
	char line[1536];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (use_syslog)
		syslog(priority, "%s", line);
	else
		fprintf(stderr, "expertfs: %s\n", line);
}
