/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's own functions on activations of the real GLM-5.2, layer 78 (tests/data/layer78):
 * router, SwiGLU, sum of experts, RMSNorm. The files hold no weights, so what depends on them is
 * solved for first (norm weights) or constructed (the router's bias), from some rows, and checked
 * on the others.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/kernel.h"
#include "engine/norm.h"
#include "engine/quant.h"
#include "engine/router.h"

#define ROWS    5
#define HIDDEN  6144
#define EXPERTS 256
#define TOPK    8

struct fixture {
	char *bytes;
	const char *payload;
	json_t *head;
};

static void fixture_open(struct fixture *f, const char *name)
{
	const char *data = getenv("TEST_DATA");
	char path[4096];
	uint64_t head;
	long size;

	snprintf(path, sizeof(path), "%s/layer78/%s", data ? data : "tests/data", name);
	FILE *file = fopen(path, "rb");
	if (!file)
		fail_msg("%s is missing", path);
	fseek(file, 0, SEEK_END);
	size = ftell(file);
	rewind(file);
	f->bytes = malloc((size_t)size);
	assert_int_equal(fread(f->bytes, 1, (size_t)size, file), size);
	fclose(file);
	memcpy(&head, f->bytes, 8);
	f->head = json_loadb(f->bytes + 8, head, 0, NULL);
	assert_non_null(f->head);
	f->payload = f->bytes + 8 + head;
}

static void fixture_close(struct fixture *f)
{
	json_decref(f->head);
	free(f->bytes);
}

/* A tensor of n elements as floats (integers are exact in them); to be freed. */
static float *tensor(const struct fixture *f, const char *name, size_t n)
{
	const json_t *t = json_object_get(f->head, name);
	const char *type = json_string_value(json_object_get(t, "dtype"));
	float *out = malloc(n * sizeof(*out));

	assert_non_null(type);
	json_int_t from = json_integer_value(json_array_get(json_object_get(t, "data_offsets"), 0));
	json_int_t to = json_integer_value(json_array_get(json_object_get(t, "data_offsets"), 1));
	size_t each = strcmp(type, "BF16") == 0 ? 2 : 4;
	assert_int_equal((size_t)(to - from), n * each);
	for (size_t i = 0; i < n; i++) {
		const char *at = f->payload + from + i * each;
		uint16_t half;
		int32_t whole;
		if (each == 2) {
			memcpy(&half, at, 2);
			out[i] = bf16_to_float(half);
		} else if (strcmp(type, "I32") == 0) {
			memcpy(&whole, at, 4);
			out[i] = (float)whole;
		} else {
			memcpy(&out[i], at, 4);
		}
	}
	return out;
}

static double relative_error(const float *a, const float *b, size_t n)
{
	double d = 0, size = 0;

	for (size_t i = 0; i < n; i++) {
		d += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
		size += (double)b[i] * (double)b[i];
	}
	return sqrt(d / size);
}

/* One group, as GLM-5.2 has; the stored weights are those before the factor 2.5. */
static const struct model_config config = { .experts = EXPERTS,
					    .topk = TOPK,
					    .groups = 1,
					    .groups_kept = 1,
					    .norm_topk = true,
					    .routed_scale = 1 };

static int is_in(const float *ids, int id)
{
	for (int i = 0; i < TOPK; i++)
		if ((int)ids[i] == id)
			return 1;
	return 0;
}

static int same_set(const struct choice *c, const float *ids)
{
	for (int i = 0; i < TOPK; i++)
		if (!is_in(ids, c[i].expert))
			return 0;
	return 1;
}

static void weights_of_the_chosen_are_exact(void **state)
{
	struct fixture f;
	struct choice c[TOPK];

	(void)state;
	fixture_open(&f, "glm52-mtp-layer78-vllm-tp1-dcfebf93.safetensors");
	float *logits = tensor(&f, "router_logits", ROWS * EXPERTS),
	      *ids = tensor(&f, "topk_ids", ROWS * TOPK),
	      *weights = tensor(&f, "topk_weights", ROWS * TOPK);
	for (int r = 0; r < ROWS; r++) {
		for (int i = 0; i < TOPK; i++)
			c[i].expert = (int32_t)ids[r * TOPK + i];
		router_weigh(&config, logits + r * EXPERTS, c);
		for (int i = 0; i < TOPK; i++)
			assert_true(fabsf(c[i].weight - weights[r * TOPK + i]) < 1e-6f);
	}
	free(weights);
	free(ids);
	free(logits);
	fixture_close(&f);
}

/* The real bias is not in the file. One that explains all five choices is found by correcting the
 * two experts that a wrong choice exchanges; zero does not explain them. The weights must not
 * change with it. */
static void choice_follows_logits_and_bias(void **state)
{
	struct fixture f;
	struct choice c[TOPK];
	float bias[EXPERTS] = { 0 }, score[EXPERTS];
	int wrong, rounds = 0;

	(void)state;
	fixture_open(&f, "glm52-mtp-layer78-vllm-tp1-dcfebf93.safetensors");
	float *logits = tensor(&f, "router_logits", ROWS * EXPERTS),
	      *ids = tensor(&f, "topk_ids", ROWS * TOPK),
	      *weights = tensor(&f, "topk_weights", ROWS * TOPK);
	do {
		wrong = 0;
		for (int r = 0; r < ROWS; r++) {
			const float *want = ids + r * TOPK;
			router_choose(&config, logits + r * EXPERTS, bias, score, c);
			wrong += !same_set(c, want);
			for (int i = 0; i < TOPK; i++) {
				int chosen = 0;
				for (int j = 0; j < TOPK; j++)
					chosen |= c[j].expert == (int)want[i];
				bias[(int)want[i]] += chosen ? 0 : 0.003f;
				bias[c[i].expert] -= is_in(want, c[i].expert) ? 0 : 0.003f;
			}
		}
		if (rounds == 0)
			assert_true(wrong >= 4); /* without bias another choice */
	} while (wrong && ++rounds < 1000);
	assert_int_equal(wrong, 0);
	for (int r = 0; r < ROWS; r++) {
		router_choose(&config, logits + r * EXPERTS, bias, score, c);
		for (int i = 0; i < TOPK; i++) {
			assert_true(i == 0 || c[i].expert > c[i - 1].expert);
			for (int j = 0; j < TOPK; j++)
				if ((int)ids[r * TOPK + j] == c[i].expert)
					assert_true(fabsf(c[i].weight - weights[r * TOPK + j]) <
						    1e-6f);
		}
	}
	free(weights);
	free(ids);
	free(logits);
	fixture_close(&f);
}

/* First half of the fused projection = gate. The file's values are rounded to bfloat16. */
static void swiglu_of_the_shared_expert(void **state)
{
	struct fixture f;

	(void)state;
	fixture_open(&f, "glm52-mtp-layer78-vllm-tp1-dcfebf93.safetensors");
	float *both = tensor(&f, "shared_gate_up", ROWS * 4096),
	      *want = tensor(&f, "shared_silu", ROWS * 2048);
	for (int r = 0; r < ROWS; r++) {
		float *gate = both + r * 4096;
		kernel()->swiglu(gate, gate + 2048, 2048);
		double e = relative_error(gate, want + r * 2048, 2048);
		assert_true(e < 0.006);
		/* The halves the other way round are far off. */
		assert_true(relative_error(gate + 2048, want + r * 2048, 2048) > 0.1);
	}
	free(want);
	free(both);
	fixture_close(&f);
}

/* routed_hidden is the weighted sum with the factor in it; the shared expert is added as it is. */
static void routed_and_shared_add_up(void **state)
{
	struct fixture f;

	(void)state;
	fixture_open(&f, "glm52-mtp-layer78-vllm-tp1-dcfebf93.safetensors");
	float *routed = tensor(&f, "routed_hidden", ROWS * HIDDEN),
	      *shared = tensor(&f, "shared_hidden", ROWS * HIDDEN),
	      *want = tensor(&f, "decoder_hidden", ROWS * HIDDEN);
	for (int r = 0; r < ROWS; r++) {
		float *sum = routed + r * HIDDEN;
		kernel()->axpy(sum, 1, shared + r * HIDDEN, HIDDEN);
		assert_true(relative_error(sum, want + r * HIDDEN, HIDDEN) < 0.002);
	}
	free(want);
	free(shared);
	free(routed);
	fixture_close(&f);
}

/* Solves for the norm's weight from all rows but one (least squares, in double), then the engine's
 * norm of the row left out must give what the file has. Returns the largest error. */
static double norm_error(const float *in, const float *out, int first, float eps)
{
	static float weight[HIDDEN], got[HIDDEN];
	double worst = 0;

	for (int left = first; left < ROWS; left++) {
		double scale[ROWS];
		for (int r = first; r < ROWS; r++) {
			double sum = 0;
			for (int i = 0; i < HIDDEN; i++)
				sum += (double)in[r * HIDDEN + i] * (double)in[r * HIDDEN + i];
			scale[r] = 1 / sqrt(sum / HIDDEN + (double)eps);
		}
		for (int i = 0; i < HIDDEN; i++) {
			double a = 0, b = 1e-30;
			for (int r = first; r < ROWS; r++) {
				double x = (double)in[r * HIDDEN + i] * scale[r];
				a += r == left ? 0 : x * (double)out[r * HIDDEN + i];
				b += r == left ? 0 : x * x;
			}
			weight[i] = (float)(a / b);
		}
		rms_norm(got, in + left * HIDDEN, weight, HIDDEN, eps);
		double e = relative_error(got, out + left * HIDDEN, HIDDEN);
		worst = e > worst ? e : worst;
	}
	return worst;
}

static double norm_of(const char *file, const char *in, const char *out, int first, float eps)
{
	struct fixture f;

	fixture_open(&f, file);
	float *x = tensor(&f, in, ROWS * HIDDEN), *y = tensor(&f, out, ROWS * HIDDEN);
	double e = norm_error(x, y, first, eps);
	free(y);
	free(x);
	fixture_close(&f);
	return e;
}

static void norms_with_the_epsilon_of_the_model(void **state)
{
	const char *layer = "glm52-mtp-layer78-vllm-tp1-dcfebf93.safetensors";
	const char *front = "glm52-mtp-front-vllm-dcfebf93.safetensors";

	(void)state;
	assert_true(norm_of(layer, "decoder_residual", "post_attention_norm", 0, 1e-5f) < 0.005);
	assert_true(norm_of(layer, "raw_hidden", "recycle_hidden", 0, 1e-5f) < 0.005);
	assert_true(norm_of(front, "previous_hidden_raw", "previous_hidden_norm", 0, 1e-5f) <
		    0.005);
	/* Embeddings are so small that the epsilon counts. The file's row 0 was zeroed by its
	 * maker. */
	assert_true(norm_of(front, "inputs_embeds_raw", "inputs_embeds_norm", 1, 1e-5f) < 0.005);
	assert_true(norm_of(front, "inputs_embeds_raw", "inputs_embeds_norm", 1, 1e-6f) > 0.02);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(weights_of_the_chosen_are_exact),
		cmocka_unit_test(choice_follows_logits_and_bias),
		cmocka_unit_test(swiglu_of_the_shared_expert),
		cmocka_unit_test(routed_and_shared_add_up),
		cmocka_unit_test(norms_with_the_epsilon_of_the_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
