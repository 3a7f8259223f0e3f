/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a checkpoint's config.json. See config.h.
 */
#include "tools/coli-pack/config.h"

#include <errno.h>
#include <string.h>

#include "expertfs/fail.h"

/* Any of the names that model families have for the number of experts; a family that the engine
 * knows has a default for it. */
static bool has_experts(const json_t *root, bool known)
{
	static const char *const keys[] = { "n_routed_experts", "num_experts",
					    "num_local_experts" };

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		const json_t *v = json_object_get(root, keys[i]);
		if (v && !json_is_null(v))
			return !json_is_integer(v) || json_integer_value(v) != 0;
	}
	return known;
}

static int check_kind(const json_t *root, const char *path, char *why)
{
	const char *type = json_string_value(json_object_get(root, "model_type"));
	const struct arch *arch = type ? arch_find(type) : NULL;
	char names[ARCH_NAMES];

	if (!type)
		return fail(why, EINVAL, "%s: model_type is missing", path);
	if (!has_experts(root, arch != NULL))
		return fail(why, EINVAL,
			    "%s: \"%s\" is a dense model (no routed experts); only "
			    "mixture-of-experts models can be packed",
			    path, type);
	if (!arch)
		return fail(why, EINVAL,
			    "%s: the architecture \"%s\" is not supported; supported: %s", path,
			    type, arch_names(names));
	return 0;
}

#define LATENT "deepseek_v2 deepseek_v3 deepseek_v32 glm_moe_dsa"
#define QWEN   "qwen2_moe qwen3_moe"

/* Which families have a key (transformers' configuration and modeling files; of DeepSeek's also the
 * code that came with the models). */
static const struct {
	const char *key, *families;
} owned[] = {
	{ "clip_qkv", "olmoe" },
	{ "partial_rotary_factor", "glm4_moe" },
	{ "rope_interleave", "deepseek_v3 glm_moe_dsa" },
	{ "first_k_dense_replace", LATENT " glm4_moe" },
	{ "moe_layer_freq", LATENT },
	{ "mlp_layer_types", "deepseek_v32 glm_moe_dsa" },
	{ "decoder_sparse_step", QWEN },
	{ "mlp_only_layers", QWEN },
	{ "max_window_layers", QWEN },
	{ "norm_topk_prob", LATENT " glm4_moe olmoe " QWEN },
	{ "n_group", LATENT " glm4_moe" },
	{ "topk_group", LATENT " glm4_moe" },
	{ "topk_method", LATENT " glm4_moe" },
	{ "scoring_func", LATENT " glm4_moe" },
	{ "routed_scaling_factor", LATENT " glm4_moe" },
	{ "swiglu_limit", "" }, /* read by none: gpt-oss's limit is 7, here by default, */
	{ "swiglu_alpha", "" }, /* and its other number 1.702 (transformers 5.12) */
};

static bool is_word_of(const char *words, const char *word)
{
	size_t n = strlen(word);

	/* No word is none of them, and would be found for ever. */
	for (const char *at = words; n && (at = strstr(at, word)); at += n)
		if ((at == words || at[-1] == ' ') && (at[n] == ' ' || !at[n]))
			return true;
	return false;
}

bool pack_config_own(json_t *root)
{
	const char *type = json_string_value(json_object_get(root, "model_type"));
	json_t *in[3] = { root, json_object_get(root, "rope_parameters"),
			  json_object_get(root, "rope_scaling") };
	bool any = false;

	for (size_t i = 0; type && i < sizeof(owned) / sizeof(*owned); i++) {
		if (is_word_of(owned[i].families, type))
			continue;
		for (size_t k = 0; k < 3; k++)
			any |= json_object_del(in[k], owned[i].key) == 0;
	}
	return any;
}

static int read_blocks(const json_t *root, const char *path, struct pack_config *c, char *why)
{
	const json_t *q = json_object_get(root, "quantization_config");
	const json_t *size = json_object_get(q, "weight_block_size");
	json_int_t v[2] = { 128, 128 };
	bool given = size && !json_is_null(size);

	for (size_t i = 0; given && i < 2; i++)
		v[i] = json_integer_value(json_array_get(size, i));
	/* Below 16 the scales would be no longer small beside the weights. */
	if ((given && json_array_size(size) != 2) || v[0] < 16 || v[1] < 16 || v[0] > 65536 ||
	    v[1] > 65536)
		return fail(why, EINVAL,
			    "%s: weight_block_size is not two numbers from 16 to 65536", path);
	c->block_rows = (int)v[0];
	c->block_cols = (int)v[1];
	return 0;
}

/* By its name, before a tensor is missed that such a form calls otherwise, or has in another shape.
 * Older files of compressed-tensors have the second key. */
static int check_quantised(const json_t *root, const char *path, char *why)
{
	static const char *const keys[] = { "quantization_config", "compression_config" };

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		const json_t *q = json_object_get(root, keys[i]);
		const char *how = json_string_value(json_object_get(q, "quant_method"));
		if (how && strcmp(how, "fp8") != 0 && strcmp(how, "mxfp4") != 0)
			return fail(why, EINVAL,
				    "%s: weights that are quantised by \"%.64s\" (%s) are not "
				    "supported, only by \"fp8\" and \"mxfp4\"",
				    path, how, keys[i]);
	}
	return 0;
}

int pack_config_parse(const json_t *root, const char *path, struct pack_config *c, char *why)
{
	int err = check_kind(root, path, why);

	*c = (struct pack_config){ 0 };
	err = err ? err : check_quantised(root, path, why);
	err = err ? err : config_read(root, path, &c->model, why);
	err = err ? err : read_blocks(root, path, c, why);
	if (err)
		return err;
	c->mtp_layers = c->model.extra_layers;
	for (int i = 0; i < c->model.layers; i++)
		if (c->model.sparse[i])
			return 0;
	return fail(why, EINVAL, "%s is a dense model (no layer has routed experts)", path);
}
