/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of dense tensors: those of llama.cpp to those of Hugging Face checkpoints. One table, since
 * llama.cpp has one set of names for all architectures. Source: gguf-py tensor_mapping.py,
 * convert_hf_to_gguf.py.
 *
 * Two have no counterpart there: self_attn.k_b_proj and v_b_proj, the halves into which kv_b_proj
 * is cut, the first one transposed head by head (engine/weights.h).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/gguf_model.h"

struct pair {
	const char *gguf, *hf;
};

static const struct pair globals[] = {
	{ "token_embd", "model.embed_tokens" },
	{ "output_norm", "model.norm" },
	{ "output", "lm_head" },
};

/* Behind "blk.N." and "model.layers.N.", without the ending .weight or .bias. */
static const struct pair of_layers[] = {
	{ "attn_norm", "input_layernorm" },
	{ "ffn_norm", "post_attention_layernorm" },
	{ "post_attention_norm", "post_attention_layernorm" },
	{ "attn_q", "self_attn.q_proj" },
	{ "attn_k", "self_attn.k_proj" },
	{ "attn_v", "self_attn.v_proj" },
	{ "attn_output", "self_attn.o_proj" },
	{ "attn_q_norm", "self_attn.q_norm" },
	{ "attn_k_norm", "self_attn.k_norm" },
	{ "attn_q_a", "self_attn.q_a_proj" },
	{ "attn_q_a_norm", "self_attn.q_a_layernorm" },
	{ "attn_q_b", "self_attn.q_b_proj" },
	{ "attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa" },
	{ "attn_kv_a_norm", "self_attn.kv_a_layernorm" },
	{ "attn_kv_b", "self_attn.kv_b_proj" },
	{ "attn_k_b", "self_attn.k_b_proj" },
	{ "attn_v_b", "self_attn.v_b_proj" },
	{ "indexer.attn_q_b", "self_attn.indexer.wq_b" },
	{ "indexer.attn_k", "self_attn.indexer.wk" },
	{ "indexer.proj", "self_attn.indexer.weights_proj" },
	{ "indexer.k_norm", "self_attn.indexer.k_norm" },
	{ "ffn_gate", "mlp.gate_proj" },
	{ "ffn_up", "mlp.up_proj" },
	{ "ffn_down", "mlp.down_proj" },
	{ "ffn_gate_inp", "mlp.gate" },
	{ "ffn_gate_shexp", "mlp.shared_experts.gate_proj" },
	{ "ffn_up_shexp", "mlp.shared_experts.up_proj" },
	{ "ffn_down_shexp", "mlp.shared_experts.down_proj" },
	{ "nextn.eh_proj", "eh_proj" },
	{ "nextn.enorm", "enorm" },
	{ "nextn.hnorm", "hnorm" },
	{ "nextn.embed_tokens", "embed_tokens" },
	{ "nextn.shared_head_norm", "shared_head.norm" },
	{ "nextn.shared_head_head", "shared_head.head" },
};

/* Whole names behind "blk.N.": those whose ending changes as well. */
static const struct pair others[] = {
	{ "exp_probs_b.bias", "mlp.gate.e_score_correction_bias" },
	{ "exp_probs_b", "mlp.gate.e_score_correction_bias" },
	{ "attn_sinks.weight", "self_attn.sinks" },
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* The counterpart of the first n bytes of name. */
static const char *find(const struct pair *p, size_t count, const char *name, size_t n)
{
	for (size_t i = 0; i < count; i++)
		if (strncmp(p[i].gguf, name, n) == 0 && p[i].gguf[n] == 0)
			return p[i].hf;
	return NULL;
}

const char *gguf_hf_name(const char *name, char buf[GGUF_HF_NAME])
{
	const char *rest = name, *end = strrchr(name, '.'), *hf;
	char *after = NULL;
	unsigned long layer = 0;
	bool in_layer = strncmp(name, "blk.", 4) == 0;

	if (in_layer) {
		layer = strtoul(name + 4, &after, 10);
		if (after == name + 4 || *after != '.')
			return name;
		rest = after + 1;
		hf = find(others, COUNT(others), rest, strlen(rest));
		if (hf) {
			snprintf(buf, GGUF_HF_NAME, "model.layers.%lu.%s", layer, hf);
			return buf;
		}
	}
	if (!end || end < rest)
		return name;
	size_t n = (size_t)(end - rest);
	hf = in_layer ? find(of_layers, COUNT(of_layers), rest, n)
		      : find(globals, COUNT(globals), rest, n);
	if (!hf)
		return name;
	if (in_layer)
		snprintf(buf, GGUF_HF_NAME, "model.layers.%lu.%s%s", layer, hf, end);
	else
		snprintf(buf, GGUF_HF_NAME, "%s%s", hf, end);
	return buf;
}
