#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/families: small random checkpoints of each family and what the reference says;
and what make_llama_golden.py makes tests/data/gguf-families of.

    make_family_oracle.py PRESET TOKENIZER_JSON OUT_DIR

Needs transformers 5.12, torch and safetensors (Debian sid has all three). The reference is
transformers on a processor, in float32, with eager attention and without cache. Corrections:

  - deepseek_v2 spelled as the published models spell it (rope_scaling): the scores are scaled by
    the square of YaRN's mscale_all_dim, as the code that comes with those models does it;
    transformers' own class does not;
  - deepseek_v2 with groups: the release reads an attribute that it never sets.

expected.json: {"reference", "min_margin", "cases": [{"prompt", "last_logits" (after the prompt),
"greedy" (16 tokens), "margin" (best logit minus second, a token each)}]}. Prompts are drawn until
every margin is above MARGIN, no end token comes, and noise of 1e-6 on all weights changes nothing,
so that arithmetic in another order agrees.
"""

import copy
import json
import math
import os
import shutil
import sys

import torch
import transformers as T
from oracle import MARGIN, logits_after, noisy, short
from safetensors.torch import load_file, save_file

NEW_TOKENS = 16
VOCAB = 300  # the tokenizer defines as many
EOS = 299

# fmt: off
BASE = dict(
    vocab_size=VOCAB, hidden_size=48, num_hidden_layers=3, max_position_embeddings=1024,
    bos_token_id=None, eos_token_id=EOS, pad_token_id=EOS, tie_word_embeddings=False,
    num_attention_heads=6, num_key_value_heads=2, rms_norm_eps=1e-5, intermediate_size=56)
MLA = dict(
    num_attention_heads=3, num_key_value_heads=3, kv_lora_rank=20, q_lora_rank=28,
    qk_rope_head_dim=12, qk_nope_head_dim=16, v_head_dim=20, moe_intermediate_size=24,
    n_routed_experts=12, num_local_experts=12, num_experts_per_tok=4, first_k_dense_replace=1)
YARN = dict(
    rope_type="yarn", rope_theta=10000.0, factor=8.0, original_max_position_embeddings=64,
    beta_fast=16, beta_slow=2, mscale=0.707, mscale_all_dim=0.9)
DEFAULT = dict(rope_type="default", rope_theta=5000.0)
LONG = (1, 9, 60, 300)

# class, config; form: how weights are stored; absent: keys taken out of config.json, since the
# family's default is what they say; old: rope_scaling and rope_theta instead of rope_parameters;
# more: keys that transformers does not keep.
PRESETS = {
    # A dense layer by either rule, heads wider than hidden / heads.
    "qwen3_moe": dict(config=dict(
        head_dim=16, moe_intermediate_size=24, num_experts=12, num_experts_per_tok=3,
        norm_topk_prob=True, mlp_only_layers=[1], num_hidden_layers=4, decoder_sparse_step=2,
        rope_parameters=DEFAULT), absent=["attention_bias", "sliding_window"]),
    # Every switch the other way: biases, a window, linear scaling, tied, raw weights.
    "qwen3_switched": dict(family="qwen3_moe", config=dict(
        head_dim=10, moe_intermediate_size=24, num_experts=10, num_experts_per_tok=3,
        norm_topk_prob=False, attention_bias=True, tie_word_embeddings=True,
        use_sliding_window=True, sliding_window=9,
        rope_parameters=dict(rope_type="linear", factor=2.5, rope_theta=700.0)),
        absent=["norm_topk_prob", "decoder_sparse_step"]),
    # As many heads of keys as of queries by default; clipped so low that it matters.
    "olmoe": dict(config=dict(
        intermediate_size=28, num_experts=12, num_experts_per_tok=4, clip_qkv=0.8,
        num_key_value_heads=None, rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
        absent=["num_key_value_heads", "norm_topk_prob", "rope_parameters", "rms_norm_eps"]),
    # A window in every layer; experts fused as transformers has them in memory.
    "mixtral": dict(form="fused", config=dict(
        intermediate_size=40, num_local_experts=6, num_experts_per_tok=2, sliding_window=12,
        rope_parameters=dict(rope_type="llama3", rope_theta=50000.0, factor=4.0,
                             low_freq_factor=1.0, high_freq_factor=4.0,
                             original_max_position_embeddings=128)), old=True,
        absent=["rms_norm_eps", "head_dim"]),
    # Windows in every other layer up to the second, a dense layer.
    "qwen2_moe": dict(config=dict(
        moe_intermediate_size=24, shared_expert_intermediate_size=32, num_experts=8,
        num_experts_per_tok=3, decoder_sparse_step=2, num_hidden_layers=4, norm_topk_prob=True,
        use_sliding_window=True, sliding_window=7, max_window_layers=2, rope_parameters=DEFAULT),
        absent=["layer_types", "qkv_bias"]),
    # V2-Lite: queries in one step, no groups, spelled as published. Prompts of 300 tokens: latent
    # attention takes another form in long ones.
    "deepseek_v2_lite": dict(family="deepseek_v2", old=True, mscale=True, lengths=LONG, config=dict(
        MLA, q_lora_rank=None, n_shared_experts=2, n_group=1, topk_group=1, topk_method="greedy",
        routed_scaling_factor=1.0, rms_norm_eps=1e-6, rope_parameters=YARN),
        more=dict(scoring_func="softmax", moe_layer_freq=1, seq_aux=True), absent=["head_dim"]),
    "deepseek_v2": dict(lengths=LONG, config=dict(
        MLA, n_shared_experts=1, n_group=4, topk_group=2, topk_method="group_limited_greedy",
        routed_scaling_factor=3.0, rms_norm_eps=1e-4, rope_parameters=YARN)),
    # Biases in attention; the bias of selection outweighs the scores; an MTP layer.
    "deepseek_v3": dict(mtp=True, lengths=LONG, config=dict(
        MLA, n_shared_experts=1, n_group=4, topk_group=2, routed_scaling_factor=2.5,
        norm_topk_prob=True, attention_bias=True, rms_norm_eps=1e-4, rope_parameters=YARN),
        bias=0.6, more=dict(scoring_func="sigmoid", topk_method="noaux_tc", ep_size=1,
                            num_nextn_predict_layers=1)),
    "deepseek_v32": dict(lengths=(1, 9, 60, 130, 300), config=dict(
        {k: v for k, v in MLA.items() if k != "num_local_experts"}, num_experts=12,
        n_shared_experts=1, n_group=2, topk_group=1, routed_scaling_factor=2.5,
        norm_topk_prob=True, rms_norm_eps=1e-6, index_topk=20, index_head_dim=24, index_n_heads=5,
        rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=1.0)), absent=["n_experts"]),
    # Half of a head turns; normed heads.
    "glm4_moe": dict(config=dict(
        head_dim=16, moe_intermediate_size=24, n_routed_experts=12, num_experts_per_tok=3,
        n_shared_experts=1, first_k_dense_replace=1, n_group=1, topk_group=1,
        routed_scaling_factor=1.5, norm_topk_prob=True, use_qk_norm=True, attention_bias=True,
        partial_rotary_factor=0.5, rope_parameters=DEFAULT), old=True, bias=0.05,
        absent=["partial_rotary_factor", "n_group", "topk_group"]),
    # Air: no norm of heads; groups; an MTP layer.
    "glm4_air": dict(family="glm4_moe", mtp=True, config=dict(
        moe_intermediate_size=24, n_routed_experts=12, num_experts_per_tok=3, n_shared_experts=2,
        first_k_dense_replace=0, n_group=3, topk_group=2, routed_scaling_factor=1.0,
        norm_topk_prob=False, use_qk_norm=False, attention_bias=False,
        rope_parameters=dict(DEFAULT, partial_rotary_factor=0.75)), bias=0.05,
        more=dict(num_nextn_predict_layers=1),
        absent=["use_qk_norm", "attention_bias"]),
    # As transformers saves it: experts [in, out], gate and up in turn.
    "gpt_oss": dict(config=dict(
        head_dim=16, intermediate_size=40, num_local_experts=5, num_experts_per_tok=2,
        sliding_window=8, rope_parameters=dict(
            rope_type="yarn", rope_theta=150000.0, factor=8.0, beta_fast=32.0, beta_slow=1.0,
            truncate=False, original_max_position_embeddings=128)), gain=3.0,
        absent=["attention_bias", "layer_types"]),
    # As published: MXFP4; layer types of its own, no window without them.
    "gpt_oss_mxfp4": dict(family="gpt_oss", form="mxfp4", old=True, config=dict(
        hidden_size=64, head_dim=8, intermediate_size=32, num_local_experts=6,
        num_experts_per_tok=4, num_key_value_heads=3, sliding_window=11,
        layer_types=["full_attention", "sliding_attention", "sliding_attention"],
        rope_parameters=dict(
            rope_type="yarn", rope_theta=150000.0, factor=32.0, beta_fast=32.0, beta_slow=1.0,
            truncate=False, original_max_position_embeddings=4096)), gain=3.0,
        more=dict(swiglu_limit=7.0, quantization_config=dict(quant_method="mxfp4"))),
}
# What llama.cpp computes just so, as the trained models have it: for tests/data/gguf-families.
# Widths are multiples of 32, the block of most of its types.
PLAIN = dict(hidden_size=64, num_hidden_layers=2, head_dim=16, num_attention_heads=4,
             moe_intermediate_size=32, num_experts_per_tok=2)
PLAIN_MLA = dict(
    hidden_size=64, num_hidden_layers=2, intermediate_size=64, num_attention_heads=2,
    num_key_value_heads=2, kv_lora_rank=32, q_lora_rank=32, qk_rope_head_dim=8,
    qk_nope_head_dim=32, v_head_dim=32, moe_intermediate_size=32, n_routed_experts=8,
    num_local_experts=8, num_experts_per_tok=3, first_k_dense_replace=1, rms_norm_eps=1e-6)
PLAIN_YARN = dict(YARN, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0)
PLAIN_OSS = dict(
    hidden_size=64, num_hidden_layers=2, head_dim=16, intermediate_size=32, num_local_experts=5,
    num_experts_per_tok=2, sliding_window=8, rope_parameters=dict(
        rope_type="yarn", rope_theta=172244.98, factor=8.0, beta_fast=32.0, beta_slow=1.0,
        truncate=False, original_max_position_embeddings=128))
PRESETS.update({
    "qwen3moe": dict(family="qwen3_moe", config=dict(
        PLAIN, num_experts=8, norm_topk_prob=True, rms_norm_eps=1e-6, rope_parameters=DEFAULT)),
    "qwen2moe": dict(family="qwen2_moe", config=dict(
        PLAIN, num_experts=8, shared_expert_intermediate_size=64, norm_topk_prob=False,
        rms_norm_eps=1e-6, rope_parameters=DEFAULT)),
    "olmoe-plain": dict(family="olmoe", config=dict(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
        intermediate_size=32, num_experts=8, num_experts_per_tok=3, norm_topk_prob=False,
        rope_parameters=DEFAULT)),
    "llama": dict(family="mixtral", config=dict(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32,
        num_local_experts=6, num_experts_per_tok=2, sliding_window=None, rope_parameters=DEFAULT)),
    "deepseek2-lite": dict(family="deepseek_v2", old=True, mscale=True, config=dict(
        PLAIN_MLA, q_lora_rank=None, n_shared_experts=2, n_group=1, topk_group=1,
        topk_method="greedy", routed_scaling_factor=1.0,
        rope_parameters=dict(PLAIN_YARN, mscale=0.707, mscale_all_dim=0.707)),
        more=dict(scoring_func="softmax"), absent=["head_dim"]),
    "deepseek2": dict(family="deepseek_v3", mscale=False, config=dict(
        PLAIN_MLA, n_shared_experts=1, n_group=4, topk_group=2, routed_scaling_factor=2.5,
        norm_topk_prob=True, rope_parameters=PLAIN_YARN), bias=0.3,
        more=dict(scoring_func="sigmoid", topk_method="noaux_tc")),
    "deepseek32": dict(family="deepseek_v32", lengths=(1, 9, 60, 130), config=dict(
        {k: v for k, v in PLAIN_MLA.items() if k != "num_local_experts"}, num_experts=8,
        n_shared_experts=1, n_group=2, topk_group=1, routed_scaling_factor=2.5,
        norm_topk_prob=True, index_topk=20, index_head_dim=128, index_n_heads=2,
        rope_parameters=PLAIN_YARN), more=dict(scoring_func="sigmoid"), absent=["n_experts"]),
    "glm4moe": dict(family="glm4_moe", mtp=True, config=dict(
        PLAIN, intermediate_size=64, n_routed_experts=8, n_shared_experts=1,
        first_k_dense_replace=1, n_group=1, topk_group=1, routed_scaling_factor=2.5,
        norm_topk_prob=True, use_qk_norm=True, attention_bias=True,
        rope_parameters=dict(DEFAULT, partial_rotary_factor=0.5)), bias=0.05,
        more=dict(num_nextn_predict_layers=1)),
    # YaRN's bounds come out as whole numbers: the model has them as they are, llama.cpp rounds.
    "gpt-oss": dict(family="gpt_oss", config=PLAIN_OSS, gain=3.0, more=dict(swiglu_limit=7.0)),
    "gpt-oss-mxfp4": dict(
        family="gpt_oss", form="mxfp4", config=PLAIN_OSS, gain=3.0,
        more=dict(swiglu_limit=7.0, quantization_config=dict(quant_method="mxfp4"))),
})
CLASSES = dict(
    qwen3_moe="Qwen3Moe", olmoe="Olmoe", mixtral="Mixtral", qwen2_moe="Qwen2Moe",
    deepseek_v2="DeepseekV2", deepseek_v3="DeepseekV3", deepseek_v32="DeepseekV32",
    glm4_moe="Glm4Moe", gpt_oss="GptOss")
# fmt: on


def make_model(family, config):
    cls = CLASSES[family]
    cfg = getattr(T, cls + "Config")(**config)
    cfg._attn_implementation = cfg._experts_implementation = "eager"
    model = getattr(T, cls + "ForCausalLM")(cfg).float().eval()
    for m in model.modules():
        if m.__class__.__name__ == "DeepseekV2Moe":
            m.num_experts = cfg.n_routed_experts
    return model


def scale_by_mscale(model, rope):
    m = 0.1 * rope["mscale_all_dim"] * math.log(rope["factor"]) + 1
    for layer in model.model.layers:
        layer.self_attn.scaling *= m * m


def dtype_of(preset):
    return getattr(torch, preset.get("dtype", "bfloat16"))


@torch.no_grad()
def randomise(model, preset):
    gain = preset.get("gain", 1.0)  # of experts, so that the clamped activation is clamped
    for name, p in model.named_parameters():
        if name.endswith("sinks"):
            p.normal_(0, 1)
        elif p.ndim >= 2 and not name.endswith("bias"):
            transposed = CLASSES["gpt_oss"] in type(model).__name__ and "experts" in name
            p.normal_(0, max(1, p.shape[-2 if transposed else -1]) ** -0.5)
            p.mul_(gain if "gate_up" in name else 1)
        elif "norm" in name and not name.endswith("bias"):
            p.uniform_(0.5, 1.5)
        else:
            p.normal_(0, 0.2 * gain)
    # Tied, they would see to it that every token is followed by itself.
    embeddings = model.get_input_embeddings().weight
    embeddings.normal_(0, embeddings.shape[1] ** -0.5 if model.config.tie_word_embeddings else 1)
    biases = [b for n, b in model.named_buffers() if n.endswith("e_score_correction_bias")]
    for b in biases:
        b.normal_(0, preset.get("bias", 0))
    for t in list(model.parameters()) + biases:
        t.copy_(t.to(dtype_of(preset)).float())


# --- MXFP4 (OCP Microscaling Formats 1.0): groups of 32 E2M1 numbers with a power of two each

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
E2M1 = torch.cat([E2M1, -E2M1])


def to_mxfp4(w):
    """[..., cols] -> codes [..., cols / 32, 32], exponents [..., cols / 32], and the values."""
    g = w.unflatten(-1, (-1, 32))
    exponent = torch.floor(torch.log2(g.abs().amax(-1))).clamp(-100) - 2
    scaled = g / torch.exp2(exponent)[..., None]
    codes = (scaled[..., None] - E2M1).abs().argmin(-1)
    values = E2M1[codes] * torch.exp2(exponent)[..., None]
    return codes, exponent, values.flatten(-2)


@torch.no_grad()
def make_mxfp4(model):
    """Rounds the experts' weights; returns the tensors that stand for them."""
    out = {}
    for n, layer in enumerate(model.model.layers):
        for name in ("gate_up_proj", "down_proj"):
            p = getattr(layer.mlp.experts, name)
            codes, exponent, values = to_mxfp4(p.transpose(1, 2))
            p.copy_(values.transpose(1, 2))
            low, high = codes[..., 0::2], codes[..., 1::2]
            key = f"model.layers.{n}.mlp.experts.{name}"
            out[key + "_blocks"] = (low + 16 * high).to(torch.uint8)
            out[key + "_scales"] = (exponent + 127).to(torch.uint8)
    return out


def make_mtp(tensors, config):
    """An MTP layer as DeepSeek has it: the last layer once more, and what stands around it."""
    n, h, v = config["num_hidden_layers"], config["hidden_size"], config["vocab_size"]
    last, new = f"model.layers.{n - 1}.", f"model.layers.{n}."
    out = {k.replace(last, new): t.flip(-1) for k, t in tensors.items() if k.startswith(last)}
    shapes = {"enorm": (h,), "hnorm": (h,), "eh_proj": (h, 2 * h), "shared_head.norm": (h,)}
    if "q_lora_rank" in config:
        shapes.update({"embed_tokens": (v, h), "shared_head.head": (v, h)})
    out.update({f"{new}{k}.weight": torch.randn(s).bfloat16() for k, s in shapes.items()})
    return out


def save(model, preset, config, out):
    form = preset.get("form")
    packed = make_mxfp4(model) if form == "mxfp4" else {}
    stored = copy.deepcopy(model).to(dtype_of(preset))
    stored.save_pretrained(out, safe_serialization=True)
    path = os.path.join(out, "model.safetensors")
    tensors = load_file(path)
    if form == "fused":
        tensors = dict(stored.state_dict())  # with the names that they have in memory
    for k in packed:
        tensors.pop(k.rpartition("_")[0], None)
    tensors.update(packed)
    for n in range(preset.get("mtp", 0)):
        more = dict(config, num_hidden_layers=config["num_hidden_layers"] + n)
        tensors.update(make_mtp(tensors, more))
    tensors = {k: v.contiguous().clone() for k, v in tensors.items()}
    save_file(tensors, path, metadata={"format": "pt"})
    with open(os.path.join(out, "config.json")) as f:
        c = json.load(f)
    c.update(preset.get("more", {}))
    for key in preset.get("absent", []):
        c.pop(key, None)
    if preset.get("old"):
        rope = dict(c.pop("rope_parameters"))
        rope.pop("partial_rotary_factor", None)
        c["rope_theta"] = rope.pop("rope_theta")
        kind = rope.pop("rope_type")
        c["rope_scaling"] = None if kind == "default" else dict(rope, type=kind)
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(c, f, indent=2, sort_keys=True)
        f.write("\n")
    gen = os.path.join(out, "generation_config.json")
    if os.path.exists(gen):
        os.remove(gen)


# --- what the reference says


def run(model, shaken, prompt):
    """A case, or None if a token or a logit hangs on the last bits."""
    ids, first, greedy, margins = list(prompt), None, [], []
    for _ in range(NEW_TOKENS):
        logits = logits_after(model, ids)
        if (logits_after(shaken, ids) - logits).abs().max() > 2e-4:
            return None
        first = logits if first is None else first
        best = logits.topk(2)
        margins.append(float(best.values[0] - best.values[1]))
        greedy.append(int(best.indices[0]))
        if margins[-1] < MARGIN or greedy[-1] == EOS:
            return None
        ids.append(greedy[-1])
    return dict(prompt=prompt, greedy=greedy, margin=short(margins),
                last_logits=short(first.tolist()))


def find_case(model, shaken, length, g):
    for _ in range(500):
        c = run(model, shaken, torch.randint(0, VOCAB - 10, (length,), generator=g).tolist())
        if c:
            return c
    sys.exit(f"no prompt of {length} tokens with margins above {MARGIN}: another seed is needed")


def main(name, tokenizer, out):
    torch.set_num_threads(1)
    torch.manual_seed(sum(map(ord, name)))
    preset = PRESETS[name]
    family = preset.get("family", name)
    config = dict(BASE, **preset["config"])
    model = make_model(family, config)
    if preset.get("mscale"):
        scale_by_mscale(model, config["rope_parameters"])
    randomise(model, preset)
    os.makedirs(out, exist_ok=True)
    save(model, preset, config, out)
    shutil.copy(tokenizer, os.path.join(out, "tokenizer.json"))
    g = torch.Generator().manual_seed(1)
    shaken = noisy(model, 1)
    cases = [find_case(model, shaken, n, g) for n in preset.get("lengths", (1, 9, 60))]
    margin = min(min(c["margin"]) for c in cases)
    with open(os.path.join(out, "expected.json"), "w") as f:
        said = f"transformers {T.__version__} {family}, float32, eager, no cache"
        json.dump(dict(reference=said, min_margin=margin, cases=cases), f)
        f.write("\n")
    print(name, "min margin", margin, os.path.getsize(os.path.join(out, "model.safetensors")))


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in PRESETS:
        sys.exit(__doc__ + "\npresets: " + " ".join(PRESETS))
    main(*sys.argv[1:])
