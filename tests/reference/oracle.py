# SPDX-License-Identifier: Apache-2.0
"""What the makers of oracles share: a model's logits, and the same model with its weights a little off."""

import copy

import torch

MARGIN = 0.01  # of the best logit over the second, at the least


@torch.no_grad()
def logits_after(model, ids):
    return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]


def noisy(model, seed):
    m = copy.deepcopy(model)
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in m.parameters():
            p.mul_(1 + 1e-6 * torch.randn(p.shape, generator=g))
    return m


def short(x):
    return [round(v, 6) for v in x]
