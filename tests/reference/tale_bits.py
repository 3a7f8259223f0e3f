#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What quantising costs the story model, in principle: the reference on dequantised weights.

    tale_bits.py TALE_MOE_DIR OUT.json

The loss of held-out.txt as eval_tale.py defines it, for weights that went through the formats of
engine/quant.h (quantise.py), experts and dense parts at the bits that each line names. OUT.json:
{"held_out": {"bits/dense/group": {"tokens", "nll", "loss_percent" (over 16/16)}}}. Same corrections
of transformers as in make_glm_oracle.py.
"""

import json
import os
import sys

import torch
from quantise import quantise_model
from tokenizers import Tokenizer
from transformers import GlmMoeDsaForCausalLM
from transformers.models.glm_moe_dsa import modeling_glm_moe_dsa as reference

SETTINGS = ((16, 16, 64), (8, 8, 64), (16, 8, 64), (4, 16, 64), (4, 8, 32), (4, 8, 64), (4, 8, 128))
WINDOW = 256

interleaved = reference.apply_rotary_pos_emb_interleave
reference.apply_rotary_pos_emb = lambda *x, unsqueeze_dim=1: interleaved(
    *x, unsqueeze_dim=unsqueeze_dim
)


def load(directory):
    options = dict(dtype=torch.float32, attn_implementation="eager")
    model = GlmMoeDsaForCausalLM.from_pretrained(directory, **options).eval()
    eps = model.config.rms_norm_eps
    for layer in model.model.layers:
        for norm in (layer.self_attn.q_a_layernorm, layer.self_attn.kv_a_layernorm):
            norm.variance_epsilon = eps
    return model


@torch.no_grad()
def loss(model, ids):
    total, n = 0.0, 0
    for at in range(0, len(ids), WINDOW):
        x = torch.tensor([ids[at : at + WINDOW]])
        if x.shape[1] < 2:
            continue
        logits = model(input_ids=x, use_cache=False).logits[0, :-1].double()
        total += torch.nn.functional.cross_entropy(logits, x[0, 1:], reduction="sum").item()
        n += x.shape[1] - 1
    return n, total / n


def main(directory, out):
    torch.set_num_threads(2)
    tok = Tokenizer.from_file(os.path.join(directory, "tokenizer.json"))
    with open(os.path.join(directory, "held-out.txt"), encoding="utf-8") as f:
        ids = tok.encode(f.read(), add_special_tokens=False).ids
    found, base = {}, None
    for bits, dense_bits, group in SETTINGS:
        model = load(directory)
        quantise_model(model, bits, dense_bits, group)
        n, nll = loss(model, ids)
        base = base or nll
        name, percent = f"{bits}/{dense_bits}/{group}", 100 * (nll / base - 1)
        found[name] = {"tokens": n, "nll": nll, "loss_percent": percent}
        print(f"{name}: {nll:.5f} nats, {percent:+.3f} %", flush=True)
    with open(out, "w") as f:
        json.dump({"window": WINDOW, "held_out": found}, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
