/* SPDX-License-Identifier: Apache-2.0
 *
 * Good manners of those who write to a drive in the background: readers go first.
 */
#ifndef EXPERTFS_YIELD_H
#define EXPERTFS_YIELD_H

#include "expertfs/drive.h"

/* Sleeps while somebody waits for the drive (may be NULL), but not for ever: a drive that is always
 * asked for would otherwise never be written to. ask: other than 0 ends it with that error. */
int yield_to_readers(struct drive *d, int (*ask)(void *arg), void *arg);

void sleep_ms(unsigned ms);

#endif
