/* SPDX-License-Identifier: Apache-2.0
 *
 * Amounts of bytes as sentences name them.
 */
#ifndef ENGINE_BYTES_H
#define ENGINE_BYTES_H

#include <stdint.h>
#include <stdio.h>

#define BYTES_TEXT 24

/* "12.3 GB", "45.6 MB", "7.8 kB" (decimal units). Writes into buf, BYTES_TEXT long, and returns it.
 */
static inline const char *bytes_text(uint64_t bytes, char *buf)
{
	const char *unit = bytes >= 1000000000 ? "GB" : bytes >= 1000000 ? "MB" : "kB";
	double one = bytes >= 1000000000 ? 1e9 : bytes >= 1000000 ? 1e6 : 1e3;

	snprintf(buf, BYTES_TEXT, "%.1f %s", (double)bytes / one, unit);
	return buf;
}

#endif
