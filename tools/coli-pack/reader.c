/* SPDX-License-Identifier: Apache-2.0
 *
 * The reading thread. See reader.h. One producer, one consumer, a ring of two; the mutex guards the
 * counters and the outcome, each buffer belongs to one side at a time.
 */
#include "tools/coli-pack/reader.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/fail.h"

#define SLOTS 2u

struct reader {
	const struct plan *plan;
	size_t dense;    /* next dense tensor */
	uint32_t expert; /* next expert */
	const bool *written;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned filled, taken; /* chunks so far; the ring holds filled - taken */
	bool ended, stopped;
	int err;
	char why[WHY_MAX];
	struct chunk slot[SLOTS];
};

/* Rows of the matrix that fit a chunk by every measure: whole blocks, of which one fits at least
 * (CHUNK_COLS). */
static int64_t rows_of(const struct chunk *c)
{
	size_t out =
		wfmt_row_bytes(c->fmt, c->src.cols) + 2 * (size_t)wfmt_groups(c->fmt, c->src.cols);
	size_t row = (size_t)c->src.cols * sizeof(float);

	row = out > row ? out : row;
	return (int64_t)(CHUNK_BYTES / row / WBLOCK * WBLOCK);
}

static struct chunk *wait_for_slot(struct reader *r)
{
	struct chunk *c = NULL;

	pthread_mutex_lock(&r->lock);
	while (r->filled - r->taken == SLOTS && !r->stopped)
		pthread_cond_wait(&r->changed, &r->lock);
	if (!r->stopped)
		c = &r->slot[r->filled % SLOTS];
	pthread_mutex_unlock(&r->lock);
	return c;
}

static int fill(struct chunk *c, char *why)
{
	size_t scales = source_scales(&c->src, c->row, c->rows);

	if (scales > c->scales_room) {
		free(c->scales);
		c->scales = malloc(scales * sizeof(float));
		c->scales_room = c->scales ? scales : 0;
		if (!c->scales)
			return fail(why, ENOMEM, "out of memory for %zu scales of %s", scales,
				    c->src.tensor->name);
	}
	return source_read(&c->src, c->row, c->rows, c->data, c->scales, why);
}

/* All chunks of one matrix. 1: stopped. */
static int read_matrix(struct reader *r, const struct chunk *what)
{
	for (int64_t row = 0, rows; row < what->src.rows; row += rows) {
		struct chunk *c = wait_for_slot(r);
		if (!c)
			return 1;
		void *data = c->data;
		float *scales = c->scales;
		size_t room = c->scales_room;
		*c = *what;
		c->data = data;
		c->scales = scales;
		c->scales_room = room;
		rows = rows_of(c);
		if (rows > what->src.rows - row)
			rows = what->src.rows - row;
		c->row = row;
		c->rows = rows;
		c->first = what->first && row == 0;
		c->last = what->last && row + rows == what->src.rows;
		int err = fill(c, r->why);
		if (err)
			return err;
		pthread_mutex_lock(&r->lock);
		r->filled++;
		pthread_cond_signal(&r->changed);
		pthread_mutex_unlock(&r->lock);
	}
	return 0;
}

static int read_expert(struct reader *r, uint32_t e)
{
	const struct plan_layout *l = plan_layout_of(r->plan, e);
	int err = 0;

	for (int m = 0; m < MATRICES && err == 0; m++) {
		struct chunk c = { .item = e,
				   .matrix = m,
				   .first = m == 0,
				   .last = m == MATRICES - 1,
				   .fmt = l->matrix[m].fmt };
		err = plan_expert_source(r->plan, e, m, &c.src, r->why);
		err = err ? err : read_matrix(r, &c);
	}
	return err;
}

static void *reader_main(void *arg)
{
	struct reader *r = arg;
	const struct plan *p = r->plan;
	int err = 0;

	for (; r->dense < p->dense_count && err == 0; r->dense++) {
		const struct plan_dense *d = &p->dense[r->dense];
		struct chunk c = { .dense = true,
				   .item = (uint32_t)r->dense,
				   .first = true,
				   .last = true,
				   .src = d->src,
				   .fmt = d->fmt };
		err = read_matrix(r, &c);
	}
	for (; r->expert < p->experts && err == 0; r->expert++)
		if (!r->written[r->expert])
			err = read_expert(r, r->expert);
	pthread_mutex_lock(&r->lock);
	r->ended = true;
	r->err = err < 0 ? err : 0;
	pthread_cond_signal(&r->changed);
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

static void reader_free(struct reader *r)
{
	for (unsigned i = 0; i < SLOTS; i++) {
		free(r->slot[i].data);
		free(r->slot[i].scales);
	}
	pthread_cond_destroy(&r->changed);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

int reader_start(const struct plan *p, size_t dense_from, const bool *written, struct reader **out,
		 char *why)
{
	struct reader *r = calloc(1, sizeof(*r));
	int err = 0;

	if (!r)
		return fail(why, ENOMEM, "out of memory");
	r->plan = p;
	r->dense = dense_from;
	r->written = written;
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->changed, NULL);
	for (unsigned i = 0; i < SLOTS; i++) {
		r->slot[i].data = aligned_alloc(4096, CHUNK_BYTES);
		if (!r->slot[i].data)
			err = fail(why, ENOMEM, "out of memory for a buffer of %u bytes",
				   CHUNK_BYTES);
	}
	if (err == 0) {
		int rc = pthread_create(&r->thread, NULL, reader_main, r);
		if (rc)
			err = fail(why, rc, "cannot start a thread: %s", strerror(rc));
	}
	if (err)
		reader_free(r);
	else
		*out = r;
	return err;
}

int reader_next(struct reader *r, const struct chunk **c, char *why)
{
	int rc;

	pthread_mutex_lock(&r->lock);
	while (r->filled == r->taken && !r->ended)
		pthread_cond_wait(&r->changed, &r->lock);
	if (r->filled != r->taken) {
		*c = &r->slot[r->taken % SLOTS];
		rc = 1;
	} else {
		rc = r->err;
		if (rc)
			memcpy(why, r->why, WHY_MAX);
	}
	pthread_mutex_unlock(&r->lock);
	return rc;
}

void reader_release(struct reader *r)
{
	pthread_mutex_lock(&r->lock);
	r->taken++;
	pthread_cond_signal(&r->changed);
	pthread_mutex_unlock(&r->lock);
}

void reader_stop(struct reader *r)
{
	if (!r)
		return;
	pthread_mutex_lock(&r->lock);
	r->stopped = true;
	pthread_cond_signal(&r->changed);
	pthread_mutex_unlock(&r->lock);
	pthread_join(r->thread, NULL);
	reader_free(r);
}
