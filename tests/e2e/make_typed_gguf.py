#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a small qwen3moe GGUF file whose matrices are random blocks of one type.

    make_typed_gguf.py TYPE TOKENIZER.json OUT.gguf

TYPE: f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, iq4_xs,
mxfp4, iq1_s, iq1_m, iq2_xxs, iq2_xs, iq2_s, iq3_xxs, iq3_s, tq1_0, tq2_0. Every bit of a block is random but its scales, which are such that products neither vanish nor
explode, and minima, which bring the mean to zero. The same file each time: tests/data/gguf-types has
what llama.cpp computes of it. Embedding, norms and routers are f32.
"""

import random
import struct
import sys

from gguf_file import key, vocabulary, write

HIDDEN, WIDTH, HEADS, KV_HEADS, HEAD_DIM, EXPERTS, USED, LAYERS = 256, 256, 4, 2, 64, 4, 2, 2

# type: number, elements of a block, its bytes, where scales lie and their usual values as f16
BLOCKS = {
    "q8_0": (8, 32, 34, {0: 8.5e-4}),
    "q4_0": (2, 32, 18, {0: 0.0135}),
    "q4_1": (3, 32, 20, {0: 0.0135, 2: -0.101}),
    "q5_0": (6, 32, 22, {0: 0.0068}),
    "q5_1": (7, 32, 24, {0: 0.0068, 2: -0.105}),
    "q2_k": (10, 256, 84, {80: 0.0065, 82: 0.0097}),
    "q3_k": (11, 256, 110, {108: 0.0015}),
    "q4_k": (12, 256, 144, {0: 2.5e-4, 2: 1.9e-3}),
    "q5_k": (13, 256, 176, {0: 1.25e-4, 2: 1.9e-3}),
    "q6_k": (14, 256, 210, {208: 4.6e-5}),
    "iq4_nl": (20, 32, 18, {0: 9.5e-4}),
    "iq4_xs": (23, 256, 136, {0: 5e-5}),
    "mxfp4": (39, 32, 17, {}),
    "iq1_s": (19, 256, 50, {0: 0.0087}),
    "iq1_m": (29, 256, 56, {}),
    "iq2_xxs": (16, 256, 66, {0: 0.0012}),
    "iq2_xs": (17, 256, 74, {0: 0.0011}),
    "iq2_s": (22, 256, 82, {0: 0.0011}),
    "iq3_xxs": (18, 256, 98, {0: 4.4e-4}),
    "iq3_s": (21, 256, 110, {0: 4.5e-4}),
    "tq1_0": (34, 256, 54, {52: 0.076}),
    "tq2_0": (35, 256, 66, {64: 0.088}),
}
FLOATS = {"f32": (0, "<f"), "f16": (1, "<e"), "bf16": (30, None)}


def number(kind, v):
    if kind == "bf16":
        return struct.pack("<f", v)[2:]
    return struct.pack(FLOATS[kind][1], v)


def floats(rng, kind, n, spread):
    table = [number(kind, (b - 127.5) / 74 * spread) for b in range(256)]
    return b"".join(map(table.__getitem__, rng.randbytes(n)))


def blocks(rng, kind, n):
    _, elements, size, scales = BLOCKS[kind]
    count = n // elements
    out = bytearray(rng.randbytes(count * size))
    if kind == "tq2_0":  # 3 is of no use and would move the mean
        out = bytearray(b & ~((b & b >> 1 & 0x55) << 1) for b in out)
    # A block's scale and minimum grow together: its mean stays zero.
    factors = [0.6 + i / 20 for i in range(16)]
    tables = {at: [struct.pack("<e", v * f) for f in factors] for at, v in scales.items()}
    for i, b in enumerate(rng.randbytes(count)):
        for at, table in tables.items():
            out[i * size + at:i * size + at + 2] = table[b % 16]
        if kind == "mxfp4":
            out[i * size] = 120 + b % 3
        if kind == "iq1_m":  # a scale in nibbles
            d, = struct.unpack("<H", struct.pack("<e", 0.0087 * factors[b % 16]))
            for k in range(4):
                at = i * size + 49 + 2 * k
                out[at] = out[at] & 15 | (d >> 4 * k & 15) << 4
    return bytes(out)


def matrix(rng, kind, n):
    return floats(rng, kind, n, HIDDEN ** -0.5) if kind in FLOATS else blocks(rng, kind, n)


def tensors(rng, kind, vocab):
    """(name, type's number, dims fastest first, bytes)"""
    typed = FLOATS[kind][0] if kind in FLOATS else BLOCKS[kind][0]

    def m(name, *dims):
        n = 1
        for d in dims:
            n *= d
        return name, typed, dims, matrix(rng, kind, n)

    def norm(name, n):
        return name, 0, (n,), struct.pack(f"<{n}f", *(0.75 + b / 512 for b in rng.randbytes(n)))

    yield "token_embd.weight", 0, (HIDDEN, vocab), floats(rng, "f32", HIDDEN * vocab, 1)
    for i in range(LAYERS):
        b = f"blk.{i}."
        yield norm(b + "attn_norm.weight", HIDDEN)
        yield m(b + "attn_q.weight", HIDDEN, HEADS * HEAD_DIM)
        yield m(b + "attn_k.weight", HIDDEN, KV_HEADS * HEAD_DIM)
        yield m(b + "attn_v.weight", HIDDEN, KV_HEADS * HEAD_DIM)
        yield m(b + "attn_output.weight", HEADS * HEAD_DIM, HIDDEN)
        yield norm(b + "attn_q_norm.weight", HEAD_DIM)
        yield norm(b + "attn_k_norm.weight", HEAD_DIM)
        yield norm(b + "ffn_norm.weight", HIDDEN)
        yield (b + "ffn_gate_inp.weight", 0, (HIDDEN, EXPERTS),
               floats(rng, "f32", HIDDEN * EXPERTS, HIDDEN ** -0.5))
        yield m(b + "ffn_gate_exps.weight", HIDDEN, WIDTH, EXPERTS)
        yield m(b + "ffn_up_exps.weight", HIDDEN, WIDTH, EXPERTS)
        yield m(b + "ffn_down_exps.weight", WIDTH, HIDDEN, EXPERTS)
    yield norm("output_norm.weight", HIDDEN)
    yield m("output.weight", HIDDEN, vocab)


def main(kind, tokenizer, out):
    rng = random.Random("expertfs")
    a = "qwen3moe."
    words, vocab = vocabulary(tokenizer)
    keys = [
        key("general.architecture", "s", "qwen3moe"),
        key(a + "block_count", "u32", LAYERS), key(a + "context_length", "u32", 1024),
        key(a + "embedding_length", "u32", HIDDEN), key(a + "feed_forward_length", "u32", 512),
        key(a + "expert_feed_forward_length", "u32", WIDTH),
        key(a + "attention.head_count", "u32", HEADS),
        key(a + "attention.head_count_kv", "u32", KV_HEADS),
        key(a + "attention.key_length", "u32", HEAD_DIM),
        key(a + "attention.value_length", "u32", HEAD_DIM),
        key(a + "attention.layer_norm_rms_epsilon", "f32", 1e-6),
        key(a + "rope.freq_base", "f32", 10000), key(a + "expert_count", "u32", EXPERTS),
        key(a + "expert_used_count", "u32", USED)] + words
    write(out, keys, tensors(rng, kind, vocab))


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in {**BLOCKS, **FLOATS}:
        sys.exit(__doc__)
    main(*sys.argv[1:])
