#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random checkpoints of the families with latent attention, against the reference.

    sweep_mla.py make FAMILY FIRST COUNT OUT      OUT/FAMILY-N: checkpoints, and expected.json
    sweep_mla.py check BUILD DIR...               what the engine makes of them

sweep.py has what either does. The reference is that of make_family_oracle.py and
make_glm_oracle.py, with their corrections.
"""

import copy
import os
import random
import sys

import sweep

FAMILIES = ("glm_moe_dsa", "deepseek_v32", "deepseek_v3", "deepseek_v2")
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


def lengths(r, c):
    most = min(c["max_position_embeddings"] - sweep.NEW_TOKENS, 300)
    near = c.get("index_topk", 256) + r.randint(-9, 2)
    return [1, r.randint(2, min(40, most)), max(1, min(near, most)), r.randint(min(41, most), most)]


def make(family, number, out):
    import make_family_oracle as families
    import make_glm_oracle as glm
    import torch

    r = random.Random(f"{family} {number}")
    torch.set_num_threads(1)
    torch.manual_seed(r.randrange(1 << 30))
    c, how = draw(r, family)
    model = reference(family, c, how)
    os.makedirs(out, exist_ok=True)
    families.save(model, how, c, out)
    glm.dump(os.path.join(out, "tokenizer.json"), glm.byte_level_tokenizer())
    sweep.say(model, c, how, lengths(r, c), number, out)


if __name__ == "__main__":
    sweep.main(__doc__, FAMILIES, make, sys.argv[1:])
