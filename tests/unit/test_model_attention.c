/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention in its absorbed form against the definition, in double precision, with keys and values
 * decompressed, the indexer's scores sorted, and no cache: DSA with a shared layer included.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "engine/forward.h"
#include "tests/unit/tiny_model.h"

#define ROWS 30
#define H    TINY_HIDDEN
#define MAXW 256

struct setting {
	struct tiny tiny;
	struct modelfile *file;
	struct dense dense;
	struct weights weights;
	struct compute compute;
	struct forward f;
};

static void set_up(struct setting *s, struct wfmt fmt, enum kv_type kv)
{
	char why[1024] = "";

	memset(s, 0, sizeof(*s));
	tiny_make(&s->tiny, fmt, 11);
	if (modelfile_load(s->tiny.dir, &s->file, why) ||
	    dense_open(&s->dense, s->file, SERVE_PLAIN, false, NULL, why) ||
	    weights_bind(&s->weights, &s->dense, false, why))
		fail_msg("%s", why);
	assert_int_equal(compute_init(&s->compute, 2, weights_max_cols(&s->file->config), why), 0);
	s->compute.float_activations = true; /* as the model of this test has them */
	s->f.config = &s->file->config;
	s->f.weights = &s->weights;
	s->f.compute = &s->compute;
	assert_int_equal(forward_init(&s->f, TINY_LAYERS, TINY_CTX, 32, kv, why), 0);
}

static void tear_down(struct setting *s)
{
	forward_free(&s->f);
	compute_free(&s->compute);
	weights_free(&s->weights);
	dense_close(&s->dense);
	modelfile_free(s->file);
	tiny_remove(&s->tiny);
}

static void times(const struct wmat *w, const double *x, double *y)
{
	for (int r = 0; r < w->rows; r++) {
		float row[MAXW];
		dequant_row(w, r, row);
		y[r] = 0;
		for (int i = 0; i < w->cols; i++)
			y[r] += (double)row[i] * x[i];
	}
}

static void rms(double *x, const float *w, int n)
{
	double sum = 0;

	for (int i = 0; i < n; i++)
		sum += x[i] * x[i];
	for (int i = 0; i < n; i++)
		x[i] *= (double)w[i] / sqrt(sum / n + 1e-5);
}

static void turn(double *x, int d, int position)
{
	for (int i = 0; i < d / 2; i++) {
		double a = position * pow(10000, -2.0 * i / d), u = x[2 * i], v = x[2 * i + 1];
		x[2 * i] = u * cos(a) - v * sin(a);
		x[2 * i + 1] = u * sin(a) + v * cos(a);
	}
}

/* The set of query t by the definition: sorts nothing, counts for each key how many are better. */
static void choose(const double *score, int n, int k, char *in)
{
	for (int s = 0; s < n; s++) {
		int better = 0;
		for (int o = 0; o < n; o++)
			better += score[o] > score[s] || (score[o] == score[s] && o < s);
		in[s] = better < k;
	}
}

struct naive {
	double q[ROWS][MAXW], k_nope[ROWS][3][12], k_rope[ROWS][8], v[ROWS][3][10];
	double index_q[ROWS][80], index_k[ROWS][16], index_w[ROWS][5];
	char in[ROWS][ROWS];
};

static void naive_project(struct naive *n, const struct layer_weights *l, const float *h, int t)
{
	const struct attention_weights *a = &l->attention;
	double x[H], qr[24], kv[24], both[66];

	for (int i = 0; i < H; i++)
		x[i] = h[i];
	rms(x, l->attention_norm, H);
	times(&a->q_a, x, qr);
	rms(qr, a->q_norm, 24);
	times(&a->q_b, qr, n->q[t]);
	times(&a->kv_a, x, kv);
	rms(kv, a->kv_norm, 16);
	turn(kv + 16, 8, t);
	memcpy(n->k_rope[t], kv + 16, sizeof(n->k_rope[t]));
	times(&a->kv_b, kv, both);
	for (int i = 0; i < 3; i++) {
		turn(n->q[t] + 20 * i + 12, 8, t);
		memcpy(n->k_nope[t][i], both + 22 * i, sizeof(n->k_nope[t][i]));
		memcpy(n->v[t][i], both + 22 * i + 12, sizeof(n->v[t][i]));
	}
	if (!a->index_norm_w)
		return;
	times(&a->index_q, qr, n->index_q[t]);
	times(&a->index_w, x, n->index_w[t]);
	times(&a->index_k, x, n->index_k[t]);
	double mean = 0, var = 0;
	for (int i = 0; i < 16; i++)
		mean += n->index_k[t][i] / 16;
	for (int i = 0; i < 16; i++)
		var += (n->index_k[t][i] - mean) * (n->index_k[t][i] - mean) / 16;
	for (int i = 0; i < 16; i++)
		n->index_k[t][i] =
			(n->index_k[t][i] - mean) / sqrt(var + 1e-6) * (double)a->index_norm_w[i] +
			(double)a->index_norm_b[i];
	turn(n->index_k[t], 8, t);
	for (int i = 0; i < 5; i++)
		turn(n->index_q[t] + 16 * i, 8, t);
}

static void naive_index(struct naive *n, int t)
{
	double score[ROWS] = { 0 };

	for (int s = 0; s <= t; s++)
		for (int i = 0; i < 5; i++) {
			double d = 0;
			for (int j = 0; j < 16; j++)
				d += n->index_q[t][16 * i + j] * n->index_k[s][j];
			score[s] += d > 0 ? d * n->index_w[t][i] : 0;
		}
	choose(score, t + 1, 7, n->in[t]);
}

static void naive_attend(const struct naive *n, const struct layer_weights *l, int t, float *h)
{
	double heads[30] = { 0 }, out[H] = { 0 };

	for (int i = 0; i < 3; i++) {
		double p[ROWS] = { 0 }, sum = 0;
		for (int s = 0; s <= t; s++) {
			double d = 0;
			for (int j = 0; j < 12; j++)
				d += n->q[t][20 * i + j] * n->k_nope[s][i][j];
			for (int j = 0; j < 8; j++)
				d += n->q[t][20 * i + 12 + j] * n->k_rope[s][j];
			p[s] = n->in[t][s] ? exp(d / sqrt(20)) : 0;
			sum += p[s];
		}
		for (int s = 0; s <= t; s++)
			for (int j = 0; j < 10; j++)
				heads[10 * i + j] += p[s] / sum * n->v[s][i][j];
	}
	times(&l->attention.out, heads, out);
	for (int i = 0; i < H; i++)
		h[i] += (float)out[i];
}

static double relative_difference(const float *a, const float *b, size_t n)
{
	double d = 0, size = 0;

	for (size_t i = 0; i < n; i++) {
		d += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
		size += (double)b[i] * (double)b[i];
	}
	return sqrt(d / size);
}

static double compare(struct wfmt fmt, enum kv_type kv)
{
	static struct naive n;
	static float h[ROWS * H], want[ROWS * H], delta[ROWS * H];
	struct setting s;
	double worst = 0;

	set_up(&s, fmt, kv);
	for (int i = 0; i < ROWS * H; i++)
		h[i] = tiny_random(&s.tiny);
	/* As in a long sequence, where ties take the lower index: that is the naive one's rule. */
	forward_expect(&s.f, 0, INDEX_REFERENCE_LENGTH + 1);
	/* Layer 0 is full, layer 1 shares its sets. The same input to both, as the naive one has.
	 */
	for (int layer = 0; layer < 2; layer++) {
		const struct layer_weights *l = &s.weights.layer[layer];
		static float got[ROWS * H];
		memcpy(want, h, sizeof(want));
		memcpy(got, h, sizeof(got));
		for (int t = 0; t < ROWS; t++)
			naive_project(&n, l, h + t * H, t);
		for (int t = 0; t < ROWS; t++) {
			if (layer == 0)
				naive_index(&n, t);
			naive_attend(&n, l, t, want + t * H);
		}
		for (int t = 0; t < ROWS; t += 11) { /* in pieces: 11, 11, 8 */
			const struct attention_task task = { .layer = layer,
							     .position = t,
							     .m = ROWS - t < 11 ? ROWS - t : 11,
							     .first = t,
							     .angles = s.f.angles };
			forward_positions(&s.f, t, task.m);
			attention(&s.compute, &s.file->config, l, &s.f.kv, &task, &s.f.sets,
				  &s.f.attention, got + t * H);
		}
		for (int i = 0; i < ROWS * H; i++) { /* without the residual, which hides much */
			delta[i] = got[i] - h[i];
			want[i] -= h[i];
		}
		double d = relative_difference(delta, want, ROWS * H);
		worst = d > worst ? d : worst;
	}
	tear_down(&s);
	return worst;
}

static void absorbed_equals_decompressed(void **state)
{
	const struct wfmt formats[] = { { W_F32, 0 }, { W_BF16, 0 }, { W_Q8, 32 }, { W_Q4, 64 } };

	(void)state;
	for (int i = 0; i < 4; i++) {
		double d = compare(formats[i], KV_F32);
		print_message("%s: relative difference %.1e\n", wtype_name(formats[i].type), d);
		assert_true(d < 1e-5);
	}
}

/* Eight bits of mantissa in the cache: close, but not equal. */
static void bfloat16_cache_is_close(void **state)
{
	double d = compare((struct wfmt){ W_F32, 0 }, KV_BF16);

	(void)state;
	print_message("bfloat16 cache: relative difference %.1e\n", d);
	assert_true(d > 1e-5 && d < 2e-2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(absorbed_equals_decompressed),
		cmocka_unit_test(bfloat16_cache_is_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
