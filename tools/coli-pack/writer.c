/* SPDX-License-Identifier: Apache-2.0
 *
 * The writing side. See writer.h.
 *
 * What is written goes through the page cache, in order, and is pushed out and forgotten in steps:
 * a store is larger than memory, and nothing in it is read again here.
 */
#include "tools/coli-pack/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expertfs/fail.h"
#include "expertfs/size.h"
#include "tools/coli-pack/reader.h"
#include "tools/coli-pack/textfile.h"

/* Written bytes between two marks: seconds of work are lost at most, and a sync is a small part. */
#define MARK_BYTES (256u << 20)

struct writer {
	struct packing *k;
	float *rows;     /* one row of floats a thread */
	size_t row_room; /* floats in it */
	char *codes;     /* a dense chunk, quantised */
	uint16_t *scales;
	char *record;      /* an expert, and zeros to 4 KiB */
	uint64_t unmarked; /* bytes since the last mark */
};

static int bad_weight(const struct chunk *c, int64_t row, const float *values, char *why)
{
	const struct st_tensor *t = c->src.tensor;
	const char *what = "a value too large for the type it is packed as";

	for (int i = 0; i < c->src.cols; i++)
		if (!isfinite(values[i]))
			what = "a value that is not finite";
	return fail(why, EDOM, "%s in %s holds %s, in row %" PRId64, t->name, t->file->path, what,
		    row + c->src.skipped);
}

/* x: room for a row of floats. */
static int quantise_row(const struct chunk *c, int64_t i, float *x, char *codes, uint16_t *scales)
{
	const struct source *s = &c->src;

	if (source_keeps_codes(s, c->fmt)) {
		int8_t *integers = (void *)x;
		source_codes(s, c->row, c->row + i, c->data, integers);
		return quant_row_coded(c->fmt, integers,
				       source_row_scales(s, c->row, c->row + i, c->scales),
				       s->block_cols, s->cols, i, codes, scales);
	}
	if (c->fmt.type == W_MXFP4)
		return source_blocks(s, c->row, c->row + i, c->data, c->scales,
				     (uint8_t *)codes +
					     (size_t)i * wfmt_row_bytes(c->fmt, s->cols));
	source_row(s, c->row, c->row + i, c->data, c->scales, x);
	return quant_row(c->fmt, x, s->cols, i, codes, scales);
}

/* All rows of the chunk into codes and scales, both of the chunk's first row, which begins a block.
 * A thread takes whole blocks, so that no two write into one cache line. */
static int quantise(struct writer *w, const struct chunk *c, char *codes, uint16_t *scales,
		    char *why)
{
	int64_t bad = INT64_MAX;

	if (c->src.raw_row) { /* has no scales, and begins where its row does */
		memcpy(codes, c->data, (size_t)c->rows * c->src.raw_row);
		return 0;
	}
	/* To wake the other cores, which then also wait actively, costs as much as 10^5 weights. */
	bool worth = c->rows * c->src.cols > 1 << 18;

#pragma omp parallel for if (worth) schedule(dynamic, WBLOCK) reduction(min : bad)
	for (int64_t i = 0; i < c->rows; i++) {
		float *x = w->rows + (size_t)omp_get_thread_num() * w->row_room;
		if (quantise_row(c, i, x, codes, scales) != 0 && i < bad)
			bad = i;
	}
	if (bad == INT64_MAX)
		return 0;
	source_row(&c->src, c->row, c->row + bad, c->data, c->scales, w->rows);
	return bad_weight(c, c->row + bad, w->rows, why);
}

/* The common end of a full disk has a sentence of its own. */
static int put(int fd, const char *path, const void *data, size_t bytes, uint64_t at,
	       uint64_t planned, char *why)
{
	char a[16], b[16];
	int err = text_write_at(fd, path, data, bytes, at, why);

	if (err == -ENOSPC || err == -EDQUOT)
		return fail(why, -err,
			    "the disk is full: %s has %s of %s; make room, then the same command "
			    "resumes",
			    path, size_text(at, a), size_text(planned, b));
	/* Starts the drive on it; the next mark then has little to wait for. */
	if (err == 0)
		sync_file_range(fd, (off_t)at, (off_t)bytes, SYNC_FILE_RANGE_WRITE);
	return err;
}

static int sync_and_forget(int fd, const char *path, char *why)
{
	if (fdatasync(fd) != 0)
		return fail(why, errno, "cannot write %s: %s", path, strerror(errno));
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	return 0;
}

/* The end of the whole records of each shard: they are written in order. */
static void find_ends(const struct packing *k, uint64_t *ends)
{
	const struct placement *p = &k->plan->place;

	for (uint32_t d = 0; d < p->drives; d++)
		ends[d] = SHARD_ALIGN;
	for (uint32_t i = 0; i < placement_parts(p); i++)
		if (k->there[i])
			ends[p->part[i].drive] = p->part[i].offset + record_bytes(p->part[i].bytes);
}

/* Everything so far is on disk, and pack.state says so. */
static int mark(struct writer *w, char *why)
{
	const struct output *o = w->k->out;
	int err = sync_and_forget(o->dense_fd, o->dense_path, why);

	for (uint32_t d = 0; err == 0 && d < o->drives; d++)
		err = sync_and_forget(o->shard[d].fd, shard_out_name(&o->shard[d]), why);
	if (err)
		return err;
	find_ends(w->k, w->k->state->durable);
	w->unmarked = 0;
	return state_save(w->k->state, o->dir_fd, o->partial, why);
}

static int write_dense(struct writer *w, const struct chunk *c, char *why)
{
	const struct plan_dense *d = &w->k->plan->dense[c->item];
	const struct output *o = w->k->out;
	uint64_t total = w->k->plan->dense_bytes;
	size_t row_bytes = wfmt_row_bytes(c->fmt, c->src.cols);
	size_t scale_bytes = 2 * (size_t)wfmt_groups(c->fmt, c->src.cols);
	size_t rows = (size_t)wfmt_stored_rows(c->fmt, c->rows);

	/* The rows that fill up the last block. */
	memset(w->codes, 0, rows * row_bytes);
	memset(w->scales, 0, rows * scale_bytes);
	int err = quantise(w, c, w->codes, w->scales, why);
	err = err ? err
		  : put(o->dense_fd, o->dense_path, w->codes, rows * row_bytes,
			d->offset + (uint64_t)c->row * row_bytes, total, why);
	if (err == 0 && scale_bytes)
		err = put(o->dense_fd, o->dense_path, w->scales, rows * scale_bytes,
			  d->offset + wfmt_scales_offset(c->fmt, c->src.rows, c->src.cols) +
				  (uint64_t)c->row * scale_bytes,
			  total, why);
	if (err)
		return err;
	w->unmarked += (uint64_t)c->rows * (row_bytes + scale_bytes);
	if (c->last)
		w->k->state->dense = c->item + 1;
	return 0;
}

/* One part of the expert in w->record. The payload goes first: as long as its head is missing, the
 * record counts for nothing. */
static int write_part(struct writer *w, uint32_t index, char *why)
{
	const struct plan *p = w->k->plan;
	const struct part *x = &p->place.part[index];
	const struct shard_out *s = &w->k->out->shard[x->drive];
	const char *payload = w->record + x->first;
	uint64_t planned = p->place.shard_bytes[x->drive];
	char head[SHARD_ALIGN] = { 0 };
	struct record_head h = { .layer = plan_layer_of(p, x->expert)->layer,
				 .expert = plan_number_of(p, x->expert),
				 .part = x->part,
				 .parts = x->parts,
				 .copy = x->copy,
				 .expert_bytes = plan_layout_of(p, x->expert)->bytes,
				 .part_offset = x->first,
				 .part_bytes = x->bytes,
				 .payload_check = payload_check(payload, x->bytes) };

	memcpy(h.store_id, w->k->out->store_id, STORE_ID_SIZE);
	record_head_seal(&h);
	memcpy(head, &h, sizeof(h));
	/* The last part is not whole blocks; behind it there are zeros in the buffer. */
	int err = put(s->fd, shard_out_name(s), payload, shard_round_up(x->bytes),
		      x->offset + SHARD_ALIGN, planned, why);
	err = err ? err : put(s->fd, shard_out_name(s), head, SHARD_ALIGN, x->offset, planned, why);
	if (err)
		return err;
	w->k->check[index] = h.payload_check;
	w->k->there[index] = true;
	w->unmarked += record_bytes(x->bytes);
	return 0;
}

/* All parts of all copies, but those that an earlier run has left. */
static int write_parts(struct writer *w, uint32_t e, char *why)
{
	const struct placement *p = &w->k->plan->place;
	int err = 0;

	for (uint32_t i = p->start[e]; i < p->start[e + 1] && !err; i++)
		if (!w->k->there[i])
			err = write_part(w, i, why);
	w->k->written[e] = !err;
	return err;
}

static int write_expert(struct writer *w, const struct chunk *c, char *why)
{
	const struct plan_layout *l = plan_layout_of(w->k->plan, c->item);
	const struct plan_matrix *m = &l->matrix[c->matrix];
	char *matrix = w->record + m->offset;
	size_t row_bytes = wfmt_row_bytes(m->fmt, m->cols);
	size_t groups = (size_t)wfmt_groups(m->fmt, m->cols);
	uint16_t *scales = (void *)(matrix + wfmt_scales_offset(m->fmt, m->rows, m->cols));

	/* The zeros between matrices and behind the payload. */
	if (c->first)
		memset(w->record, 0, shard_round_up(l->bytes));
	int err = quantise(w, c, matrix + (size_t)c->row * row_bytes,
			   scales + (size_t)c->row * groups, why);
	return err || !c->last ? err : write_parts(w, c->item, why);
}

static int allocate(struct writer *w, char *why)
{
	const struct plan *p = w->k->plan;
	size_t cols = 1, threads = (size_t)omp_get_max_threads();
	uint64_t record = SHARD_ALIGN;

	for (size_t i = 0; i < p->dense_count; i++)
		if ((size_t)p->dense[i].src.cols > cols)
			cols = (size_t)p->dense[i].src.cols;
	for (int i = 0; i < p->layouts; i++) {
		if (shard_round_up(p->layout[i].bytes) > record)
			record = shard_round_up(p->layout[i].bytes);
		for (int m = 0; m < MATRICES; m++)
			if ((size_t)p->layout[i].matrix[m].cols > cols)
				cols = (size_t)p->layout[i].matrix[m].cols;
	}
	w->row_room = (cols + 15) / 16 * 16; /* a cache line, so that threads share none */
	w->rows = aligned_alloc(64, threads * w->row_room * sizeof(float));
	/* Scales are 1/16 of a chunk at most: 2 bytes for 32 weights of one byte or half a byte. */
	w->codes = aligned_alloc(4096, CHUNK_BYTES);
	w->scales = aligned_alloc(4096, CHUNK_BYTES);
	w->record = aligned_alloc(SHARD_ALIGN, record);
	if (!w->rows || !w->codes || !w->scales || !w->record)
		return fail(why, ENOMEM, "out of memory for buffers");
	return 0;
}

static void free_writer(struct writer *w)
{
	free(w->rows);
	free(w->codes);
	free(w->scales);
	free(w->record);
}

static int write_chunks(struct writer *w, struct reader *r, char *why)
{
	const struct chunk *c;
	int rc;

	while ((rc = reader_next(r, &c, why)) > 0) {
		int err = c->dense ? write_dense(w, c, why) : write_expert(w, c, why);
		uint64_t bytes = (uint64_t)c->rows * source_row_bytes(&c->src);
		bool whole = c->last;
		reader_release(r);
		if (err)
			return err;
		pack_progress_add(&w->k->progress, bytes);
		if (*w->k->stop) {
			/* A dense tensor may take a minute: it is not waited for. */
			if (whole || w->k->state->dense < w->k->plan->dense_count)
				return -EINTR;
		} else if (w->unmarked >= MARK_BYTES && whole) {
			err = mark(w, why);
			if (err)
				return err;
		}
	}
	return rc;
}

int write_all(struct packing *k, char *why)
{
	struct writer w = { .k = k };
	struct reader *r = NULL;
	int err = allocate(&w, why);

	err = err ? err : reader_start(k->plan, k->state->dense, k->written, &r, why);
	err = err ? err : write_chunks(&w, r, why);
	reader_stop(r);
	if (err == -EINTR) {
		int marked = mark(&w, why);
		err = marked ? marked : err;
	}
	free_writer(&w);
	return err;
}
