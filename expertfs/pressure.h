/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory pressure: the hot store gives way when machine or cgroup run short, and grows back.
 *
 * Pressure is a stall that the kernel reports (PSI: tasks waited for memory for a tenth of a second
 * within one), or less than the reserve left of what can be had. The store then shrinks by what is
 * missing and an eighth of its full size at least (for a stall at most once a second), down to
 * nothing. After a while of calm it grows by a sixteenth every few seconds, as long as twice the
 * reserve stays.
 */
#ifndef EXPERTFS_PRESSURE_H
#define EXPERTFS_PRESSURE_H

#include <stdbool.h>
#include <stdint.h>

/* The decisions alone, without threads or files. Bytes; times in ms of any monotonic clock. */
struct pressure_state {
	uint64_t full;     /* capacity without pressure */
	uint64_t capacity; /* now */
	uint64_t reserve;  /* of the machine's memory, to be left alone */
	uint64_t changed;  /* time of the last change */
	uint64_t trouble;  /* time of the last sign of pressure; 0: none yet */
};

#define PRESSURE_CALM_MS 15000 /* without a sign, before the first step back */
#define PRESSURE_GROW_MS 5000  /* between two steps back */

/* Looks at the state of now: available as memory_available() says, stalled: the kernel reported a
 * stall since the last look. True if s->capacity has changed. */
bool pressure_step(struct pressure_state *s, uint64_t now, uint64_t available, bool stalled);

struct hotstore;
struct usage;
struct pressure;

/* Watches in a thread, resizes hot, and fills it again from usage when it is full size again. NULL:
 * no thread. */
struct pressure *pressure_start(struct hotstore *hot, struct usage *usage, uint64_t capacity);
void pressure_stop(struct pressure *p); /* NULL is fine */

#endif
