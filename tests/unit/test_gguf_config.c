/* SPDX-License-Identifier: Apache-2.0
 *
 * GGUF metadata as a Hugging Face configuration: what keys leave out, what is refused, names, and
 * end tokens.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expertfs/fail.h" /* before cmocka.h, which has a macro of that name */
#include <cmocka.h>

#include "expertfs/gguf_model.h"
#include "tests/unit/made_gguf.h"

static char path[400];
static char why[WHY_MAX];
static struct made_gguf m;
static uint64_t keys, tensors;
static const char *arch;

static const char *full(const char *key)
{
	static char name[128];

	snprintf(name, sizeof(name), "%s.%s", arch, key);
	return name;
}

static void number(const char *key, uint32_t v)
{
	gg_key_u32(&m, full(key), v);
	keys++;
}

static void real(const char *key, float v)
{
	gg_key_f32(&m, full(key), v);
	keys++;
}

static void word(const char *key, const char *v)
{
	gg_key_text(&m, full(key), v);
	keys++;
}

/* The keys that every model has; more may follow, then model(). */
static void begin_blocks(const char *name, uint32_t experts, uint32_t blocks)
{
	arch = name;
	tensors = 0;
	gg_begin(&m, 0, 0);
	gg_key_text(&m, "general.architecture", name);
	keys = 1;
	number("block_count", blocks);
	number("context_length", 512);
	number("embedding_length", 64);
	number("attention.head_count", 4);
	number("expert_count", experts);
	number("expert_used_count", 2);
	real("attention.layer_norm_rms_epsilon", 1e-6F);
}

static void begin(const char *name, uint32_t experts)
{
	begin_blocks(name, experts, 1);
}

static void tensor(const char *name, uint64_t a, uint64_t b, uint64_t c)
{
	gg_tensor(&m, name, 0, a, b, c);
	tensors++;
}

/* The tensors that every model has; more may follow, then config() or refuse(). */
static void model(void)
{
	tensor("token_embd.weight", 64, 100, 0);
	tensor("blk.0.ffn_gate_exps.weight", 64, 32, 2);
	tensor("blk.0.ffn_up_exps.weight", 64, 32, 2);
	tensor("blk.0.ffn_down_exps.weight", 32, 64, 2);
}

static struct gguf *opened(void)
{
	struct gguf *g = NULL;

	memcpy(m.bytes + 8, &tensors, sizeof(tensors));
	memcpy(m.bytes + 16, &keys, sizeof(keys));
	assert_int_equal(gg_write(&m, path), 0);
	if (gguf_open(path, &g, why) != 0)
		fail_msg("%s", why);
	return g;
}

static json_t *config(void)
{
	struct gguf *g = opened();
	json_t *c = gguf_config(g, why);

	gguf_close(g);
	if (!c)
		fail_msg("%s", why);
	return c;
}

static void refuse(const char *sentence)
{
	struct gguf *g = opened();
	json_t *c = gguf_config(g, why);

	gguf_close(g);
	assert_null(c);
	if (!strstr(why, sentence))
		fail_msg("\"%s\" does not hold \"%s\"", why, sentence);
}

/* Config `c`, which is let go of, holds all that `want` does. */
static void expect(json_t *c, const char *want)
{
	json_t *w = json_loads(want, 0, NULL), *v;
	const char *key;

	assert_non_null(w);
	json_object_foreach(w, key, v)
	{
		if (!json_equal(v, json_object_get(c, key)))
			fail_msg("\"%s\" is %s", key,
				 json_dumps(json_object_get(c, key), JSON_ENCODE_ANY));
	}
	json_decref(w);
	json_decref(c);
}

static void latent(const char *name, uint32_t experts)
{
	begin(name, experts);
	number("attention.kv_lora_rank", 32);
	number("attention.key_length", 40);
	number("attention.value_length", 24);
	number("rope.dimension_count", 8);
}

static void deepseek(void **state)
{
	(void)state;
	latent("deepseek2", 256);
	model();
	tensor("blk.0.exp_probs_b.bias", 256, 0, 0);
	expect(config(), "{\"model_type\": \"deepseek_v3\", \"n_group\": 8, \"topk_group\": 4, "
			 "\"norm_topk_prob\": false, \"routed_scaling_factor\": 1.0, "
			 "\"q_lora_rank\": null, \"qk_nope_head_dim\": 32, \"v_head_dim\": 24, "
			 "\"n_shared_experts\": 0, \"first_k_dense_replace\": 0}");
	latent("deepseek2", 160);
	number("expert_gating_func", 1);
	model();
	expect(config(), "{\"model_type\": \"deepseek_v2\", \"n_group\": 8, \"topk_group\": 3, "
			 "\"topk_method\": \"group_limited_greedy\"}");
	latent("deepseek2", 64);
	number("expert_group_count", 1);
	number("expert_group_used_count", 1);
	model();
	expect(config(), "{\"model_type\": \"deepseek_v2\", \"n_group\": 1, \"topk_group\": 1}");
	latent("deepseek32", 256);
	model();
	expect(config(), "{\"n_group\": 1, \"topk_group\": 1}");
	latent("deepseek2", 256);
	number("expert_gating_func", 1);
	model();
	tensor("blk.0.exp_probs_b.bias", 256, 0, 0);
	refuse("expert_gating_func 1 with exp_probs_b is not supported");
	begin("deepseek2", 64);
	number("attention.value_length", 24);
	model();
	refuse("deepseek2.attention.key_length is missing");
	begin("deepseek2", 64);
	number("attention.key_length_mla", 40);
	model();
	refuse("deepseek2.attention.value_length is missing");
	latent("deepseek2", 64);
	real("attention.temperature_scale", 0.1F);
	model();
	refuse("deepseek2.attention.temperature_scale 0.1 is not supported");
}

static void mixtral(void **state)
{
	(void)state;
	begin("llama", 2);
	model();
	expect(config(), "{\"model_type\": \"mixtral\", \"rope_interleave\": true, "
			 "\"rope_scaling\": {\"type\": \"default\"}, \"norm_topk_prob\": true, "
			 "\"head_dim\": 16, "
			 "\"num_key_value_heads\": 4, \"intermediate_size\": 32, "
			 "\"tie_word_embeddings\": true, \"rope_theta\": 10000.0}");
	begin("llama", 2);
	model();
	tensor("blk.0.attn_q.bias", 64, 0, 0);
	refuse("blk.0.attn_q.bias is not supported for llama");
	begin("llama", 2);
	model();
	tensor("rope_freqs.weight", 8, 0, 0);
	refuse("rope_freqs.weight is not supported for llama");
	begin("llama", 2);
	word("rope.scaling.type", "longrope");
	model();
	refuse("rope.scaling.type \"longrope\" is not supported");
}

static void gpt_oss(void **state)
{
	(void)state;
	for (int key = 0; key < 2; key++) {
		begin("gpt-oss", 2);
		word("rope.scaling.type", "yarn");
		real("rope.scaling.factor", 32);
		number("rope.scaling.original_context_length", 256);
		number("attention.sliding_window", 128);
		if (key) {
			gg_key_bool(&m, full("rope.scaling.yarn_truncate"), 1);
			keys++;
		}
		model();
		expect(config(),
		       key ? "{\"sliding_window\": 128, \"rope_scaling\": {\"type\": \"yarn\", "
			     "\"factor\": 32.0, \"truncate\": true, "
			     "\"original_max_position_embeddings\": 256}}"
			   : "{\"attention_bias\": false, \"rope_scaling\": {\"type\": \"yarn\", "
			     "\"factor\": 32.0, \"truncate\": false, "
			     "\"original_max_position_embeddings\": 256}}");
	}
	begin("gpt-oss", 2);
	word("rope.scaling.type", "yarn");
	real("rope.scaling.factor", 32);
	real("rope.scaling.yarn_attn_factor", 2);
	model();
	refuse("gpt-oss.rope.scaling.yarn_attn_factor 2 is not supported");
	begin("gpt-oss", 2);
	real("rope.scaling.attn_factor", 2); /* heeded without a scaling as well */
	model();
	refuse("gpt-oss.rope.scaling.attn_factor 2 is not supported");
	begin("gpt-oss", 2);
	real("rope.freq_base", 150000);
	real("rope.freq_base_swa", 10000);
	model();
	refuse("gpt-oss.rope.freq_base_swa 10000 is not supported, only 150000");
	begin("gpt-oss", 2);
	number("attention.sliding_window_pattern", 3);
	model();
	refuse("sliding_window_pattern 3 is not supported");
}

static void others_refused(void **state)
{
	(void)state;
	begin_blocks("qwen3moe", 2, 0x7fffffff);
	model();
	refuse("block_count");
	begin("qwen3moe", 2);
	number("expert_gating_func", 2);
	model();
	refuse("expert_gating_func 2 is not supported, only 1");
	begin("qwen3moe", 2);
	number("attention.key_length", 32);
	number("attention.value_length", 16);
	model();
	refuse("with values of 16 are not supported");
	begin("qwen2moe", 2);
	model();
	refuse("ffn_gate_shexp.weight is missing");
	begin("llama", 2);
	gg_key_u32(&m, "prism.hadamard.version", 1);
	keys++;
	model();
	refuse("prism.hadamard.version: weights that are folded with a Hadamard transform");
}

/* As the engine computes it: a part of a head, cut to a whole number. */
static void parts_of_heads(void **state)
{
	(void)state;
	for (uint32_t rope = 2; rope <= 96; rope += 2) {
		begin("glm4moe", 2);
		number("attention.key_length", 96);
		number("attention.value_length", 96);
		number("rope.dimension_count", rope);
		model();
		json_t *c = config();
		double part = json_real_value(json_object_get(c, "partial_rotary_factor"));
		json_decref(c);
		assert_int_equal((int)(96 * part), rope);
	}
}

/* A number for each layer, which must be one that a number for all may be. */
static void lists(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		begin("llama", 2);
		gg_key_array(&m, full("attention.head_count_kv"), GGUF_I32, 2);
		gg_u32(&m, i ? 2 : (uint32_t)-1);
		gg_u32(&m, i ? 2 : (uint32_t)-1);
		keys++;
		model();
		if (i)
			expect(config(), "{\"num_key_value_heads\": 2}");
		else
			refuse("llama.attention.head_count_kv is -1, which no model has");
	}
}

static void names(void **state)
{
	static const struct {
		const char *arch, *gguf, *hf;
	} want[] = {
		{ "llama", "blk.7.ffn_gate_inp.weight",
		  "model.layers.7.block_sparse_moe.gate.weight" },
		{ "qwen2moe", "blk.0.ffn_gate_inp_shexp.weight",
		  "model.layers.0.mlp.shared_expert_gate.weight" },
		{ "qwen2moe", "blk.0.attn_k.bias", "model.layers.0.self_attn.k_proj.bias" },
		{ "gpt-oss", "blk.1.ffn_gate_inp.bias", "model.layers.1.mlp.router.bias" },
		{ "gpt-oss", "blk.1.ffn_up_exps.bias", "model.layers.1.mlp.experts.up_proj_bias" },
		{ "gpt-oss", "blk.1.attn_sinks.weight", "model.layers.1.self_attn.sinks" },
		{ "glm4moe", "blk.1.exp_probs_b.bias",
		  "model.layers.1.mlp.gate.e_score_correction_bias" },
		{ "glm4moe", "output.weight", "lm_head.weight" },
		{ "olmoe", "blk.1.ffn_gate_inp.bias", NULL },
		{ "olmoe", "blk.1.attn_norm.bias", NULL },
		{ "olmoe", "blk.x.attn_norm.weight", NULL },
		{ "olmoe", "blk.-1.attn_norm.weight", NULL },
		{ "olmoe", "blk.01.attn_norm.weight", NULL },
		{ "olmoe", "blk.99999999999.attn_norm.weight", NULL },
		{ "unknown", "blk.1.ffn_gate_inp.weight", "model.layers.1.mlp.gate.weight" },
	};
	char buf[GGUF_HF_NAME];

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		const struct gguf g = { .arch = want[i].arch };
		assert_string_equal(gguf_hf_name(&g, want[i].gguf, buf),
				    want[i].hf ? want[i].hf : want[i].gguf);
	}
}

static void end_id(const char *key, uint32_t id)
{
	gg_key_u32(&m, key, id);
	keys++;
}

static void ends_are(const char *json)
{
	struct gguf *g = opened();
	json_t *got = gguf_eos(g, why), *want = json_loads(json, 0, NULL);

	assert_non_null(got);
	assert_true(json_equal(got, want));
	json_decref(got);
	json_decref(want);
	gguf_close(g);
}

/* Of text, turn and message; each once. */
static void ends(void **state)
{
	(void)state;
	begin("olmoe", 2);
	model();
	ends_are("[]");
	begin("olmoe", 2);
	end_id("tokenizer.ggml.eot_token_id", 9);
	model();
	ends_are("[9]");
	begin("olmoe", 2);
	end_id("tokenizer.ggml.eom_token_id", 5);
	end_id("tokenizer.ggml.eos_token_id", 7);
	end_id("tokenizer.ggml.eot_token_id", 9);
	model();
	ends_are("[7, 9, 5]");
	begin("olmoe", 2);
	end_id("tokenizer.ggml.eos_token_id", 7);
	end_id("tokenizer.ggml.eot_token_id", 7);
	model();
	ends_are("[7]");
}

static int make_file(void **state)
{
	(void)state;
	return gg_new_file("test_gguf_config", path, sizeof(path));
}

static int remove_file(void **state)
{
	(void)state;
	return unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(deepseek),       cmocka_unit_test(mixtral),
		cmocka_unit_test(gpt_oss),        cmocka_unit_test(others_refused),
		cmocka_unit_test(parts_of_heads), cmocka_unit_test(lists),
		cmocka_unit_test(names),          cmocka_unit_test(ends),
	};

	return cmocka_run_group_tests(tests, make_file, remove_file);
}
