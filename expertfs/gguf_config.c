/* SPDX-License-Identifier: Apache-2.0
 *
 * GGUF metadata as the config.json that the model's Hugging Face checkpoint has: a table of keys,
 * and for each architecture what else its configuration says. Source: llama.cpp, constants.py and
 * convert_hf_to_gguf.py.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/fail.h"
#include "expertfs/gguf_model.h"

#define LONG_CONTEXT 1048576 /* of GLM-5.2, whose layers share indexers; GLM-5 has fewer */

enum kind { INT, FLOAT, BOOL };

static const struct {
	const char *gguf, *hf;
	enum kind kind;
} keys[] = {
	{ "%s.embedding_length", "hidden_size", INT },
	{ "%s.context_length", "max_position_embeddings", INT },
	{ "%s.attention.head_count", "num_attention_heads", INT },
	{ "%s.attention.q_lora_rank", "q_lora_rank", INT },
	{ "%s.attention.kv_lora_rank", "kv_lora_rank", INT },
	{ "%s.attention.indexer.head_count", "index_n_heads", INT },
	{ "%s.attention.indexer.key_length", "index_head_dim", INT },
	{ "%s.attention.indexer.top_k", "index_topk", INT },
	{ "%s.attention.layer_norm_rms_epsilon", "rms_norm_eps", FLOAT },
	{ "%s.rope.freq_base", "rope_theta", FLOAT },
	{ "%s.rope.dimension_count", "qk_rope_head_dim", INT },
	{ "%s.feed_forward_length", "intermediate_size", INT },
	{ "%s.leading_dense_block_count", "first_k_dense_replace", INT },
	{ "%s.nextn_predict_layers", "num_nextn_predict_layers", INT },
	{ "%s.expert_count", "n_routed_experts", INT },
	{ "%s.expert_used_count", "num_experts_per_tok", INT },
	{ "%s.expert_shared_count", "n_shared_experts", INT },
	{ "%s.expert_feed_forward_length", "moe_intermediate_size", INT },
	{ "%s.expert_group_count", "n_group", INT },
	{ "%s.expert_group_used_count", "topk_group", INT },
	{ "%s.expert_weights_scale", "routed_scaling_factor", FLOAT },
	{ "%s.expert_weights_norm", "norm_topk_prob", BOOL },
};

/* An integer, or a list of one and the same for each layer. */
static int one_int(const struct gguf *g, const char *key, int64_t *out, char *why)
{
	const struct gguf_key *k;
	int err = gguf_array(g, key, GGUF_I64, &k, NULL);

	if (err == -ENOENT)
		return err;
	if (err || k->count == 0)
		return gguf_int(g, key, 0, INT32_MAX, out, why);
	*out = gguf_array_int(g, k, 0);
	for (uint64_t i = 1; i < k->count; i++)
		if (gguf_array_int(g, k, i) != *out)
			return fail(why, EINVAL,
				    "%s: %s differs between layers, which is not supported",
				    g->part[0].path, k->name);
	return 0;
}

static int take_key(const struct gguf *g, json_t *config, size_t i, char *why)
{
	int64_t n = 0;
	double d = 0;
	bool b = false;
	int err;

	if (keys[i].kind == INT)
		err = one_int(g, keys[i].gguf, &n, why);
	else if (keys[i].kind == FLOAT)
		err = gguf_float(g, keys[i].gguf, &d, why);
	else
		err = gguf_bool(g, keys[i].gguf, &b, why);
	if (err)
		return err == -ENOENT ? 0 : err;
	err = json_object_set_new(config, keys[i].hf,
				  keys[i].kind == INT     ? json_integer(n)
				  : keys[i].kind == FLOAT ? json_real(d)
							  : json_boolean(b));
	return err ? fail(why, ENOMEM, "out of memory") : 0;
}

static int put_int(json_t *config, const char *key, int64_t n, char *why)
{
	return json_object_set_new(config, key, json_integer(n))
		       ? fail(why, ENOMEM, "out of memory")
		       : 0;
}

static int64_t int_of(const json_t *config, const char *key)
{
	return json_integer_value(json_object_get(config, key));
}

/* A key that must be there. */
static int need_int(const struct gguf *g, const char *key, int64_t *out, char *why)
{
	int err = gguf_int(g, key, 1, INT32_MAX, out, why);

	if (err == -ENOENT)
		err = fail(why, EINVAL, "%s: %s%s is missing", g->part[0].path, g->arch, key + 2);
	return err;
}

/* Rows of the embedding, blocks less those for speculation, and whether the head is a tensor of its
 * own. */
static int common(const struct gguf *g, json_t *config, char *why)
{
	const struct gguf_tensor *embd = gguf_tensor(g, "token_embd.weight");
	int64_t blocks, extra = int_of(config, "num_nextn_predict_layers");
	int err = need_int(g, "%s.block_count", &blocks, why);

	if (err)
		return err;
	if (!embd || embd->dim[1] > INT32_MAX)
		return fail(why, EINVAL, "%s: token_embd.weight is missing or no matrix",
			    g->part[0].path);
	if (extra >= blocks)
		return fail(why, EINVAL,
			    "%s: %" PRId64 " blocks, %" PRId64 " of them for speculation",
			    g->part[0].path, blocks, extra);
	err = put_int(config, "vocab_size", (int64_t)embd->dim[1], why);
	err = err ? err : put_int(config, "num_hidden_layers", blocks - extra, why);
	if (!err && json_object_set_new(config, "tie_word_embeddings",
					json_boolean(!gguf_tensor(g, "output.weight"))))
		err = fail(why, ENOMEM, "out of memory");
	return err;
}

/* Widths of heads. Files with kv_b cut in two have key_length of the latent form, and the real one
 * as key_length_mla. */
static int mla(const struct gguf *g, json_t *config, char *why)
{
	int64_t k, v, rope = int_of(config, "qk_rope_head_dim");
	int err = gguf_int(g, "%s.attention.key_length_mla", 1, INT32_MAX, &k, why);

	if (err == -ENOENT)
		err = need_int(g, "%s.attention.key_length", &k, why);
	if (err)
		return err;
	err = gguf_int(g, "%s.attention.value_length_mla", 1, INT32_MAX, &v, why);
	if (err == -ENOENT)
		err = need_int(g, "%s.attention.value_length", &v, why);
	if (!err && k <= rope)
		err = fail(why, EINVAL,
			   "%s: keys of %" PRId64 " numbers with %" PRId64 " rotated ones",
			   g->part[0].path, k, rope);
	err = err ? err : put_int(config, "qk_nope_head_dim", k - rope, why);
	return err ? err : put_int(config, "v_head_dim", v, why);
}

/* Which layers have an indexer of their own: a list of true and false, 1 and 0, or "full" and
 * "shared". Without it all have one, but of the models with the long context (as llama.cpp tells
 * them apart), whose schedule is known. */
static int indexers(const struct gguf *g, json_t *config, char *why)
{
	const char key[] = "%s.attention.indexer.types";
	int64_t layers = int_of(config, "num_hidden_layers");
	const struct gguf_key *k;
	struct gguf_text t = { 0 };
	size_t at = 0;
	bool words = gguf_array(g, key, GGUF_STRING, &k, NULL) == 0;
	int err = words ? 0 : gguf_array(g, key, GGUF_I64, &k, why);

	if (err == -ENOENT) {
		if (int_of(config, "max_position_embeddings") < LONG_CONTEXT)
			return 0;
		err = put_int(config, "index_topk_freq", 4, why);
		return err ? err : put_int(config, "index_skip_topk_offset", 3, why);
	}
	if (!err && k->count < (uint64_t)layers)
		err = fail(why, EINVAL, "%s: %s has %" PRIu64 " entries for %" PRId64 " layers",
			   g->part[0].path, k->name, k->count, layers);
	if (err)
		return err;
	json_t *list = json_array();
	for (int64_t i = 0; i < layers; i++) {
		if (words)
			t = gguf_array_next(g, k, &at);
		bool full = words ? t.bytes == 4 && memcmp(t.at, "full", 4) == 0
				  : gguf_array_int(g, k, (uint64_t)i) != 0;
		json_array_append_new(list, json_string(full ? "full" : "shared"));
	}
	return json_object_set_new(config, "indexer_types", list)
		       ? fail(why, ENOMEM, "out of memory")
		       : 0;
}

/* glm_moe_dsa has one way to score experts. */
static int glm_dsa(const struct gguf *g, json_t *config, char *why)
{
	int64_t gating;
	int err = gguf_int(g, "%s.expert_gating_func", 0, INT32_MAX, &gating, why);

	if (!err && gating != 2 && gating != 0)
		err = fail(why, EINVAL,
			   "%s: expert_gating_func %" PRId64 " is not supported, only 2",
			   g->part[0].path, gating);
	err = err == -ENOENT ? 0 : err;
	err = err ? err : mla(g, config, why);
	return err ? err : indexers(g, config, why);
}

static const struct {
	const char *gguf, *model_type;
	int (*rest)(const struct gguf *g, json_t *config, char *why);
} archs[] = {
	{ "glm-dsa", "glm_moe_dsa", glm_dsa },
};

json_t *gguf_config(const struct gguf *g, char *why)
{
	json_t *config = json_object();
	int err = config ? 0 : fail(why, ENOMEM, "out of memory");

	for (size_t a = 0; a < sizeof(archs) / sizeof(archs[0]) && !err; a++) {
		if (strcmp(archs[a].gguf, g->arch) != 0)
			continue;
		json_object_set_new(config, "model_type", json_string(archs[a].model_type));
		for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]) && !err; i++)
			err = take_key(g, config, i, why);
		err = err ? err : common(g, config, why);
		err = err ? err : archs[a].rest(g, config, why);
	}
	if (!err && !json_object_get(config, "model_type"))
		json_object_set_new(config, "model_type", json_string(g->arch));
	if (err) {
		json_decref(config);
		return NULL;
	}
	return config;
}

json_t *gguf_eos(const struct gguf *g, char *why)
{
	static const char *const names[] = { "tokenizer.ggml.eos_token_id",
					     "tokenizer.ggml.eot_token_id",
					     "tokenizer.ggml.eom_token_id" };
	int64_t id, seen[3];
	int n = 0, err = 0;
	json_t *list = json_array();

	for (int i = 0; i < 3 && !err; i++) {
		bool twice = false;
		err = gguf_int(g, names[i], 0, INT32_MAX, &id, why);
		for (int j = 0; j < n; j++)
			twice = twice || seen[j] == id;
		if (!err && !twice)
			json_array_append_new(list, json_integer(seen[n++] = id));
		err = err == -ENOENT ? 0 : err;
	}
	if (err) {
		json_decref(list);
		return NULL;
	}
	return list;
}
