# SPDX-License-Identifier: Apache-2.0
"""Small seeds for the fuzzers from tests/data.

    seeds.py {gguf,split,safetensors,checkpoint,tokenizer,chat,session,shard,trace,control,status} DATA FOLDER
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

    def key(self):
        start = self.at
        self.text()
        self.value(self.number("I"))
        return self.data[start:self.at]

    def tensor(self):
        start = self.at
        self.text()
        dims = self.number("I")
        self.at += 8 * dims + 12
        return self.data[start:self.at]

    def parts(self):
        """Its keys and its tensors, each as it stands there."""
        tensors, keys = self.number("Q"), self.number("Q")
        return [self.key() for _ in range(keys)], [self.tensor() for _ in range(tensors)]

    def header(self):
        self.parts()
        return self.data[:self.at]


def gguf(data):
    for path in data.glob("gguf-families/*/model.gguf"):
        yield Gguf(path.read_bytes()).header()


def split_key(name, kind, form, value):
    return struct.pack("<Q", len(name)) + name + struct.pack("<I" + form, kind, value)


def split_part(no, count, total, keys, tensors):
    own = [split_key(b"split.no", 2, "H", no), split_key(b"split.count", 2, "H", count)]
    if no == 0:
        own += keys + [split_key(b"split.tensors.count", 5, "i", total)]
    return b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(own)) + b"".join(own + tensors)


def split(data):
    """The same as sets of 2 to 4 files, as fuzz_split.c takes them. Tensors stay at their offsets."""
    for i, path in enumerate(sorted(data.glob("gguf-families/*/model.gguf"))):
        keys, tensors = Gguf(path.read_bytes()).parts()
        count, n = 2 + i % 3, len(tensors)
        parts = [split_part(no, count, n, keys, tensors[no::count]) for no in range(count)]
        yield bytes([count - 1]) + b"".join(parts)
        if i > 0:
            continue
        first, second = parts
        for how, other in [(1 | 4, b""), (1 | 32, b""), (0, second), (1, split_part(0, 2, n, [], tensors[1::2])),
                           (1, split_part(1, 3, n, [], tensors[1::2])), (1, split_part(1, 2, n, [], tensors[3::2])),
                           (1, split_part(1, 2, n, [], tensors[0::2])), (2, second), (2 | 8, second)]:
            yield bytes([how]) + first + other


def safetensors(_):
    for header in [
            b'{"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},'
            b'"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
            b'"none":{"dtype":"F4","shape":[0],"data_offsets":[16,16]}}',
            b'{"__metadata__":{"format":"pt"},"c":{"dtype":"I64","shape":[],"data_offsets":[0,8]},'
            b'"d":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[8,16]}}  ']:
        yield struct.pack("<Q", len(header)) + header + bytes(16)


def safetensors_header(path):
    data = path.read_bytes()
    size, = struct.unpack_from("<Q", data)
    return json.loads(data[8:8 + size])


def as_colibri(header):
    """Its matrices as 8-bit integers, with a scale a row."""
    tensors, at = {}, 0

    def put(name, dtype, shape, size):
        nonlocal at
        tensors[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size

    for name, t in header.items():
        if name == "__metadata__":
            continue
        if len(t["shape"]) == 2 and "gate.weight" not in name:
            rows, cols = t["shape"]
            put(name, "U8", [rows * cols], rows * cols)
            put(name + ".qs", "F32", [rows], 4 * rows)
        else:
            first, end = t["data_offsets"]
            put(name, t["dtype"], t["shape"], end - first)
    return {"__metadata__": {"colibri.fmt": "{}"}, **tensors}


def checkpoint(data):
    config = {"chat_template": "{{ messages }}", "bos_token": {"content": "<s>"}, "eos_token": "</s>"}
    for folder in [data / "glm-s", *sorted((data / "families").iterdir())]:
        if not (folder / "model.safetensors").exists():
            continue
        header = safetensors_header(folder / "model.safetensors")
        for h in [header] if folder.name != "glm-s" else [header, as_colibri(header)]:
            yield b"\0".join([(folder / "config.json").read_bytes(), json.dumps(h).encode(),
                              json.dumps(config).encode()])


def session(_):
    """Of the tiny model in fuzz_session.c, which puts in what is 0 here: checksums and rows."""
    prompt = [(i * 29 + i * i) % 67 for i in range(24)]
    row = 4 * (4 * 24 + 2 * 16)
    for blocks in [[], [(0, 8)], [(0, 24)], [(0, 10), (10, 10)], [(0, 20), (4, 6), (10, 3)], [(0, 1)] * 3]:
        out = b"COLIKV1\n" + struct.pack("<4I5Q", 0, 8, 4, 0, row, 0, 0, 0, 0)
        for first, count in blocks:
            out += struct.pack("<Q4IQ", 0, first, count, 2**31 - 1, 0, count * (4 + row))
            out += struct.pack(f"<{count}i", *prompt[first:first + count]) + bytes(count * row)
        yield out


def shard(_):
    """Heads only, as fuzz_shard.c takes them. (layer, expert, part, parts, copy, generation, expert's
    bytes, offset, bytes)"""
    whole = [(1, e, 0, 1, 0, 0, 5000, 0, 5000) for e in range(3)]
    striped = [(2, 0, i, 3, c, 0, 20000, 8192 * i, min(8192, 20000 - 8192 * i)) for c in range(2) for i in range(3)]
    moved = [(3, 1, 0, 1, 0, g, 4096, 0, 4096) for g in range(3)]
    other_cut = [(2, 0, 0, 3, 0, 0, 20000, 0, 4096), (2, 0, 1, 3, 0, 0, 20000, 4096, 12288)]
    for records in [whole, striped, moved, whole + striped + moved, striped + other_cut, striped[:2]]:
        out = struct.pack("<8s4I16sQ", b"", 1, 0, 4, 0, b"store", 0)
        for r in records:
            out += struct.pack("<8s6I4Q16sQ", b"", *r, 0, b"", 0)
        yield out


def trace(data):
    for path in (data / "traces").iterdir():
        if path.suffix in (".csv", ".jsonl", ".trace"):
            yield path.read_bytes()[:4000].rpartition(b"\n")[0] + b"\n"


def control(_):
    """Lines for the files of fuzz_control.c's store of 3 layers with 6 experts on drives 0 and 1."""
    for writes in [
            [("prefetch", "0/0 0/1 1/003\n2/0-3\n"), ("used", "0/5 1/0 "), ("evict", "all")],
            [("pin", "0/0 0/5\n1/all"), ("unpin", "0/*\n"), ("warm", "top 12K")],
            [("warm", "0-1/4-5 2/5"), ("pin", "2/5"), ("evict", "2/5")],
            [("policy", f"{name}\n") for name in ["lru", "lfru:weight=0.3", "arc", "quota:lru", "expert"]],
            [("policy", f"{name}\n") for name in ["2q", "s3fifo", "sieve", "wtinylfu", "lruk:k=3", "hotset"]],
            [("trace", "start $/a b\n"), ("warm", "all"), ("used", "0/5\n0/5"), ("trace", "stop\n")],
            [("drives", "add $/d2\n"), ("prefetch", "1/1")],
            [("drives", "add equal $/d3\nremove 0\n")], [("drives", "remove equal $/d1/test.shard")],
            [("drives", "move 1 0/0-2 2/all\nmove 0 1/1\n"), ("drives", "cancel\n")],
            [("drives", "continue\n"), ("usage", "flush\n"), ("top", "1"), ("warm", "3/9")]]:
        yield b"\x01".join(f"{name}\n{text}".encode() for name, text in writes)


def status(_):
    """stats.json, drives, map, top and usage, as a daemon has them."""
    drive = {"number": 0, "path": "/d0/a.shard", "state": "ok", "role": "store", "bytes_read": 9000000, "reads": 12,
             "errors": 0, "in_flight": 2, "queue": {"demand": 4096, "prefetch": 0, "promotion": 0},
             "speed": 2500000000, "gb_per_s": 1.5, "read_ms": {"p50": 0.4, "p99": 2.5}}
    stats = {"store": "/s", "mode": "direct", "policy": "lfru:weight=0.3", "io": "io_uring", "uptime_s": 100.5,
             "memory": {"budget": 90000, "used": 50000, "fixed": 10000, "hot_store": 80000, "capacity": 80000,
                        "available": 1 << 34, "evicted_but_mapped": 4096, "slots": 16, "huge_pages": True},
             "experts": {"total": 16, "resident": 5, "held": 1, "loading": 2, "pinned": 1},
             "opens": 100, "hits": 60, "misses": 40, "unkept": 3, "hit_rate": 0.6, "opens_1m": 50, "hit_rate_1m": 0.5,
             "bytes_read": 9000000, "load_ms": {"p50": 1, "p95": 2.5, "p99": 7}, "evictions": 7, "promotions": 2,
             "prefetch": {"asked": 9, "loaded": 8, "used": 5, "wasted": 1}, "demotions": 1, "errors": 1,
             "hot_dir": {"slots": 4, "experts": 2, "bytes": 8192, "errors": 1},
             "usage": {"recording": True, "errors": 0},
             "drives": [drive, {**drive, "number": 256, "state": "missing", "role": "hot"}]}
    drives = {"drives": [{**drive, "experts": 8, "bytes": 65536, "queued": 4096}],
              "tasks": [{"id": 1, "command": "add /d1", "state": "stopped", "experts_done": 3, "experts_total": 8,
                         "bytes_done": 3000, "bytes_total": 8000, "bytes_per_s": 100.5, "seconds_left": 50,
                         "error": "/d1: No space left on device"}]}
    usage = "layer,expert,heat,uses,loads,last_use,load_ns,state\n1,0,2.5,3,1,1700000000,400000,resident\n"
    texts = [json.dumps(stats), json.dumps(drives), "# hottest 40.5\n001 0J9-0000\n002 aTK0A000\n",
             "# expert heat uses loads last_use load_ms state pinned held\n1/0 2.5 3 1 1700000000 0.4 resident - held\n",
             usage]
    yield "\0".join(texts).encode()
    yield "\0".join(["{}", "{}", "", "", ""]).encode()
    yield json.dumps({**stats, "mode": "passthrough", "drives": []}).encode()


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
