/* SPDX-License-Identifier: Apache-2.0
 *
 * What families of models differ in, against its definition: configurations as they are published
 * and as they are when half of it is left out, stretched rotations, routers of softmax, grouped
 * attention with all that it may have.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "engine/attention_grouped.h"
#include "engine/norm.h"
#include "engine/router.h"

#define WHY 1024

static struct model_config read_config(const char *text)
{
	json_t *config = json_loads(text, 0, NULL);
	struct model_config c;
	char why[WHY] = "";

	assert_non_null(config);
	if (config_read(config, "config", &c, why))
		fail_msg("%s", why);
	json_decref(config);
	return c;
}

static void refused(const char *text, const char *words)
{
	json_t *config = json_loads(text, 0, NULL);
	struct model_config c;
	char why[WHY] = "";

	assert_non_null(config);
	assert_int_equal(config_read(config, "config", &c, why), -EINVAL);
	if (!strstr(why, words))
		fail_msg("\"%s\" does not say \"%s\"", why, words);
	json_decref(config);
}

/* What every configuration has. */
#define SIZES(type, hidden, layers, heads)                                                         \
	"\"model_type\": \"" type "\", \"vocab_size\": 1000, \"hidden_size\": " #hidden            \
	", \"num_hidden_layers\": " #layers ", \"num_attention_heads\": " #heads

static bool near(double a, double b)
{
	return fabs(a - b) < 1e-6 * fabs(b);
}

#define DEEPSEEK                                                                                   \
	"\"factor\": 40, \"original_max_position_embeddings\": 4096, \"beta_fast\": 32, "          \
	"\"beta_slow\": 1, \"rope_theta\": 10000"
#define V2_SCALING                                                                                 \
	"{\"type\": \"yarn\", \"mscale\": 0.707, \"mscale_all_dim\": 0.707, " DEEPSEEK "}"

/* The numbers of the three kinds of model that are stretched by YaRN. */
static void yarn_of_published_models(void **state)
{
	struct model_config c;

	(void)state;
	c = read_config("{" SIZES(
		"deepseek_v3", 7168, 61,
		128) ", \"n_routed_experts\": 256, "
		     "\"max_position_embeddings\": 163840, \"rope_scaling\": {\"type\": "
		     "\"yarn\", \"mscale\": 1.0, \"mscale_all_dim\": 1.0, " DEEPSEEK "}}");
	assert_true(c.rope_scaling.kind == ROPE_YARN && c.rope_scaling.factor == 40);
	assert_true(c.rope_scaling.low == 10 && c.rope_scaling.high == 23);
	assert_true(c.rope_scaling.amplitude == 1);
	assert_true(fabs((double)c.score_scale - 0.135234) < 1e-6);
	c = read_config("{" SIZES("deepseek_v2", 2048, 27,
				  16) ", \"n_routed_experts\": 64, "
				      "\"num_experts_per_tok\": 6, \"rope_scaling\": " V2_SCALING
				      "}");
	assert_true(fabs((double)c.score_scale - 0.114721) < 1e-6);
	/* As transformers 5 spells its own class. */
	c = read_config("{" SIZES("deepseek_v2", 2048, 27,
				  16) ", \"n_routed_experts\": 64, "
				      "\"num_experts_per_tok\": 6, \"rope_parameters\": " V2_SCALING
				      "}");
	assert_true(near((double)c.score_scale, 1 / sqrt(192)));
	/* Stretched or not, the scores count it. */
	c = read_config(
		"{" SIZES("deepseek_v3", 7168, 61,
			  128) ", \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 40, "
			       "\"mscale_all_dim\": 1.0}}");
	assert_true(c.rope_scaling.kind == ROPE_DYNAMIC && c.rope_scaling.amplitude == 0);
	assert_true(fabs((double)c.score_scale - 0.135234) < 1e-6);
	c = read_config("{" SIZES("gpt_oss", 2880, 24, 64) ", \"num_local_experts\": 32}");
	assert_true(fabs(c.rope_scaling.low - 8.093) < 1e-3 &&
		    fabs(c.rope_scaling.high - 17.398) < 1e-3);
	assert_true(fabs(c.rope_scaling.amplitude - 1.346574) < 1e-6);
	assert_true(c.score_scale == 0.125f && c.rope_theta == 150000);
	/* A null says nothing of it, neither way; an object does. */
	c = read_config("{" SIZES("gpt_oss", 2880, 24,
				  64) ", \"rope_scaling\": null, \"rope_parameters\": null}");
	assert_true(c.rope_scaling.kind == ROPE_YARN && c.rope_scaling.factor == 32);
	c = read_config(
		"{" SIZES("gpt_oss", 2880, 24, 64) ", \"rope_parameters\": {\"rope_theta\": 7}}");
	assert_true(c.rope_scaling.kind == ROPE_PLAIN && c.rope_theta == 7);
	c = read_config("{" SIZES("qwen3_moe", 64, 2,
				  4) ", \"rope_parameters\": {\"rope_theta\": 7}, "
				     "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 3}}");
	assert_true(c.rope_scaling.kind == ROPE_LINEAR && c.rope_theta == 10000);
	/* Neither does an empty one. */
	c = read_config(
		"{" SIZES("qwen3_moe", 64, 2, 4) ", \"rope_scaling\": {}, \"rope_parameters\": "
						 "{\"rope_type\": \"linear\", \"factor\": 3}}");
	assert_true(c.rope_scaling.kind == ROPE_LINEAR);
	c = read_config("{" SIZES("gpt_oss", 2880, 24, 64) ", \"rope_scaling\": {}}");
	assert_true(c.rope_scaling.kind == ROPE_YARN);
	/* What part of a head turns is said where the rest is. */
	c = read_config("{" SIZES("glm4_moe", 64, 2,
				  8) ", \"rope_parameters\": {\"partial_rotary_factor\": 1.0}, "
				     "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 3, "
				     "\"partial_rotary_factor\": 0.25}}");
	assert_int_equal(c.rope, 2);
	c = read_config("{" SIZES("glm4_moe", 64, 2,
				  8) ", \"rope_parameters\": {\"partial_rotary_factor\": 1.0}, "
				     "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 3}}");
	assert_int_equal(c.rope, 4);
	/* No truncation: low and high stay between two numbers. */
	c = read_config(
		"{" SIZES("qwen3_moe", 64, 2, 4) ", \"rope_parameters\": {\"rope_type\": \"yarn\", "
						 "\"factor\": 4, \"truncate\": null}}");
	assert_true(c.rope_scaling.low != floor(c.rope_scaling.low));
	/* attention_factor goes before; a factor may follow from the lengths. */
	c = read_config("{" SIZES(
		"qwen3_moe", 64, 2,
		4) ", \"num_experts\": 8, "
		   "\"max_position_embeddings\": 131072, \"rope_scaling\": {\"rope_type\": "
		   "\"yarn\", \"factor\": null, \"attention_factor\": 1.25, "
		   "\"original_max_position_embeddings\": 32768}}");
	assert_true(c.rope_scaling.factor == 4 && c.rope_scaling.amplitude == 1.25);
}

static void what_is_left_out(void **state)
{
	struct model_config c;

	(void)state;
	c = read_config("{" SIZES("qwen3_moe", 2048, 8,
				  32) ", \"num_experts\": 16, \"head_dim\": "
				      "128, \"mlp_only_layers\": [2], \"decoder_sparse_step\": 2}");
	assert_true(c.attention == ATTENTION_GROUPED && c.kv_heads == 4 && c.head_dim == 128);
	assert_true(c.topk == 8 && c.expert_width == 768 && c.dense_width == 6144);
	assert_true(!c.norm_topk && c.scoring == SCORE_SOFTMAX && !c.select_bias && !c.tied);
	assert_true(c.qk_norm == QK_NORM_HEAD && !c.qkv_bias && !c.out_bias && !c.window);
	assert_true(!c.sparse[0] && c.sparse[1] && !c.sparse[2] && c.sparse[3]);
	assert_true(c.norm_eps == 1e-6f && c.rope == 128 && !c.rope_interleave);
	c = read_config("{" SIZES("olmoe", 64, 2, 4) ", \"num_experts\": 16, \"clip_qkv\": 8}");
	assert_true(c.kv_heads == 4 && c.qk_norm == QK_NORM_WHOLE && c.clip_qkv == 8);
	assert_true(c.expert_width == 2048 && !c.dense_width && !c.norm_topk);
	c = read_config("{" SIZES("mixtral", 64, 2, 8) ", \"num_local_experts\": 8}");
	assert_true(c.kv_heads == 8 && c.head_dim == 8 && c.norm_topk && c.rope_theta == 1e6);
	c = read_config("{" SIZES("qwen2_moe", 64, 3, 16) ", \"num_experts\": 8}");
	assert_true(c.qkv_bias && !c.out_bias && c.shared_gate && c.shared_width == 5632);
	c = read_config("{" SIZES("glm4_moe", 64, 3, 16) ", \"n_routed_experts\": 8, "
							 "\"head_dim\": 16}");
	assert_true(c.rope == 8 && c.qk_norm == QK_NORM_NONE && c.select_bias && c.norm_topk);
	assert_true(!c.sparse[0] && c.sparse[1] && c.scoring == SCORE_SIGMOID);
	c = read_config(
		"{" SIZES("deepseek_v2", 64, 2,
			  4) ", \"n_routed_experts\": 8, "
			     "\"n_group\": 4, \"num_experts_per_tok\": 2, \"q_lora_rank\": null, "
			     "\"rms_norm_eps\": 1e-3}");
	assert_true(!c.q_lora && c.kv_lora == 512 && c.groups == 1 && c.shared_width == 2814);
	assert_true(c.lora_norm_eps == 1e-6f && c.norm_eps == 1e-3f && c.rope_interleave);
	assert_true(!c.index_heads && c.index_topk == c.max_positions && !c.full[0]);
	/* As the published code has it, and as transformers' own class. */
	c = read_config("{" SIZES("deepseek_v2", 64, 2,
				  4) ", \"num_experts_per_tok\": 2, \"norm_topk_prob\": true, "
				     "\"routed_scaling_factor\": 3}");
	assert_true(c.norm_topk && c.routed_scale == 1);
	c = read_config("{" SIZES("deepseek_v2", 64, 2,
				  4) ", \"num_experts_per_tok\": 2, \"norm_topk_prob\": true, "
				     "\"routed_scaling_factor\": 3, \"rope_parameters\": "
				     "{\"rope_type\": \"default\"}}");
	assert_true(!c.norm_topk && c.routed_scale == 3);
	c = read_config("{" SIZES("glm_moe_dsa", 6144, 78, 64) ", \"rope_theta\": 1e6}");
	assert_true(c.kv_lora == 512 && c.q_lora == 2048 && c.nope == 192 && c.rope == 64);
	assert_true(c.v_dim == 256 && c.dense_width == 12288 && c.expert_width == 2048);
	assert_true(c.experts == 256 && c.topk == 8 && c.index_topk == 2048);
	assert_true(c.index_dim == 128 && c.index_heads == 32 && c.max_positions == 202752);
	c = read_config("{" SIZES("deepseek_v32", 64, 4, 4) ", \"n_routed_experts\": 16, "
							    "\"num_experts\": 256}");
	assert_true(c.experts == 16 && c.index_topk == 2048 && !c.index_interleave && c.full[3]);
	assert_true(c.groups == 8 && c.groups_kept == 4 && !c.sparse[2] && c.sparse[3]);
	c = read_config("{" SIZES("gpt_oss", 64, 4, 8) ", \"num_local_experts\": 8}");
	assert_true(c.sinks && c.qkv_bias && c.out_bias && c.router_bias && c.expert_biases);
	assert_true(c.window == 128 && c.windowed[0] && !c.windowed[1] && c.windowed[2]);
	assert_true(c.act_limit == 7 && c.head_dim == 64);
}

static void windows(void **state)
{
	struct model_config c;

	(void)state;
	/* 4,096 is a mistake of Mixtral's first configurations; others are meant. */
	c = read_config("{" SIZES("mixtral", 64, 2, 8) ", \"num_local_experts\": 8, "
						       "\"sliding_window\": 4096}");
	assert_true(!c.window && !c.windowed[0]);
	c = read_config("{" SIZES("mixtral", 64, 2, 8) ", \"num_local_experts\": 8, "
						       "\"sliding_window\": 4095}");
	assert_true(c.window == 4095 && c.windowed[0] && c.windowed[1]);
	c = read_config("{" SIZES("qwen3_moe", 64, 2, 8) ", \"num_experts\": 8, "
							 "\"use_sliding_window\": true}");
	assert_true(c.window == 4096 && c.windowed[0] && c.windowed[1]);
	c = read_config("{" SIZES("qwen2_moe", 64, 5,
				  16) ", \"num_experts\": 8, "
				      "\"use_sliding_window\": true, \"max_window_layers\": 3}");
	assert_true(c.windowed[0] && !c.windowed[1] && c.windowed[2] && !c.windowed[4]);
	c = read_config(
		"{" SIZES("gpt_oss", 64, 2,
			  8) ", \"num_local_experts\": 8, "
			     "\"layer_types\": [\"full_attention\", \"sliding_attention\"]}");
	assert_true(!c.windowed[0] && c.windowed[1]);
	c = read_config("{" SIZES("gpt_oss", 64, 2, 8) ", \"num_local_experts\": 8, "
						       "\"sliding_window\": null}");
	assert_true(!c.window && !c.windowed[0]);
}

/* As many experts as a model of the family has where none is said. */
static void experts_of_families(void **state)
{
	static const struct {
		const char *type;
		int experts;
	} of[] = {
		{ "glm_moe_dsa", 256 }, { "deepseek_v3", 256 }, { "deepseek_v32", 256 },
		{ "deepseek_v2", 64 },  { "glm4_moe", 128 },    { "qwen3_moe", 128 },
		{ "qwen2_moe", 60 },    { "olmoe", 64 },        { "mixtral", 8 },
		{ "gpt_oss", 128 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		json_t *config = json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i}", "model_type",
					   of[i].type, "vocab_size", 300, "hidden_size", 64,
					   "num_hidden_layers", 2, "num_attention_heads", 16,
					   "num_experts_per_tok", 2, "rope_theta", 10000);
		struct model_config c;
		char why[WHY] = "";
		assert_non_null(config);
		if (config_read(config, "config", &c, why))
			fail_msg("%s", why);
		assert_int_equal(c.experts, of[i].experts);
		/* Any of the names goes before. */
		json_object_set_new(config, "num_local_experts", json_integer(16));
		assert_int_equal(config_read(config, "config", &c, why), 0);
		assert_int_equal(c.experts, 16);
		json_decref(config);
	}
}

static void impossible_configurations(void **state)
{
	(void)state;
	refused("{" SIZES("phimoe", 64, 2, 8) ", \"num_experts\": 8}", "type \"phimoe\"");
	refused("{" SIZES("mixtral", 64, 2, 8) ", \"num_local_experts\": 0}",
		"\"num_local_experts\" is 0");
	refused("{" SIZES("glm_moe_dsa", 6144, 78, 64) "}", "\"rope_theta\" is missing");
	refused("{" SIZES("mixtral", 64, 2, 8) ", \"num_local_experts\": 8, "
					       "\"num_key_value_heads\": 3}",
		"cannot share 3 heads");
	refused("{" SIZES("mixtral", 4, 2, 8) ", \"num_local_experts\": 8}", "of 0 numbers");
	refused("{" SIZES("mixtral", 64, 2, 8) ", \"num_local_experts\": 8, \"head_dim\": 9}",
		"9 numbers of a head of 9 turn");
	refused("{" SIZES("mixtral", 64, 2, 8) ", \"num_local_experts\": 8, "
					       "\"attention_bias\": true}",
		"\"attention_bias\" true");
	refused("{" SIZES("mixtral", 64, 2, 4096) ", \"num_local_experts\": 8, "
						  "\"head_dim\": 4096}",
		"not plausible");
	refused("{" SIZES("glm4_moe", 64, 2, 8) ", \"n_routed_experts\": 8, "
						"\"partial_rotary_factor\": 0.1}",
		"0 numbers of a head");
	refused("{" SIZES("deepseek_v3", 64, 2, 8) ", \"n_routed_experts\": 16, "
						   "\"topk_method\": \"greedy\"}",
		"topk_method \"greedy\"");
	refused("{" SIZES("deepseek_v2", 64, 2,
			  8) ", \"n_routed_experts\": 16, "
			     "\"num_experts_per_tok\": 2, \"topk_method\": \"noaux_tc\"}",
		"\"noaux_tc\"");
	refused("{" SIZES("deepseek_v2", 64, 2, 8) ", \"n_routed_experts\": 16}",
		"\"num_experts_per_tok\" is missing");
	refused("{" SIZES("qwen3_moe", 64, 2, 8) ", \"num_experts\": 16, "
						 "\"mlp_only_layers\": [true]}",
		"mlp_only_layers");
	refused("{" SIZES("gpt_oss", 64, 2,
			  8) ", \"num_local_experts\": 8, "
			     "\"layer_types\": [\"full_attention\", \"linear_attention\"]}",
		"neither");
	refused("{" SIZES("qwen2_moe", 64, 2,
			  16) ", \"sliding_window\": 4, "
			      "\"layer_types\": [\"full_attention\", \"sliding_attention\"]}",
		"switched off");
	refused("{" SIZES("mixtral", 64, 2, 8) ", \"sliding_window\": 0}", "0 or missing");
	refused("{" SIZES(
			"gpt_oss", 64, 2,
			8) ", \"num_local_experts\": 8, "
			   "\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"yarn\"}}}",
		"each type of layer");
	refused("{" SIZES("qwen3_moe", 64, 2, 8) ", \"num_experts\": 16, \"rope_scaling\": "
						 "{\"type\": \"linear\"}}",
		"\"factor\" is missing");
	refused("{" SIZES("qwen3_moe", 64, 2, 8) ", \"num_experts\": 16, \"rope_scaling\": "
						 "{\"type\": \"yarn\", \"factor\": 0}}",
		"\"factor\"");
	refused("{" SIZES("qwen3_moe", 64, 2, 8) ", \"num_experts\": 16, \"rope_scaling\": "
						 "{\"type\": \"yarn\", \"factor\": 4, "
						 "\"attention_factor\": 0}}",
		"\"attention_factor\"");
}

/* Turns within the whole length, pair by pair, against the three formulas. */
static void stretched_rotations(void **state)
{
	const struct rope_scaling s[] = {
		{ .kind = ROPE_LINEAR, .factor = 4 },
		{ .kind = ROPE_YARN, .factor = 8, .low = 2.5, .high = 6, .amplitude = 1.5 },
		{ .kind = ROPE_LLAMA3, .factor = 8, .low = 1, .high = 4, .length = 64 },
	};

	(void)state;
	for (int n = 0; n < 3; n++)
		for (int i = 0; i < 8; i++) {
			double f = pow(500, -i / 8.0), turns = 64 * f / (2 * M_PI), part;
			float cs[16];
			rope_angles(cs, 16, 500, &s[n], 77);
			part = i <= 2 ? 0 : i >= 6 ? 1 : (i - 2.5) / 3.5;
			if (n == 2)
				part = turns > 4 ? 0 : turns < 1 ? 1 : (4 - turns) / 3;
			if (n == 0)
				part = 1;
			f = f * (1 - part) + f / s[n].factor * part;
			double a = n == 1 ? 1.5 : 1;
			assert_true(fabs((double)cs[2 * i] - a * cos(77 * f)) < 1e-6);
			assert_true(fabs((double)cs[2 * i + 1] - a * sin(77 * f)) < 1e-6);
		}
}

static uint64_t seed = 7;

static float random_float(void)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (float)(int32_t)(seed >> 32) * 0x1p-31f;
}

#define E 24

/* Weights of the chosen; which they are is asserted by counting how many are better. */
static void check_router(const struct model_config *c, const float *logits)
{
	struct choice out[E];
	float score[E];
	double all = 0, chosen = 0;
	bool in[E] = { false };

	router_choose(c, logits, NULL, score, out);
	for (int e = 0; e < E; e++)
		all += exp((double)logits[e]);
	for (int i = 0; i < c->topk; i++) {
		chosen += exp((double)logits[out[i].expert]);
		in[out[i].expert] = true;
	}
	for (int i = 0; i < c->topk; i++) {
		double by = c->norm_topk || c->scoring == SCORE_SOFTMAX_CHOSEN ? chosen : all;
		double want = exp((double)logits[out[i].expert]) / by * (double)c->routed_scale;
		assert_true(fabs((double)out[i].weight - want) < 1e-6);
		assert_true(i == 0 || out[i - 1].expert < out[i].expert);
	}
	int per = E / c->groups;
	for (int e = 0; e < E; e++) {
		int better = 0, groups = 0;
		float mine = -1e9f;
		for (int o = e / per * per; o < (e / per + 1) * per; o++)
			mine = fmaxf(mine, logits[o]);
		bool open[E];
		for (int g = 0; g < c->groups; g++) {
			float best = -1e9f;
			int above = 0;
			for (int o = g * per; o < (g + 1) * per; o++)
				best = fmaxf(best, logits[o]);
			for (int o = 0; o < c->groups; o++) {
				float other = -1e9f;
				for (int k = o * per; k < (o + 1) * per; k++)
					other = fmaxf(other, logits[k]);
				above += other > best;
			}
			groups += best > mine;
			for (int o = g * per; o < (g + 1) * per; o++)
				open[o] = above < c->groups_kept;
		}
		for (int o = 0; o < E; o++)
			better += open[o] && logits[o] > logits[e];
		assert_true(in[e] == (groups < c->groups_kept && better < c->topk));
	}
}

static void routers_of_softmax(void **state)
{
	const int groups[][2] = { { 1, 1 }, { 4, 2 }, { 8, 3 }, { 24, 9 } };
	float logits[E];

	(void)state;
	for (int n = 0; n < 400; n++) {
		struct model_config c = { .experts = E,
					  .topk = 5,
					  .groups = groups[n % 4][0],
					  .groups_kept = groups[n % 4][1],
					  .group_score = GROUP_LARGEST,
					  .scoring = n & 4 ? SCORE_SOFTMAX : SCORE_SOFTMAX_CHOSEN,
					  .norm_topk = (n & 8) != 0,
					  .routed_scale = 1.5f };
		for (int e = 0; e < E; e++)
			logits[e] = 4 * random_float();
		check_router(&c, logits);
	}
}

static void clamped_activation(void **state)
{
	float gate[] = { 0, 3, 9, -20, 7, NAN }, up[] = { 1, -9, 9, 2, NAN, 1 };

	(void)state;
	kernel()->swiglu_clamped(gate, up, 6, 7);
	assert_true(gate[0] == 0);
	assert_true(near((double)gate[1], 3 / (1 + exp(-1.702 * 3)) * (-7 + 1)));
	assert_true(near((double)gate[2], 7 / (1 + exp(-1.702 * 7)) * (7 + 1)));
	assert_true(near((double)gate[3], -20 / (1 + exp(1.702 * 20)) * 3));
	assert_true(isnan(gate[4]) && isnan(gate[5])); /* a model that is broken must show it */
}

/* --- grouped attention against the definition, in double */

#define HIDDEN 40
#define DIM    12
#define ROWS   30
#define CTX    32

struct model {
	struct model_config c;
	struct layer_weights l;
	struct compute cp;
	struct kvcache kv;
	struct attention_work w;
	void *memory;
	float q[8 * DIM * HIDDEN], k[8 * DIM * HIDDEN], v[8 * DIM * HIDDEN], out[8 * DIM * HIDDEN],
		vectors[8][8 * DIM];
};

static void fill(float *x, int n, float scale, float add)
{
	for (int i = 0; i < n; i++)
		x[i] = add + scale * random_float();
}

static struct wmat as_matrix(const float *x, int rows, int cols)
{
	return (struct wmat){ { W_F32, 0 }, rows, cols, x, NULL };
}

static void make_weights(struct model *m)
{
	struct attention_weights *a = &m->l.attention;
	int q = m->c.heads * DIM, kv = m->c.kv_heads * DIM;
	const float **const vector[] = {
		&m->l.attention_norm, &a->q_norm, &a->k_norm,   &a->q_bias,
		&a->k_bias,           &a->v_bias, &a->out_bias, &a->sinks
	};

	fill(m->q, q * HIDDEN, 0.4f, 0);
	fill(m->k, kv * HIDDEN, 0.4f, 0);
	fill(m->v, kv * HIDDEN, 0.4f, 0);
	fill(m->out, q * HIDDEN, 0.3f, 0);
	for (int i = 0; i < 8; i++) {
		fill(m->vectors[i], 8 * DIM, 0.5f, i < 3 ? 1 : 0);
		*vector[i] = m->vectors[i];
	}
	if (m->c.qk_norm == QK_NORM_NONE)
		a->q_norm = a->k_norm = NULL;
	if (!m->c.qkv_bias)
		a->q_bias = a->k_bias = a->v_bias = NULL;
	if (!m->c.out_bias)
		a->out_bias = NULL;
	if (!m->c.sinks)
		a->sinks = NULL;
	a->q = as_matrix(m->q, q, HIDDEN);
	a->k = as_matrix(m->k, kv, HIDDEN);
	a->v = as_matrix(m->v, kv, HIDDEN);
	a->out = as_matrix(m->out, HIDDEN, q);
}

static void start(struct model *m, int threads, enum kv_type kv)
{
	struct arena a = { NULL, 0 };
	char why[WHY];

	attention_grouped_lay_out(&m->w, &m->c, CTX, ROWS, threads, &a);
	m->memory = aligned_alloc(64, a.used);
	a = (struct arena){ m->memory, 0 };
	attention_grouped_lay_out(&m->w, &m->c, CTX, ROWS, threads, &a);
	assert_int_equal(compute_init(&m->cp, threads, 8 * DIM, why), 0);
	assert_int_equal(kvcache_init(&m->kv, &m->c, 1, CTX, kv, why), 0);
}

static void finish(struct model *m)
{
	kvcache_free(&m->kv);
	compute_free(&m->cp);
	free(m->memory);
}

/* In pieces of this many rows. */
static void run(struct model *m, int piece, float *h)
{
	for (int t = 0; t < ROWS; t += piece) {
		float angles[ROWS * DIM];
		const struct attention_task task = { .position = t,
						     .m = ROWS - t < piece ? ROWS - t : piece,
						     .first = t,
						     .angles = angles };
		for (int i = 0; i < task.m; i++)
			rope_angles(angles + i * m->c.rope, m->c.rope, m->c.rope_theta,
				    &m->c.rope_scaling, t + i);
		attention_grouped(&m->cp, &m->c, &m->l, &m->kv, &task, &m->w, h + t * HIDDEN);
	}
}

static void normed(double *x, const float *w, int n, double eps)
{
	double sum = 0;

	for (int i = 0; i < n; i++)
		sum += x[i] * x[i];
	for (int i = 0; i < n; i++)
		x[i] *= (double)w[i] / sqrt(sum / n + eps);
}

static void project(const struct model *m, const float *w, int heads, const double *x,
		    const float *bias, const float *norm, int turn, double *y)
{
	double eps = (double)m->c.norm_eps, limit = (double)m->c.clip_qkv;
	int n = heads * DIM, half = m->c.rope / 2;

	for (int r = 0; r < n; r++) {
		y[r] = bias ? (double)bias[r] : 0;
		for (int i = 0; i < HIDDEN; i++)
			y[r] += (double)w[r * HIDDEN + i] * x[i];
	}
	if (norm && m->c.qk_norm == QK_NORM_WHOLE)
		normed(y, norm, n, eps);
	for (int i = 0; norm && m->c.qk_norm == QK_NORM_HEAD && i < n; i += DIM)
		normed(y + i, norm, DIM, eps);
	for (int i = 0; limit != 0 && i < n; i++)
		y[i] = fmin(fmax(y[i], -limit), limit);
	for (int i = 0; turn >= 0 && i < n; i += DIM)
		for (int p = 0; p < half; p++) {
			double f = turn * pow(m->c.rope_theta, -(double)p / half);
			double u = y[i + p], v = y[i + p + half];
			y[i + p] = u * cos(f) - v * sin(f);
			y[i + p + half] = u * sin(f) + v * cos(f);
		}
}

static void naive(const struct model *m, const float *h, double *out)
{
	static double q[ROWS][8 * DIM], k[ROWS][8 * DIM], v[ROWS][8 * DIM];
	const struct attention_weights *a = &m->l.attention;
	int group = m->c.heads / m->c.kv_heads;

	for (int t = 0; t < ROWS; t++) {
		double x[HIDDEN];
		for (int i = 0; i < HIDDEN; i++)
			x[i] = (double)h[t * HIDDEN + i];
		normed(x, m->l.attention_norm, HIDDEN, (double)m->c.norm_eps);
		project(m, m->q, m->c.heads, x, a->q_bias, a->q_norm, t, q[t]);
		project(m, m->k, m->c.kv_heads, x, a->k_bias, a->k_norm, t, k[t]);
		project(m, m->v, m->c.kv_heads, x, a->v_bias, NULL, -1, v[t]);
	}
	for (int t = 0; t < ROWS; t++) {
		double heads[8 * DIM] = { 0 };
		for (int n = 0; n < m->c.heads; n++) {
			int at = n / group * DIM;
			double p[ROWS] = { 0 }, sum = a->sinks ? exp((double)a->sinks[n]) : 0;
			for (int s = 0; s <= t; s++) {
				double d = 0;
				for (int i = 0; i < DIM; i++)
					d += q[t][n * DIM + i] * k[s][at + i];
				bool seen = !m->c.windowed[0] || t - s < m->c.window;
				p[s] = seen ? exp(d / sqrt(DIM)) : 0;
				sum += p[s];
			}
			for (int s = 0; s <= t; s++)
				for (int i = 0; i < DIM; i++)
					heads[n * DIM + i] += p[s] / sum * v[s][at + i];
		}
		for (int r = 0; r < HIDDEN; r++) {
			double *to = &out[t * HIDDEN + r];
			*to = a->out_bias ? (double)a->out_bias[r] : 0;
			for (int i = 0; i < m->c.heads * DIM; i++)
				*to += (double)m->out[r * m->c.heads * DIM + i] * heads[i];
		}
	}
}

static void check_attention(struct model *m, const float *h)
{
	static float want[ROWS * HIDDEN], got[ROWS * HIDDEN];
	static double out[ROWS * HIDDEN];
	const int threads[] = { 1, 2, 5 }, pieces[] = { 1, 4, 11, ROWS };

	naive(m, h, out);
	for (int n = 0; n < 12; n++) {
		start(m, threads[n % 3], KV_F32);
		memcpy(got, h, sizeof(got));
		run(m, pieces[n / 3], got);
		finish(m);
		if (n == 0)
			memcpy(want, got, sizeof(want));
		assert_memory_equal(got, want, sizeof(want));
	}
	for (int i = 0; i < ROWS * HIDDEN; i++)
		assert_true(fabs((double)want[i] - (double)h[i] - out[i]) < 2e-5);
	start(m, 2, KV_BF16);
	memcpy(got, h, sizeof(got));
	run(m, 11, got);
	finish(m);
	for (int i = 0; i < ROWS * HIDDEN; i++)
		assert_true(fabs((double)got[i] - (double)want[i]) < 0.1);
	assert_memory_not_equal(got, want, sizeof(want));
}

static void grouped_equals_the_definition(void **state)
{
	static struct model m;
	const int heads[][2] = { { 8, 2 }, { 6, 6 }, { 6, 1 }, { 4, 2 } };
	static float h[ROWS * HIDDEN];

	(void)state;
	for (int n = 0; n < 16; n++) {
		memset(&m, 0, sizeof(m));
		m.c = (struct model_config){ .hidden = HIDDEN,
					     .layers = 1,
					     .attention = ATTENTION_GROUPED,
					     .heads = heads[n % 4][0],
					     .kv_heads = heads[n % 4][1],
					     .head_dim = DIM,
					     .v_dim = DIM,
					     .rope = n & 1 ? DIM : 8,
					     .rope_theta = 100,
					     .norm_eps = 1e-5f,
					     .score_scale = 1 / sqrtf(DIM),
					     .qk_norm = (enum qk_norm)(n % 3),
					     .qkv_bias = (n & 2) != 0,
					     .out_bias = (n & 8) != 0,
					     .clip_qkv = n == 5 ? 0.7f : 0,
					     .sinks = (n & 4) != 0,
					     .window = n & 8 ? 1 + n % 7 : 0 };
		m.c.windowed[0] = m.c.window != 0;
		make_weights(&m);
		fill(h, ROWS * HIDDEN, 2, 0);
		check_attention(&m, h);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(yarn_of_published_models),
		cmocka_unit_test(what_is_left_out),
		cmocka_unit_test(windows),
		cmocka_unit_test(experts_of_families),
		cmocka_unit_test(impossible_configurations),
		cmocka_unit_test(stretched_rotations),
		cmocka_unit_test(routers_of_softmax),
		cmocka_unit_test(clamped_activation),
		cmocka_unit_test(grouped_equals_the_definition),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
