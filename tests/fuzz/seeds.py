# SPDX-License-Identifier: Apache-2.0
"""Small seeds for the fuzzers from tests/data.

    seeds.py {gguf,safetensors,tokenizer,chat} DATA FOLDER
"""

import json
import pathlib
import struct
import sys

# Bytes of GGUF's plain types; 8 is a string, 9 an array.
GGUF_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


class Gguf:
    """Steps through a header."""

    def __init__(self, data):
        self.data, self.at = data, 8

    def number(self, form):
        value, = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def text(self):
        n = self.number("Q")
        self.at += n

    def value(self, kind):
        if kind == 8:
            self.text()
        elif kind == 9:
            kind, n = self.number("I"), self.number("Q")
            for _ in range(n):
                self.value(kind)
        else:
            self.at += GGUF_BYTES[kind]

    def header(self):
        tensors, keys = self.number("Q"), self.number("Q")
        for _ in range(keys):
            self.text()
            self.value(self.number("I"))
        for _ in range(tensors):
            self.text()
            dims = self.number("I")
            self.at += 8 * dims + 12
        return self.data[:self.at]


def gguf(data):
    for path in data.glob("gguf-families/*/model.gguf"):
        yield Gguf(path.read_bytes()).header()


def safetensors(_):
    for header in [
            b'{"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},'
            b'"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
            b'"none":{"dtype":"F4","shape":[0],"data_offsets":[16,16]}}',
            b'{"__metadata__":{"format":"pt"},"c":{"dtype":"I64","shape":[],"data_offsets":[0,8]},'
            b'"d":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[8,16]}}  ']:
        yield struct.pack("<Q", len(header)) + header + bytes(16)


def tokenizer(data):
    """With the first words of the vocabulary, and what is merged from them."""
    for path in [data / "glm-s/tokenizer.json", *data.glob("tokenizer/*.json")]:
        t = json.loads(path.read_text(encoding="utf-8"))
        if "model" not in t:
            continue
        keep = {k: v for k, v in t["model"]["vocab"].items() if v < 300}
        parts = [(m, m.split(" ") if isinstance(m, str) else m) for m in t["model"]["merges"]]
        t["model"]["merges"] = [m for m, p in parts if all(x in keep for x in [*p, "".join(p)])]
        t["model"]["vocab"] = keep
        yield json.dumps(t, ensure_ascii=False).encode()


def chat(data):
    golden = json.loads((data / "chat/golden.json").read_text(encoding="utf-8"))
    for i, talk in enumerate(golden["conversations"]):
        o = golden["options"][i % len(golden["options"])]
        yield json.dumps({"messages": talk["messages"], "tools": talk["tools"] or [], **o}).encode()


def main():
    name, data, folder = sys.argv[1:]
    for i, seed in enumerate(globals()[name](pathlib.Path(data))):
        (pathlib.Path(folder) / f"{name}-{i}").write_bytes(seed)


if __name__ == "__main__":
    main()
