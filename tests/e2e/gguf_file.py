# SPDX-License-Identifier: Apache-2.0
"""GGUF files as make_gguf.py and make_typed_gguf.py write them: keys, a vocabulary, tensors."""

import json
import struct

ALIGN = 32
TYPES = {"u16": (2, "<H"), "u32": (4, "<I"), "f32": (6, "<f"), "bool": (7, "<B")}
BOOL, I32, STRING, ARRAY = 7, 5, 8, 9


def text(s):
    s = s.encode()
    return struct.pack("<Q", len(s)) + s


def key(name, kind, value):
    if kind == "s":
        return text(name) + struct.pack("<I", STRING) + text(value)
    number, form = TYPES[kind]
    return text(name) + struct.pack("<I", number) + struct.pack(form, value)


def array_key(name, kind, n, data):
    """n elements of type `kind`, a number, whose bytes are data."""
    return text(name) + struct.pack("<IIQ", ARRAY, kind, n) + data


def vocabulary(path, few=False):
    """(the keys of tokenizer.ggml, number of tokens); few: only the first tokens, and no merges."""
    with open(path, encoding="utf-8") as f:
        t = json.load(f)
    kinds = {token: 1 for token in t["model"]["vocab"]}
    kinds.update({a["content"]: 3 if a["special"] else 4 for a in t["added_tokens"]})
    ids = {**t["model"]["vocab"], **{a["content"]: a["id"] for a in t["added_tokens"]}}
    tokens = sorted(ids, key=ids.get)
    merges = [m if isinstance(m, str) else " ".join(m) for m in t["model"]["merges"]]
    assert [ids[x] for x in tokens] == list(range(len(tokens)))
    if few:
        tokens, merges = tokens[:20], []
    n, types = len(tokens), [kinds[x] for x in tokens]
    return [key("tokenizer.ggml.model", "s", "gpt2"), key("tokenizer.ggml.pre", "s", "glm4"),
            array_key("tokenizer.ggml.tokens", STRING, n, b"".join(map(text, tokens))),
            array_key("tokenizer.ggml.token_type", I32, n, struct.pack(f"<{n}i", *types)),
            array_key("tokenizer.ggml.merges", STRING, len(merges), b"".join(map(text, merges)))], n


def write(path, keys, tensors, header_only=False):
    """tensors: (name, type's number, dims fastest first, bytes), each asked for once."""
    infos, data, count = b"", bytearray(), 0
    for name, kind, dims, x in tensors:
        infos += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data))
        data += x + bytes(-len(x) % ALIGN)
        count += 1
    head = b"GGUF" + struct.pack("<IQQ", 3, count, len(keys)) + b"".join(keys) + infos
    with open(path, "wb") as f:
        f.write(head if header_only else head + bytes(-len(head) % ALIGN) + data)
