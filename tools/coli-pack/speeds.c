/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding the drives' speeds. See speeds.h.
 */
#include "tools/coli-pack/speeds.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "expertfs/fail.h"
#include "expertfs/probe.h"
#include "tools/coli-pack/state.h"

/* From the fastest down: those within a tenth of the fastest below the limit, again and again.
 */
void speeds_even_out(uint64_t *speed, uint32_t n)
{
	for (uint64_t limit = UINT64_MAX, least; limit > 1; limit = least) {
		uint64_t fastest = 1, sum = 0, count = 0;
		for (uint32_t i = 0; i < n; i++)
			if (speed[i] < limit && speed[i] > fastest)
				fastest = speed[i];
		least = fastest - fastest / SPEEDS_ALIKE;
		for (uint32_t i = 0; i < n; i++) {
			bool alike = speed[i] < limit && speed[i] >= least;
			sum += alike ? speed[i] : 0;
			count += alike;
		}
		for (uint32_t i = 0; i < n && count; i++)
			if (speed[i] < limit && speed[i] >= least)
				speed[i] = sum / count;
	}
}

static void make_equal(struct spread *s, uint64_t *speed)
{
	s->speeds_from = SPEEDS_EQUAL;
	for (uint32_t i = 0; i < s->drives; i++)
		speed[i] = 1;
}

/* True if dir has a pack.state: then its speeds are taken. One of another number of drives will be
 * refused for that. */
static bool from_state(const char *dir, struct spread *s, uint64_t *speed)
{
	struct state state = { 0 };

	if (state_load(&state, dir, NULL) != 0)
		return false;
	if (!state_speeds(state.identity, &s->speeds_from, speed, s->drives))
		make_equal(s, speed);
	state_free(&state);
	return true;
}

static int measure(const struct output *o, struct spread *s, uint64_t *speed,
		   const volatile sig_atomic_t *stop, char *why)
{
	struct probe_result r;

	for (uint32_t i = 0; i < s->drives; i++) {
		if (*stop)
			return -EINTR;
		int err = probe_folder(o->shard[i].dir, PROBE_IO_AUTO, &r, why);
		if (err)
			return err;
		if (!r.honest) {
			fprintf(stderr,
				"coli-pack: %s; all drives are taken as equally fast (--speeds "
				"gives their speeds)\n",
				r.text);
			make_equal(s, speed);
			return 0;
		}
		speed[i] = r.bytes_per_s;
		puts(r.text);
		fflush(stdout); /* each takes a second or two */
	}
	speeds_even_out(speed, s->drives);
	s->speeds_from = SPEEDS_MEASURED;
	return 0;
}

int speeds_find(const struct output *o, struct spread *s, uint64_t *speed, bool fresh,
		bool may_measure, const volatile sig_atomic_t *stop, char *why)
{
	struct stat st;

	s->speed = speed;
	if (s->speeds_from == SPEEDS_GIVEN)
		return 0;
	make_equal(s, speed);
	if (s->drives == 1 || from_state(o->store, s, speed) ||
	    (!fresh && from_state(o->partial, s, speed)))
		return 0;
	/* A store that is there will be refused: no need to measure for it. */
	if (!may_measure || lstat(o->store, &st) == 0)
		return 0;
	return measure(o, s, speed, stop, why);
}
