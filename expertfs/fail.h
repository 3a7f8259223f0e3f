/* SPDX-License-Identifier: Apache-2.0
 *
 * How errors travel: negative errno as the value, one sentence for people in `why`.
 *
 * `why` is a buffer of WHY_MAX bytes that the outermost caller owns; whoever finds the fault writes
 * the sentence (which file, which amount, what to do), those above only pass the number on.
 */
#ifndef EXPERTFS_FAIL_H
#define EXPERTFS_FAIL_H

#include <stdarg.h>
#include <stdio.h>

#define WHY_MAX 1024

/* Writes the sentence (without a full stop or newline) and returns -err. why may be NULL. */
__attribute__((format(printf, 3, 4))) static inline int fail(char *why, int err, const char *fmt,
							     ...)
{
	if (why) {
		va_list ap;
		va_start(ap, fmt);
		vsnprintf(why, WHY_MAX, fmt, ap);
		va_end(ap);
	}
	return -err;
}

#endif
