/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples in a thread of their own, so that a daemon that does not answer stops no key of top.
 */
#include "tools/expertctl/top.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define STOP_WAIT_MS 200 /* a healthy daemon answers in some */

struct top_reader {
	const char *mount;
	int ready; /* eventfd */
	pthread_t thread;

	pthread_mutex_t lock; /* all below */
	pthread_cond_t asked;
	bool wanted, stop, have;
	unsigned parts;
	struct top_sample sample;
};

/* Puts the sample where top_reader_take() finds it; an older one that nobody took is dropped. */
static void hand_over(struct top_reader *r, struct top_sample *s)
{
	uint64_t one = 1;
	ssize_t n;

	pthread_mutex_lock(&r->lock);
	top_sample_free(&r->sample);
	r->sample = *s;
	r->have = true;
	pthread_mutex_unlock(&r->lock);
	n = write(r->ready, &one, sizeof(one)); /* the counter cannot be full */
	(void)n;
}

static void *reader_main(void *arg)
{
	struct top_reader *r = arg;
	struct top_sample s;
	unsigned parts;
	bool stop;

	for (;;) {
		pthread_mutex_lock(&r->lock);
		while (!r->wanted && !r->stop)
			pthread_cond_wait(&r->asked, &r->lock);
		stop = r->stop;
		r->wanted = false;
		parts = r->parts;
		pthread_mutex_unlock(&r->lock);
		if (stop)
			return NULL;
		top_sample_take(&s, r->mount, parts);
		hand_over(r, &s);
	}
}

struct top_reader *top_reader_start(const char *mount)
{
	struct top_reader *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->mount = mount;
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->asked, NULL);
	r->ready = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (r->ready < 0 || pthread_create(&r->thread, NULL, reader_main, r) != 0) {
		if (r->ready >= 0)
			close(r->ready);
		free(r);
		return NULL;
	}
	return r;
}

void top_reader_ask(struct top_reader *r, unsigned parts)
{
	pthread_mutex_lock(&r->lock);
	r->wanted = true;
	r->parts = parts;
	pthread_cond_signal(&r->asked);
	pthread_mutex_unlock(&r->lock);
}

int top_reader_fd(const struct top_reader *r)
{
	return r->ready;
}

bool top_reader_take(struct top_reader *r, struct top_sample *s)
{
	uint64_t count;
	ssize_t n = read(r->ready, &count, sizeof(count)); /* so that poll() waits again */
	bool have;

	(void)n;
	pthread_mutex_lock(&r->lock);
	have = r->have;
	if (have)
		*s = r->sample;
	r->sample = (struct top_sample){ 0 };
	r->have = false;
	pthread_mutex_unlock(&r->lock);
	return have;
}

void top_reader_stop(struct top_reader *r)
{
	struct timespec until;

	pthread_mutex_lock(&r->lock);
	r->stop = true;
	pthread_cond_signal(&r->asked);
	pthread_mutex_unlock(&r->lock);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += STOP_WAIT_MS * 1000000l;
	until.tv_sec += until.tv_nsec / 1000000000l;
	until.tv_nsec %= 1000000000l;
	if (pthread_timedjoin_np(r->thread, NULL, &until) != 0) {
		pthread_detach(r->thread);
		return; /* it still uses r */
	}
	close(r->ready);
	top_sample_free(&r->sample);
	pthread_cond_destroy(&r->asked);
	pthread_mutex_destroy(&r->lock);
	free(r);
}
