#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes small glm_moe_dsa checkpoints in all the forms that coli-pack reads, and damages them.

    make_checkpoint.py make DIR [--dtype f32|f16|bf16|fp8] [--fused] [--files N] [--index] [--mtp]
                                [--tied] [--unused] [--block R,C] [--seed N] [--set KEY=JSON]...
    make_checkpoint.py set DIR KEY=JSON...
    make_checkpoint.py break KIND DIR [ARGUMENT]

Random weights (nothing that could speak), the names and shapes of transformers' glm_moe_dsa. Only
the standard library. set and --set change config.json alone (null removes a key): so it can lie.
"""
import argparse
import array
import json
import os
import random
import struct
import sys

CONFIG = {
    "architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa", "vocab_size": 96,
    "hidden_size": 144, "num_hidden_layers": 4, "num_nextn_predict_layers": 0,
    "first_k_dense_replace": 1, "moe_layer_freq": 1, "intermediate_size": 200,
    "moe_intermediate_size": 72, "n_routed_experts": 6, "num_experts_per_tok": 2,
    "n_shared_experts": 1, "num_attention_heads": 4, "q_lora_rank": 136, "kv_lora_rank": 40,
    "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10, "index_n_heads": 2,
    "index_head_dim": 16, "index_topk": 8, "index_topk_freq": 2, "index_skip_topk_offset": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-05, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "tie_word_embeddings": False, "eos_token_id": [3, 5],
}


def is_full(c, i):
    """The schedule of index_topk_freq and index_skip_topk_offset."""
    return max(i - c["index_skip_topk_offset"] + 1, 0) % c["index_topk_freq"] == 0


class Maker:
    def __init__(self, args):
        self.args = args
        self.random = random.Random(args.seed)
        self.tensors = []  # (name, dtype, shape, bytes)
        self.pool = array.array("f", (self.random.gauss(0, 0.05) for _ in range(49999)))

    def floats(self, count):
        """Numbers from a pool, since Python would take long to draw all; from another place each."""
        at = self.random.randrange(len(self.pool))
        out = self.pool[at:at + count]
        while len(out) < count:
            out.extend(self.pool[:count - len(out)])
        return out

    def encode(self, dtype, values):
        if dtype == "F32":
            return values.tobytes()
        if dtype == "F16":
            return struct.pack("<%de" % len(values), *values)
        raw = values.tobytes()
        out = bytearray(len(raw) // 2)
        out[0::2], out[1::2] = raw[2::4], raw[3::4]
        return bytes(out)

    def add(self, name, *shape, plain=False):
        count = 1
        for n in shape:
            count *= n
        dtype = {"f32": "F32", "f16": "F16"}.get(self.args.dtype, "BF16")
        quantised = not plain and len(shape) > 1 and "embed" not in name and "head" not in name
        if self.args.dtype == "fp8" and quantised:
            # Any byte but the two that are no numbers.
            table = bytes(i if i & 0x7f != 0x7f else i - 1 for i in range(256))
            data = self.random.randbytes(count).translate(table)
            self.tensors.append((name, "F8_E4M3", shape, data))
            rows, cols = self.args.block
            scales = list(shape[:-2]) + [-(-shape[-2] // rows), -(-shape[-1] // cols)]
            count = 1
            for n in scales:
                count *= n
            values = array.array("f", (self.random.uniform(1e-4, 1e-3) for _ in range(count)))
            self.tensors.append((name + "_scale_inv", "F32", tuple(scales), values.tobytes()))
            return
        if plain and name.endswith("bias"):
            dtype = "F32"
        self.tensors.append((name, dtype, shape, self.encode(dtype, self.floats(count))))

    def experts(self, p, c):
        n, width, hidden = c["n_routed_experts"], c["moe_intermediate_size"], c["hidden_size"]
        if self.args.fused:
            self.add(p + "mlp.experts.gate_up_proj", n, 2 * width, hidden)
            self.add(p + "mlp.experts.down_proj", n, hidden, width)
            return
        for e in range(n):
            self.add(p + "mlp.experts.%d.gate_proj.weight" % e, width, hidden)
            self.add(p + "mlp.experts.%d.up_proj.weight" % e, width, hidden)
            self.add(p + "mlp.experts.%d.down_proj.weight" % e, hidden, width)

    def layer(self, c, i, mtp):
        p, hidden, heads = "model.layers.%d." % i, c["hidden_size"], c["num_attention_heads"]
        nope, rope, v = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
        a = p + "self_attn."
        self.add(p + "input_layernorm.weight", hidden)
        self.add(p + "post_attention_layernorm.weight", hidden)
        self.add(a + "q_a_proj.weight", c["q_lora_rank"], hidden)
        self.add(a + "q_a_layernorm.weight", c["q_lora_rank"])
        self.add(a + "q_b_proj.weight", heads * (nope + rope), c["q_lora_rank"])
        self.add(a + "kv_a_proj_with_mqa.weight", c["kv_lora_rank"] + rope, hidden)
        self.add(a + "kv_a_layernorm.weight", c["kv_lora_rank"])
        self.add(a + "kv_b_proj.weight", heads * (nope + v), c["kv_lora_rank"])
        self.add(a + "o_proj.weight", hidden, heads * v)
        if mtp or is_full(c, i) or self.args.unused:
            n, dim = c["index_n_heads"], c["index_head_dim"]
            self.add(a + "indexer.wq_b.weight", n * dim, c["q_lora_rank"])
            self.add(a + "indexer.wk.weight", dim, hidden)
            self.add(a + "indexer.weights_proj.weight", n, hidden, plain=True)
            self.add(a + "indexer.k_norm.weight", dim)
            self.add(a + "indexer.k_norm.bias", dim, plain=True)
        if self.args.unused:
            self.add(a + "rotary_emb.inv_freq", rope // 2)
        if mtp:
            for name in ("enorm", "hnorm", "shared_head.norm"):
                self.add(p + name + ".weight", hidden)
            self.add(p + "eh_proj.weight", hidden, 2 * hidden, plain=True)
            if self.args.unused:  # rather: what only some checkpoints have
                self.add(p + "embed_tokens.weight", c["vocab_size"], hidden)
                self.add(p + "shared_head.head.weight", c["vocab_size"], hidden)
        if not mtp and i < c["first_k_dense_replace"]:
            self.add(p + "mlp.gate_proj.weight", c["intermediate_size"], hidden)
            self.add(p + "mlp.up_proj.weight", c["intermediate_size"], hidden)
            self.add(p + "mlp.down_proj.weight", hidden, c["intermediate_size"])
            return
        self.add(p + "mlp.gate.weight", c["n_routed_experts"], hidden, plain=True)
        self.add(p + "mlp.gate.e_score_correction_bias", c["n_routed_experts"], plain=True)
        shared = c["n_shared_experts"] * c["moe_intermediate_size"]
        self.add(p + "mlp.shared_experts.gate_proj.weight", shared, hidden)
        self.add(p + "mlp.shared_experts.up_proj.weight", shared, hidden)
        self.add(p + "mlp.shared_experts.down_proj.weight", hidden, shared)
        self.experts(p, c)

    def model(self, c):
        self.add("model.embed_tokens.weight", c["vocab_size"], c["hidden_size"])
        for i in range(c["num_hidden_layers"]):
            self.layer(c, i, False)
        self.add("model.norm.weight", c["hidden_size"])
        if not self.args.tied:
            self.add("lm_head.weight", c["vocab_size"], c["hidden_size"])
        if self.args.mtp:
            self.layer(c, c["num_hidden_layers"], True)


def write_file(path, tensors, pad=0):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode() + b" " * pad
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors:
            f.write(tensor[3])


def write_config(directory, c, changes):
    for item in changes:
        key, value = item.split("=", 1)
        c[key] = json.loads(value)
        if c[key] is None:
            del c[key]
    with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as f:
        json.dump(c, f, indent=2)


def make(args):
    c = dict(CONFIG)
    c["tie_word_embeddings"] = args.tied
    c["num_nextn_predict_layers"] = int(args.mtp)
    if args.dtype == "fp8":
        c["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3",
                                    "weight_block_size": args.block}
    maker = Maker(args)
    maker.model(c)
    os.makedirs(args.dir)
    write_config(args.dir, c, args.set)
    with open(os.path.join(args.dir, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump({"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}}, f)
    with open(os.path.join(args.dir, "generation_config.json"), "w", encoding="utf-8") as f:
        json.dump({"eos_token_id": [5, 7]}, f)
    if args.files == 1:
        names, parts = ["model.safetensors"], [maker.tensors]
    else:
        names = ["model-%05d-of-%05d.safetensors" % (i + 1, args.files) for i in range(args.files)]
        # Dealt out, so that what belongs together lies in different files.
        parts = [maker.tensors[i::args.files] for i in range(args.files)]
    for i, (name, part) in enumerate(zip(names, parts)):
        write_file(os.path.join(args.dir, name), part, pad=i % 8)
    if args.index:
        weight_map = {t[0]: name for name, part in zip(names, parts) for t in part}
        path = os.path.join(args.dir, "model.safetensors.index.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"metadata": {}, "weight_map": weight_map}, f)


def read_file(path):
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        return json.loads(f.read(size)), f.read()


def write_raw(path, header, data):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def damage(kind, directory, argument):
    path = os.path.join(directory, "model.safetensors")
    header, data = read_file(path)
    names = [n for n in header if n != "__metadata__"]
    norm = "model.norm.weight"
    where = header[argument if argument in header else norm]["data_offsets"]
    if kind == "truncated":
        os.truncate(path, int(argument) if argument else os.path.getsize(path) - 1)
    elif kind == "trailing":
        write_raw(path, header, data + b"x")
    elif kind == "header-length":
        with open(path, "r+b") as f:
            f.write(struct.pack("<Q", int(argument, 0)))
    elif kind == "nested":
        write_raw(path, b'{"a":' + b"[" * 1000000 + b"]" * 1000000 + b"}", data)
    elif kind == "twice":
        text = json.dumps(header)
        entry = json.dumps({norm: header[norm]})[1:-1]
        write_raw(path, (text[:-1] + ", " + entry + "}").encode(), data)
    elif kind == "missing":
        # The bytes stay under a name that nobody asks for.
        write_raw(path, {("other" if n == argument else n): v for n, v in header.items()}, data)
    elif kind == "overlap":
        header[names[1]]["data_offsets"] = header[names[0]]["data_offsets"]
        header[names[1]]["shape"] = header[names[0]]["shape"]
        header[names[1]]["dtype"] = header[names[0]]["dtype"]
        write_raw(path, header, data)
    elif kind == "gap":
        del header[names[1]]
        write_raw(path, header, data)
    elif kind == "outside":
        header[norm]["data_offsets"] = [1 << 40, (1 << 40) + where[1] - where[0]]
        write_raw(path, header, data)
    elif kind == "entry":
        # ARGUMENT is the JSON of the entry of model.norm.weight.
        header[norm] = json.loads(argument)
        write_raw(path, header, data)
    elif kind == "transposed":
        header[argument]["shape"].reverse()
        write_raw(path, header, data)
    elif kind == "dtype":
        # Same width, no weight.
        header[norm]["dtype"] = {2: "I16", 4: "I32"}[(where[1] - where[0]) // header[norm]["shape"][0]]
        write_raw(path, header, data)
    elif kind in ("nan", "infinite", "huge"):
        dtype = header[argument]["dtype"]
        bits = {"nan": {"F32": b"\0\0\xc0\x7f", "F16": b"\0\x7e", "BF16": b"\xc0\x7f",
                        "F8_E4M3": b"\xff"},
                "infinite": {"F32": b"\0\0\x80\xff", "F16": b"\0\xfc", "BF16": b"\x80\xff"},
                "huge": {"F32": b"\xff\xff\x7f\x7f", "BF16": b"\x7f\x7f"}}[kind][dtype]
        last = where[1] - len(bits)
        write_raw(path, header, data[:last] + bits + data[where[1]:])
    else:
        sys.exit("make_checkpoint.py: no kind of damage is called " + kind)


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    p = commands.add_parser("make")
    p.add_argument("dir")
    p.add_argument("--dtype", choices=("f32", "f16", "bf16", "fp8"), default="bf16")
    p.add_argument("--fused", action="store_true")
    p.add_argument("--files", type=int, default=1)
    p.add_argument("--index", action="store_true")
    p.add_argument("--mtp", action="store_true")
    p.add_argument("--tied", action="store_true")
    p.add_argument("--unused", action="store_true")
    p.add_argument("--block", type=lambda s: [int(n) for n in s.split(",")], default=[128, 128])
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--set", action="append", default=[])
    p = commands.add_parser("set")
    p.add_argument("dir")
    p.add_argument("changes", nargs="+")
    p = commands.add_parser("break")
    p.add_argument("kind")
    p.add_argument("dir")
    p.add_argument("argument", nargs="?")
    args = parser.parse_args()
    if args.command == "make":
        make(args)
    elif args.command == "set":
        path = os.path.join(args.dir, "config.json")
        write_config(args.dir, json.load(open(path, encoding="utf-8")), args.changes)
    else:
        damage(args.kind, args.dir, args.argument)


main()
