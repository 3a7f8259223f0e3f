/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of dense tensors: those of llama.cpp to those of Hugging Face checkpoints. One table, since
 * llama.cpp has one set of names for all architectures; where Hugging Face's differ for one, its row
 * in gguf_arch.c has them. Source: gguf-py tensor_mapping.py,
 * convert_hf_to_gguf.py.
 *
 * Two have no counterpart there: self_attn.k_b_proj and v_b_proj, the halves into which kv_b_proj
 * is cut, the first one transposed head by head (engine/weights.h).
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "expertfs/gguf_arch.h"
#include "expertfs/gguf_model.h"

#define WEIGHT ".weight"

static const struct gguf_pair globals[] = {
	{ "token_embd.weight", "model.embed_tokens.weight" },
	{ "output_norm.weight", "model.norm.weight" },
	{ "output.weight", "lm_head.weight" },
	{ NULL, NULL },
};

/* Behind "blk.N." and "model.layers.N.", without the ending .weight. */
static const struct gguf_pair of_layers[] = {
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
	{ NULL, NULL },
};

/* Whole names behind "blk.N.": those whose ending changes as well, and biases. */
static const struct gguf_pair others[] = {
	{ "exp_probs_b.bias", "mlp.gate.e_score_correction_bias" },
	{ "exp_probs_b", "mlp.gate.e_score_correction_bias" },
	{ "attn_sinks.weight", "self_attn.sinks" },
	{ "attn_q.bias", "self_attn.q_proj.bias" },
	{ "attn_k.bias", "self_attn.k_proj.bias" },
	{ "attn_v.bias", "self_attn.v_proj.bias" },
	{ "attn_output.bias", "self_attn.o_proj.bias" },
	{ "indexer.k_norm.bias", "self_attn.indexer.k_norm.bias" },
	{ NULL, NULL },
};

/* The counterpart of the first n bytes of a name, and of all of it. */
static const char *stem(const struct gguf_pair *p, const char *name, size_t n)
{
	for (; p && p->gguf; p++)
		if (strncmp(p->gguf, name, n) == 0 && p->gguf[n] == 0)
			return p->hf;
	return NULL;
}

static const char *whole(const struct gguf_pair *p, const char *name)
{
	return stem(p, name, strlen(name));
}

/* The counterpart of what stands behind "blk.7."; *end is what stays behind it. */
static const char *in_layer(const struct gguf_pair *own, const char *rest, const char **end)
{
	const char *hf = whole(own, rest);
	size_t n = strlen(rest), w = strlen(WEIGHT);

	*end = "";
	hf = hf ? hf : whole(others, rest);
	if (hf || n < w || strcmp(rest + n - w, WEIGHT) != 0)
		return hf;
	*end = WEIGHT;
	hf = stem(own, rest, n - w);
	return hf ? hf : stem(of_layers, rest, n - w);
}

const char *gguf_hf_name(const struct gguf *g, const char *name, char buf[GGUF_HF_NAME])
{
	const struct gguf_arch *a = gguf_arch_find(g->arch);
	const char *rest, *end, *hf;
	uint32_t layer;

	if (strncmp(name, "blk.", 4) != 0) {
		hf = whole(globals, name);
		return hf ? hf : name;
	}
	rest = gguf_in_layer(name, &layer);
	hf = rest ? in_layer(a ? a->names : NULL, rest, &end) : NULL;
	if (hf)
		snprintf(buf, GGUF_HF_NAME, "model.layers.%" PRIu32 ".%s%s", layer, hf, end);
	return hf ? buf : name;
}
