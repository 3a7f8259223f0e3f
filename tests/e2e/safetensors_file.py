# SPDX-License-Identifier: Apache-2.0
"""Safetensors files as make_gguf.py and make_container.py read them. Only the standard library."""

import array
import json
import os
import struct


def read(directory):
    """name -> (shape, floats), of F32 and BF16 tensors"""
    out = {}
    for name in sorted(os.listdir(directory)):
        if not name.endswith(".safetensors"):
            continue
        with open(os.path.join(directory, name), "rb") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
            data = f.read()
        header.pop("__metadata__", None)
        for tensor, entry in header.items():
            raw = data[slice(*entry["data_offsets"])]
            if entry["dtype"] == "BF16":
                wide = bytearray(2 * len(raw))
                wide[2::4], wide[3::4] = raw[0::2], raw[1::2]
                raw = bytes(wide)
            else:
                assert entry["dtype"] == "F32", tensor
            out[tensor] = entry["shape"], array.array("f", raw)
    return out
