/* SPDX-License-Identifier: Apache-2.0
 *
 * The architectures; see gguf_arch.h.
 */
#include "expertfs/gguf_arch.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "expertfs/fail.h"

/* Mistral-Large-3 is of this architecture too, but its queries grow with their position. */
static int check_temperature(const struct gguf *g, char *why)
{
	double scale = 0;
	int err = gguf_float(g, "%s.attention.temperature_scale", &scale, why);

	if (err && err != -ENOENT)
		return err;
	return scale == 0 ? 0
			  : fail(why, EINVAL,
				 "%s: %s.attention.temperature_scale %g is not supported, only 0",
				 g->part[0].path, g->arch, scale);
}

/* DeepSeek-V2, V3 and their like are one architecture. A selection bias goes with the sigmoid, also
 * in files that do not name their function. */
static int deepseek2(const struct gguf *g, json_t *config, char *why)
{
	bool v3 = gguf_layer_tensor(g, config, "exp_probs_b.bias") ||
		  gguf_layer_tensor(g, config, "exp_probs_b");
	int64_t gating = 0, experts = gguf_int_of(config, "n_routed_experts"), groups, kept;
	int err = gguf_int(g, "%s.expert_gating_func", 0, INT32_MAX, &gating, why);

	if (!err || err == -ENOENT)
		err = check_temperature(g, why);
	if (err)
		return err;
	if (gating > GATING_SIGMOID || (gating && v3 != (gating == GATING_SIGMOID)))
		return fail(why, EINVAL,
			    "%s: expert_gating_func %" PRId64 " %s exp_probs_b is not supported",
			    g->part[0].path, gating, v3 ? "with" : "without");
	err = gguf_put(config, "model_type", json_string(v3 ? "deepseek_v3" : "deepseek_v2"), why);
	/* Files from before the keys of groups: the two models that have groups are known by their
	 * experts. */
	groups = v3 && experts == 256 ? 8 : !v3 && experts == 160 ? 8 : 1;
	kept = groups == 1 ? 1 : v3 ? 4 : 3;
	if (!err && !json_object_get(config, "n_group")) {
		err = gguf_put(config, "n_group", json_integer(groups), why);
		err = err ? err : gguf_put(config, "topk_group", json_integer(kept), why);
	}
	if (!err && !v3 && gguf_int_of(config, "n_group") > 1)
		err = gguf_put(config, "topk_method", json_string("group_limited_greedy"), why);
	return err;
}

/* Younger than the keys of groups: without them there are none, whatever the family's default is. */
static int deepseek32(const struct gguf *g, json_t *config, char *why)
{
	int err;

	(void)g;
	if (json_object_get(config, "n_group"))
		return 0;
	err = gguf_put(config, "n_group", json_integer(1), why);
	return err ? err : gguf_put(config, "topk_group", json_integer(1), why);
}

static int glm4moe(const struct gguf *g, json_t *config, char *why)
{
	bool norm = gguf_layer_tensor(g, config, "attn_q_norm.weight");

	return gguf_put(config, "use_qk_norm", json_boolean(norm), why);
}

/* The shared expert is as wide as its tensors, which files without its key have as well. */
static int qwen2moe(const struct gguf *g, json_t *config, char *why)
{
	const struct gguf_tensor *t = gguf_layer_tensor(g, config, "ffn_gate_shexp.weight");

	if (!t)
		return fail(why, EINVAL, "%s: blk.0.ffn_gate_shexp.weight is missing",
			    g->part[0].path);
	return gguf_put(config, "shared_expert_intermediate_size",
			json_integer((json_int_t)t->dim[1]), why);
}

static int olmoe(const struct gguf *g, json_t *config, char *why)
{
	double clip;
	int err = gguf_float(g, "%s.attention.clamp_kqv", &clip, why);

	if (err)
		return err == -ENOENT ? 0 : err;
	return gguf_put(config, "clip_qkv", json_real(clip), why);
}

/* Layers with a window may turn otherwise than those without. */
static int check_window_base(const struct gguf *g, const json_t *config, char *why)
{
	double all = json_real_value(json_object_get(config, "rope_theta")), theta = all;
	int err = gguf_float(g, "%s.rope.freq_base_swa", &theta, why);

	if (err && err != -ENOENT)
		return err;
	return theta == all ? 0
			    : fail(why, EINVAL,
				   "%s: %s.rope.freq_base_swa %g is not supported, only %g as all "
				   "layers have it",
				   g->part[0].path, g->arch, theta, all);
}

/* Every other layer has a window, the first included: so does the engine's default. */
static int gpt_oss(const struct gguf *g, json_t *config, char *why)
{
	int64_t period = 2;
	int err = check_window_base(g, config, why);

	if (!err)
		err = gguf_take_int(g, "%s.attention.sliding_window", config, "sliding_window", 0,
				    why);
	if (!err)
		err = gguf_int(g, "%s.attention.sliding_window_pattern", 0, INT32_MAX, &period,
			       why);
	if (err && err != -ENOENT)
		return err;
	return period == 2 ? 0
			   : fail(why, EINVAL,
				  "%s: sliding_window_pattern %" PRId64 " is not supported, only 2",
				  g->part[0].path, period);
}

static const struct gguf_pair qwen2moe_names[] = {
	{ "ffn_gate_inp_shexp", "mlp.shared_expert_gate" },
	{ "ffn_gate_shexp", "mlp.shared_expert.gate_proj" },
	{ "ffn_up_shexp", "mlp.shared_expert.up_proj" },
	{ "ffn_down_shexp", "mlp.shared_expert.down_proj" },
	{ NULL, NULL },
};

static const struct gguf_pair llama_names[] = {
	{ "ffn_gate_inp", "block_sparse_moe.gate" },
	{ NULL, NULL },
};

static const struct gguf_pair gpt_oss_names[] = {
	{ "ffn_gate_inp", "mlp.router" },
	{ "ffn_gate_inp.bias", "mlp.router.bias" },
	{ "ffn_gate_exps.bias", "mlp.experts.gate_proj_bias" },
	{ "ffn_up_exps.bias", "mlp.experts.up_proj_bias" },
	{ "ffn_down_exps.bias", "mlp.experts.down_proj_bias" },
	{ NULL, NULL },
};

static const struct gguf_arch archs[] = {
	{
		.gguf = "glm-dsa",
		.model_type = "glm_moe_dsa",
		.width_key = "moe_intermediate_size",
		.gating = GATING_SIGMOID,
		.latent = true,
		.yarn_truncate = true,
		.more = gguf_indexers,
	},
	{
		.gguf = "deepseek2",
		.model_type = "deepseek_v2",
		.width_key = "moe_intermediate_size",
		.latent = true,
		.yarn_truncate = true,
		.more = deepseek2,
	},
	{
		.gguf = "deepseek32",
		.model_type = "deepseek_v32",
		.width_key = "moe_intermediate_size",
		.gating = GATING_SIGMOID,
		.latent = true,
		.yarn_truncate = true,
		.more = deepseek32,
	},
	{
		.gguf = "glm4moe",
		.model_type = "glm4_moe",
		.width_key = "moe_intermediate_size",
		.bias_key = "attention_bias",
		.gating = GATING_SIGMOID,
		.yarn_truncate = true,
		.more = glm4moe,
	},
	{
		.gguf = "qwen3moe",
		.model_type = "qwen3_moe",
		.width_key = "moe_intermediate_size",
		.bias_key = "attention_bias",
		.gating = GATING_SOFTMAX,
		.norm_topk = true,
		.yarn_truncate = true,
	},
	{
		.gguf = "qwen2moe",
		.model_type = "qwen2_moe",
		.width_key = "moe_intermediate_size",
		.bias_key = "qkv_bias",
		.names = qwen2moe_names,
		.gating = GATING_SOFTMAX,
		.yarn_truncate = true,
		.more = qwen2moe,
	},
	{
		.gguf = "olmoe",
		.model_type = "olmoe",
		.width_key = "intermediate_size",
		.bias_key = "attention_bias",
		.gating = GATING_SOFTMAX,
		.yarn_truncate = true,
		.more = olmoe,
	},
	{
		/* Mixtral; a dense LLaMA has no experts and gets no further than that. */
		.gguf = "llama",
		.model_type = "mixtral",
		.width_key = "intermediate_size",
		.names = llama_names,
		.gating = GATING_SOFTMAX,
		.norm_topk = true,
		.interleave = true,
		.yarn_truncate = true,
	},
	{
		/* gpt-oss is trained with bounds that are no whole numbers; llama.cpp rounds them. */
		.gguf = "gpt-oss",
		.model_type = "gpt_oss",
		.width_key = "intermediate_size",
		.bias_key = "attention_bias",
		.names = gpt_oss_names,
		.gating = GATING_SOFTMAX_CHOSEN,
		.more = gpt_oss,
	},
};

const struct gguf_arch *gguf_arch_find(const char *name)
{
	for (size_t i = 0; i < sizeof(archs) / sizeof(archs[0]); i++)
		if (strcmp(archs[i].gguf, name) == 0)
			return &archs[i];
	return NULL;
}
