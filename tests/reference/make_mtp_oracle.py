#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/oracles/mtp: a small random glm_moe_dsa checkpoint with an MTP layer, and what
that layer guesses.

    make_mtp_oracle.py OUT_DIR     a checkpoint with tokenizer.json and expected.json

Needs what make_glm_oracle.py needs, which also says how the reference is corrected. transformers
has no class for this layer: it is put together here from the reference's own decoder layer and
norms, as section 8 of this project's specification of GLM-5.2 describes it:

    z0[i] = eh_proj [ enorm(E[x[i + 1]]) ; hnorm(g[i]) ]     g: hidden states after the last norm
    z = shared_head.norm(decoder layer over z0)              positions as those of g
    logits = head z[last], and its best token is the guess
    next guess: another row z0, of the guess and z[last]

The layer has an embedding and a head of its own, which some checkpoints have; expected.json also
says what comes of a checkpoint without them.

expected.json: {"reference", "cases": [{"prompt", "next" (the model's best token after it), "own",
"shared": [{"logits", "best", "margin"}, a guess each]}]}. Prompts are drawn until nothing in them
hangs on ties or on the last bits.
"""

import copy
import json
import os
import sys

import make_glm_oracle as base
import torch
from oracle import MARGIN, noisy, short
from safetensors.torch import save_file
from torch import nn
from transformers.masking_utils import create_causal_mask

GUESSES = 4
LENGTHS = (1, 2, 6, 23, 70)
SEED = 7
# fmt: off
CONFIG = dict(
    base.EVERYWHERE, dtype="float32", vocab_size=300, hidden_size=40, intermediate_size=56,
    moe_intermediate_size=24, num_hidden_layers=3, num_nextn_predict_layers=1,
    num_attention_heads=2, num_key_value_heads=2, head_dim=12, n_routed_experts=6,
    num_experts_per_tok=2, n_shared_experts=1, n_group=1, topk_group=1, norm_topk_prob=True,
    routed_scaling_factor=2.5, kv_lora_rank=24, q_lora_rank=20, qk_nope_head_dim=12,
    qk_rope_head_dim=8, v_head_dim=16, first_k_dense_replace=1, index_topk=10, index_head_dim=16,
    index_n_heads=8, index_topk_freq=2, index_skip_topk_offset=1,
    rope_parameters=dict(rope_type="default", rope_theta=8000000), rms_norm_eps=1e-5,
    eos_token_id=[299])
# fmt: on


class Mtp(nn.Module):
    def __init__(self, model):
        super().__init__()
        c = copy.deepcopy(model.config)
        c.mlp_layer_types = c.mlp_layer_types + ["sparse"]
        c.indexer_types = c.indexer_types + ["full"]
        c.layer_types = c.layer_types + c.layer_types[-1:]
        norm = base.reference.GlmMoeDsaRMSNorm
        self.layer = base.reference.GlmMoeDsaDecoderLayer(c, c.num_hidden_layers)
        a = self.layer.self_attn
        a.q_a_layernorm.variance_epsilon = a.kv_a_layernorm.variance_epsilon = c.rms_norm_eps
        self.enorm = norm(c.hidden_size, c.rms_norm_eps)
        self.hnorm = norm(c.hidden_size, c.rms_norm_eps)
        self.eh_proj = nn.Linear(2 * c.hidden_size, c.hidden_size, bias=False)
        self.norm = norm(c.hidden_size, c.rms_norm_eps)
        self.embed = nn.Embedding(c.vocab_size, c.hidden_size)
        self.head = nn.Linear(c.hidden_size, c.vocab_size, bias=False)

    def join(self, embed, token, g):
        return self.eh_proj(torch.cat([self.enorm(embed(token)), self.hnorm(g)], -1))

    def last(self, model, z0):
        position = torch.arange(z0.shape[1])[None]
        mask = create_causal_mask(
            config=model.config,
            inputs_embeds=z0,
            attention_mask=None,
            past_key_values=None,
            position_ids=position,
        )
        turn = model.model.rotary_emb(z0, position_ids=position)
        z, _ = self.layer(
            z0, attention_mask=mask, position_embeddings=turn, position_ids=position
        )
        return self.norm(z[:, -1:])


@torch.no_grad()
def guesses(model, mtp, prompt, own):
    """(the next token, logits of GUESSES tokens behind it)"""
    embed = mtp.embed if own else model.model.embed_tokens
    head = mtp.head if own else model.lm_head
    ids = torch.tensor([prompt])
    g = model.model(input_ids=ids, use_cache=False).last_hidden_state
    token = first = model.lm_head(g[0, -1]).argmax()
    z0 = mtp.join(embed, torch.cat([ids[0, 1:], token[None]])[None], g)
    out = []
    for _ in range(GUESSES):
        z = mtp.last(model, z0)
        out.append(head(z[0, 0]))
        token = out[-1].argmax()
        z0 = torch.cat([z0, mtp.join(embed, token[None, None], z)], 1)
    return int(first), out


def case(pairs, prompt):
    """None if ties or the last bits decide something."""
    c = {"prompt": prompt}
    with base.TieCount() as ties:
        for name, own in (("own", True), ("shared", False)):
            c["next"], logits = guesses(*pairs[0], prompt, own)
            best = [x.topk(2) for x in logits]
            margins = [float(b.values[0] - b.values[1]) for b in best]
            for pair in pairs[1:]:
                other, shaken = guesses(*pair, prompt, own)
                if other != c["next"] or any(
                    (a - b).abs().max() > 2e-4 for a, b in zip(logits, shaken)
                ):
                    return None
            if min(margins) < MARGIN:
                return None
            c[name] = [
                {"logits": short(x.tolist()), "best": int(b.indices[0]), "margin": round(m, 6)}
                for x, b, m in zip(logits, best, margins)
            ]
    return None if ties.found else c


def tensors(model, mtp):
    p = f"model.layers.{model.config.num_hidden_layers}."
    names = {
        "enorm": "enorm",
        "hnorm": "hnorm",
        "eh_proj": "eh_proj",
        "norm": "shared_head.norm",
        "embed": "embed_tokens",
        "head": "shared_head.head",
    }
    state = dict(model.state_dict())
    for name, value in mtp.state_dict().items():
        first, rest = name.split(".", 1)
        state[p + (rest if first == "layer" else f"{names[first]}.{rest}")] = value
    return {k: v.clone().contiguous() for k, v in base.one_by_one(state).items()}


def main(out):
    torch.manual_seed(SEED)
    os.makedirs(out, exist_ok=True)
    model = base.reference_model(CONFIG)
    mtp = Mtp(model).eval()
    for m in (model, mtp):
        base.randomise(m, (0, 0.05))
    with torch.no_grad():
        model.model.embed_tokens.weight.normal_(0, 1)
        mtp.embed.weight.normal_(0, 1)
    pairs = [(model, mtp)] + [(noisy(model, s), noisy(mtp, s + 10)) for s in (1, 2)]
    g = torch.Generator().manual_seed(SEED + 1000)
    cases, tries = [], 0
    for n in LENGTHS:
        c = None
        while not c:
            tries += 1
            c = case(pairs, torch.randint(0, 290, (n,), generator=g).tolist())
        cases.append(c)
    save_file(
        tensors(model, mtp), os.path.join(out, "model.safetensors"), metadata={"format": "pt"}
    )
    base.dump(os.path.join(out, "config.json"), CONFIG)
    base.dump(os.path.join(out, "tokenizer.json"), base.byte_level_tokenizer())
    with open(os.path.join(out, "expected.json"), "w") as f:
        json.dump(
            {"reference": "transformers glm_moe_dsa, float32, eager, no cache", "cases": cases}, f
        )
        f.write("\n")
    for f in os.listdir(out):
        os.chmod(os.path.join(out, f), 0o644)
    print(f"{tries} prompts tried for {len(cases)}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    main(sys.argv[1])
