/* SPDX-License-Identifier: Apache-2.0
 *
 * Latent attention in its expanded form against the definition, in double precision; and that what a
 * query gives depends neither on the others nor on the threads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/attention.h"
#include "tests/unit/tiny_model.h"

/* Odd sizes; kv_b's rows of a head are no whole block. */
#define HEADS 3
#define NOPE  20
#define ROPE  6
#define V     13
#define LORA  40
#define Q     (NOPE + ROPE)
#define WIDTH (LORA + ROPE)
#define CTX   400

/* One layer's attention, with keys and queries of every position. */
struct setting {
	struct model_config c;
	struct attention_weights w;
	struct compute cp;
	struct kvcache kv;
	struct attention_work work;
	void *memory;
	float q[CTX][HEADS][Q];
	char *kv_b, *k_b, *v_b;
	double want[CTX][HEADS][V];
};

static struct tiny dice = { .seed = 5 };

/* kv_b in two, keys transposed: from its floats, so that both mean the same. */
static void split(struct setting *s)
{
	float *k = malloc(sizeof(float) * HEADS * LORA * NOPE),
	      *v = malloc(sizeof(float) * HEADS * V * LORA), row[LORA];

	assert_true(k && v);
	for (int n = 0; n < HEADS; n++) {
		for (int d = 0; d < NOPE; d++) {
			dequant_row(&s->w.kv_b, n * (NOPE + V) + d, row);
			for (int r = 0; r < LORA; r++)
				k[(n * LORA + r) * NOPE + d] = row[r];
		}
		for (int d = 0; d < V; d++)
			dequant_row(&s->w.kv_b, n * (NOPE + V) + NOPE + d, v + (n * V + d) * LORA);
	}
	s->k_b = (char *)k;
	s->v_b = (char *)v;
	s->w.k_b = (struct wmat){ .rows = HEADS * LORA, .cols = NOPE, .codes = k };
	s->w.v_b = (struct wmat){ .rows = HEADS * V, .cols = LORA, .codes = v };
	s->w.k_b.fmt = s->w.v_b.fmt = (struct wfmt){ W_F32, 0 };
	s->w.kv_b.rows = 0;
}

static void naive(struct setting *s, int t, int n)
{
	static double k[CTX][NOPE], v[CTX][V], p[CTX];
	double sum = 0, max = -HUGE_VAL;
	float row[LORA], buf[WIDTH];

	for (int i = 0; i <= t; i++) {
		const float *c = kvcache_rows(&s->kv, 0, NULL, i, 1, buf);
		for (int d = 0; d < NOPE + V; d++) {
			double x = 0;
			dequant_row(&s->w.kv_b, n * (NOPE + V) + d, row);
			for (int r = 0; r < LORA; r++)
				x += (double)row[r] * (double)c[r];
			*(d < NOPE ? &k[i][d] : &v[i][d - NOPE]) = x;
		}
		p[i] = 0;
		for (int d = 0; d < NOPE; d++)
			p[i] += k[i][d] * (double)s->q[t][n][d];
		for (int d = 0; d < ROPE; d++)
			p[i] += (double)c[LORA + d] * (double)s->q[t][n][NOPE + d];
		p[i] *= (double)s->c.score_scale;
		max = fmax(max, p[i]);
	}
	for (int i = 0; i <= t; i++)
		sum += p[i] = exp(p[i] - max);
	for (int d = 0; d < V; d++) {
		s->want[t][n][d] = 0;
		for (int i = 0; i <= t; i++)
			s->want[t][n][d] += p[i] / sum * v[i][d];
	}
}

static void lay_out(struct setting *s, struct arena *a)
{
	attention_lay_out(&s->work, &s->c, CTX, CTX, s->cp.threads, a);
}

/* steep: the largest score of a query comes from the last keys, so that all before is brought to
 * another measure again and again. */
static struct setting *set_up(struct wfmt fmt, enum kv_type kv, bool steep)
{
	struct setting *s = calloc(1, sizeof(*s));
	char why[1024] = "";
	float row[WIDTH];

	assert_non_null(s);
	s->c = (struct model_config){ .attention = ATTENTION_LATENT,
				      .layers = 1,
				      .hidden = 16,
				      .heads = HEADS,
				      .nope = NOPE,
				      .rope = ROPE,
				      .v_dim = V,
				      .kv_lora = LORA,
				      .index_topk = CTX,
				      .max_positions = CTX,
				      .score_scale = 0.19f };
	s->kv_b = tiny_wmat(&dice, fmt, HEADS * (NOPE + V), LORA, &s->w.kv_b);
	if (kvcache_init(&s->kv, &s->c, 1, CTX, kv, why))
		fail_msg("%s", why);
	for (int t = 0; t < CTX; t++) {
		float up = steep ? (float)t * 0.1f : 1;
		for (int i = 0; i < WIDTH; i++)
			row[i] = tiny_random(&dice) * 2 + (steep && i >= LORA ? up : 0);
		kvcache_put(&s->kv, 0, t, row);
		for (int n = 0; n < HEADS; n++)
			for (int i = 0; i < Q; i++)
				s->q[t][n][i] = tiny_random(&dice) * 3 + (steep ? 2 : 0);
	}
	for (int t = 0; t < CTX; t += t < 70 ? 1 : 33)
		for (int n = 0; n < HEADS; n++)
			naive(s, t, n);
	return s;
}

static void tear_down(struct setting *s)
{
	kvcache_free(&s->kv);
	free(s->kv_b);
	free(s->k_b);
	free(s->v_b);
	free(s);
}

/* All queries from `first` on, `piece` at a time: got [CTX][HEADS][V]. */
static void run(struct setting *s, int threads, bool floats, int first, int piece, float *got)
{
	char why[1024];
	struct arena a = { NULL, 0 };

	assert_int_equal(compute_init(&s->cp, threads, LORA, why), 0);
	s->cp.float_activations = floats;
	lay_out(s, &a);
	a = (struct arena){ aligned_alloc(64, a.used), 0 };
	assert_non_null(a.base);
	lay_out(s, &a);
	for (int t = first; t < CTX; t += piece) {
		const struct attention_task task = { .position = t,
						     .m = CTX - t < piece ? CTX - t : piece,
						     .blocks = true };
		memcpy(s->work.q, s->q[t], (size_t)task.m * sizeof(s->q[t]));
		expanded_run(&s->cp, &s->c, &s->w, &s->kv, &task, &s->work);
		memcpy(got + (size_t)t * HEADS * V, s->work.heads,
		       (size_t)task.m * HEADS * V * sizeof(float));
	}
	free(a.base);
	compute_free(&s->cp);
}

/* Of the queries that the definition was asked for. */
static double worst(const struct setting *s, const float *got)
{
	double far = 0;

	for (int t = 0; t < CTX; t += t < 70 ? 1 : 33) {
		double d = 0, size = 0;
		for (int i = 0; i < HEADS * V; i++) {
			double want = (&s->want[t][0][0])[i];
			d += (got[t * HEADS * V + i] - want) * (got[t * HEADS * V + i] - want);
			size += want * want;
		}
		far = fmax(far, sqrt(d / size));
	}
	return far;
}

static const struct wfmt formats[] = {
	{ W_F32, 0 }, { W_BF16, 0 }, { W_Q8, 32 }, { W_Q4, 64 }, { W_Q4, 32 }
};
#define FORMATS (sizeof(formats) / sizeof(*formats))

static void is_what_is_defined(void **state)
{
	static float got[CTX * HEADS * V];

	(void)state;
	for (size_t f = 0; f < FORMATS; f++)
		for (int kind = 0; kind < 4; kind++) {
			struct setting *s =
				set_up(formats[f], kind & 1 ? KV_BF16 : KV_F32, kind & 2);
			run(s, 2, true, 0, EXPANDED_ROWS, got);
			double exact = worst(s, got);
			run(s, 2, false, 0, EXPANDED_ROWS, got);
			double int8 = worst(s, got);
			split(s);
			run(s, 2, true, 0, EXPANDED_ROWS, got);
			double halves = worst(s, got);
			print_message("%s%s: %.1e, 8-bit activations %.1e, in two matrices %.1e\n",
				      wtype_name(formats[f].type), kind & 2 ? ", steep" : "", exact,
				      int8, halves);
			assert_true(exact < 1e-5 && halves < 1e-5);
			assert_true(int8 < (formats[f].group ? 0.1 : 1e-5));
			tear_down(s);
		}
}

static void depends_on_nothing_else(void **state)
{
	static float want[CTX * HEADS * V], got[CTX * HEADS * V];
	static const struct {
		int threads, first, piece;
	} ways[] = { { 1, 0, 1 },  { 1, 0, 64 },   { 3, 0, 7 },   { 2, 0, 255 },
		     { 7, 0, 63 }, { 16, 0, 256 }, { 1, 399, 1 }, { 5, 131, 100 } };

	(void)state;
	for (size_t f = 0; f < FORMATS; f++) {
		struct setting *s = set_up(formats[f], KV_F32, true);
		for (int halves = 0; halves < 2; halves++) {
			run(s, 2, false, 0, EXPANDED_ROWS, want);
			for (size_t w = 0; w < sizeof(ways) / sizeof(*ways); w++) {
				size_t at = (size_t)ways[w].first * HEADS * V;
				run(s, ways[w].threads, false, ways[w].first, ways[w].piece, got);
				assert_memory_equal(got + at, want + at,
						    (CTX * HEADS * V - at) * sizeof(float));
			}
			if (!halves)
				split(s);
		}
		tear_down(s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(is_what_is_defined),
		cmocka_unit_test(depends_on_nothing_else),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
