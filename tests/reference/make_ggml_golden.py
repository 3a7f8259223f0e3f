#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# What the dequantiser of gguf-py (python3-gguf of Debian sid; ggml-org/llama.cpp, gguf-py/gguf/quants.py)
# makes of blocks whose every byte comes from a generator that tests/unit/test_ggml.c has too:
#
#     make_ggml_golden.py >tests/data/ggml/golden.txt
#
# A line is: type, blocks, SHA-256 of all their float32s, little-endian. Halves and bfloat16s that are
# no finite number get another exponent, since processors differ in the bits of a NaN.
import hashlib
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize

BLOCKS = 4096

# Where in a block halves lie.
HALVES = {
    T.F16: [0], T.Q8_0: [0], T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q2_K: [80, 82],
    T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0], T.IQ4_XS: [0], T.MXFP4: [],
    T.IQ1_S: [0], T.IQ1_M: [], T.IQ2_XXS: [0], T.IQ2_XS: [0], T.IQ2_S: [0], T.IQ3_XXS: [0], T.IQ3_S: [0],
    T.TQ1_0: [52], T.TQ2_0: [64],
}


def generate(n, seed):
    """The upper bytes of x = x * 1664525 + 1013904223 modulo 2^32."""
    x = np.empty(n, np.uint64)
    state = seed
    for i in range(n):
        state = (state * 1664525 + 1013904223) & 0xffffffff
        x[i] = state >> 24
    return x.astype(np.uint8)


def main():
    for t, halves in HALVES.items():
        size = GGML_QUANT_SIZES[t][1]
        blocks = generate(BLOCKS * size, int(t) + 1).reshape(BLOCKS, size)
        for at in halves:
            high = blocks[:, at + 1]
            high[(high & 0x7c) == 0x7c] ^= 0x40
        if t == T.IQ1_M:  # a half of four nibbles
            high = blocks[:, 55]
            high[((high & 0x70) == 0x70) & (blocks[:, 53] >> 6 == 3)] ^= 0x40
        if t == T.F16:
            y = blocks.reshape(-1).view(np.float16).astype(np.float32)
        else:
            y = dequantize(blocks, t).astype(np.float32)
        if not np.all(~np.isnan(y)):
            sys.exit(f"{t.name}: not a number")
        print(t.name.lower(), BLOCKS, hashlib.sha256(y.astype("<f4").tobytes()).hexdigest())


main()
