/* SPDX-License-Identifier: Apache-2.0
 *
 * Sizes as people write and read them: 12G, 512M, 1.5T; binary units.
 */
#ifndef EXPERTFS_SIZE_H
#define EXPERTFS_SIZE_H

#include <stdint.h>

/* "12G", "512M", "64k", "1.5G", "4096" -> bytes. Suffixes K M G T (any case, optional B or iB).
 * 0, -EINVAL (not a size) or -ERANGE. */
int size_parse(const char *text, uint64_t *bytes);

/* Bytes -> "11.9 GiB" (3 significant digits, "0 B" to "999 B" plain). Writes into buf (at least 16
 * bytes) and returns it, so that it fits into a printf argument. */
const char *size_text(uint64_t bytes, char *buf);

#endif
