/* SPDX-License-Identifier: Apache-2.0
 *
 * Many queries by blocks of keys against the definition, in double precision, with groups, a window
 * and sinks; that what a query gives does not depend on which others come with it; and grouped
 * attention as a whole, by blocks and key by key.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/attention_grouped.h"
#include "engine/kvcache.h"
#include "engine/rope.h"
#include "engine/weights.h"
#include "tests/unit/tiny_model.h"

#define CTX     300
#define FIRST   70 /* position of the first query */
#define QUERIES 230
#define GROUP   3 /* of them a position, as many as whole positions have */
#define DIM     37
#define V       29
#define LDV     31

static struct tiny dice = { .seed = 9 };
static float query[QUERIES * GROUP][DIM], key[CTX][DIM], value[CTX][LDV];
static const float sinks[GROUP] = { 1.5f, -2, 4 };

static void fill(void)
{
	for (int i = 0; i < QUERIES * GROUP; i++)
		for (int d = 0; d < DIM; d++)
			query[i][d] = tiny_random(&dice) * 2;
	for (int s = 0; s < CTX; s++) {
		for (int d = 0; d < DIM; d++) /* later keys are larger: maxima move */
			key[s][d] = tiny_random(&dice) * (1 + (float)s / CTX);
		for (int d = 0; d < LDV; d++)
			value[s][d] = tiny_random(&dice);
	}
}

static void naive(int i, int window, bool sink, double *out)
{
	static double p[CTX];
	int position = FIRST + i / GROUP, first = window ? position - window + 1 : 0;
	double max = sink ? (double)sinks[i % GROUP] : -HUGE_VAL, sum;

	first = first < 0 ? 0 : first;
	for (int s = first; s <= position; s++) {
		p[s] = 0;
		for (int d = 0; d < DIM; d++)
			p[s] += (double)query[i][d] * (double)key[s][d];
		max = fmax(max, p[s]);
	}
	sum = sink ? exp((double)sinks[i % GROUP] - max) : 0;
	for (int s = first; s <= position; s++)
		sum += p[s] = exp(p[s] - max);
	for (int d = 0; d < V; d++) {
		out[d] = 0;
		for (int s = first; s <= position; s++)
			out[d] += p[s] / sum * (double)value[s][d];
	}
}

/* Positions `at` .. `at` + rows - 1 of the queries, all heads of the group: got [][V]. */
static void attend(kernel_mix *mix, int window, bool sink, int at, int rows, float *got)
{
	struct block_work w;
	struct arena a = { NULL, 0 };
	struct block_queries q = { .n = rows * GROUP,
				   .dim = DIM,
				   .v_dim = V,
				   .position = FIRST + at,
				   .group = GROUP,
				   .window = window,
				   .q = query[at * GROUP],
				   .ldq = DIM,
				   .out = got + (size_t)at * GROUP * V,
				   .ldo = V,
				   .mix = mix };
	int end = FIRST + at + rows;

	blocks_lay_out(&w, DIM, 1, &a);
	a = (struct arena){ aligned_alloc(64, a.used), 0 };
	assert_non_null(a.base);
	blocks_lay_out(&w, DIM, 1, &a);
	blocks_begin(&q, &w, 0, sink ? sinks : NULL);
	for (int s = blocks_first_key(FIRST + at, window) / BLOCK_KEYS * BLOCK_KEYS; s < end;
	     s += BLOCK_KEYS) {
		int m = end - s < BLOCK_KEYS ? end - s : BLOCK_KEYS;
		blocks_turn_keys(&q, 0, 20, key[s], DIM, m, 1);
		blocks_turn_keys(&q, 20, DIM - 20, key[s] + 20, DIM, m, 1);
		blocks_add(&q, s, m, value[s], LDV);
	}
	blocks_end(&q);
	free(a.base);
}

static void run(kernel_mix *mix, int window, bool sink, int piece, float *got)
{
	for (int at = 0; at < QUERIES; at += piece)
		attend(mix, window, sink, at, QUERIES - at < piece ? QUERIES - at : piece, got);
}

static const int windows[] = { 0, 1, 17, 64, 100, 128, 1000, INT_MAX };
#define WINDOWS (sizeof(windows) / sizeof(*windows))

static void is_what_is_defined(void **state)
{
	static float got[QUERIES * GROUP * V];
	double want[V];

	(void)state;
	fill();
	for (int kind = 0; kind < 4; kind++)
		for (size_t w = 0; w < WINDOWS; w++) {
			kernel_mix *mix = kind & 1 ? kernel()->mix_many : kernel()->mix_block;
			double far = 0;
			run(mix, windows[w], kind & 2, BLOCK_QUERIES / GROUP, got);
			for (int i = 0; i < QUERIES * GROUP; i++) {
				naive(i, windows[w], kind & 2, want);
				for (int d = 0; d < V; d++)
					far = fmax(far, fabs(want[d] - (double)got[i * V + d]));
			}
			if (far > (kind & 1 ? 2e-4 : 5e-6)) /* NaN is not, but next to nothing is */
				fail_msg("window %d: %g", windows[w], far);
			for (int i = 0; i < QUERIES * GROUP * V; i++)
				assert_true(isfinite(got[i]));
		}
}

static void depends_on_nothing_else(void **state)
{
	static float want[QUERIES * GROUP * V], got[QUERIES * GROUP * V];
	static const int pieces[] = { 1, 7, 16, 63, 64 };

	(void)state;
	fill();
	for (int kind = 0; kind < 4; kind++)
		for (size_t w = 0; w < WINDOWS; w++) {
			kernel_mix *mix = kind & 1 ? kernel()->mix_many : kernel()->mix_block;
			run(mix, windows[w], kind & 2, BLOCK_QUERIES / GROUP, want);
			for (size_t p = 0; p < sizeof(pieces) / sizeof(*pieces); p++) {
				run(mix, windows[w], kind & 2, pieces[p], got);
				for (int i = 0; i < QUERIES * GROUP * V; i++)
					assert_true(want[i] == got[i]);
			}
		}
}

/* -- grouped attention as a whole ------------------------------------------------------------- */

#define HEADS  6
#define SHARED 2
#define HEAD   24
#define HIDDEN 40

struct setting {
	struct model_config c;
	struct layer_weights l;
	char *matrices[4];
	float norm[HIDDEN], sink[HEADS];
};

static void set_up(struct setting *s, struct wfmt fmt, int window, bool sink)
{
	memset(s, 0, sizeof(*s));
	s->c = (struct model_config){ .attention = ATTENTION_GROUPED,
				      .layers = 1,
				      .hidden = HIDDEN,
				      .heads = HEADS,
				      .kv_heads = SHARED,
				      .head_dim = HEAD,
				      .rope = HEAD,
				      .window = window,
				      .max_positions = CTX,
				      .norm_eps = 1e-5f,
				      .score_scale = 0.3f };
	s->c.windowed[0] = window != 0;
	s->matrices[0] = tiny_wmat(&dice, fmt, HEADS * HEAD, HIDDEN, &s->l.attention.q);
	s->matrices[1] = tiny_wmat(&dice, fmt, SHARED * HEAD, HIDDEN, &s->l.attention.k);
	s->matrices[2] = tiny_wmat(&dice, fmt, SHARED * HEAD, HIDDEN, &s->l.attention.v);
	s->matrices[3] = tiny_wmat(&dice, fmt, HIDDEN, HEADS * HEAD, &s->l.attention.out);
	for (int i = 0; i < HIDDEN; i++)
		s->norm[i] = 1;
	for (int i = 0; i < HEADS; i++)
		s->sink[i] = tiny_random(&dice) * 3;
	s->l.attention_norm = s->norm;
	s->l.attention.sinks = sink ? s->sink : NULL;
}

/* All positions, `piece` at a time: h [CTX][HIDDEN]. */
static void whole(struct setting *s, int threads, enum kv_type type, bool blocks, int piece,
		  float *h)
{
	static float angles[CTX * HEAD];
	struct compute cp;
	struct kvcache kv;
	struct attention_work w = { 0 };
	struct arena a = { NULL, 0 };
	char why[1024] = "";

	for (int i = 0; i < CTX; i++)
		rope_angles(angles + (size_t)i * HEAD, HEAD, 10000, &s->c.rope_scaling, i);
	assert_int_equal(compute_init(&cp, threads, HEADS * HEAD, why), 0);
	assert_int_equal(kvcache_init(&kv, &s->c, 1, CTX, type, why), 0);
	attention_grouped_lay_out(&w, &s->c, CTX, ATTENTION_ROWS, threads, &a);
	a = (struct arena){ aligned_alloc(64, a.used), 0 };
	assert_non_null(a.base);
	attention_grouped_lay_out(&w, &s->c, CTX, ATTENTION_ROWS, threads, &a);
	for (int t = 0; t < CTX; t += piece) {
		const struct attention_task task = { .position = t,
						     .m = CTX - t < piece ? CTX - t : piece,
						     .blocks = blocks,
						     .angles = angles + (size_t)t * HEAD };
		attention_grouped(&cp, &s->c, &s->l, &kv, &task, &w, h + (size_t)t * HIDDEN);
	}
	free(a.base);
	kvcache_free(&kv);
	compute_free(&cp);
}

static void grouped_is_the_same(void **state)
{
	static float start[CTX * HIDDEN], one[CTX * HIDDEN], other[CTX * HIDDEN];
	static const struct wfmt formats[] = { { W_F32, 0 }, { W_Q8, 32 } };
	static const struct {
		int threads, piece;
	} ways[] = { { 1, 1 }, { 2, 5 }, { 7, 64 }, { 16, 33 } };

	(void)state;
	for (int i = 0; i < CTX * HIDDEN; i++)
		start[i] = tiny_random(&dice) * 4;
	for (int kind = 0; kind < 16; kind++) {
		struct setting s;
		enum kv_type kv = kind & 8 ? KV_BF16 : KV_F32;
		set_up(&s, formats[kind & 1], kind & 2 ? 50 : 0, kind & 4);
		memcpy(one, start, sizeof(one));
		whole(&s, 2, kv, false, 64, one);
		memcpy(other, start, sizeof(other));
		whole(&s, 2, kv, true, 64, other);
		for (int i = 0; i < CTX * HIDDEN; i++)
			if (fabsf(one[i] - other[i]) > (kind & 1 ? 2e-2f : 2e-5f) ||
			    !isfinite(other[i]))
				fail_msg("kind %d: %g and %g", kind, (double)one[i],
					 (double)other[i]);
		for (size_t w = 0; w < sizeof(ways) / sizeof(*ways); w++) {
			memcpy(one, start, sizeof(one));
			whole(&s, ways[w].threads, kv, true, ways[w].piece, one);
			assert_memory_equal(one, other, sizeof(one));
		}
		for (int i = 0; i < 4; i++)
			free(s.matrices[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(is_what_is_defined),
		cmocka_unit_test(depends_on_nothing_else),
		cmocka_unit_test(grouped_is_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
