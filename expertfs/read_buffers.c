/* SPDX-License-Identifier: Apache-2.0
 *
 * A fixed number of buffers in one mapping; see read_buffers.h.
 */
#include "expertfs/read_buffers.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE (2u << 20)

struct read_buffers {
	char *map, *base; /* base: map, on a huge page */
	uint64_t mapped, size;
	pthread_mutex_t lock;
	pthread_cond_t given;
	char *spare[READ_BUFFERS];
	int spares;
};

struct read_buffers *read_buffers_new(uint64_t largest)
{
	struct read_buffers *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->size = largest < READ_BUFFER_SIZE ? shard_round_up(largest) : READ_BUFFER_SIZE;
	if (b->size < 2 * SHARD_ALIGN)
		b->size = 2 * SHARD_ALIGN;
	b->mapped = READ_BUFFERS * b->size + HUGE_PAGE;
	b->map = mmap(NULL, b->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b->map == MAP_FAILED) {
		free(b);
		return NULL;
	}
	b->base = b->map + (-(uintptr_t)b->map & (HUGE_PAGE - 1));
	/* Only pages that lie in the buffers as a whole: what is behind them costs nothing. */
	madvise(b->base, READ_BUFFERS * b->size & ~(uint64_t)(HUGE_PAGE - 1), MADV_HUGEPAGE);
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->given, NULL);
	for (; b->spares < READ_BUFFERS; b->spares++)
		b->spare[b->spares] = b->base + (uint64_t)b->spares * b->size;
	return b;
}

void read_buffers_free(struct read_buffers *b)
{
	if (!b)
		return;
	munmap(b->map, b->mapped);
	pthread_cond_destroy(&b->given);
	pthread_mutex_destroy(&b->lock);
	free(b);
}

void read_buffers_register(const struct read_buffers *b, struct drive *d)
{
	drive_register(d, b->base, READ_BUFFERS * b->size);
}

uint64_t read_buffers_size(const struct read_buffers *b)
{
	return b->size;
}

char *read_buffers_take(struct read_buffers *b)
{
	char *buf;

	pthread_mutex_lock(&b->lock);
	while (b->spares == 0)
		pthread_cond_wait(&b->given, &b->lock);
	buf = b->spare[--b->spares];
	pthread_mutex_unlock(&b->lock);
	return buf;
}

void read_buffers_give(struct read_buffers *b, char *buf)
{
	pthread_mutex_lock(&b->lock);
	b->spare[b->spares++] = buf;
	pthread_cond_signal(&b->given);
	pthread_mutex_unlock(&b->lock);
}
