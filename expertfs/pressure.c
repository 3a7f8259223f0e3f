/* SPDX-License-Identifier: Apache-2.0
 *
 * Watching for memory pressure; see pressure.h.
 */
#include "expertfs/pressure.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "expertfs/clock.h"
#include "expertfs/hotstore.h"
#include "expertfs/log.h"
#include "expertfs/memory.h"
#include "expertfs/size.h"
#include "expertfs/usage.h"

#define LOOK_MS  250
#define STALL_MS 1000 /* a stall of one second is answered once */

struct pressure {
	struct hotstore *hot;
	struct usage *usage;
	struct pressure_state state;
	int psi;  /* -1: not to be had */
	int stop; /* eventfd */
	pthread_t thread;
};

bool pressure_step(struct pressure_state *s, uint64_t now, uint64_t available, bool stalled)
{
	uint64_t step = s->full / 8, missing;

	if (stalled || available < s->reserve) {
		s->trouble = now;
		missing = available < s->reserve ? s->reserve - available : 0;
		if (s->capacity == 0 || (!missing && s->changed && now - s->changed < STALL_MS))
			return false;
		step = step > missing ? step : missing;
		s->capacity = s->capacity > step ? s->capacity - step : 0;
		s->changed = now;
		return true;
	}
	step = s->full / 16 + 1;
	if (s->capacity == s->full || now - s->trouble < PRESSURE_CALM_MS ||
	    now - s->changed < PRESSURE_GROW_MS || available < 2 * s->reserve + step)
		return false;
	s->capacity = s->full - s->capacity > step ? s->capacity + step : s->full;
	s->changed = now;
	return true;
}

/* A trigger of pressure stall information: readable with POLLPRI when tasks were stalled for 100 ms
 * within 1 s. Of our cgroup would be better, but its file need not be ours. */
static int open_psi(void)
{
	static const char trigger[] = "some 100000 1000000";
	int fd = open("/proc/pressure/memory", O_RDWR | O_NONBLOCK | O_CLOEXEC);

	if (fd >= 0 && write(fd, trigger, sizeof(trigger)) != (ssize_t)sizeof(trigger)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static void apply(struct pressure *p, uint64_t before, uint64_t available)
{
	const struct pressure_state *s = &p->state;
	char t1[16], t2[16], t3[16];

	hotstore_resize(p->hot, s->capacity);
	log_line(s->capacity < before ? LOG_WARNING : LOG_INFO,
		 "memory pressure%s: the hot store %s to %s of %s (%s is available)",
		 s->capacity < before ? "" : " is over",
		 s->capacity < before ? "shrinks" : "grows back", size_text(s->capacity, t1),
		 size_text(s->full, t2), size_text(available, t3));
	if (s->capacity == s->full)
		usage_fill(p->usage);
}

static void *pressure_main(void *arg)
{
	struct pressure *p = arg;
	struct pollfd fd[2] = { { .fd = p->stop, .events = POLLIN },
				{ .fd = p->psi, .events = POLLPRI } };

	for (;;) {
		uint64_t before = p->state.capacity, available;
		int n = poll(fd, 2, LOOK_MS);
		if (n < 0)
			continue;
		if (fd[0].revents)
			return NULL;
		if (fd[1].revents & POLLERR)
			fd[1].fd = -1; /* the file has gone */
		available = memory_available();
		if (pressure_step(&p->state, clock_ns() / 1000000, available,
				  fd[1].revents & POLLPRI))
			apply(p, before, available);
	}
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* A 64th of what there is, 384 MiB of 24 GiB, but no less than 64 MiB where that is a 16th at most;
 * and not more than half of what the full store leaves, or it would never be full. */
static uint64_t reserve_of(uint64_t available, uint64_t capacity)
{
	uint64_t some = least(available / 16, 64u << 20);

	some = some > available / 64 ? some : available / 64;
	return available > capacity ? least(some, (available - capacity) / 2) : 0;
}

struct pressure *pressure_start(struct hotstore *hot, struct usage *usage, uint64_t capacity)
{
	struct pressure *p = calloc(1, sizeof(*p));
	uint64_t available = memory_available();

	if (!p)
		return NULL;
	p->hot = hot;
	p->usage = usage;
	p->state = (struct pressure_state){ .full = capacity,
					    .capacity = capacity,
					    .reserve = reserve_of(available, capacity) };
	p->psi = open_psi();
	p->stop = eventfd(0, EFD_CLOEXEC);
	if (p->stop < 0 || pthread_create(&p->thread, NULL, pressure_main, p) != 0) {
		if (p->stop >= 0)
			close(p->stop);
		if (p->psi >= 0)
			close(p->psi);
		free(p);
		return NULL;
	}
	return p;
}

void pressure_stop(struct pressure *p)
{
	uint64_t one = 1;

	if (!p)
		return;
	if (write(p->stop, &one, sizeof(one)) == (ssize_t)sizeof(one))
		pthread_join(p->thread, NULL);
	close(p->stop);
	if (p->psi >= 0)
		close(p->psi);
	free(p);
}
