/* SPDX-License-Identifier: Apache-2.0
 *
 * GGUF metadata as the config.json that the model's Hugging Face checkpoint has: a table of keys
 * that all architectures share; gguf_arch.h has what is each one's own. Source: llama.cpp,
 * constants.py and conversion/.
 *
 * The engine's families fill in what a configuration lacks with what their checkpoints leave out,
 * which is not what a GGUF file leaves out. So all that llama.cpp has a default for is said here.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/fail.h"
#include "expertfs/gguf_arch.h"
#include "expertfs/gguf_model.h"

/* absent: what a missing key stands for; NONE: it is left out. */
#define NONE (-1)

static const struct {
	const char *gguf, *hf;
	int absent;
	bool latent; /* of MLA alone */
} ints[] = {
	{ "%s.embedding_length", "hidden_size", NONE, false },
	{ "%s.context_length", "max_position_embeddings", NONE, false },
	{ "%s.attention.head_count", "num_attention_heads", NONE, false },
	{ "%s.attention.kv_lora_rank", "kv_lora_rank", NONE, true },
	{ "%s.attention.indexer.head_count", "index_n_heads", NONE, true },
	{ "%s.attention.indexer.key_length", "index_head_dim", NONE, true },
	{ "%s.attention.indexer.top_k", "index_topk", NONE, true },
	{ "%s.rope.dimension_count", "qk_rope_head_dim", NONE, true },
	{ "%s.feed_forward_length", "intermediate_size", NONE, false },
	{ "%s.leading_dense_block_count", "first_k_dense_replace", 0, false },
	{ "%s.nextn_predict_layers", "num_nextn_predict_layers", 0, false },
	{ "%s.expert_count", "n_routed_experts", NONE, false },
	{ "%s.expert_used_count", "num_experts_per_tok", NONE, false },
	{ "%s.expert_shared_count", "n_shared_experts", 0, false },
	{ "%s.expert_group_count", "n_group", NONE, false },
	{ "%s.expert_group_used_count", "topk_group", NONE, false },
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
	if (*out < 0 || *out > INT32_MAX)
		return fail(why, EINVAL, "%s: %s is %" PRId64 ", which no model has",
			    g->part[0].path, k->name, *out);
	return 0;
}

int gguf_take_int(const struct gguf *g, const char *gguf, json_t *config, const char *hf,
		  int64_t absent, char *why)
{
	int64_t n = absent;
	int err = one_int(g, gguf, &n, why);

	if (err && err != -ENOENT)
		return err;
	return n < 0 ? 0 : gguf_put(config, hf, json_integer(n), why);
}

int gguf_put(json_t *config, const char *key, json_t *value, char *why)
{
	return json_object_set_new(config, key, value) ? fail(why, ENOMEM, "out of memory") : 0;
}

int64_t gguf_int_of(const json_t *config, const char *key)
{
	return json_integer_value(json_object_get(config, key));
}

const struct gguf_tensor *gguf_layer_tensor(const struct gguf *g, const json_t *config,
					    const char *name)
{
	int64_t layers = gguf_int_of(config, "num_hidden_layers");
	const struct gguf_tensor *t = NULL;
	char full[GGUF_NAME_MAX + 1];

	for (int64_t i = 0; i < layers && !t; i++) {
		snprintf(full, sizeof(full), "blk.%" PRId64 ".%s", i, name);
		t = gguf_tensor(g, full);
	}
	return t;
}

int gguf_missing(const struct gguf *g, const char *key, char *why)
{
	return fail(why, EINVAL, "%s: %s.%s is missing", g->part[0].path, g->arch, key);
}

/* Rows of the embedding, blocks less those for speculation, and whether the head is a tensor of its
 * own. */
static int sizes(const struct gguf *g, json_t *config, char *why)
{
	const struct gguf_tensor *embd = gguf_tensor(g, "token_embd.weight");
	int64_t blocks, extra = gguf_int_of(config, "num_nextn_predict_layers");
	int err = gguf_int(g, "%s.block_count", 1, GGUF_LAYERS_MAX, &blocks, why);

	if (err)
		return err == -ENOENT ? gguf_missing(g, "block_count", why) : err;
	if (!embd || embd->dim[1] > INT32_MAX)
		return fail(why, EINVAL, "%s: token_embd.weight is missing or no matrix",
			    g->part[0].path);
	if (extra >= blocks)
		return fail(why, EINVAL,
			    "%s: %" PRId64 " blocks, %" PRId64 " of them for speculation",
			    g->part[0].path, blocks, extra);
	err = gguf_put(config, "vocab_size", json_integer((json_int_t)embd->dim[1]), why);
	if (!err)
		err = gguf_put(config, "num_hidden_layers", json_integer(blocks - extra), why);
	return err ? err
		   : gguf_put(config, "tie_word_embeddings",
			      json_boolean(!gguf_tensor(g, "output.weight")), why);
}

static int numbers(const struct gguf *g, json_t *config, char *why)
{
	double eps, theta = 10000;
	int err = gguf_float(g, "%s.attention.layer_norm_rms_epsilon", &eps, why);

	if (err == -ENOENT)
		return gguf_missing(g, "attention.layer_norm_rms_epsilon", why);
	if (!err)
		err = gguf_put(config, "rms_norm_eps", json_real(eps), why);
	if (!err)
		err = gguf_float(g, "%s.rope.freq_base", &theta, why);
	if (err && err != -ENOENT)
		return err;
	return gguf_put(config, "rope_theta", json_real(theta), why);
}

/* How the router's numbers become weights. A scale of 0 is none. */
static int router(const struct gguf *g, const struct gguf_arch *a, json_t *config, char *why)
{
	bool norm = a->norm_topk;
	int64_t gating = 0;
	double scale = 0;
	int err = gguf_int(g, "%s.expert_gating_func", 0, INT32_MAX, &gating, why);

	if (a->gating && gating && gating != a->gating)
		return fail(why, EINVAL,
			    "%s: expert_gating_func %" PRId64 " is not supported, only %d",
			    g->part[0].path, gating, (int)a->gating);
	if (!err || err == -ENOENT)
		err = gguf_bool(g, "%s.expert_weights_norm", &norm, why);
	if (!err || err == -ENOENT)
		err = gguf_float(g, "%s.expert_weights_scale", &scale, why);
	if (err && err != -ENOENT)
		return err;
	err = gguf_put(config, "norm_topk_prob", json_boolean(norm), why);
	return err ? err
		   : gguf_put(config, "routed_scaling_factor", json_real(scale != 0 ? scale : 1),
			      why);
}

/* An expert is as wide as its tensors say: not all architectures have a key for it. */
static int experts(const struct gguf *g, const struct gguf_arch *a, json_t *config, char *why)
{
	const struct gguf_tensor *down = gguf_layer_tensor(g, config, "ffn_down_exps.weight");

	down = down ? down : gguf_layer_tensor(g, config, "ffn_down.0.weight");
	if (!down)
		return fail(why, EINVAL, "%s: no layer has ffn_down_exps.weight", g->part[0].path);
	return gguf_put(config, a->width_key, json_integer((json_int_t)down->dim[0]), why);
}

/* What of attention shows in the tensors: biases, and in which pairs heads turn. */
static int attention(const struct gguf *g, const struct gguf_arch *a, json_t *config, char *why)
{
	const struct gguf_tensor *bias = gguf_layer_tensor(g, config, "attn_q.bias");
	int err = 0;

	if (bias && !a->bias_key)
		return fail(why, EINVAL, "%s: %s is not supported for %s", g->part[0].path,
			    bias->name, g->arch);
	if (a->bias_key)
		err = gguf_put(config, a->bias_key, json_boolean(bias != NULL), why);
	if (!err && a->interleave)
		err = gguf_put(config, "rope_interleave", json_true(), why);
	/* null: the queries are made in one step. */
	if (!err && a->latent)
		err = gguf_put(config, "q_lora_rank", json_null(), why);
	if (!err && a->latent)
		err = gguf_take_int(g, "%s.attention.q_lora_rank", config, "q_lora_rank", -1, why);
	return err ? err : (a->latent ? gguf_latent_heads : gguf_grouped_heads)(g, config, why);
}

/* A tensor that is not known changes results, or else would not be there. */
static int all_known(const struct gguf *g, char *why)
{
	char name[GGUF_HF_NAME];

	for (size_t i = 0; i < g->tensors; i++) {
		const struct gguf_tensor *t = &g->tensor[i];
		if (!gguf_is_stack(t) && gguf_hf_name(g, t->name, name) == t->name)
			return fail(why, EINVAL, "%s: %s is not supported for %s",
				    g->part[t->part].path, t->name, g->arch);
	}
	return 0;
}

/* Weights may be stored turned by a Hadamard matrix, for llama.cpp to turn what they are multiplied
 * with. Nothing but these keys tells them from others. */
static int check_folded(const struct gguf *g, char *why)
{
	static const char prefix[] = "prism.hadamard.";

	for (size_t i = 0; i < g->keys; i++)
		if (strncmp(g->key[i].name, prefix, sizeof(prefix) - 1) == 0)
			return fail(why, EINVAL,
				    "%s: %s: weights that are folded with a Hadamard transform are "
				    "not supported",
				    g->part[0].path, g->key[i].name);
	return 0;
}

static int fill(const struct gguf *g, const struct gguf_arch *a, json_t *config, char *why)
{
	int err = check_folded(g, why);

	err = err ? err : gguf_put(config, "model_type", json_string(a->model_type), why);

	for (size_t i = 0; i < sizeof(ints) / sizeof(ints[0]) && !err; i++)
		if (a->latent || !ints[i].latent)
			err = gguf_take_int(g, ints[i].gguf, config, ints[i].hf, ints[i].absent,
					    why);
	err = err ? err : sizes(g, config, why);
	err = err ? err : numbers(g, config, why);
	err = err ? err : router(g, a, config, why);
	err = err ? err : experts(g, a, config, why);
	err = err ? err : attention(g, a, config, why);
	err = err ? err : gguf_rope(g, a, config, why);
	err = err ? err : all_known(g, why);
	return err || !a->more ? err : a->more(g, config, why);
}

json_t *gguf_config(const struct gguf *g, char *why)
{
	const struct gguf_arch *a = gguf_arch_find(g->arch);
	json_t *config = json_object();
	int err = config ? 0 : fail(why, ENOMEM, "out of memory");

	if (!err && a)
		err = fill(g, a, config, why);
	else if (!err)
		err = gguf_put(config, "model_type", json_string(g->arch), why);
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
