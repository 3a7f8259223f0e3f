/* SPDX-License-Identifier: Apache-2.0
 *
 * The daemon's log: stderr in the foreground, syslog (so the journal) once it is in the background.
 */
#ifndef EXPERTFS_LOG_H
#define EXPERTFS_LOG_H

#include <syslog.h>

/* Until this is called, lines go to stderr. */
void log_to_syslog(void);

/* priority: LOG_ERR, LOG_WARNING, LOG_INFO. One line, without newline. Thread-safe. */
__attribute__((format(printf, 2, 3))) void log_line(int priority, const char *fmt, ...);

#endif
