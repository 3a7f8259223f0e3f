#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a GGUF file of Qwen3-30B-A3B's sizes (architecture qwen3moe) with random weights, for llama.cpp
to be measured with. llama.sh runs it in its chroot, where the gguf module is.

    make_gguf.py FILE [LAYERS [q4_0|q4_k]]

The weights are one piece of random codes repeated, at another offset in each tensor; scales give them the
variance 1 / columns. Speed does not depend on the values. The vocabulary is one that loads: bytes and numbers.
"""
import sys

import gguf
import numpy as np

HIDDEN, VOCAB, HEADS, KV_HEADS, HEAD = 2048, 151936, 32, 4, 128
EXPERTS, CHOSEN, WIDTH, DENSE_WIDTH = 128, 8, 768, 6144
# A block: its weights, its layout; a weight is scale * (code - 8) in Q4_0 and scale * 32 * code - least * 32 in Q4_K, whose
# two groups of 6-bit factors are all 32 here.
KINDS = {
    "q4_0": (gguf.GGMLQuantizationType.Q4_0, gguf.LlamaFileType.MOSTLY_Q4_0, 32,
             np.dtype([("scale", "<f2"), ("codes", "u1", 16)])),
    "q4_k": (gguf.GGMLQuantizationType.Q4_K, gguf.LlamaFileType.MOSTLY_Q4_K_M, 256,
             np.dtype([("scale", "<f2"), ("least", "<f2"), ("factors", "u1", 12), ("codes", "u1", 128)])),
}
POOL = 1 << 18

random = np.random.default_rng(1)
# Codes -8 to 7 have a mean, which by and by outweighs all else: without signs each token chose the same experts.
pool_signs = random.choice(np.float32([-1, 1]), POOL)


def byte_characters():
    """The characters that stand for bytes 0 to 255 in GPT-2's vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b if b in plain else next(others)) for b in range(256)]


def tensors(layers):
    """Names and shapes, rows first, in the order of use; True for those that are quantised."""
    yield "token_embd.weight", (VOCAB, HIDDEN), True
    for i in range(layers):
        b = f"blk.{i}."
        yield b + "attn_norm.weight", (HIDDEN,), False
        yield b + "attn_q.weight", (HEADS * HEAD, HIDDEN), True
        yield b + "attn_q_norm.weight", (HEAD,), False
        yield b + "attn_k.weight", (KV_HEADS * HEAD, HIDDEN), True
        yield b + "attn_k_norm.weight", (HEAD,), False
        yield b + "attn_v.weight", (KV_HEADS * HEAD, HIDDEN), True
        yield b + "attn_output.weight", (HIDDEN, HEADS * HEAD), True
        yield b + "ffn_norm.weight", (HIDDEN,), False
        yield b + "ffn_gate_inp.weight", (EXPERTS, HIDDEN), False
        yield b + "ffn_gate_exps.weight", (EXPERTS, WIDTH, HIDDEN), True
        yield b + "ffn_up_exps.weight", (EXPERTS, WIDTH, HIDDEN), True
        yield b + "ffn_down_exps.weight", (EXPERTS, HIDDEN, WIDTH), True
    yield "output_norm.weight", (HIDDEN,), False
    yield "output.weight", (VOCAB, HIDDEN), True


def make_pool(kind):
    layout = KINDS[kind][3]
    pool = np.zeros(POOL, layout)
    pool["codes"] = random.integers(0, 256, (POOL, layout["codes"].shape[0]), np.uint8)
    if kind == "q4_k":
        # Of groups 0 to 3 the 6 bits in a byte each, of 4 to 7 the lower 4 bits in the last four bytes and the upper 2
        # above those of 0 to 3: 32 is 0b100000.
        pool["factors"] = [0xA0] * 8 + [0] * 4
    return pool


def row_shape(kind, shape):
    _, _, weights, layout = KINDS[kind]
    return shape[:-1] + (shape[-1] // weights * layout.itemsize,)


def values(kind, pool, number, name, shape, quantised):
    if not quantised:
        if len(shape) == 1:
            return np.ones(shape, np.float32)
        return random.standard_normal(shape, np.float32) / np.float32(shape[-1] ** 0.5)
    variance = 1 if name.startswith("token") else 1 / shape[-1]
    scale = (variance / 21.25) ** 0.5  # of the codes -8 to 7
    if kind == "q4_k":
        scale /= 32
        pool["least"] = 7.5 * scale
    pool["scale"] = scale * pool_signs if kind == "q4_0" else scale
    blocks = np.prod(shape) // KINDS[kind][2]
    whole = np.resize(np.roll(pool, 7919 * number), blocks)
    return whole.view(np.uint8).reshape(row_shape(kind, shape))


def add_settings(w, kind, layers):
    w.add_name("random 30b-a3b")
    w.add_file_type(KINDS[kind][1])
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    w.add_block_count(layers)
    w.add_context_length(40960)
    w.add_embedding_length(HIDDEN)
    w.add_feed_forward_length(DENSE_WIDTH)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_key_length(HEAD)
    w.add_value_length(HEAD)
    w.add_rope_freq_base(1e6)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_expert_count(EXPERTS)
    w.add_expert_used_count(CHOSEN)
    w.add_expert_feed_forward_length(WIDTH)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(byte_characters() + ["ab"] + [f"<{i}>" for i in range(257, VOCAB)])
    w.add_token_types([gguf.TokenType.NORMAL] * VOCAB)
    w.add_token_merges(["a b"])
    w.add_eos_token_id(VOCAB - 1)


def main(path, layers="48", kind="q4_0"):
    layers = int(layers)
    pool = make_pool(kind)
    w = gguf.GGUFWriter(path, "qwen3moe")
    add_settings(w, kind, layers)
    for name, shape, quantised in tensors(layers):
        if quantised:
            rows = row_shape(kind, shape)
            w.add_tensor_info(name, rows, np.dtype(np.uint8), int(np.prod(rows)), KINDS[kind][0])
        else:
            w.add_tensor_info(name, shape, np.dtype(np.float32), 4 * int(np.prod(shape)))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_ti_data_to_file()
    for number, tensor in enumerate(tensors(layers)):
        w.write_tensor_data(values(kind, pool, number, *tensor))
    w.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
