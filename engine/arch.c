/* SPDX-License-Identifier: Apache-2.0
 *
 * The families.
 */
#include "engine/arch.h"

#include <stdio.h>
#include <string.h>

/* The names that most families have for their experts. */
#define EXPERTS(width_key, router_name)                                                            \
	.expert_width_key = (width_key), .router = (router_name), .experts = "mlp.experts",        \
	.expert_matrix = { "gate_proj", "up_proj", "down_proj" }

/* DeepSeek's router, kept by GLM: "noaux_tc" (DeepSeek-V3, arXiv 2412.19437, 2.1.2). */
#define NOAUX_ROUTER                                                                               \
	.scoring = SCORE_SIGMOID, .scoring_name = "sigmoid", .group_score = GROUP_TWO_LARGEST,     \
	.select_bias = true, .shared = "mlp.shared_experts"

#define MLA_SIZES                                                                                  \
	"\"kv_lora_rank\": 512, \"q_lora_rank\": 1536, \"qk_nope_head_dim\": 128, "                \
	"\"qk_rope_head_dim\": 64, \"v_head_dim\": 128, \"rope_interleave\": true, "               \
	"\"rope_theta\": 10000, "

#define V3_SIZES                                                                                   \
	"\"intermediate_size\": 18432, \"moe_intermediate_size\": 2048, "                          \
	"\"num_experts\": 256, \"n_shared_experts\": 1, \"n_group\": 8, \"topk_group\": 4, "       \
	"\"num_experts_per_tok\": 8, \"first_k_dense_replace\": 3, \"norm_topk_prob\": true, "     \
	"\"routed_scaling_factor\": 2.5, \"rms_norm_eps\": 1e-6, \"topk_method\": \"noaux_tc\", "

/* DeepSeek norms its latents with 1e-6 whatever rms_norm_eps says; all its models say the same.
 * GLM's are trained with rms_norm_eps. */
#define DEEPSEEK_EPS .lora_norm_eps = 1e-6f, .index_norm_eps = 1e-6f

static const struct arch archs[] = {
	{
		.model_type = "glm_moe_dsa",
		/* No rope_theta: GLM-5 and GLM-5.2 have different ones. */
		.defaults = "{\"kv_lora_rank\": 512, \"q_lora_rank\": 2048, "
			    "\"qk_nope_head_dim\": 192, \"qk_rope_head_dim\": 64, "
			    "\"v_head_dim\": 256, \"intermediate_size\": 12288, "
			    "\"moe_intermediate_size\": 2048, \"num_experts\": 256, "
			    "\"num_experts_per_tok\": 8, \"index_topk\": 2048, "
			    "\"index_head_dim\": 128, \"index_n_heads\": 32, "
			    "\"rope_interleave\": true, \"indexer_rope_interleave\": true, "
			    "\"first_k_dense_replace\": 3, \"routed_scaling_factor\": 2.5, "
			    "\"rms_norm_eps\": 1e-5, \"n_shared_experts\": 1, "
			    "\"norm_topk_prob\": true, \"topk_method\": \"noaux_tc\", "
			    "\"max_position_embeddings\": 202752}",
		.attention = ATTENTION_LATENT,
		.indexer = true,
		.bias_key = "attention_bias",
		.out_bias = true,
		.index_norm_eps = 1e-6f,
		NOAUX_ROUTER,
		EXPERTS("moe_intermediate_size", "mlp.gate"),
	},
	{
		.model_type = "deepseek_v3",
		.defaults = "{" MLA_SIZES V3_SIZES "\"max_position_embeddings\": 4096}",
		.attention = ATTENTION_LATENT,
		.bias_key = "attention_bias",
		.out_bias = true,
		DEEPSEEK_EPS,
		NOAUX_ROUTER,
		EXPERTS("moe_intermediate_size", "mlp.gate"),
	},
	{
		/* The indexer is rotated half-split, the attention beside it is not. */
		.model_type = "deepseek_v32",
		.defaults = "{" MLA_SIZES V3_SIZES "\"max_position_embeddings\": 163840, "
			    "\"index_topk\": 2048, \"index_head_dim\": 128, "
			    "\"index_n_heads\": 64, \"indexer_rope_interleave\": false}",
		.attention = ATTENTION_LATENT,
		.indexer = true,
		.bias_key = "attention_bias",
		.out_bias = true,
		DEEPSEEK_EPS,
		NOAUX_ROUTER,
		EXPERTS("moe_intermediate_size", "mlp.gate"),
	},
	{
		/* The trained models (and the code that came with them) scale the scores by
		 * mscale_all_dim and heed norm_topk_prob. Their configurations spell
		 * "rope_scaling". transformers' own class does neither, and writes
		 * "rope_parameters": a checkpoint so spelled is one of that class. */
		.model_type = "deepseek_v2",
		.defaults = "{" MLA_SIZES "\"intermediate_size\": 11008, "
			    "\"moe_intermediate_size\": 1407, \"num_experts\": 64, "
			    "\"n_shared_experts\": 2, "
			    "\"first_k_dense_replace\": 0, \"norm_topk_prob\": false, "
			    "\"routed_scaling_factor\": 1.0, \"rms_norm_eps\": 1e-6, "
			    "\"topk_method\": \"greedy\", \"max_position_embeddings\": 2048}",
		.attention = ATTENTION_LATENT,
		.two_codes = true,
		.bias_key = "attention_bias",
		.out_bias = true,
		DEEPSEEK_EPS,
		.scoring = SCORE_SOFTMAX,
		.scoring_name = "softmax",
		.group_score = GROUP_LARGEST,
		.scale_if_raw = true,
		.shared = "mlp.shared_experts",
		EXPERTS("moe_intermediate_size", "mlp.gate"),
	},
	{
		.model_type = "glm4_moe",
		.defaults = "{\"num_key_value_heads\": 8, \"partial_rotary_factor\": 0.5, "
			    "\"rope_theta\": 10000, \"intermediate_size\": 10944, "
			    "\"moe_intermediate_size\": 1408, \"num_experts\": 128, "
			    "\"n_shared_experts\": 1, "
			    "\"num_experts_per_tok\": 8, \"first_k_dense_replace\": 1, "
			    "\"norm_topk_prob\": true, \"routed_scaling_factor\": 1.0, "
			    "\"rms_norm_eps\": 1e-5, \"topk_method\": \"noaux_tc\", "
			    "\"max_position_embeddings\": 131072}",
		.attention = ATTENTION_GROUPED,
		.qk_norm = QK_NORM_HEAD,
		.qk_norm_key = "use_qk_norm",
		.bias_key = "attention_bias",
		NOAUX_ROUTER,
		EXPERTS("moe_intermediate_size", "mlp.gate"),
	},
	{
		.model_type = "qwen3_moe",
		.defaults = "{\"num_key_value_heads\": 4, \"rope_theta\": 10000, "
			    "\"intermediate_size\": 6144, \"moe_intermediate_size\": 768, "
			    "\"num_experts\": 128, "
			    "\"num_experts_per_tok\": 8, \"norm_topk_prob\": false, "
			    "\"rms_norm_eps\": 1e-6, \"sliding_window\": 4096, "
			    "\"max_position_embeddings\": 32768}",
		.attention = ATTENTION_GROUPED,
		.qk_norm = QK_NORM_HEAD,
		.bias_key = "attention_bias",
		.out_bias = true,
		.window = WINDOW_ALL,
		.window_key = "use_sliding_window",
		.scoring = SCORE_SOFTMAX,
		.scoring_name = "softmax",
		EXPERTS("moe_intermediate_size", "mlp.gate"),
	},
	{
		.model_type = "qwen2_moe",
		.defaults = "{\"num_key_value_heads\": 16, \"rope_theta\": 10000, "
			    "\"qkv_bias\": true, \"intermediate_size\": 5632, "
			    "\"moe_intermediate_size\": 1408, \"num_experts\": 60, "
			    "\"shared_expert_intermediate_size\": 5632, "
			    "\"num_experts_per_tok\": 4, \"norm_topk_prob\": false, "
			    "\"rms_norm_eps\": 1e-6, \"sliding_window\": 4096, "
			    "\"max_window_layers\": 28, \"max_position_embeddings\": 32768}",
		.attention = ATTENTION_GROUPED,
		.bias_key = "qkv_bias",
		.window = WINDOW_BY_LAYER,
		.window_key = "use_sliding_window",
		.scoring = SCORE_SOFTMAX,
		.scoring_name = "softmax",
		.shared = "mlp.shared_expert",
		.shared_gate = true,
		EXPERTS("moe_intermediate_size", "mlp.gate"),
	},
	{
		.model_type = "olmoe",
		.defaults = "{\"rope_theta\": 10000, \"intermediate_size\": 2048, "
			    "\"num_experts\": 64, "
			    "\"num_experts_per_tok\": 8, \"norm_topk_prob\": false, "
			    "\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 4096}",
		.attention = ATTENTION_GROUPED,
		.qk_norm = QK_NORM_WHOLE,
		.bias_key = "attention_bias",
		.out_bias = true,
		.scoring = SCORE_SOFTMAX,
		.scoring_name = "softmax",
		EXPERTS("intermediate_size", "mlp.gate"),
	},
	{
		.model_type = "mixtral",
		.defaults = "{\"num_key_value_heads\": 8, \"rope_theta\": 1000000, "
			    "\"intermediate_size\": 14336, \"num_experts\": 8, "
			    "\"num_experts_per_tok\": 2, "
			    "\"norm_topk_prob\": true, \"rms_norm_eps\": 1e-5, "
			    "\"max_position_embeddings\": 131072}",
		.attention = ATTENTION_GROUPED,
		.window = WINDOW_ALL,
		.scoring = SCORE_SOFTMAX,
		.scoring_name = "softmax",
		.expert_width_key = "intermediate_size",
		.router = "block_sparse_moe.gate",
		.experts = "block_sparse_moe.experts",
		.expert_matrix = { "w1", "w3", "w2" },
	},
	{
		.model_type = "gpt_oss",
		.defaults = "{\"num_key_value_heads\": 8, \"head_dim\": 64, "
			    "\"rope_theta\": 150000, \"rope_scaling\": {\"rope_type\": \"yarn\", "
			    "\"factor\": 32.0, \"beta_fast\": 32.0, \"beta_slow\": 1.0, "
			    "\"truncate\": false, \"original_max_position_embeddings\": 4096}, "
			    "\"intermediate_size\": 2880, \"num_experts\": 128, "
			    "\"num_experts_per_tok\": 4, "
			    "\"norm_topk_prob\": false, \"rms_norm_eps\": 1e-5, "
			    "\"attention_bias\": true, \"sliding_window\": 128, "
			    "\"swiglu_limit\": 7.0, \"max_position_embeddings\": 131072}",
		.attention = ATTENTION_GROUPED,
		.sinks = true,
		.bias_key = "attention_bias",
		.out_bias = true,
		.window = WINDOW_BY_LAYER,
		.scoring = SCORE_SOFTMAX_CHOSEN,
		.scoring_name = "softmax",
		.router_bias = true,
		.expert_biases = true,
		EXPERTS("intermediate_size", "mlp.router"),
		.transposed = true,
	},
};

#define COUNT (sizeof(archs) / sizeof(archs[0]))

const struct arch *arch_find(const char *model_type)
{
	for (size_t i = 0; i < COUNT; i++)
		if (strcmp(archs[i].model_type, model_type) == 0)
			return &archs[i];
	return NULL;
}

const char *arch_names(char *buf)
{
	size_t at = 0;

	for (size_t i = 0; i < COUNT; i++)
		at += (size_t)snprintf(buf + at, ARCH_NAMES - at, "%s%s", i ? ", " : "",
				       archs[i].model_type);
	return buf;
}
