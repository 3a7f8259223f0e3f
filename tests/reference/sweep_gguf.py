#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random GGUF files of each architecture, against llama.cpp.

    sweep_gguf.py make ARCH FIRST COUNT OUT      OUT/ARCH-N: a model in GGUF files, and expected.json
    sweep_gguf.py check BUILD DIR...             what the engine makes of them

`make` needs python3-gguf and llama.cpp 0.7 of Debian sid, and llama_logits beside this file
(make_llama_golden.py says how it is built). A number always gives the same files. llama.cpp computes of
a twin: the same numbers as F32 in one plain file, so that nothing is rounded, and files can be of a
kind that it no longer reads. `check` needs the programs: it mounts each model, compares logits and
greedy tokens with the twin's, by F32 activations, and more loosely by 8-bit ones; then the engine with
itself, to the bit, and some with a store that coli-pack makes of the files. It prints a line a model.
"""

import glob
import json
import os
import random
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "e2e")]

from sweep import NEW_TOKENS, Mount, against_reference, engine, itself, main, run  # noqa: E402

ARCHS = ("llama", "qwen2moe", "qwen3moe", "olmoe", "glm4moe", "gpt-oss", "deepseek2", "deepseek32",
         "glm-dsa")
TOKENIZER = os.path.join(HERE, "..", "data", "families", "mixtral", "tokenizer.json")
VOCAB = 300
ROUNDED = 0.3  # what 8-bit activations may change, of the logits' root mean square
FLOATS = ("F32", "F16", "BF16")
OF_32 = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "MXFP4")
OF_256 = ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS",
          "IQ2_S", "IQ3_XXS", "IQ3_S", "TQ1_0", "TQ2_0")


# --- what is drawn: keys, (type, value) each, and tensors, (shape, role) each


def u32(v):
    return "u32", v


def f32(v):
    return "f32", v


def each(r, v, n):
    """As it is, or as a list of one for each layer."""
    return ("list", [v] * n) if r.random() < 0.25 else u32(v)


def draw_rope(r, arch, keys):
    """Not drawn is what llama.cpp does not do as the models were trained: it heeds no yarn_beta_fast and
    _slow, and in latent attention it counts a stretching once too often, but YaRN's with the key of
    mscale_all_dim, which must be 1 for deepseek32 and is not known for glm-dsa."""
    latent = arch in ("deepseek2", "deepseek32", "glm-dsa")
    kinds = ["", "", "none", "linear", "yarn", "yarn"]
    kinds = [k for k in kinds if not latent or k != "linear"]
    kind = r.choice([k for k in kinds if arch != "glm-dsa" or k != "yarn"])
    if r.random() < 0.85:
        keys["rope.freq_base"] = f32(r.choice([1e4, 1e6, 5e5, 777.0]))
    if not kind:
        return
    keys["rope.scaling.type"] = "s", kind
    factor = r.choice([2.5, 8.0, 40.0])
    if r.random() < 0.8 or kind == "yarn":
        keys["rope.scaling.factor"] = f32(factor)
    elif kind == "linear":
        keys.pop("rope.scaling.type")
        keys["rope.scale_linear"] = f32(factor)
    if kind == "yarn":
        if r.random() < 0.8:
            keys["rope.scaling.original_context_length"] = u32(r.choice([16, 64, 500, 4096]))
        if r.random() < 0.4:
            keys["rope.scaling.yarn_beta_fast"] = f32(32.0)
            keys["rope.scaling.yarn_beta_slow"] = f32(1.0)
        if latent:
            some = [0.1, 0.0707] if arch == "deepseek2" else [0.1]
            keys["rope.scaling.yarn_log_multiplier"] = f32(r.choice(some))


def draw_grouped(r, arch, c, keys, t):
    """Heads that share keys and values."""
    own = arch in ("qwen2moe", "olmoe")  # their heads make up the hidden size
    if own:
        c.heads = r.choice([x for x in (1, 2, 3, 4, 5, 8) if c.hidden % (2 * x) == 0])
        dim = c.hidden // c.heads
    else:
        c.heads = r.choice([1, 2, 3, 4, 6])
        dim = r.choice([2 * r.randint(1, 20), 32, 64])
        if c.hidden % c.heads == 0 and c.hidden // c.heads % 2 == 0 and r.random() < 0.3:
            dim = c.hidden // c.heads
    shared = [x for x in range(1, c.heads + 1) if c.heads % x == 0]
    kv = c.heads if arch == "olmoe" else r.choice(shared)
    n = c.layers + c.extra
    keys["attention.head_count"] = each(r, c.heads, n)
    if kv != c.heads or r.random() < 0.7:
        keys["attention.head_count_kv"] = each(r, kv, n)
    if dim * c.heads != c.hidden or r.random() < 0.5:
        keys["attention.key_length"] = keys["attention.value_length"] = u32(dim)
    if arch == "glm4moe" and r.random() < 0.6:
        keys["rope.dimension_count"] = u32(2 * r.randint(1, dim // 2))
    elif r.random() < 0.5:
        keys["rope.dimension_count"] = u32(dim)
    biased = arch == "gpt-oss" or arch in ("qwen2moe", "glm4moe") and r.random() < 0.6
    normed = arch == "qwen3moe" or arch == "glm4moe" and r.random() < 0.5
    for i in range(n):
        b = f"blk.{i}."
        for name, rows in (("q", c.heads * dim), ("k", kv * dim), ("v", kv * dim)):
            t[f"{b}attn_{name}.weight"] = (rows, c.hidden), "matrix"
            if biased:
                t[f"{b}attn_{name}.bias"] = (rows,), "bias"
            if name != "v" and (normed or arch == "olmoe"):
                t[f"{b}attn_{name}_norm.weight"] = (rows if arch == "olmoe" else dim,), "norm"
        t[b + "attn_output.weight"] = (c.hidden, c.heads * dim), "matrix"
        if arch == "gpt-oss":
            t[b + "attn_output.bias"] = (c.hidden,), "bias"
            t[b + "attn_sinks.weight"] = (c.heads,), "bias"
    if arch == "gpt-oss":
        keys["attention.sliding_window"] = u32(r.choice([1, 2, 9, 128, 2000]))
        if r.random() < 0.3:
            keys["attention.sliding_window_pattern"] = u32(2)


def draw_latent(r, arch, c, keys, t):
    """MLA, and for some an indexer."""
    heads = c.heads = r.choice([1, 2, 3, 5])
    rope, nope, v = 2 * r.randint(1, 16), c.side(2, 40), c.side(2, 40)
    lora, q_lora = c.side(8, 70), c.side(8, 70)
    # llama.cpp knows models without a low-rank step of the queries by their layers.
    lite = arch == "deepseek2" and c.lite
    c.fused = arch == "deepseek2" and r.random() < 0.4
    n = c.layers + c.extra
    keys["attention.head_count"] = u32(heads)
    if not c.fused:
        keys["attention.head_count_kv"] = u32(1)
        keys["attention.key_length_mla"] = u32(nope + rope)
        keys["attention.value_length_mla"] = u32(v)
        keys["attention.key_length"] = u32(lora + rope)
        keys["attention.value_length"] = u32(lora)
    else:
        keys["attention.key_length"] = u32(nope + rope)
        keys["attention.value_length"] = u32(v)
        keys["attention.head_count_kv"] = u32(heads)
    keys["attention.kv_lora_rank"] = u32(lora)
    keys["rope.dimension_count"] = u32(rope)
    if not lite:
        keys["attention.q_lora_rank"] = u32(q_lora)
    for i in range(n):
        b = f"blk.{i}."
        if lite:
            t[b + "attn_q.weight"] = (heads * (nope + rope), c.hidden), "matrix"
        else:
            t[b + "attn_q_a.weight"] = (q_lora, c.hidden), "matrix"
            t[b + "attn_q_a_norm.weight"] = (q_lora,), "norm"
            t[b + "attn_q_b.weight"] = (heads * (nope + rope), q_lora), "matrix"
        t[b + "attn_kv_a_mqa.weight"] = (lora + rope, c.hidden), "matrix"
        t[b + "attn_kv_a_norm.weight"] = (lora,), "norm"
        if c.fused:
            t[b + "attn_kv_b.weight"] = (heads * (nope + v), lora), "matrix"
        else:
            t[b + "attn_k_b.weight"] = (heads, lora, nope), "matrix"
            t[b + "attn_v_b.weight"] = (heads, v, lora), "matrix"
        t[b + "attn_output.weight"] = (c.hidden, heads * v), "matrix"
    if arch != "deepseek2":
        draw_indexer(r, arch, c, keys, t, rope, q_lora)


def draw_indexer(r, arch, c, keys, t, rope, q_lora):
    heads, dim = r.choice([16, 24, 32]), 64  # few heads tie; llama.cpp turns by powers of two
    keys["attention.indexer.head_count"] = u32(heads)
    keys["attention.indexer.key_length"] = u32(dim)
    keys["attention.indexer.top_k"] = u32(r.choice([1, 2, 7, 16, 60, 256, 2048]))
    n = c.layers + c.extra
    full = [True] * n
    if arch == "glm-dsa":
        if r.random() < 0.3:
            keys["context_length"] = u32(1048576)
            full = [i < 3 or (i - 2) % 4 == 0 for i in range(n)]
        if r.random() < 0.5:
            full = [i == 0 or r.random() < 0.5 for i in range(n)]
            keys["attention.indexer.types"] = "bools", full[:c.layers]
    for i in range(n):
        if i < c.layers and not full[i] and r.random() < 0.7:  # some have what is not used
            continue
        b = f"blk.{i}.indexer."
        t[b + "attn_q_b.weight"] = (heads * dim, q_lora), "matrix"
        t[b + "attn_k.weight"] = (dim, c.hidden), "matrix"
        t[b + "proj.weight"] = (heads, c.hidden), "matrix"
        t[b + "k_norm.weight"] = (dim,), "norm"
        t[b + "k_norm.bias"] = (dim,), "bias"


def draw_router(r, arch, c, keys, t):
    groups = r.choice([1, 2, 3, 4]) if arch in ("deepseek2", "deepseek32") and c.v3 else 1
    size = r.randint(2, 6)
    experts = groups * size if groups > 1 else r.randint(2, 13)
    kept = r.randint(1, max(1, groups - 1))  # llama.cpp takes no others
    used = r.choice([1, r.randint(1, kept * (experts // groups)), min(experts, 2)])
    keys["expert_count"], keys["expert_used_count"] = u32(experts), u32(used)
    if groups > 1:
        keys["expert_group_count"], keys["expert_group_used_count"] = u32(groups), u32(kept)
    sigmoid = arch in ("glm4moe", "deepseek32", "glm-dsa") or arch == "deepseek2" and c.v3
    if sigmoid or arch == "deepseek2":
        if r.random() < 0.7:
            keys["expert_weights_norm"] = "bool", r.random() < 0.6
        normed = keys.get("expert_weights_norm", ("", False))[1]
        if r.random() < 0.7:  # DeepSeek-V2 does not scale what is normalised, llama.cpp does
            scales = [1.0, 2.5, 0.3] if sigmoid or not normed else [1.0]
            keys["expert_weights_scale"] = f32(r.choice(scales))
        if arch in ("deepseek2", "deepseek32") or r.random() < 0.5:
            keys["expert_gating_func"] = u32(2 if sigmoid else 1)
    elif arch in ("llama", "qwen3moe") and r.random() < 0.3:
        keys["expert_weights_norm"] = "bool", True
    return experts, used, sigmoid


def draw_ffn(r, arch, c, keys, t):
    experts, used, sigmoid = draw_router(r, arch, c, keys, t)
    dense, width = c.side(2, 80), c.side(2, 60)
    lead = 0
    shares = arch in ("glm4moe", "deepseek2", "deepseek32", "glm-dsa")
    if arch in ("llama", "olmoe"):  # which have no width of experts
        keys["feed_forward_length"] = each(r, width, c.layers)
    else:
        if arch in ("qwen2moe", "qwen3moe") and r.random() < 0.3:
            dense = width * used
        else:
            keys["expert_feed_forward_length"] = u32(width)
        keys["feed_forward_length"] = each(r, dense, c.layers + c.extra)
    if shares:
        lead = r.randint(0, c.layers - 1)
        if lead or r.random() < 0.5:
            keys["leading_dense_block_count"] = u32(lead)
        c.shared = r.choice([1, 1, 2])
        keys["expert_shared_count"] = u32(c.shared)
    gated = c.side(2, 90)
    if arch == "qwen2moe":
        if gated != dense or r.random() < 0.5:
            keys["expert_shared_feed_forward_length"] = u32(gated)
    post = arch in ("glm4moe", "gpt-oss")
    for i in range(c.layers + c.extra):
        b = f"blk.{i}."
        t[b + "attn_norm.weight"] = (c.hidden,), "norm"
        t[b + ("post_attention_norm.weight" if post else "ffn_norm.weight")] = (c.hidden,), "norm"
        if i < lead:
            for name, a, z in ("gate", dense, c.hidden), ("up", dense, c.hidden), (
                    "down", c.hidden, dense):
                t[f"{b}ffn_{name}.weight"] = (a, z), "matrix"
            continue
        t[b + "ffn_gate_inp.weight"] = (experts, c.hidden), "router"
        if sigmoid:
            t[b + "exp_probs_b.bias"] = (experts,), "bias"
        for name, a, z in ("gate", width, c.hidden), ("up", width, c.hidden), (
                "down", c.hidden, width):
            t[f"{b}ffn_{name}_exps.weight"] = (experts, a, z), "matrix"
            if arch == "gpt-oss":
                t[f"{b}ffn_{name}_exps.bias"] = (experts, a), "bias"
            w = gated if arch == "qwen2moe" else width * c.shared
            if w:
                a, z = (w, z) if name != "down" else (a, w)
                t[f"{b}ffn_{name}_shexp.weight"] = (a, z), "matrix"
        if arch == "gpt-oss":
            t[b + "ffn_gate_inp.bias"] = (experts,), "bias"
        if arch == "qwen2moe":
            t[b + "ffn_gate_inp_shexp.weight"] = (c.hidden,), "gate"
    for i in range(c.layers, c.layers + c.extra):
        b = f"blk.{i}.nextn."
        t[b + "eh_proj.weight"] = (c.hidden, 2 * c.hidden), "matrix"
        for name in "enorm", "hnorm", "shared_head_norm":
            t[f"{b}{name}.weight"] = (c.hidden,), "norm"
        if r.random() < 0.5:
            t[b + "embed_tokens.weight"] = (c.vocab, c.hidden), "embedding"
            t[b + "shared_head_head.weight"] = (c.vocab, c.hidden), "matrix"


class Config:
    pass


def draw(r, arch):
    """(configuration, keys, tensors)"""
    c, keys, t = Config(), {}, {}
    grain = r.choice([1, 32, 32, 256])

    def side(lo, hi):
        return r.randint(lo, hi) if grain == 1 else grain * r.randint(1, 2 if grain > 32 else 4)

    c.side, c.shared = side, 0
    c.v3 = r.random() < 0.6
    c.lite = arch == "deepseek2" and grain < 256 and r.random() < 0.15
    c.layers = 27 if c.lite else r.randint(1, 4)
    more = arch in ("glm4moe", "deepseek32", "glm-dsa") or arch == "deepseek2" and c.v3
    c.extra = r.choice([0, 0, 1]) if more and not c.lite else 0
    c.hidden = side(10, 60) * (2 if grain == 1 else 1)
    c.vocab = VOCAB + r.choice([0, 0, 1, 20])
    keys["block_count"] = u32(c.layers + c.extra)
    keys["context_length"] = u32(r.choice([333, 512, 4096]))
    keys["embedding_length"] = u32(c.hidden)
    # DeepSeek's latents are normed by 1e-6 whatever a file says; llama.cpp has one for all norms.
    eps = 1e-6 if arch in ("deepseek2", "deepseek32") else r.choice([1e-6, 1e-5, 1e-3])
    keys["attention.layer_norm_rms_epsilon"] = f32(eps)
    latent = arch in ("deepseek2", "deepseek32", "glm-dsa")
    draw_rope(r, arch, keys)
    if arch == "gpt-oss" and "rope.scaling.type" in keys:
        keys["rope.scaling.yarn_truncate"] = "bool", True  # as llama.cpp has it
    (draw_latent if latent else draw_grouped)(r, arch, c, keys, t)
    draw_ffn(r, arch, c, keys, t)
    if c.extra:
        keys["nextn_predict_layers"] = u32(c.extra)
    t["token_embd.weight"] = (c.vocab, c.hidden), "embedding"
    t["output_norm.weight"] = (c.hidden,), "norm"
    if arch in ("qwen2moe", "olmoe", "gpt-oss") or r.random() < 0.7:
        t["output.weight"] = (c.vocab, c.hidden), "matrix"
    return c, keys, t


def draw_how(r, arch):
    """How the files are written."""
    how = dict(version=r.choice([3, 3, 2]), align=r.choice([None, None, 64, 256, 8]), split=0,
               experts=r.choice(["stacks", "stacks", "own", "merged"]), order=r.random() < 0.3,
               mix=r.choice(["F32", "F16", "BF16", "floats", "one", "any", "any"]))
    how["one"] = r.choice(OF_32 + OF_256)
    if r.random() < 0.25:
        how["split"] = r.choice([1, 3, 10, 40])
        how["align"] = None  # python3-gguf tells it to the first file only
        how["experts"] = r.choice(["stacks", "merged"])
    if arch == "gpt-oss":  # whose biases are of stacks
        how["experts"] = "stacks"
    return how


# --- the files


def pick(r, how, role, columns):
    if role in ("norm", "bias", "gate"):
        return "F32"
    if role == "router" and r.random() < 0.7:
        return "F32"
    some = [x for x in OF_32 if columns % 32 == 0] + [x for x in OF_256 if columns % 256 == 0]
    if how["mix"] in FLOATS:
        return how["mix"]
    if how["mix"] == "one":
        return how["one"] if how["one"] in some else r.choice(["F16", "F32"])
    return r.choice(FLOATS) if how["mix"] == "floats" or not some else r.choice(some + ["F16"])


def numbers(r, shape, kind, spread, around=0.0):
    """(bytes, their numbers as F32), the last of the shape a row."""
    import gguf
    import make_typed_gguf as typed
    import numpy as np

    n = int(np.prod(shape))
    name = kind.lower()
    if name in typed.BLOCKS:
        raw = np.frombuffer(typed.blocks(r, name, n), np.uint8).reshape(*shape[:-1], -1)
        return raw, gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind]).reshape(shape)
    g = np.random.Generator(np.random.PCG64(r.getrandbits(60)))
    x = (g.standard_normal(shape) * spread + around).astype(np.float32)
    if kind == "F16":
        raw = x.astype(np.float16)
        return raw.view(np.uint8), raw.astype(np.float32)
    if kind == "BF16":
        raw = (x.view(np.uint32) >> 16).astype(np.uint16)
        return raw.view(np.uint8), (raw.astype(np.uint32) << 16).view(np.float32)
    return x.view(np.uint8), x


def fill(r, how, tensors):
    """name: (type, bytes, F32)"""
    out, gates = {}, {}
    for name, (shape, role) in tensors.items():
        kind = pick(r, how, role, shape[-1])
        if "_exps.weight" in name and how["experts"] == "merged" and "down" not in name:
            kind = gates.setdefault(name.split(".")[1], kind)  # gate and up are one
        spread, around = shape[-1] ** -0.5, 0.0
        if role == "norm":
            spread, around = 0.2, 1.0
        elif role in ("bias", "embedding"):
            spread = 0.3 if role == "bias" else 1.0
        elif role == "router":
            spread *= 2
        out[name] = kind, *numbers(r, shape, kind, spread, around)
    return out


def shaped(how, data, r):
    """(name, type, bytes) as the file has them."""
    import numpy as np

    todo = list(data.items())
    if how["order"]:
        r.shuffle(todo)
    for name, (kind, raw, _) in todo:
        stack = name.endswith("_exps.weight")
        if stack and how["experts"] == "own":
            for e in range(raw.shape[0]):
                yield name.replace("_exps.weight", f".{e}.weight"), kind, raw[e]
        elif stack and how["experts"] == "merged" and "down" not in name:
            if "gate" in name:
                up = data[name.replace("gate", "up")][1]
                yield name.replace("gate", "gate_up"), kind, np.concatenate([raw, up], 1)
        else:
            yield name, kind, raw


def vocabulary(w, n):
    with open(TOKENIZER, encoding="utf-8") as f:
        t = json.load(f)
    ids = {**t["model"]["vocab"], **{a["content"]: a["id"] for a in t["added_tokens"]}}
    kinds = {x: 1 for x in t["model"]["vocab"]}
    kinds.update({a["content"]: 3 if a["special"] else 4 for a in t["added_tokens"]})
    tokens = sorted(ids, key=ids.get)
    types = [kinds[x] for x in tokens] + [1] * (n - len(tokens))
    tokens += [f"more{i}" for i in range(len(tokens), n)]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("glm4")
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in t["model"]["merges"]])


def add_key(w, name, kind, v):
    if kind == "list" or kind == "bools":
        w.add_array(name, v)
    else:
        add = dict(u32=w.add_uint32, f32=w.add_float32, bool=w.add_bool, s=w.add_string)
        add[kind](name, v)


def write(path, arch, c, keys, tensors, align=None, split=0, version=3):
    import gguf

    w = gguf.GGUFWriter(path, arch, split_max_tensors=split)
    if align:
        w.add_custom_alignment(align)
    for name, (kind, v) in keys.items():
        add_key(w, f"{arch}.{name}", kind, v)
    vocabulary(w, c.vocab)
    for name, kind, raw in tensors:
        w.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType[kind])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    for part in glob.glob(path.replace(".gguf", "*.gguf")):
        with open(part, "r+b") as f:
            f.seek(4)
            f.write(bytes([version]))


# --- llama.cpp


def llama(path, prompts):
    """What it computes; None: it does not read the file."""
    text = "".join(" ".join(map(str, p)) + "\n" for p in prompts)
    p = subprocess.run([HERE + "/llama_logits", path, str(NEW_TOKENS)], input=text, text=True,
                       capture_output=True)
    if p.returncode:
        said = [x for x in p.stderr.splitlines() if "error" in x.lower() or "ASSERT" in x]
        return None, " | ".join(said)[-300:]
    return [json.loads(x) for x in p.stdout.splitlines()], ""


def twin(path, arch, c, keys, data, shake=None):
    import numpy as np

    def plain():
        for name, (_, _, x) in data.items():
            if shake:
                x = x * (1 + shake.choice([-1, 1], x.shape).astype(np.float32) * 2.0 ** -22)
            yield name, "F32", np.ascontiguousarray(x, np.float32).view(np.uint8)

    write(path, arch, c, keys, plain())


def lengths(r, keys):
    most = min(keys["context_length"][1] - NEW_TOKENS, 300)
    near = keys.get("attention.sliding_window", keys.get("attention.indexer.top_k", u32(64)))[1]
    near = max(1, min(near + r.randint(-5, 3), most))
    return [1, r.randint(2, 40), near, r.randint(41, most)]


def make(arch, number, out):
    import numpy as np

    r = random.Random(f"{arch} {number}")
    c, keys, tensors = draw(r, arch)
    how = draw_how(r, arch)
    data = fill(r, how, tensors)
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    write(out + "/model.gguf", arch, c, keys, shaped(how, data, r), how["align"], how["split"],
          how["version"])
    prompts = [[r.randrange(290) for _ in range(n)] for n in lengths(r, keys) for _ in range(3)]
    twin(out + "/twin.gguf", arch, c, keys, data)
    twin(out + "/shaken.gguf", arch, c, keys, data, np.random.Generator(np.random.PCG64(number)))
    (plain, why), (shaken, _) = (llama(f"{out}/{x}.gguf", prompts) for x in ("twin", "shaken"))
    os.remove(out + "/twin.gguf")
    os.remove(out + "/shaken.gguf")
    cases = []
    for i in range(0, len(prompts) if plain else 0, 3):
        some = []
        for p, a, b in zip(prompts[i:i + 3], plain[i:i + 3], shaken[i:i + 3]):
            noise = max(abs(x - y) for x, y in zip(a["last_logits"], b["last_logits"]))
            some.append(dict(prompt=p, noise=noise, **a))
        cases.append(min(some, key=lambda x: x["noise"]))
    first = (sorted(glob.glob(out + "/model*.gguf")) or [""])[0]
    own, _ = llama(first, [x["prompt"] for x in cases]) if cases else (None, "")
    types = {}
    for name, (kind, _, _) in data.items():
        types[kind] = types.get(kind, 0) + 1
    with open(out + "/expected.json", "w") as f:
        json.dump(dict(arch=arch, keys=keys, how=how, types=types, cases=cases, own=own, why=why,
                       mtp=c.extra, file=os.path.basename(first)), f)
    said = "" if plain else f"llama.cpp does not read its twin: {why}"
    print(out, [len(x["prompt"]) for x in cases], "" if own else "not as it is,", said, flush=True)


# --- the engine


def off_by(got, want):
    """The difference's root mean square, of the logits'."""
    d = sum((a - b) ** 2 for a, b in zip(got, want))
    return (d / (sum(b * b for b in want) or 1)) ** 0.5


def packed(build, r, gguf, work, prompt, base):
    drives = []
    for i in range(r.randint(1, 2)):
        os.makedirs(f"{work}/d{i}", exist_ok=True)
        drives += ["--drive", f"{work}/d{i}"]
    run(build + "/coli-pack", *drives, gguf, work + "/store")
    with Mount(build, work + "/store", work, "--memory", "4M") as at:
        got = engine(build, at, prompt, NEW_TOKENS, "--draft", "off")
    return any(got[k] != base[k] for k in ("ids", "logits"))


def check(build, source, work):
    with open(os.path.join(source, "expected.json"), encoding="utf-8") as f:
        expected = json.load(f)
    if not expected["cases"]:
        print(source, "no reference:", expected["why"], flush=True)
        return True
    r, bad, worst, loose = random.Random(source), [], 0.0, 0.0
    for x in glob.glob(source + "/model*.gguf"):  # the mount writes beside them
        os.symlink(os.path.abspath(x), os.path.join(work, os.path.basename(x)))
    gguf = os.path.join(work, expected["file"])
    with Mount(build, gguf, work, "--memory", r.choice(["0", "2M", "64M"])) as at:
        for i, case in enumerate(expected["cases"]):
            exact = engine(build, at, case["prompt"], NEW_TOKENS, "--draft", "off",
                           "--activations", "32")
            bad.append(against_reference(case, exact))
            worst = max(worst, max(abs(a - b) for a, b in zip(
                exact["logits"], case["last_logits"])) / (max(map(abs, case["last_logits"])) or 1))
            quick = engine(build, at, case["prompt"], NEW_TOKENS, "--draft", "off")
            if expected["how"]["mix"] == "F32":
                bad.append(against_reference(case, quick))
            off = off_by(quick["logits"], case["last_logits"])
            theirs = expected["own"] and off_by(expected["own"][i]["last_logits"],
                                                case["last_logits"]) or 0
            loose = max(loose, off)
            if off > max(ROUNDED, 2 * theirs):
                bad.append(f"8-bit activations off by {off:.2f} after {len(case['prompt'])}, "
                           f"llama.cpp's by {theirs:.2f}")
        prompt = expected["cases"][1 + r.randrange(3)]["prompt"]
        for name, got, want in itself(build, r, at, gguf, work, prompt, expected["mtp"] > 0):
            if any(got[k] != want[k] for k in ("ids", "logits")):
                bad.append(f"{name}: other bits after {len(prompt)} tokens")
        base = engine(build, at, prompt, NEW_TOKENS, "--draft", "off")
    if r.random() < 0.35 and packed(build, r, gguf, work, prompt, base):
        bad.append("other bits from a store")
    bad = [x for x in bad if x]
    print(source, "DIFFERENT: " + "; ".join(bad) if bad else "same", f"{worst:.1e} {loose:.2f}",
          flush=True)
    return not bad


if __name__ == "__main__":
    main(__doc__, ARCHS, make, sys.argv[1:], check)
