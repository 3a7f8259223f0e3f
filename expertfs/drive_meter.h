/* SPDX-License-Identifier: Apache-2.0
 *
 * What a drive does, in numbers: its speed, the latency of its pieces, whether it fails. No I/O and
 * no clock of its own. Not thread-safe: the drive's lock is held.
 */
#ifndef EXPERTFS_DRIVE_METER_H
#define EXPERTFS_DRIVE_METER_H

#include <stdbool.h>
#include <stdint.h>

#include "expertfs/histogram.h"

/* A drive's speed is taken only from the time when it had enough to do: with this much in flight.
 * (Its last pieces come without others behind them, and say little.) */
#define METER_ENOUGH (2u << 20)
/* After so many bytes the older ones count three quarters of what they did. (Bytes and time fade
 * separately: pieces come in bursts, and a mean of rates would be that of the bursts.) */
#define METER_SAMPLE (16u << 20)

struct drive_meter {
	uint64_t speed;   /* bytes/s; 0: not known */
	uint64_t busy_ns; /* with anything in flight */
	uint64_t flying;  /* bytes, since `at` */
	uint64_t at;
	uint64_t sample_ns, sample_bytes; /* the newest */
	double ns, came;                  /* the older ones, faded */
	struct histogram latency;         /* of the last several thousand pieces */
};

void meter_start(struct drive_meter *m, uint64_t now, uint64_t bytes);
/* bytes as at the start; came: how many of them have come, in took ns. */
void meter_end(struct drive_meter *m, uint64_t now, uint64_t bytes, uint64_t came, uint64_t took);
uint64_t meter_busy_ns(const struct drive_meter *m, uint64_t now);

/* A drive is failing after this many pieces in a row that failed: two tries of one bad piece may be
 * the piece's own fault. */
#define HEALTH_BAD_ROW 4
/* It is asked again after this pause, which doubles each time. */
#define HEALTH_PAUSE_NS     500000000ull
#define HEALTH_PAUSE_MAX_NS 60000000000ull

struct drive_health {
	bool failing;
	uint32_t bad; /* in a row */
	uint64_t pause, ask_at;
};

/* A piece came, or failed. True if that changed whether the drive is failing. */
bool health_good(struct drive_health *h);
bool health_bad(struct drive_health *h, uint64_t now);
/* True if it is time to ask the drive again; it is then not time again until the next pause. */
bool health_ask(struct drive_health *h, uint64_t now);

#endif
