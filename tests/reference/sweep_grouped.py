#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random checkpoints of the families with grouped attention, against the reference.

    sweep_grouped.py make FAMILY FIRST COUNT OUT      OUT/FAMILY-N: checkpoints, and expected.json
    sweep_grouped.py check BUILD DIR...               what the engine makes of them

sweep.py has what either does. The reference is transformers' class of the family as it loads the
checkpoint itself, so that what config.json leaves out, says as null or spells as older releases do
is read by both; of FP8 and MXFP4 it loads the numbers that they stand for.
"""

import json
import os
import random
import shutil
import sys

import sweep

FAMILIES = ("qwen2_moe", "qwen3_moe", "glm4_moe", "olmoe", "mixtral", "gpt_oss")

# Keys that a configuration may leave out, with the value that they have then: a number small enough
# for a small model.
LEFT_OUT = dict(
    qwen2_moe=dict(num_experts_per_tok=4, norm_topk_prob=False, decoder_sparse_step=1,
                   mlp_only_layers=[], rms_norm_eps=1e-6, sliding_window=4096, num_experts=60,
                   max_window_layers=28, qkv_bias=True, num_key_value_heads=16),
    qwen3_moe=dict(num_experts_per_tok=8, norm_topk_prob=False, decoder_sparse_step=1,
                   mlp_only_layers=[], rms_norm_eps=1e-6, sliding_window=4096, num_experts=128,
                   attention_bias=False, num_key_value_heads=4),
    glm4_moe=dict(num_experts_per_tok=8, norm_topk_prob=True, n_shared_experts=1, n_group=1,
                  topk_group=1, rms_norm_eps=1e-5, routed_scaling_factor=1.0,
                  first_k_dense_replace=1, attention_bias=False, use_qk_norm=False,
                  n_routed_experts=128, num_key_value_heads=8),
    olmoe=dict(num_experts_per_tok=8, norm_topk_prob=False, rms_norm_eps=1e-5, clip_qkv=None,
               attention_bias=False, num_experts=64),
    mixtral=dict(num_experts_per_tok=2, rms_norm_eps=1e-5, sliding_window=None,
                 num_local_experts=8, num_key_value_heads=8),
    gpt_oss=dict(num_experts_per_tok=4, rms_norm_eps=1e-5, sliding_window=128, head_dim=64,
                 num_local_experts=128, num_key_value_heads=8))

# The base of rotations, where none is said; gpt-oss has more than a base.
THETA = dict(mixtral=1e6, gpt_oss=150000.0)
OSS_ROPE = dict(rope_type="yarn", rope_theta=150000.0, factor=32.0, beta_fast=32.0, beta_slow=1.0,
                truncate=False, original_max_position_embeddings=4096)
# Another name for the number of experts, which the class takes as well.
OTHER_NAME = dict(qwen3_moe=("num_local_experts", "num_experts"),
                  olmoe=("num_experts", "num_local_experts"),
                  mixtral=("num_local_experts", "num_experts"),
                  gpt_oss=("num_local_experts", "num_experts"),
                  glm4_moe=("n_routed_experts", "num_local_experts"))


# --- what is drawn


def draw_rope(r):
    kind = r.choice(["default", "default", "yarn", "yarn", "linear", "llama3", "dynamic"])
    rope = dict(rope_type=kind, rope_theta=r.choice([1e4, 1e6, 150000.0, 777.0]))
    if kind != "default":
        rope["factor"] = r.choice([1.0, 2.5, 8.0, 32.0])
    if kind == "yarn":
        rope.update(original_max_position_embeddings=r.choice([16, 64, 500, 512, 4096]))
        for key, some in dict(beta_fast=[32.0, 8.5], beta_slow=[1.0, 2.0], mscale=[1.0, 0.707],
                              mscale_all_dim=[1.0, 0.707], attention_factor=[1.3],
                              truncate=[True, False]).items():
            if r.random() < (0.15 if key == "attention_factor" else 0.4):
                rope[key] = r.choice(some)
    elif kind == "llama3":
        rope.update(low_freq_factor=1.0, high_freq_factor=r.choice([2.0, 4.0]),
                    original_max_position_embeddings=r.choice([32, 256]))
    return rope


def draw_sizes(r, family, mxfp4):
    heads = r.choice([1, 2, 3, 4, 6, 8, 8, 16, 16, 40, 260])
    kv = r.choice([k for k in range(1, heads + 1) if heads % k == 0])
    apart = family == "gpt_oss" or (family != "olmoe" and r.random() < 0.6)
    dim = 2 * r.randint(2, max(2, min(32, (600 if apart else 80) // heads)))
    c = dict(hidden_size=r.randint(16, 150) if apart else heads * dim, num_attention_heads=heads,
             num_key_value_heads=kv)
    if mxfp4:
        c["hidden_size"] = 32 * r.randint(1, 4)
    if apart:
        c["head_dim"] = dim
    return c, dim


def draw_router(r, family):
    if family == "glm4_moe":
        groups, size = r.choice([1, 1, 1, 2, 4]), r.randint(2, 8)
        kept = r.randint(1, groups)
        n, most = groups * size, kept * size
        more = dict(n_group=groups, topk_group=kept, n_shared_experts=r.choice([0, 1, 1, 2]),
                    routed_scaling_factor=r.choice([1.0, 2.5, 0.3]))
    else:
        n = most = r.choice([1, r.randint(2, 20)])
        more = {}
    key = dict(glm4_moe="n_routed_experts", mixtral="num_local_experts",
               gpt_oss="num_local_experts").get(family, "num_experts")
    k = r.choice([1, r.randint(1, most), most])
    if family not in ("mixtral", "gpt_oss"):
        more["norm_topk_prob"] = r.random() < 0.5
    return {key: n, "num_experts_per_tok": k, **more}


def draw_layers(r, family, layers):
    if family == "glm4_moe":
        return dict(first_k_dense_replace=r.randint(0, layers - 1))
    if not family.startswith("qwen"):
        return {}
    c = dict(decoder_sparse_step=r.choice([1, 1, 2, 3]),
             mlp_only_layers=r.choice([[], [], [0], [0, 2], [1, 7]]))
    sparse = [i for i in range(layers) if (i + 1) % c["decoder_sparse_step"] == 0]
    if not set(sparse) - set(c["mlp_only_layers"]):
        c = dict(decoder_sparse_step=1, mlp_only_layers=[])
    return c


def draw_window(r, family, layers):
    size = r.choice([1, 2, 7, 30, 64, 128, 200])
    types = [r.choice(["sliding_attention", "full_attention"]) for _ in range(layers)]
    if family == "mixtral":
        return dict(sliding_window=r.choice([None, size]))
    if family == "gpt_oss":
        return dict(sliding_window=size, **r.choice([{}, dict(layer_types=types)]))
    if not family.startswith("qwen"):
        return {}
    if r.random() < 0.5:
        return dict(use_sliding_window=False, sliding_window=r.choice([None, size]))
    c = dict(use_sliding_window=True, sliding_window=size, max_window_layers=r.randint(0, layers))
    if family == "qwen2_moe" and r.random() < 0.4:
        c["layer_types"] = types
    return c


def draw_switches(r, family):
    c = {}
    if family == "qwen2_moe":
        c["qkv_bias"] = r.random() < 0.6
        c["shared_expert_intermediate_size"] = r.randint(1, 90)
    elif family != "mixtral":
        c["attention_bias"] = r.random() < 0.5
    if family == "glm4_moe":
        c["use_qk_norm"] = r.random() < 0.5
    if family == "olmoe":
        c["clip_qkv"] = r.choice([None, 0.3, 1.0, 8.0])
    return c


def draw(r, family):
    """(configuration of the class, how it is written)"""
    layers, mxfp4 = r.randint(1, 5), family == "gpt_oss" and r.random() < 0.4
    sizes, dim = draw_sizes(r, family, mxfp4)
    width = 32 * r.randint(1, 3) if mxfp4 else r.randint(1, 90)
    c = dict(vocab_size=r.choice([300, 301, 517]), num_hidden_layers=layers,
             intermediate_size=width, max_position_embeddings=r.choice([40, 333, 512, 512]),
             bos_token_id=None, eos_token_id=299, pad_token_id=299,
             tie_word_embeddings=r.random() < 0.3, rms_norm_eps=r.choice([1e-6, 1e-5, 1e-3]),
             rope_parameters=draw_rope(r), **sizes, **draw_router(r, family),
             **draw_layers(r, family, layers), **draw_window(r, family, layers),
             **draw_switches(r, family))
    if family in ("qwen2_moe", "qwen3_moe", "glm4_moe"):
        c["moe_intermediate_size"] = r.randint(1, 70)
    how = dict(dtype=r.choice(["float32", "bfloat16", "float16"]), bias=r.choice([0, 0.05, 0.7]),
               gain=r.choice([1.0, 3.0]) if family == "gpt_oss" else 1.0, mtp=0, more={},
               absent=[], old=r.random() < 0.5, form=r.choice([None, None, "fused", "fp8"]),
               shards=r.choice([1, 1, 3]))
    if family == "gpt_oss":
        how["form"] = "mxfp4" if mxfp4 else None
        how["more"] = dict(quantization_config=dict(quant_method="mxfp4")) if mxfp4 else {}
    if family == "glm4_moe":
        draw_glm(r, c, how, dim)
    if family == "mixtral" and c["rope_parameters"]["rope_type"] in ("yarn", "dynamic"):
        c.setdefault("head_dim", dim)  # the release cannot do without
    if family == "gpt_oss" and r.random() < 0.2:
        c["rope_parameters"] = dict(OSS_ROPE)
    if family == "gpt_oss" and c["rope_parameters"]["rope_type"] == "default":
        how["old"] = False  # where a null says nothing, and stands for the class's own
    leave_out(r, family, c, how)
    return c, how


def draw_glm(r, c, how, dim):
    part = r.choice([p for p in (0.25, 0.5, 0.5, 0.75, 1.0) if dim * p in range(4, dim + 1, 2)])
    c["partial_rotary_factor"] = c["rope_parameters"]["partial_rotary_factor"] = part
    how["mtp"] = r.choice([0, 0, 1, 2])
    if r.random() < 0.8:  # else they are left over
        how["more"]["num_nextn_predict_layers"] = how["mtp"] + r.choice([0, 0, 1])


def possible(c):
    experts = [c[k] for k in ("num_experts", "n_routed_experts", "num_local_experts") if k in c][0]
    groups, kept = c.get("n_group", 1), c.get("topk_group", 1)
    size = experts // groups
    return (experts % groups == 0 and kept <= groups and c["num_experts_per_tok"] <= kept * size
            and (size > 1 or "n_group" not in c)
            and c["num_attention_heads"] % c["num_key_value_heads"] == 0
            and c.get("first_k_dense_replace", 0) < c["num_hidden_layers"]
            and (c.get("sliding_window") or not c.get("use_sliding_window")))


def leave_out(r, family, c, how):
    """Some keys get the value that they have where they are missing, and are missing."""
    for key, value in LEFT_OUT[family].items():
        if r.random() < 0.2 and possible(dict(c, **{key: value})):
            c[key] = value
            how["absent"].append(key)


# --- the reference


def split(out, shards, r):
    """The tensors dealt out over several files, with an index."""
    from safetensors.torch import load_file, save_file

    path = os.path.join(out, "model.safetensors")
    tensors = load_file(path)
    os.remove(path)
    parts, where = [{} for _ in range(shards)], {}
    for name, t in tensors.items():
        n = r.randrange(shards)
        parts[n][name] = t
        where[name] = f"model-{n + 1:05}-of-{shards:05}.safetensors"
    for n, part in enumerate(parts):
        if part:
            name = f"model-{n + 1:05}-of-{shards:05}.safetensors"
            save_file(part, os.path.join(out, name), metadata={"format": "pt"})
    with open(os.path.join(out, "model.safetensors.index.json"), "w") as f:
        json.dump(dict(metadata={}, weight_map=where), f)


def loaded(out):
    """The model as the reference reads it."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    cfg = AutoConfig.from_pretrained(out)
    cfg._experts_implementation = "eager"
    model = AutoModelForCausalLM.from_pretrained(
        out, config=cfg, dtype=torch.float32, attn_implementation="eager",
        experts_implementation="eager")
    return model.float().eval()


def respell(r, family, c, config):
    """What stands in config.json, in other words of the same sense."""
    heads, dim = c["num_attention_heads"], c.get("head_dim")
    may = dict(
        rope_scaling="rope_scaling" not in config, quantization_config=True,
        head_dim=family == "mixtral" and dim is None,
        num_key_value_heads=family == "olmoe" and c["num_key_value_heads"] == heads,
        mlp_only_layers=c.get("mlp_only_layers") == [],
        layer_types="layer_types" not in c and family in ("qwen2_moe", "gpt_oss"))
    for key in sorted(may):
        if may[key] and r.random() < 0.3 and not config.get("quantization_config"):
            config[key] = None
    name, other = OTHER_NAME.get(family, (None, None))
    if name in config and r.random() < 0.3:
        config[other] = config.pop(name)
    respell_rope(r, family, c, config)


def respell_rope(r, family, c, config):
    place = "rope_parameters" if config.get("rope_parameters") else "rope_scaling"
    rope, theta = config.get(place) or {}, THETA.get(family, 1e4)
    base = rope if place == "rope_parameters" else config  # where the base stands
    if "type" in rope and r.random() < 0.4:
        rope["rope_type"] = rope["type"] if r.random() < 0.5 else rope.pop("type")
    if base.get("rope_theta") == theta and r.random() < 0.4:
        del base["rope_theta"]
    if c["rope_parameters"]["rope_type"] == "yarn":
        respell_yarn(r, c["max_position_embeddings"], rope, config)
    usual = dict(rope_type="default", rope_theta=theta) if family != "gpt_oss" else OSS_ROPE
    if c["rope_parameters"] == usual and r.random() < 0.5:
        for key in (place, "rope_theta", "original_max_position_embeddings"):
            config.pop(key, None)


def respell_yarn(r, positions, rope, config):
    length = rope["original_max_position_embeddings"]
    if r.random() < 0.2:
        config["original_max_position_embeddings"] = length
        del rope["original_max_position_embeddings"]
    elif length == positions:
        del rope["original_max_position_embeddings"]
    if rope["factor"] == positions / length and r.random() < 0.5:
        rope["factor"] = None
    if r.random() < 0.2:
        rope.setdefault("attention_factor", None)


def change_config(out, change):
    path = os.path.join(out, "config.json")
    with open(path) as f:
        config = json.load(f)
    change(config)
    with open(path, "w") as f:
        json.dump(config, f, indent=2)


def to_fp8(out, wide):
    """The checkpoint in `out` becomes one of FP8; the numbers that it stands for go to `wide`."""
    from make_glm_oracle import fp8_blocks, stays_wide
    from safetensors.torch import load_file, save_file

    shutil.copytree(out, wide)
    path = os.path.join(out, "model.safetensors")
    disk, values = {}, {}
    for name, t in load_file(path).items():
        if t.ndim == 2 and not stays_wide(name) and "gate.weight" not in name:
            disk[name], disk[name + "_scale_inv"], values[name] = fp8_blocks(t.float())
        else:
            disk[name], values[name] = t, t.float()
    save_file(disk, path, metadata={"format": "pt"})
    save_file(values, os.path.join(wide, "model.safetensors"), metadata={"format": "pt"})
    change_config(out, lambda config: config.update(quantization_config=dict(
        quant_method="fp8", fmt="e4m3", activation_scheme="dynamic",
        weight_block_size=[128, 128])))


def lengths(r, c):
    most = min(c["max_position_embeddings"] - sweep.NEW_TOKENS, 300)
    near, long = (c.get("sliding_window") or 64) + r.randint(-9, 2), r.choice([41, 257])
    return [1, r.randint(2, min(40, most)), max(1, min(near, most)),
            r.randint(min(long, most), most)]


def make(family, number, out):
    import make_family_oracle as families
    import make_glm_oracle as glm
    import torch
    from oracle import logits_after

    r = random.Random(f"{family} {number}")
    torch.set_num_threads(1)
    torch.manual_seed(r.randrange(1 << 30))
    c, how = draw(r, family)
    model = families.make_model(family, c)
    families.randomise(model, how)
    os.makedirs(out, exist_ok=True)
    families.save(model, how, c, out)
    change_config(out, lambda config: respell(r, family, c, config))
    glm.dump(os.path.join(out, "tokenizer.json"), glm.byte_level_tokenizer())
    wide = out
    if how["form"] in ("fp8", "mxfp4"):
        wide = out + ".wide"
    if how["form"] == "fp8":
        to_fp8(out, wide)
    elif how["form"] == "mxfp4":  # save() has rounded the model's own
        families.save(model, dict(how, form=None, more={}), c, wide)
    if how["shards"] > 1:
        split(out, how["shards"], r)
    read = loaded(wide)
    ids = list(range(1, 30))
    off = float((logits_after(read, ids) - logits_after(model, ids)).abs().max())
    if not off < 1e-4 and how["form"] != "fp8":
        print(out, f"is read as something else than was meant: logits off by {off:.1e}")
    if wide != out:
        shutil.rmtree(wide)
    sweep.say(read, c, how, lengths(r, c), number, out)


if __name__ == "__main__":
    sweep.main(__doc__, FAMILIES, make, sys.argv[1:])
