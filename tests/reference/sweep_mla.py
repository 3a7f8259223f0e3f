#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random checkpoints of the families with latent attention, against the reference.

    sweep_mla.py make FAMILY FIRST COUNT OUT      OUT/FAMILY-N: checkpoints, and expected.json
    sweep_mla.py check BUILD DIR...               what the engine makes of them

`make` needs what make_family_oracle.py needs, and takes its reference and that of
make_glm_oracle.py, with their corrections. A number always gives the same checkpoint. `check` needs
the programs: it packs each checkpoint at full width and compares logits and greedy tokens with the
reference's, then the engine with itself, to the bit: other threads and chunks, gone on with from a
session, speculation, and the mount. It prints a line a checkpoint.
"""

import copy
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

FAMILIES = ("glm_moe_dsa", "deepseek_v32", "deepseek_v3", "deepseek_v2")
NEW_TOKENS = 8
CLOSE = 1e-4  # of the largest logit
SCHEDULE = ("index_topk_freq", "index_skip_topk_offset", "index_topk_pattern", "indexer_types")


# --- what is drawn


def draw_rope(r, family):
    kinds = ["default", "default", "yarn", "yarn", "linear", "llama3", "dynamic"]
    # Its own class turns in a way of its own, which knows no other scaling.
    kind = r.choice(kinds[:4] if family == "deepseek_v2" else kinds)
    rope = dict(rope_type=kind, rope_theta=r.choice([1e4, 8e6, 5e5, 777.0]))
    if kind != "default":
        rope["factor"] = r.choice([1.0, 2.5, 8.0, 40.0])
    if kind == "yarn":
        rope.update(original_max_position_embeddings=r.choice([16, 64, 500, 4096]))
        for key, some in dict(beta_fast=[32, 8.5], beta_slow=[1, 2.0], mscale=[1.0, 0.707, 0],
                              mscale_all_dim=[1.0, 0.707, 0], attention_factor=[1.3],
                              truncate=[True, False]).items():
            if r.random() < (0.15 if key == "attention_factor" else 0.5):
                rope[key] = r.choice(some)
    elif kind == "llama3":
        rope.update(low_freq_factor=1.0, high_freq_factor=r.choice([2.0, 4.0]),
                    original_max_position_embeddings=r.choice([32, 256]))
    if kind in ("linear", "dynamic") and r.random() < 0.5:
        rope["mscale_all_dim"] = r.choice([1.0, 0.5])
    return rope


def draw_router(r, family):
    groups, size = r.choice([1, 1, 2, 3, 4, 8]), r.randint(2, 6)
    kept = r.randint(1, groups)
    c = dict(n_group=groups, topk_group=kept, n_routed_experts=groups * size,
             num_experts_per_tok=r.choice([1, r.randint(1, kept * size), kept * size]),
             norm_topk_prob=r.random() < 0.5, routed_scaling_factor=r.choice([1.0, 2.5, 16.0, 0.3]),
             n_shared_experts=r.choice([0, 1, 1, 2]), moe_intermediate_size=r.randint(2, 70))
    if family == "deepseek_v2":
        c["topk_method"] = r.choice(["greedy", "group_limited_greedy"])
    elif family == "deepseek_v32":
        c["num_experts"] = c["n_routed_experts"]
    return c


def draw_indexer(r, layers, rope):
    c = dict(index_topk=r.choice([1, 2, 7, 16, 60, 100, 256, 2048]),
             index_n_heads=r.choice([1, 5, 16, 32]), index_head_dim=rope + r.choice([0, 1, 8, 31]))
    how = r.randrange(4)
    if how == 1:
        c.update(index_topk_freq=r.randint(0, 4), index_skip_topk_offset=r.randint(1, 3))
    elif how == 2:
        c["index_topk_pattern"] = "F" + "".join(r.choice("FS") for _ in range(layers - 1))
    elif how == 3:
        c["indexer_types"] = ["full"] + [r.choice(["full", "shared"]) for _ in range(layers - 1)]
    return c


def draw(r, family):
    """(configuration of the class, how it is written)"""
    layers, heads, rope = r.randint(1, 5), r.choice([1, 2, 3, 5, 8]), 2 * r.randint(1, 20)
    c = dict(
        vocab_size=r.choice([300, 301, 517]),
        hidden_size=heads * r.randint(-(-20 // heads), 160 // heads),
        intermediate_size=r.randint(1, 150), num_hidden_layers=layers,
        max_position_embeddings=r.choice([40, 333, 512]), bos_token_id=None, eos_token_id=299,
        pad_token_id=299, tie_word_embeddings=r.random() < 0.3,
        rms_norm_eps=r.choice([1e-6, 1e-5, 1e-3]), num_attention_heads=heads,
        num_key_value_heads=heads, kv_lora_rank=r.choice([1, 16, 33, 64, 130]),
        q_lora_rank=r.choice([1, 24, 67, 128]), qk_rope_head_dim=rope,
        qk_nope_head_dim=r.randint(1, 40), v_head_dim=r.choice([1, 16, 23, 64]),
        first_k_dense_replace=r.randint(0, layers - 1), attention_bias=r.random() < 0.3,
        rope_parameters=draw_rope(r, family), **draw_router(r, family))
    how = dict(dtype=r.choice(["float32", "bfloat16"]), bias=r.choice([0, 0.05, 0.7]),
               old=r.random() < 0.5, mtp=0, more={}, absent=[])
    if family in ("glm_moe_dsa", "deepseek_v32"):
        c.update(draw_indexer(r, layers, rope))
        if r.random() < 0.3:
            types = [r.choice(["sparse", "dense"]) for _ in range(layers - 1)] + ["sparse"]
            c["mlp_layer_types"] = types
    elif r.random() < 0.4:
        c["q_lora_rank"] = None
    if family == "deepseek_v2" and how["old"]:
        c["norm_topk_prob"] = False  # the trained models heed it, the class does not
    if family == "deepseek_v32":  # which has no schedule
        for key in SCHEDULE:
            c.pop(key, None)
    if family == "deepseek_v3":
        c["rope_interleave"] = r.random() < 0.7
    if family != "deepseek_v2":
        how["mtp"] = r.choice([0, 0, 1, 2])
        said = dict(scoring_func="sigmoid", topk_method="noaux_tc", ep_size=1)
        how["more"] = r.choice([{}, said])
        how["more"]["num_nextn_predict_layers"] = how["mtp"]
    if how["mtp"]:  # is a copy of the last layer, with its indexer
        c.pop("index_topk_freq", None)
        if "index_topk_pattern" in c:
            c["index_topk_pattern"] = c["index_topk_pattern"][:-1] + "F"
        if "indexer_types" in c:
            c["indexer_types"][-1] = "full"
    return c, how


# --- the reference


def reference(family, c, how):
    import make_family_oracle as families
    import make_glm_oracle as glm
    import torch
    from transformers.models.deepseek_v2 import modeling_deepseek_v2 as v2

    families.CLASSES["glm_moe_dsa"] = "GlmMoeDsa"
    if not hasattr(v2, "turn"):  # it takes no view at an odd place
        v2.turn = v2.apply_rotary_emb
        v2.apply_rotary_emb = lambda q, k, f: v2.turn(
            *(x.clone(memory_format=torch.contiguous_format) for x in (q, k)), f)
    if family == "glm_moe_dsa":
        glm.reference.apply_rotary_pos_emb = glm.INTERLEAVED
    model = families.make_model(family, copy.deepcopy(c))
    rope = c["rope_parameters"]
    if family == "glm_moe_dsa":
        for layer in model.model.layers:
            a = layer.self_attn
            a.q_a_layernorm.variance_epsilon = a.kv_a_layernorm.variance_epsilon = c["rms_norm_eps"]
    if family == "deepseek_v2" and how["old"] and rope.get("mscale_all_dim") and rope["factor"] > 1:
        families.scale_by_mscale(model, rope)
    families.randomise(model, how)
    return model


def best_case(model, shaken, length, g):
    """Of a few prompts the one that hangs least on the last bits."""
    import torch
    from oracle import logits_after, short

    best = None
    for _ in range(4):
        prompt = torch.randint(0, 290, (length,), generator=g).tolist()
        ids, margins, noise = list(prompt), [], 0.0
        for _ in range(NEW_TOKENS):
            logits = logits_after(model, ids)
            if len(ids) == length:
                first = logits
            if len(ids) < length + 2:
                noise = max(noise, float((logits_after(shaken, ids) - logits).abs().max()))
            two = logits[:300].topk(2)
            margins.append(float(two.values[0] - two.values[1]))
            ids.append(int(two.indices[0]))
            if ids[-1] == 299:
                break
        case = dict(prompt=prompt, greedy=ids[length:], margin=short(margins), noise=noise,
                    last_logits=short(first.tolist()))
        if best is None or noise < best["noise"]:
            best = case
        if noise < 2e-5 * float(first.abs().max()) and min(margins) > 1e-3:
            break
    return best


def lengths(r, c):
    most = min(c["max_position_embeddings"] - NEW_TOKENS, 300)
    near = c.get("index_topk", 256) + r.randint(-9, 2)
    return [1, r.randint(2, min(40, most)), max(1, min(near, most)), r.randint(min(41, most), most)]


def make(family, number, out):
    import make_family_oracle as families
    import make_glm_oracle as glm
    import torch
    from oracle import noisy

    r = random.Random(f"{family} {number}")
    torch.manual_seed(r.randrange(1 << 30))
    c, how = draw(r, family)
    model = reference(family, c, how)
    os.makedirs(out, exist_ok=True)
    families.save(model, how, c, out)
    glm.dump(os.path.join(out, "tokenizer.json"), glm.byte_level_tokenizer())
    g = torch.Generator().manual_seed(number)
    shaken = noisy(model, 1)
    cases = [best_case(model, shaken, n, g) for n in lengths(r, c)]
    with open(os.path.join(out, "expected.json"), "w") as f:
        json.dump(dict(config=c, how=how, cases=cases), f)
    print(out, [len(x["prompt"]) for x in cases], flush=True)


# --- the engine


class Bad(Exception):
    pass


def run(*args):
    p = subprocess.run(args, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if p.returncode:
        name = os.path.basename(args[0])
        raise Bad(f"{name} ended with {p.returncode}: {p.stderr.strip()[-400:]}")
    return p.stdout


def engine(build, where, prompt, n, *options):
    ids = " ".join(map(str, prompt))
    what = ["--prompt-ids", ids, "-n", str(n), "--logits", "--json"]
    return json.loads(run(build + "/coli-engine", "run", where, *what, *options))


def against_reference(case, out):
    """A sentence, or None."""
    scale = max(map(abs, case["last_logits"])) or 1
    bound = max(CLOSE * scale, 10 * case["noise"])
    off = max(abs(a - b) for a, b in zip(out["logits"], case["last_logits"]))
    n = len(case["prompt"])
    if len(out["logits"]) != len(case["last_logits"]) or not off <= bound:
        noise = case["noise"] / scale
        return f"logits after {n} tokens off by {off / scale:.1e} (noise {noise:.1e})"
    for a, b, margin in zip(out["ids"], case["greedy"], case["margin"]):
        if a != b:
            close = margin < bound
            return None if close else f"after {n} tokens {out['ids']}, not {case['greedy']}"
    return None


def mounted(build, store, work, prompt, n):
    mnt = os.path.join(work, "mnt")
    os.mkdir(mnt)
    daemon = subprocess.Popen([build + "/expertfs", "-f", "--memory", "8M", store, mnt],
                              stderr=subprocess.DEVNULL)
    try:
        while not os.path.ismount(mnt) and daemon.poll() is None:
            time.sleep(0.05)
        return engine(build, mnt, prompt, n, "--draft", "off")
    finally:
        subprocess.run(["umount", mnt], check=False)
        daemon.wait(60)
        os.rmdir(mnt)


def itself(build, r, plain, store, work, prompt, drafts):
    """(name, run, what it must equal) of runs that may differ in no bit."""
    n = NEW_TOKENS
    base = engine(build, plain, prompt, n, "--draft", "off")
    for _ in range(3):
        o = ["--threads", r.choice("123"), "--chunk", r.choice(["1", "3", "64", "255"])]
        o += ["--draft", r.choice("135") if drafts and r.random() < 0.8 else "off"]
        yield " ".join(o), engine(build, plain, prompt, n, *o), base
    s = ["--session", os.path.join(work, "s"), "--draft", "off"]
    whole = engine(build, plain, prompt, n, "--draft", "off", "--session",
                   os.path.join(work, "whole"))
    engine(build, plain, prompt[: r.randint(1, len(prompt))], 2, *s)
    yield "session", engine(build, plain, prompt, n, *s, "--chunk", r.choice(["2", "300"])), whole
    yield "session again", engine(build, plain, prompt, n, *s), whole
    if r.random() < 0.3:
        yield "mount", mounted(build, store, work, prompt, n), base


def check(build, source, work):
    with open(os.path.join(source, "expected.json"), encoding="utf-8") as f:
        expected = json.load(f)
    r = random.Random(source)
    bits = "16" if expected["how"]["dtype"] == "bfloat16" and r.random() < 0.5 else "32"
    store, plain = os.path.join(work, "store"), os.path.join(work, "plain")
    run(build + "/coli-pack", "--bits", bits, "--dense-bits", bits, source, store)
    run(build + "/expertctl", "export", store, plain)
    bad, worst = [], 0.0
    for case in expected["cases"]:
        out = engine(build, plain, case["prompt"], len(case["greedy"]), "--draft", "off")
        bad.append(against_reference(case, out))
        scale = max(map(abs, case["last_logits"])) or 1
        off = [abs(a - b) / scale for a, b in zip(out["logits"], case["last_logits"])]
        worst = max(worst, *off)
    drafts = expected["how"]["mtp"] > 0
    for case in expected["cases"][-2:]:
        for name, got, want in itself(build, r, plain, store, work, case["prompt"], drafts):
            if any(got[k] != want[k] for k in ("ids", "logits")):
                bad.append(f"{name}: other bits after {len(case['prompt'])} tokens")
        for name in ("s", "whole"):
            os.remove(os.path.join(work, name))
    bad = [x for x in bad if x]
    print(source, "DIFFERENT: " + "; ".join(bad) if bad else "same", f"{worst:.1e}", flush=True)
    return not bad


def main(args):
    if len(args) == 5 and args[0] == "make" and args[1] in FAMILIES:
        import torch

        torch.set_num_threads(1)
        for number in range(int(args[2]), int(args[2]) + int(args[3])):
            make(args[1], number, os.path.join(args[4], f"{args[1]}-{number}"))
        return
    if len(args) < 3 or args[0] != "check":
        sys.exit(__doc__)
    failed = 0
    for source in args[2:]:
        work = tempfile.mkdtemp()
        try:
            failed += not check(args[1], source, work)
        except Bad as e:
            print(source, "FAILED:", e, flush=True)
            failed += 1
        finally:
            shutil.rmtree(work)
    sys.exit(failed and f"{failed} of {len(args) - 2} checkpoints differ")


if __name__ == "__main__":
    main(sys.argv[1:])
