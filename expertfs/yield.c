/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting while a drive is asked for; see yield.h.
 */
#include "expertfs/yield.h"

#include <time.h>

/* For each MiB that is written: a drive that is asked for without a pause still takes 20 MB/s. */
#define YIELD_MS 50

void sleep_ms(unsigned ms)
{
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

	nanosleep(&t, NULL);
}

int yield_to_readers(struct drive *d, int (*ask)(void *arg), void *arg)
{
	struct drive_stats st;
	int err = ask(arg);

	for (int i = 0; d && i < YIELD_MS && !err; i++) {
		drive_stats(d, &st);
		if (st.queued[DRIVE_DEMAND] == 0)
			break;
		sleep_ms(1);
		err = ask(arg);
	}
	return err;
}
