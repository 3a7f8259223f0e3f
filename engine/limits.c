/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits of a run: two short measurements, and divisions.
 */
#include "engine/limits.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "engine/arena.h"
#include "engine/clock.h"

/* Each of the two is the best of what fits into this time, PIECES at least: other work on the machine
 * only ever makes it slower. */
#define MEASURE_S 0.3
#define PIECES    5

const char *limit_name(enum limit l)
{
	static const char *const names[] = { "drive", "memory", "processor" };

	return names[l];
}

double limit_share(const struct limits *l, enum profile_phase phase, enum limit which)
{
	return l->most[which] > 0 ? l->used[phase][which] / l->most[which] : 0;
}

enum limit limit_nearest(const struct limits *l, enum profile_phase phase)
{
	enum limit best = LIMIT_DRIVE;

	for (enum limit i = LIMIT_MEMORY; i < LIMITS; i++)
		if (limit_share(l, phase, i) > limit_share(l, phase, best))
			best = i;
	return best;
}

/* -- memory --------------------------------------------------------------------------------------- */

#define PART        ((size_t)1 << 20)
#define PARTS_LEAST 256
#define PARTS_MOST  512

typedef uint64_t wide __attribute__((vector_size(64), aligned(8)));

/* Four sums of 64 bytes in flight; each processor adds them up as widely as it can. Not under the
 * address sanitizer: gcc 12 has them on its stack for use after return, and stores them as aligned as
 * that is not. And not in clones under the thread sanitizer: gcc puts its calls into the function that
 * chooses one, which runs before the sanitizer's own beginning. */
__attribute__((no_sanitize_address))
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
__attribute__((target_clones("default", "avx2", "avx512f")))
#endif
uint64_t
limits_sum(const void *bytes, size_t n)
{
	const wide *p = bytes;
	wide s[4] = { 0 };
	uint64_t all = 0;

	for (size_t i = 0; (i + 4) * sizeof(wide) <= n; i += 4)
		for (size_t k = 0; k < 4; k++)
			s[k] += p[i + k];
	for (size_t k = 0; k < 4; k++)
		for (int j = 0; j < 8; j++)
			all += s[k][j];
	return all;
}

struct reading {
	const char *part[PARTS_MOST];
	_Atomic uint64_t result; /* so that nothing is left out */
};

static void read_part(void *arg, int i, int thread)
{
	struct reading *r = arg;

	(void)thread;
	r->result += limits_sum(r->part[i], PART);
}

/* Items of work a second that fn does. */
static double best_rate(const struct compute *cp, int items, pool_fn *fn, void *arg)
{
	double begin = clock_seconds(), now = begin, best = 0;

	for (int i = 0; i < PIECES || now - begin < MEASURE_S; i++) {
		double start = now;
		pool_run(cp->pool, items, fn, arg);
		now = clock_seconds();
		if (items / (now - start) > best)
			best = items / (now - start);
	}
	return best;
}

/* Bytes a second, of the dense tensors' own bytes: what else lies in their files may not be in
 * memory, nor the tensors of the MTP layer. 0: there is too little to say, it would lie in the caches. */
static double memory_speed(const struct compute *cp, const struct dense *d)
{
	struct reading r = { .result = 0 };
	int parts = 0;

	for (size_t i = 0; i < d->file->tensors; i++) {
		const struct tensor *t = &d->file->tensor[i];
		const char *base = (const char *)d->base[t->part] + t->offset;
		for (size_t at = 0; !t->extra && at + PART <= t->bytes && parts < PARTS_MOST;
		     at += PART)
			r.part[parts++] = base + at;
	}
	return parts < PARTS_LEAST ? 0 : best_rate(cp, parts, read_part, &r) * (double)PART;
}

/* -- processor ------------------------------------------------------------------------------------ */

/* A quarter or half of a second-level cache with 4-bit weights. */
#define PEAK_ROWS  512
#define PEAK_COLS  1024 /* at most: the buffers of a struct compute are as wide as the model */
#define PEAK_ACTS  (COMPUTE_TILES * ACTS_ROWS)
#define PEAK_TIMES 2

struct peak {
	const struct compute *compute;
	int cols;
	struct wmat w;
	float *x; /* [PEAK_ACTS][cols] */
	float *y; /* [threads][PEAK_ACTS][PEAK_ROWS] */
	struct acts acts[COMPUTE_TILES];
};

static void multiply_in_cache(void *arg, int i, int thread)
{
	const struct peak *p = arg;
	const struct product product = { .w = &p->w,
					 .x = p->x,
					 .ldx = (size_t)p->cols,
					 .n = PEAK_ACTS,
					 .acts = p->acts,
					 .y = p->y + (size_t)thread * PEAK_ACTS * PEAK_ROWS,
					 .ldy = PEAK_ROWS };

	(void)i;
	for (int k = 0; k < PEAK_TIMES; k++)
		compute_product_rows(p->compute, thread, &product, 0, PEAK_ROWS);
}

static double run_peak(struct peak *p)
{
	double items = best_rate(p->compute, 4 * p->compute->threads, multiply_in_cache, p);

	return items * PEAK_TIMES * PEAK_ACTS * PEAK_ROWS * p->cols;
}

static void lay_out(struct peak *p, void **weights, size_t bytes, char **codes, struct arena *a)
{
	size_t threads = (size_t)p->compute->threads;

	*weights = arena_take(a, bytes, 1);
	*codes = arena_take(a, COMPUTE_TILES, acts_bytes(ACTS_ROWS, p->cols));
	p->x = arena_take(a, PEAK_ACTS * (size_t)p->cols, sizeof(float));
	p->y = arena_take(a, threads * PEAK_ACTS * PEAK_ROWS, sizeof(float));
}

static void quantise(struct peak *p, char *codes)
{
	for (size_t i = 0; i < COMPUTE_TILES && compute_in_int8(p->compute, &p->w); i++) {
		acts_place(&p->acts[i], ACTS_ROWS, p->cols, wfmt_acts_group(p->w.fmt),
			   codes + i * acts_bytes(ACTS_ROWS, p->cols));
		kernel()->quantise(p->x, (size_t)p->cols, &p->acts[i]);
	}
}

static struct wfmt common_format(const struct modelfile *m)
{
	for (int l = 0; l < m->config.layers; l++)
		if (m->config.sparse[l])
			return m->layer_layout[l]->matrix[EXPERT_GATE].fmt;
	return (struct wfmt){ W_F32, 0 };
}

static struct peak peak_of(const struct modelfile *m, const struct compute *cp)
{
	int hidden = m->config.hidden;

	return (struct peak){ .compute = cp, .cols = hidden < PEAK_COLS ? hidden : PEAK_COLS };
}

size_t limits_bytes(const struct modelfile *m, int threads)
{
	const struct compute cp = { .threads = threads };
	struct peak p = peak_of(m, &cp);
	struct arena a = { NULL, 0 };
	void *weights;
	char *codes;

	lay_out(&p, &weights, wfmt_bytes(common_format(m), PEAK_ROWS, p.cols), &codes, &a);
	return a.used;
}

/* Zeros are as good as other numbers: no kernel looks at them. */
static int processor_speed(const struct modelfile *m, const struct compute *cp, double *out)
{
	struct peak p = peak_of(m, cp);
	struct wfmt fmt = common_format(m);
	size_t bytes = wfmt_bytes(fmt, PEAK_ROWS, p.cols), all = limits_bytes(m, cp->threads);
	void *weights, *memory = aligned_alloc(64, all);
	struct arena a = { memory, 0 };
	char *codes;

	if (!memory)
		return -ENOMEM;
	memset(memory, 0, all);
	lay_out(&p, &weights, bytes, &codes, &a);
	int r = wmat_bind(&p.w, fmt, PEAK_ROWS, p.cols, weights, bytes);
	if (!r) {
		quantise(&p, codes);
		*out = run_peak(&p);
	}
	free(memory);
	return r;
}

/* -- what the run did ----------------------------------------------------------------------------- */

static double elements(const struct tensor *t)
{
	return (double)t->rows * t->cols;
}

/* Dense tensors that every token uses: all but the embedding and those of MTP layers. */
static bool every_token(const struct modelfile *m, const struct tensor *t)
{
	if (strcmp(t->name, "model.embed_tokens.weight") == 0)
		return m->config.tied;
	return !t->extra;
}

/* Weights that a token is multiplied with: dense ones, the head among them, and those of the experts
 * that are chosen. */
static double active_weights(const struct modelfile *m)
{
	double n = 0;

	for (size_t i = 0; i < m->tensors; i++)
		if (m->tensor[i].dims == 2 && every_token(m, &m->tensor[i]))
			n += elements(&m->tensor[i]);
	for (int l = 0; l < m->config.layers; l++)
		for (int k = 0; m->config.sparse[l] && k < EXPERT_MATRICES; k++)
			n += m->config.topk * elements(&m->layer_layout[l]->matrix[k]);
	return n;
}

static bool is_head(const struct modelfile *m, const struct tensor *t)
{
	return strcmp(t->name, m->config.tied ? "model.embed_tokens.weight" : "lm_head.weight") ==
	       0;
}

/* Of the head, or of all else. */
static double dense_bytes(const struct modelfile *m, bool head)
{
	double n = 0;

	for (size_t i = 0; i < m->tensors; i++)
		if (every_token(m, &m->tensor[i]) && is_head(m, &m->tensor[i]) == head)
			n += (double)m->tensor[i].bytes;
	return n;
}

static double head_weights(const struct modelfile *m)
{
	return (double)m->config.vocab * m->config.hidden;
}

static void fill_used(const struct modelfile *m, const struct profile *p, struct limits *out)
{
	double active = active_weights(m), dense = dense_bytes(m, false),
	       head = dense_bytes(m, true), weights = head_weights(m);

	for (int i = 0; i < PROFILE_PHASES; i++) {
		double s = profile_seconds(p, (enum profile_phase)i);
		double passes = (double)p->passes[i], rows = (double)p->rows[i];
		const struct profile_counts *c = &p->counts[i];
		if (s <= 0 || rows <= 0)
			continue;
		/* The head is used for the last row of a whole prompt. */
		bool once = i == PROFILE_PROMPT;
		out->used[i][LIMIT_DRIVE] = c->bytes_read > 0 ? (double)c->bytes_read / s : 0;
		out->used[i][LIMIT_MEMORY] =
			(passes * dense + (once ? 1 : passes) * head + (double)c->expert_bytes) / s;
		out->used[i][LIMIT_PROCESSOR] =
			(rows * (active - weights) + (once ? 1 : rows) * weights) / s;
	}
}

int limits_find(const struct dense *dense, const struct compute *cp, const struct profile *p,
		double drive_speed, struct limits *out)
{
	const struct modelfile *file = dense->file;

	*out = (struct limits){ .most[LIMIT_DRIVE] = drive_speed };
	fill_used(file, p, out);
	out->most[LIMIT_MEMORY] = memory_speed(cp, dense);
	return processor_speed(file, cp, &out->most[LIMIT_PROCESSOR]);
}
