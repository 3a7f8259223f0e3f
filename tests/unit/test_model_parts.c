/* SPDX-License-Identifier: Apache-2.0
 *
 * The small parts of the forward pass: selection of keys, router, norms, rotation, softmax, against
 * their definitions written out in the plainest way.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "engine/indexer.h"
#include "engine/norm.h"
#include "engine/rope.h"
#include "engine/router.h"

static uint64_t seed = 5;

static uint32_t random_bits(void)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 32);
}

static float random_float(void)
{
	return (float)(int32_t)random_bits() * 0x1p-31f;
}

#define E 24

/* The router by the definition, in double: the best by counting; groups likewise. */
static void naive_router(const struct model_config *c, const float *logits, const float *bias,
			 double *weight)
{
	double s[E] = { 0 }, choose[E] = { 0 }, group[E] = { 0 }, sum = 0;
	int per = c->experts / c->groups;

	for (int e = 0; e < c->experts; e++) {
		s[e] = 1 / (1 + exp(-(double)logits[e]));
		choose[e] = s[e] + (double)bias[e];
		weight[e] = 0;
	}
	for (int g = 0; g < c->groups; g++) {
		double first = -INFINITY, second = -INFINITY;
		for (int e = g * per; e < (g + 1) * per; e++) {
			second = fmax(second, fmin(first, choose[e]));
			first = fmax(first, choose[e]);
		}
		group[g] = first + second;
	}
	for (int g = 0; g < c->groups; g++) {
		int better = 0;
		for (int o = 0; o < c->groups; o++)
			better += group[o] > group[g] || (group[o] == group[g] && o < g);
		for (int e = g * per;
		     c->groups > 1 && better >= c->groups_kept && e < (g + 1) * per; e++)
			choose[e] = -INFINITY;
	}
	for (int e = 0; e < c->experts; e++) {
		int better = 0;
		for (int o = 0; o < c->experts; o++)
			better += choose[o] > choose[e] || (choose[o] == choose[e] && o < e);
		weight[e] = better < c->topk ? s[e] : 0;
		sum += weight[e];
	}
	for (int e = 0; e < c->experts; e++)
		weight[e] *= (double)c->routed_scale / (c->norm_topk ? sum : 1);
}

static void router_is_that_of_the_definition(void **state)
{
	const int groups[][2] = { { 1, 1 }, { 4, 2 }, { 6, 3 }, { 12, 5 }, { 3, 1 } };
	float logits[E], bias[E], score[E];
	struct choice out[E];
	double want[E];

	(void)state;
	for (int round = 0; round < 5000; round++) {
		struct model_config c = { .experts = E,
					  .groups = groups[round % 5][0],
					  .groups_kept = groups[round % 5][1],
					  .norm_topk = round % 2,
					  .routed_scale = 2.5f };
		c.topk = 1 + (int)(random_bits() % (uint32_t)(E / c.groups * c.groups_kept));
		for (int e = 0; e < E; e++) {
			/* Halves of the rounds with ties of logits and bias together. */
			logits[e] = round % 4 < 2 ? 3 * random_float() : (float)(random_bits() % 3);
			bias[e] = round % 4 < 2 ? random_float() : 0;
		}
		naive_router(&c, logits, bias, want);
		router_choose(&c, logits, bias, score, out);
		for (int i = 0; i < c.topk; i++) {
			assert_true(i == 0 || out[i].expert > out[i - 1].expert);
			assert_true(want[out[i].expert] > 0);
			assert_true(fabs((double)out[i].weight - want[out[i].expert]) < 1e-5);
		}
	}
}

/* Broken logits must still give valid, different experts: the sum of it all is refused later. */
static void router_survives_what_is_no_number(void **state)
{
	struct model_config c = { .experts = E,
				  .topk = 5,
				  .groups = 4,
				  .groups_kept = 2,
				  .norm_topk = true,
				  .routed_scale = 1 };
	float logits[E], bias[E], score[E];
	struct choice out[E];

	(void)state;
	for (int round = 0; round < 200; round++) {
		for (int e = 0; e < E; e++) {
			logits[e] = random_bits() % 3 ? NAN : random_float();
			bias[e] = random_bits() % 3 ? -INFINITY : random_float();
		}
		router_choose(&c, logits, bias, score, out);
		for (int i = 0; i < 5; i++) {
			assert_true(out[i].expert >= 0 && out[i].expert < E);
			assert_true(i == 0 || out[i].expert > out[i - 1].expert);
		}
	}
}

static void norms(void **state)
{
	float x[100], w[100], b[100], y[100];

	(void)state;
	for (int n = 1; n <= 100; n++) {
		double sum = 0, mean = 0, var = 0;
		for (int i = 0; i < n; i++) {
			x[i] = random_float();
			w[i] = random_float();
			b[i] = random_float();
			sum += (double)x[i] * (double)x[i];
			mean += (double)x[i] / n;
		}
		for (int i = 0; i < n; i++)
			var += ((double)x[i] - mean) * ((double)x[i] - mean) / n;
		rms_norm(y, x, w, n, 1e-5f);
		for (int i = 0; i < n; i++)
			assert_true(fabs((double)y[i] - (double)w[i] * (double)x[i] /
								sqrt(sum / n + 1e-5)) < 1e-5);
		layer_norm(y, x, w, b, n, 1e-3f);
		for (int i = 0; i < n; i++)
			assert_true(fabs((double)y[i] -
					 ((double)w[i] * ((double)x[i] - mean) / sqrt(var + 1e-3) +
					  (double)b[i])) < 1e-5);
	}
}

static void rotation_of_both_kinds(void **state)
{
	const int positions[] = { 0, 1, 1000, 1048575 };
	const struct rope_scaling plain = { .kind = ROPE_PLAIN };

	(void)state;
	for (int p = 0; p < 4; p++)
		for (int interleave = 0; interleave < 2; interleave++) {
			float x[16], y[16], cs[16];
			for (int i = 0; i < 16; i++)
				y[i] = x[i] = random_float();
			rope_angles(cs, 16, 8e6, &plain, positions[p]);
			rope_turn(y, cs, 16, interleave);
			for (int i = 0; i < 8; i++) {
				int a = interleave ? 2 * i : i, b = interleave ? 2 * i + 1 : i + 8;
				double angle = positions[p] * pow(8e6, -i / 8.0);
				assert_true(fabs((double)y[a] - ((double)x[a] * cos(angle) -
								 (double)x[b] * sin(angle))) <
					    1e-6);
				assert_true(fabs((double)y[b] - ((double)x[a] * sin(angle) +
								 (double)x[b] * cos(angle))) <
					    1e-6);
			}
		}
}

static void softmax_and_swiglu(void **state)
{
	float x[50], gate[50], up[50];

	(void)state;
	for (int n = 1; n <= 50; n++) {
		double sum = 0, total = 0, want[50];
		for (int i = 0; i < n; i++) {
			x[i] = 100 + 20 * random_float(); /* exp of these overflows */
			want[i] = exp((double)x[i] - 100);
			sum += want[i];
			gate[i] = 200 * random_float();
			up[i] = random_float();
		}
		kernel()->softmax(x, n);
		for (int i = 0; i < n; i++) {
			assert_true(fabs((double)x[i] - want[i] / sum) < 1e-6);
			total += (double)x[i];
			double g = (double)gate[i];
			want[i] = g / (1 + exp(-g)) * (double)up[i];
		}
		assert_true(fabs(total - 1) < 1e-5);
		kernel()->swiglu(gate, up, n);
		for (int i = 0; i < n; i++)
			assert_true(fabs((double)gate[i] - want[i]) <= 1e-5 * (1 + fabs(want[i])));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(router_is_that_of_the_definition),
		cmocka_unit_test(router_survives_what_is_no_number),
		cmocka_unit_test(norms),
		cmocka_unit_test(rotation_of_both_kinds),
		cmocka_unit_test(softmax_and_swiglu),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
