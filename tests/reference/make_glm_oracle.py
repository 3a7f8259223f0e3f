#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/oracles: small random glm_moe_dsa checkpoints and what the reference says.

    make_glm_oracle.py PRESET OUT_DIR     a checkpoint with tokenizer.json and expected.json

Needs transformers 5.12, torch and safetensors (Debian sid has all three). The reference is
transformers on a processor, in float32, with eager attention, without cache (what torch.topk takes
of equal scores depends on the length of the sequence: tests/data/README.md), and with two
corrections (numbers are sections of this project's specification of GLM-5.2):

  - the indexer is rotated in interleaved pairs; the release rotates half-split by mistake (4.5);
  - q_a_layernorm and kv_a_layernorm use rms_norm_eps; the release has them at 1e-6 (4.1).

expected.json: {"reference", "min_margin", "eos_token_ids", "vocab_defined", "cases": [{"prompt",
"last_logits" (after the prompt), "quantised" (the same at each of the preset's bits), "greedy" (up
to 24 tokens; ends with the first eos), "margin" (best logit minus second, a token each), "ties"
(index sets of the prompt, a query of a full layer each, whose edge fell among equals; only for
information)}]}. Prompts are drawn until every margin is above MARGIN and the result survives noise
of 1e-6 on all weights, so that arithmetic in another order agrees.
"""

import collections
import copy
import json
import os
import sys

import torch
from oracle import MARGIN, logits_after, noisy, short
from quantise import quantise_model
from safetensors.torch import save_file
from torch.overrides import TorchFunctionMode
from transformers import GlmMoeDsaConfig, GlmMoeDsaForCausalLM
from transformers.models.glm_moe_dsa import modeling_glm_moe_dsa as reference

NEW_TOKENS = 24
FLOAT = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}

# What each preset's config.json says; what checkpoints of that form leave out is left out here.
# fmt: off
PRESETS = {
    # Groups of experts with negative biased scores, two shared experts, no width a multiple of 32,
    # GLM-5 spelling: rope_theta at the top, every layer full because nothing says otherwise.
    "groups": dict(
        seed=1, form="bf16", bias=(-0.7, 0.4), bits=((4, 8, 64), (8, 8, 32)),
        lengths=(1, 7, 40, 90, 300), config=dict(
            vocab_size=300, hidden_size=72, intermediate_size=100, moe_intermediate_size=20,
            num_hidden_layers=4, num_attention_heads=3,
            n_routed_experts=12, num_experts_per_tok=5, n_shared_experts=2, n_group=4, topk_group=2,
            kv_lora_rank=40, q_lora_rank=44,
            qk_nope_head_dim=20, qk_rope_head_dim=12, v_head_dim=28,
            first_k_dense_replace=2, moe_layer_freq=1,
            index_topk=8, index_head_dim=24, index_n_heads=6,
            rope_theta=1000000, rms_norm_eps=1e-5, eos_token_id=299)),
    # index_topk_pattern against a contradicting frequency, no dense layer, tied embeddings, raw
    # router weights, several eos in two files: the end tokens are such as do turn up.
    "pattern": dict(
        seed=2, form="f32", bias=(0, 0.05), lengths=(1, 7, 40, 90, 300), config=dict(
            vocab_size=300, hidden_size=40, intermediate_size=64, moe_intermediate_size=24,
            num_hidden_layers=4, num_attention_heads=2,
            n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1,
            norm_topk_prob=False, routed_scaling_factor=0.8,
            kv_lora_rank=24, q_lora_rank=20,
            qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=16, first_k_dense_replace=0,
            index_topk=10, index_head_dim=16, index_n_heads=4,
            index_topk_pattern="FSSF", index_topk_freq=2, index_skip_topk_offset=1,
            tie_word_embeddings=True, rms_norm_eps=1e-6,
            rope_parameters=dict(rope_type="default", rope_theta=8000000),
            eos_token_id=[299, 298]), generation=dict(eos_token_id=[104])),
    # Fused experts in several shards as save_pretrained writes them, odd schedules of both kinds
    # that contradict the numbers beside them, rows of the vocabulary that no token has, one indexer
    # head (so ties abound), and so small a set that torch.topk changes its algorithm at 64 * 4
    # tokens, amid the longest continuation.
    "fused": dict(
        seed=3, form="bf16", bias=(0, 0.05), lengths=(1, 7, 60, 245), shards="150KB", config=dict(
            vocab_size=336, hidden_size=64, intermediate_size=80, moe_intermediate_size=48,
            num_hidden_layers=5, num_attention_heads=4,
            n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, n_group=1, topk_group=1,
            routed_scaling_factor=2.5, kv_lora_rank=32, q_lora_rank=32,
            qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=24, first_k_dense_replace=1,
            mlp_layer_types=["sparse", "dense", "sparse", "dense", "sparse"],
            index_topk=4, index_head_dim=16, index_n_heads=1,
            indexer_types=["full", "shared", "shared", "full", "full"],
            index_topk_freq=1, index_skip_topk_offset=2,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0),
            rms_norm_eps=1e-5, eos_token_id=[296, 63])),
    # FP8 with scales for blocks of 128 x 128, most of them partial; freq/offset schedule; an MTP
    # layer.
    "fp8": dict(
        seed=4, form="fp8", bias=(0, 0.05), bits=((4, 8, 128), (16, 16, 64)),
        lengths=(1, 7, 40, 90), config=dict(
            vocab_size=300, hidden_size=136, intermediate_size=132, moe_intermediate_size=24,
            num_hidden_layers=3, num_nextn_predict_layers=1, num_attention_heads=2,
            n_routed_experts=3, num_experts_per_tok=2, n_shared_experts=1, n_group=1, topk_group=1,
            norm_topk_prob=True, routed_scaling_factor=2.5, kv_lora_rank=136, q_lora_rank=36,
            qk_nope_head_dim=40, qk_rope_head_dim=16, v_head_dim=20, first_k_dense_replace=1,
            index_topk=9, index_head_dim=32, index_n_heads=5,
            index_topk_freq=2, index_skip_topk_offset=1,
            rope_parameters=dict(rope_type="default", rope_theta=8000000),
            rms_norm_eps=1e-5, eos_token_id=[299], quantization_config=dict(
                quant_method="fp8", fmt="e4m3", activation_scheme="dynamic",
                weight_block_size=[128, 128], modules_to_not_convert=["lm_head"]))),
    # float16, both rotations half-split, every second layer sparse (moe_layer_freq), 1e-2 in the
    # norms.
    "half": dict(
        seed=5, form="f16", bias=(0, 0.05), lengths=(1, 7, 40, 90), config=dict(
            vocab_size=300, hidden_size=48, intermediate_size=72, moe_intermediate_size=40,
            num_hidden_layers=5, num_attention_heads=3,
            n_routed_experts=6, num_experts_per_tok=3, n_shared_experts=1, n_group=2, topk_group=1,
            routed_scaling_factor=1.5, kv_lora_rank=20, q_lora_rank=28,
            qk_nope_head_dim=12, qk_rope_head_dim=24, v_head_dim=16,
            first_k_dense_replace=1, moe_layer_freq=2,
            index_topk=20, index_head_dim=40, index_n_heads=6,
            rope_interleave=False, indexer_rope_interleave=False,
            rope_parameters=dict(rope_type="default", rope_theta=500000.0),
            rms_norm_eps=1e-2, eos_token_id=[299])),
}
EVERYWHERE = dict(
    architectures=["GlmMoeDsaForCausalLM"], model_type="glm_moe_dsa", attention_bias=False,
    attention_dropout=0.0, hidden_act="silu", max_position_embeddings=4096, scoring_func="sigmoid",
    topk_method="noaux_tc", pad_token_id=299, use_cache=True)
# fmt: on


# --- the reference and its corrections

class TieCount(TorchFunctionMode):
    """Looks on while the model runs, and counts index sets whose edge falls among equals."""

    found = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.topk:
            # [1, queries, keys] of an indexer. [queries, groups, experts] of a router comes here
            # too: there the scores are sums of no ReLU and do not tie.
            scores, k = args
            if k < scores.shape[-1]:
                last, next_ = scores.topk(k + 1).values[..., -2:].unbind(-1)
                visible = next_ > torch.finfo(scores.dtype).min / 2
                self.found += int(((last == next_) & visible).sum())
        return func(*args, **(kwargs or {}))


HALF_SPLIT, INTERLEAVED = reference.apply_rotary_pos_emb, reference.apply_rotary_pos_emb_interleave


def reference_config(c):
    """config.json as the specification reads it (1.1, 1.2), for a reference of fewer spellings."""
    n, k = c["num_hidden_layers"], dict(c)
    pattern = k.pop("index_topk_pattern", None)
    freq, offset = k.pop("index_topk_freq", 1), k.pop("index_skip_topk_offset", 2)
    if "indexer_types" not in k:
        by_rule = [max(i - offset + 1, 0) % freq == 0 for i in range(n)]
        full = [ch == "F" for ch in pattern] if pattern else by_rule
        k["indexer_types"] = ["full" if f else "shared" for f in full]
    step = k.pop("moe_layer_freq", 1)
    if "mlp_layer_types" not in k:
        sparse = [i >= k["first_k_dense_replace"] and i % step == 0 for i in range(n)]
        k["mlp_layer_types"] = ["sparse" if s else "dense" for s in sparse]
    theta = k.pop("rope_theta", None) or k["rope_parameters"]["rope_theta"]
    k["rope_parameters"] = dict(rope_type="default", rope_theta=float(theta))
    unknown = ["rope_interleave", "indexer_rope_interleave", "head_dim"]
    for key in unknown + ["num_nextn_predict_layers", "quantization_config"]:
        k.pop(key, None)
    cfg = GlmMoeDsaConfig(**dict(k, num_experts=k["n_routed_experts"]))
    cfg._attn_implementation = cfg._experts_implementation = "eager"
    return cfg


def reference_model(config):
    indexer = INTERLEAVED if config.get("indexer_rope_interleave", True) else HALF_SPLIT
    main = INTERLEAVED if config.get("rope_interleave", True) else HALF_SPLIT
    reference.apply_rotary_pos_emb = lambda *x, unsqueeze_dim=1: indexer(
        *x, unsqueeze_dim=unsqueeze_dim
    )
    reference.apply_rotary_pos_emb_interleave = main
    cfg = reference_config(config)
    model = GlmMoeDsaForCausalLM(cfg).float().eval()
    for layer in model.model.layers:
        a = layer.self_attn
        a.q_a_layernorm.variance_epsilon = a.kv_a_layernorm.variance_epsilon = cfg.rms_norm_eps
    return model


def run(model, prompt, eos, defined):
    """(logits after the prompt, greedy ids, margins), the whole sequence anew for each token."""
    ids, first, out, margins = list(prompt), None, [], []
    while len(out) < NEW_TOKENS and not (out and out[-1] in eos):
        logits = logits_after(model, ids)
        first = logits if first is None else first
        best = logits[:defined].topk(2)
        out.append(int(best.indices[0]))
        margins.append(float(best.values[0] - best.values[1]))
        ids.append(out[-1])
    return first, out, margins


def prompt_ties(model, prompt):
    with TieCount() as ties:
        logits_after(model, prompt)
    return ties.found


class Sturdy:
    """A model with copies of it whose weights are off by 1e-6 in different directions."""

    def __init__(self, model):
        self.model, self.shaken = model, [noisy(model, s) for s in (1, 2)]

    def logits(self, prompt):
        """After the prompt; None if the copies disagree: something was decided by the last bits."""
        first = logits_after(self.model, prompt)
        if all((logits_after(m, prompt) - first).abs().max() < 2e-4 for m in self.shaken):
            return first
        return None


def find_case(sturdy, at_bits, length, eos, defined, g):
    for attempt in range(2000):
        prompt = torch.randint(0, defined - 10, (length,), generator=g).tolist()
        r = run(sturdy.model, prompt, eos, defined)
        if min(r[2]) < MARGIN or sturdy.logits(prompt) is None:
            continue
        if any(run(m, prompt, eos, defined)[1] != r[1] for m in sturdy.shaken):
            continue
        rounded = {label: s.logits(prompt) for label, s in at_bits.items()}
        if all(x is not None for x in rounded.values()):
            logits, greedy, margins = r
            c = {
                "prompt": prompt,
                "greedy": greedy,
                "margin": short(margins),
                "ties": prompt_ties(sturdy.model, prompt),
                "last_logits": short(logits.tolist()),
                "quantised": {label: short(x.tolist()) for label, x in rounded.items()},
            }
            return c, attempt + 1
    sys.exit(f"no prompt of {length} tokens with margins above {MARGIN}: another seed is needed")


def write_expected(path, config_eos, defined, cases):
    m = min(min(c["margin"]) for c in cases)
    with open(path, "w") as f:
        json.dump(
            {
                "reference": "transformers glm_moe_dsa, float32, eager, no cache",
                "min_margin": m,
                "eos_token_ids": sorted(config_eos),
                "vocab_defined": defined,
                "cases": cases,
            },
            f,
        )
        f.write("\n")
    return m


# --- checkpoints


def randomise(module, bias):
    with torch.no_grad():
        for name, p in module.named_parameters():
            if p.ndim >= 2:
                p.normal_(0, p.shape[-1] ** -0.5)
            elif name.endswith("bias"):
                p.normal_(0, 0.1)
            else:
                p.uniform_(0.5, 1.5)
        for name, b in module.named_buffers():
            if name.endswith("e_score_correction_bias"):
                b.normal_(*bias)


def one_by_one(state):
    """Fused experts into one tensor a matrix."""
    out = {}
    for k, v in state.items():
        if k.endswith("experts.gate_up_proj"):
            for e in range(v.shape[0]):
                gate, up = v[e].chunk(2, 0)
                out[k.replace("gate_up_proj", f"{e}.gate_proj.weight")] = gate
                out[k.replace("gate_up_proj", f"{e}.up_proj.weight")] = up
        elif k.endswith("experts.down_proj"):
            for e in range(v.shape[0]):
                out[k.replace("down_proj", f"{e}.down_proj.weight")] = v[e]
        else:
            out[k] = v
    return out


def fused(state):
    """The inverse, for load_state_dict."""
    out, parts = {}, collections.defaultdict(dict)
    for k, v in state.items():
        head, sep, tail = k.partition(".mlp.experts.")
        if sep:
            e, which, _ = tail.split(".")
            parts[head + sep][int(e), which] = v
        else:
            out[k] = v
    for head, p in parts.items():
        n = len(p) // 3
        out[head + "gate_up_proj"] = torch.stack(
            [torch.cat([p[e, "gate_proj"], p[e, "up_proj"]]) for e in range(n)]
        )
        out[head + "down_proj"] = torch.stack([p[e, "down_proj"] for e in range(n)])
    return out


def stays_wide(name):
    """What an FP8 repository leaves in bfloat16 (2.1)."""
    return any(
        s in name for s in ("embed_tokens", "lm_head", "norm.", "weights_proj", "eh_proj")
    ) or name.endswith("mlp.gate.weight")


def fp8_blocks(w):
    r, c = w.shape
    s = torch.empty((r + 127) // 128, (c + 127) // 128)
    q, back = torch.empty(r, c, dtype=torch.float8_e4m3fn), torch.empty(r, c)
    for i in range(s.shape[0]):
        for j in range(s.shape[1]):
            at = (slice(128 * i, 128 * i + 128), slice(128 * j, 128 * j + 128))
            s[i, j] = w[at].abs().max() / 448
            q[at] = (w[at] / s[i, j]).to(torch.float8_e4m3fn)
            back[at] = q[at].float() * s[i, j]
    return q, s, back


def to_file(state, form):
    """(tensors as written, the float32 values that they stand for)"""
    disk, values = {}, {}
    for k, v in state.items():
        if k.endswith("e_score_correction_bias"):
            disk[k], values[k] = v, v
        elif form == "fp8" and not stays_wide(k):
            disk[k], disk[k + "_scale_inv"], values[k] = fp8_blocks(v)
        else:
            disk[k] = v.to(FLOAT["bf16" if form == "fp8" else form])
            values[k] = disk[k].float()
    return {k: v.clone().contiguous() for k, v in disk.items()}, values


def mtp_state(cfg, bias):
    """One layer behind the last, random: nothing here runs it, but packers meet it (8)."""
    n, c = cfg.num_hidden_layers, copy.deepcopy(cfg)
    c.mlp_layer_types, c.indexer_types = c.mlp_layer_types + ["sparse"], c.indexer_types + ["full"]
    c.layer_types = c.layer_types + c.layer_types[-1:]
    layer = reference.GlmMoeDsaDecoderLayer(c, n)
    randomise(layer, bias)
    h, p = cfg.hidden_size, f"model.layers.{n}."
    out = {p + k: v for k, v in layer.state_dict().items()}
    out.update(
        {
            p + "enorm.weight": torch.ones(h),
            p + "hnorm.weight": torch.ones(h),
            p + "shared_head.norm.weight": torch.ones(h),
            p + "eh_proj.weight": torch.randn(h, 2 * h) / h**0.5,
        }
    )
    return out


MERGES = (
    "Ġ t,h e,Ġt he,i n,Ġ a,r e,o n,e r,Ġ w,a n,n d,o r,Ġ s,e n,a t,i s,i t,Ġ o,o u,Ġ f,e s,"
    "in g,Ġ b,Ġa nd,"
    "Ġ c,l l,a r,e d,o m,a l,Ġo f,s t,Ġt on,v e"
)
SPECIAL = [
    "<|endoftext|>",
    "[MASK]",
    "[gMASK]",
    "[sMASK]",
    "<sop>",
    "<eop>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|observation|>",
]
GLM_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_level_tokenizer():
    """256 bytes, 34 merges, 10 added tokens: ids 0..299."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in printable]
    letters = sorted([chr(b) for b in printable] + [chr(256 + i) for i in range(len(rest))])
    merges = [m.split(" ") for m in MERGES.split(",")]
    vocab = {s: i for i, s in enumerate(letters + [a + b for a, b in merges])}
    assert len(vocab) == 290
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": 290 + i,
                "content": s,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for i, s in enumerate(SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": GLM_SPLIT},
                    "behavior": "Isolated",
                    "invert": False,
                },
                {
                    "type": "ByteLevel",
                    "add_prefix_space": False,
                    "trim_offsets": True,
                    "use_regex": False,
                },
            ],
        },
        "post_processor": None,
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": True,
            "vocab": vocab,
            "merges": merges,
        },
    }


def dump(path, what):
    with open(path, "w") as f:
        json.dump(what, f, indent=1)
        f.write("\n")


def list_of(x):
    return list(x) if isinstance(x, (list, tuple)) else [] if x is None else [x]


def write_weights(out, model, preset, config):
    """Writes them and leaves in the model the values that the files stand for."""
    form = preset["form"]
    state = dict(model.state_dict())
    if config.get("tie_word_embeddings"):
        del state["lm_head.weight"]
    if "shards" in preset:
        disk, values = to_file(state, form)
        model.load_state_dict(values, strict=False)
        small = copy.deepcopy(model).to(FLOAT[form])
        for layer, exact in zip(small.model.layers, model.model.layers):
            if hasattr(layer.mlp, "gate"):
                layer.mlp.gate.e_score_correction_bias = (
                    exact.mlp.gate.e_score_correction_bias.clone()
                )
        small.save_pretrained(out, max_shard_size=preset["shards"], save_original_format=False)
        return
    disk, values = to_file(one_by_one(state), form)
    model.load_state_dict(fused(values), strict=not config.get("tie_word_embeddings"))
    if config.get("num_nextn_predict_layers"):
        disk.update(to_file(one_by_one(mtp_state(model.config, preset["bias"])), form)[0])
    save_file(disk, os.path.join(out, "model.safetensors"), metadata={"format": "pt"})


def make(name, out):
    preset = PRESETS[name]
    torch.manual_seed(preset["seed"])
    os.makedirs(out, exist_ok=True)
    config = dict(EVERYWHERE, **preset["config"])
    config["head_dim"] = config["qk_nope_head_dim"]  # as misleading as in the trained models (1.1)
    config["num_key_value_heads"] = config["num_attention_heads"]
    config["dtype"] = {"f32": "float32", "f16": "float16"}.get(preset["form"], "bfloat16")
    model = reference_model(config)
    randomise(model, preset["bias"])
    with torch.no_grad():
        tied = config.get("tie_word_embeddings", False)
        model.model.embed_tokens.weight.normal_(0, config["hidden_size"] ** -0.5 if tied else 1.0)
    write_weights(out, model, preset, config)
    defined = 300
    eos = set(
        list_of(config["eos_token_id"]) + list_of(preset.get("generation", {}).get("eos_token_id"))
    )
    g = torch.Generator().manual_seed(preset["seed"] + 1000)
    at_bits = {}
    for bits, dense_bits, group in preset.get("bits", ()):
        m = copy.deepcopy(model)
        quantise_model(m, bits, dense_bits, group)
        at_bits[f"{bits}/{dense_bits}/{group}"] = Sturdy(m)
    cases, tries = [], []
    for n in preset["lengths"]:
        c, t = find_case(Sturdy(model), at_bits, n, eos, defined, g)
        cases.append(c)
        tries.append(t)
    dump(os.path.join(out, "config.json"), config)
    if "generation" in preset:
        dump(os.path.join(out, "generation_config.json"), preset["generation"])
    elif os.path.exists(os.path.join(out, "generation_config.json")):
        os.remove(os.path.join(out, "generation_config.json"))
    dump(os.path.join(out, "tokenizer.json"), byte_level_tokenizer())
    for f in os.listdir(out):
        os.chmod(os.path.join(out, f), 0o644)  # safetensors makes its files private
    m = write_expected(os.path.join(out, "expected.json"), eos, defined, cases)
    schedule = {k: getattr(model.config, k) for k in ("indexer_types", "mlp_layer_types")}
    print(
        name,
        schedule,
        f"min margin {m:.4f}, prompts tried {tries},",
        "ties",
        [c["ties"] for c in cases],
        "tokens",
        [len(c["greedy"]) for c in cases],
        "distinct",
        len({t for c in cases for t in c["greedy"]}),
    )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    if sys.argv[1] not in PRESETS:
        sys.exit(f"no preset {sys.argv[1]}: there are {', '.join(PRESETS)}")
    torch.set_num_threads(1)
    make(sys.argv[1], sys.argv[2])
