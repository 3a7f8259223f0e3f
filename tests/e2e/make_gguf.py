#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a GGUF file of a small glm_moe_dsa checkpoint, with names, keys and forms as llama.cpp's
converter has them, so that a mounted GGUF can be compared with the reference.

    make_gguf.py CHECKPOINT OUT.gguf [--experts TYPE] [--split N] [--merged | --apart] [--whole-kv-b]
                 [--template JINJA] [--header-only]

TYPE: f32 (default), f16, q8_0, q4_0. --split N: N files, PREFIX-00001-of-0000N.gguf; OUT names the
first. --merged: gate and up of an expert in one tensor. --apart: each matrix of an expert is a tensor, as
in files of early 2024. --whole-kv-b: attn_kv_b as older files have it. --template: a file with the chat
template. --header-only: no data and hardly a vocabulary, a seed for the fuzzers.
"""

import argparse
import array
import json
import struct

from gguf_file import BOOL, array_key, key, vocabulary, write
from safetensors_file import read

TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8}

NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.kv_b_proj": "attn_kv_b",
    "self_attn.o_proj": "attn_output", "self_attn.indexer.wq_b": "indexer.attn_q_b",
    "self_attn.indexer.wk": "indexer.attn_k", "self_attn.indexer.weights_proj": "indexer.proj",
    "self_attn.indexer.k_norm": "indexer.k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp", "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp", "mlp.shared_experts.down_proj": "ffn_down_shexp",
}
GLOBALS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def q8_0(x):
    out = bytearray()
    for i in range(0, len(x), 32):
        b = x[i:i + 32]
        d = max(map(abs, b)) / 127
        out += struct.pack("<e32b", d, *(round(v / d) if d else 0 for v in b))
    return bytes(out)


def q4_0(x):
    out = bytearray()
    for i in range(0, len(x), 32):
        b = x[i:i + 32]
        d = max(b, key=abs) / -8
        q = [min(15, int(v / d + 8.5)) if d else 8 for v in b]
        out += struct.pack("<e16B", d, *(q[j] | q[j + 16] << 4 for j in range(16)))
    return bytes(out)


def encode(kind, x):
    if kind == "f32":
        return x.tobytes()
    if kind == "f16":
        return struct.pack(f"<{len(x)}e", *x)
    return q8_0(x) if kind == "q8_0" else q4_0(x)


def encoded(tensors):
    return ((name, TYPES[kind], dims, encode(kind, x)) for name, kind, dims, x in tensors)


def dense_name(name):
    stem, _, end = name.rpartition(".")
    if stem in GLOBALS:
        return f"{GLOBALS[stem]}.{end}"
    _, _, layer, rest = name.split(".", 3)
    if rest == "mlp.gate.e_score_correction_bias":
        return f"blk.{layer}.exp_probs_b.bias"
    return f"blk.{layer}.{NAMES[rest.rpartition('.')[0]]}.{end}"


def cut_kv_b(c, layer, x):
    """attn_k_b, transposed head by head, and attn_v_b."""
    nope, v, rank, heads = c["qk_nope_head_dim"], c["v_head_dim"], c["kv_lora_rank"], c["num_attention_heads"]
    k_b, v_b = array.array("f"), array.array("f")
    for h in range(heads):
        at = h * (nope + v) * rank
        for r in range(rank):
            k_b.extend(x[at + i * rank + r] for i in range(nope))
        v_b.extend(x[at + nope * rank:at + (nope + v) * rank])
    return [(f"blk.{layer}.attn_k_b.weight", "f32", [nope, rank, heads], k_b),
            (f"blk.{layer}.attn_v_b.weight", "f32", [rank, v, heads], v_b)]


def convert(c, tensors, o):
    """A list of (name, type, dims fastest first, floats)."""
    out, experts = [], {}
    for name, (shape, x) in tensors.items():
        if ".mlp.experts." in name:
            _, _, layer, _, _, e, which, _ = name.split(".")
            experts.setdefault(int(layer), {})[which.removesuffix("_proj"), int(e)] = (shape, x)
        elif name.endswith("kv_b_proj.weight") and not o.whole_kv_b:
            out += cut_kv_b(c, int(name.split(".")[2]), x)
        else:
            out.append((dense_name(name), "f32", shape[::-1], x))
    stacks = [("gate_up", ("gate", "up")), ("down", ("down",))] if o.merged else \
        [(w, (w,)) for w in ("gate", "up", "down")]
    for layer, of in experts.items():
        count = len(of) // 3
        if o.apart:
            out += [(f"blk.{layer}.ffn_{w}.{e}.weight", o.experts, of[w, e][0][::-1], of[w, e][1])
                    for e in range(count) for w in ("gate", "down", "up")]
            continue
        for stack, which in stacks:
            x = array.array("f")
            for e in range(count):
                for w in which:
                    x.extend(of[w, e][1])
            rows, cols = of[which[0], 0][0]
            out.append((f"blk.{layer}.ffn_{stack}_exps.weight", o.experts,
                        [cols, rows * len(which), count], x))
    return out


def metadata(c, eos):
    a = "glm-dsa."
    rope, nope = c["qk_rope_head_dim"], c["qk_nope_head_dim"]
    keys = [
        key("general.architecture", "s", "glm-dsa"), key("general.name", "s", "glm-s"),
        key(a + "block_count", "u32", c["num_hidden_layers"] + c.get("num_nextn_predict_layers", 0)),
        key(a + "nextn_predict_layers", "u32", c.get("num_nextn_predict_layers", 0)),
        key(a + "context_length", "u32", c["max_position_embeddings"]),
        key(a + "embedding_length", "u32", c["hidden_size"]),
        key(a + "feed_forward_length", "u32", c["intermediate_size"]),
        key(a + "attention.head_count", "u32", c["num_attention_heads"]),
        key(a + "attention.head_count_kv", "u32", 1),
        key(a + "attention.key_length", "u32", c["kv_lora_rank"] + rope),
        key(a + "attention.value_length", "u32", c["kv_lora_rank"]),
        key(a + "attention.key_length_mla", "u32", nope + rope),
        key(a + "attention.value_length_mla", "u32", c["v_head_dim"]),
        key(a + "attention.q_lora_rank", "u32", c["q_lora_rank"]),
        key(a + "attention.kv_lora_rank", "u32", c["kv_lora_rank"]),
        key(a + "attention.layer_norm_rms_epsilon", "f32", c["rms_norm_eps"]),
        key(a + "attention.indexer.head_count", "u32", c["index_n_heads"]),
        key(a + "attention.indexer.key_length", "u32", c["index_head_dim"]),
        key(a + "attention.indexer.top_k", "u32", c["index_topk"]),
        array_key(a + "attention.indexer.types", BOOL, len(c["indexer_types"]),
                  bytes(t == "full" for t in c["indexer_types"])),
        key(a + "rope.dimension_count", "u32", rope),
        key(a + "rope.freq_base", "f32", c["rope_parameters"]["rope_theta"]),
        key(a + "leading_dense_block_count", "u32", c["first_k_dense_replace"]),
        key(a + "expert_count", "u32", c["n_routed_experts"]),
        key(a + "expert_used_count", "u32", c["num_experts_per_tok"]),
        key(a + "expert_shared_count", "u32", c["n_shared_experts"]),
        key(a + "expert_group_count", "u32", c["n_group"]),
        key(a + "expert_group_used_count", "u32", c["topk_group"]),
        key(a + "expert_feed_forward_length", "u32", c["moe_intermediate_size"]),
        key(a + "expert_weights_scale", "f32", c["routed_scaling_factor"]),
        key(a + "expert_weights_norm", "bool", c["norm_topk_prob"]),
        key(a + "expert_gating_func", "u32", 2),
    ]
    return keys + [key("tokenizer.ggml.eos_token_id", "u32", eos)]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("checkpoint")
    p.add_argument("out")
    p.add_argument("--experts", default="f32", choices=TYPES)
    p.add_argument("--split", type=int, default=1)
    p.add_argument("--merged", action="store_true")
    p.add_argument("--apart", action="store_true")
    p.add_argument("--whole-kv-b", action="store_true")
    p.add_argument("--template")
    p.add_argument("--header-only", action="store_true")
    o = p.parse_args()
    with open(o.checkpoint + "/config.json", encoding="utf-8") as f:
        c = json.load(f)
    words, _ = vocabulary(o.checkpoint + "/tokenizer.json", o.header_only)
    keys = metadata(c, c["eos_token_id"][0]) + words
    if o.template:
        with open(o.template, encoding="utf-8") as f:
            keys.append(key("tokenizer.chat_template", "s", f.read()))
    tensors = convert(c, read(o.checkpoint), o)
    if o.split == 1:
        write(o.out, keys, encoded(tensors), o.header_only)
        return
    for i in range(o.split):
        mine = tensors[i::o.split]
        of = [key("split.no", "u16", i), key("split.count", "u16", o.split)]
        if i == 0:
            of += keys + [key("split.tensors.count", "u32", len(tensors))]
        write(o.out.replace("-00001-of-", f"-{i + 1:05d}-of-"), of, encoded(mine), o.header_only)


if __name__ == "__main__":
    main()
