#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes one of Colibri's containers from a small checkpoint, and the checkpoint that it means.

    make_container.py CHECKPOINT CONTAINER FLOATS [--experts FORMAT] [--dense FORMAT] [--io FORMAT]
                      [--half] [--files N] [--stamp NAME=FORMAT]... [--drop REGEX] [--nan NAME]

FORMAT is f32, int8 or int4 (a scale for each row), int4-N (for each N weights of a row) or fp8 (for
each 128 x 128). Layout and choice of tensors as in docs/FORMATS.md and the converter of
JustVugg/colibri: beside the bytes NAME its scales NAME.qs, as flat tensors; norms, router and vectors
stay F32. FLOATS gets the same tensors as F32: each number times its scale.

--half: scales that float16 holds. The Nth --stamp goes into colibri.fmt of the Nth file, fp8 is
always stamped. --drop leaves tensors out of both; --nan makes the first scale of NAME one that is none.
Only the standard library.
"""
import argparse
import array
import bisect
import json
import os
import re
import shutil
import struct

from safetensors_file import read

E4M3 = [(8 + (b & 7)) * 2.0 ** ((b >> 3) - 10) if b >> 3 else (b & 7) * 2.0 ** -9 for b in range(127)]


def write(path, tensors, stamps):
    """tensors: [(name, dtype, shape, bytes)]"""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    if stamps:
        header["__metadata__"]["colibri.fmt"] = json.dumps(stamps)
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(t[3] for t in tensors))


def rounded(x, half):
    return struct.unpack("<e", struct.pack("<e", x))[0] if half else \
        struct.unpack("<f", struct.pack("<f", x))[0]


def integers(values, cols, bits, group, half):
    """bytes, scales, floats of a matrix; each row is groups with a scale each"""
    data, scales, floats = bytearray(), array.array("f"), array.array("f")
    top = (1 << (bits - 1)) - 1
    for first in range(0, len(values), cols):
        codes = []
        for at in range(first, first + cols, group):
            part = values[at:min(at + group, first + cols)]
            s = rounded(max(max(map(abs, part)) / top, 1e-8 if not half else 1e-7), half)
            some = [max(-top - 1, min(top, round(w / s))) for w in part]
            scales.append(s)
            floats.extend(s * c for c in some)
            codes += some
        if bits == 8:
            data += bytes(c & 255 for c in codes)
        else:
            codes.append(-8)  # the other half of an odd row's last byte stays 0
            data += bytes((codes[i] + 8) | (codes[i + 1] + 8) << 4 for i in range(0, cols, 2))
    return bytes(data), scales, floats


def e4m3(x):
    i = bisect.bisect_left(E4M3, abs(x))
    if i == len(E4M3) or (i and abs(x) - E4M3[i - 1] < E4M3[i] - abs(x)):
        i -= 1
    return i | (128 if x < 0 else 0)


def fp8(values, cols, half):
    rows, wide = len(values) // cols, -(-cols // 128)
    tops = [0.0] * (-(-rows // 128) * wide)
    for i, w in enumerate(values):
        at = i // cols // 128 * wide + i % cols // 128
        tops[at] = max(tops[at], abs(w))
    scales = array.array("f", (rounded(max(t / 448, 1e-7), half) for t in tops))
    data, floats = bytearray(), array.array("f")
    for i, w in enumerate(values):
        s = scales[i // cols // 128 * wide + i % cols // 128]
        b = e4m3(w / s)
        data.append(b)
        floats.append(s * (-E4M3[b & 127] if b & 128 else E4M3[b]))
    return bytes(data), scales, floats


def format_of(name, shape, args):
    """As the converter sorts tensors."""
    if len(shape) != 2 or re.search(r"norm\.weight$|mlp\.gate\.weight$|bias$", name):
        return "f32"
    if ".mlp.experts." in name:
        return args.experts
    return args.io if name in ("model.embed_tokens.weight", "lm_head.weight") else args.dense


def main():
    p = argparse.ArgumentParser()
    p.add_argument("checkpoint")
    p.add_argument("container")
    p.add_argument("floats")
    for kind in ("experts", "dense", "io"):
        p.add_argument("--" + kind, default="f32")
    p.add_argument("--half", action="store_true")
    p.add_argument("--files", type=int, default=1)
    p.add_argument("--stamp", action="append", default=[])
    p.add_argument("--drop")
    p.add_argument("--nan")
    args = p.parse_args()
    tensors, floats = [], []
    stamps = [{} for _ in range(args.files)]
    for name, (shape, values) in read(args.checkpoint).items():
        if args.drop and re.search(args.drop, name):
            continue
        form = format_of(name, shape, args)
        if form == "f32":
            tensors.append((name, "F32", shape, values.tobytes()))
        else:
            if form == "fp8":
                data, scales, values = fp8(values, shape[1], args.half)
                stamps[0][name] = "fp8-e4m3-b128"
            else:
                bits, _, group = form[3:].partition("-")
                data, scales, values = integers(values, shape[1], int(bits),
                                                int(group or shape[1]), args.half)
            if name == args.nan:
                scales[0] = float("nan")
            tensors.append((name, "U8", [len(data)], data))
            tensors.append((name + ".qs", "F32", [len(scales)], scales.tobytes()))
        floats.append((name, "F32", shape, values.tobytes()))
    for i, stamp in enumerate(args.stamp):
        name, form = stamp.split("=")
        stamps[i % args.files][name] = form
    for directory in (args.container, args.floats):
        os.makedirs(directory)
        for name in ("config.json", "tokenizer.json"):
            shutil.copy(os.path.join(args.checkpoint, name), directory)
    for i in range(args.files):
        write(os.path.join(args.container, "out-%05d.safetensors" % i), tensors[i::args.files], stamps[i])
    write(os.path.join(args.floats, "model.safetensors"), floats, None)


main()
