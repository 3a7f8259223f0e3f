# SPDX-License-Identifier: Apache-2.0
"""The integer formats of engine/quant.h once more, in torch: what weights become in a store.

The rule of quant.h with float32 operations in the same order as quant.c, so that the values agree
bit for bit: tests compare the engine on a packed store with the reference on these weights.
"""

import torch


def groups_of(w, group):
    """[..., cols] -> [..., groups, group], the last one filled with zeros."""
    pad = -w.shape[-1] % group
    return torch.nn.functional.pad(w, (0, pad)).unflatten(-1, (-1, group))


def rounded(x, scale, lo, hi):
    inv = torch.where(scale != 0, 1 / scale, torch.zeros(()))
    return (x * inv).clamp(lo, hi).round()


def ordered_sum(x):
    """Eight running sums over the group, then those eight in turn."""
    lanes = x.unflatten(-1, (-1, 8))
    s = torch.zeros(lanes[..., 0, :].shape)
    for i in range(lanes.shape[-2]):
        s = s + lanes[..., i, :]
    t = torch.zeros(s[..., :1].shape)
    for j in range(8):
        t = t + s[..., j : j + 1]
    return t


def scale_q4(x, top):
    """Of eleven candidates the scale whose codes explain most of the sum of squares."""
    best, scale = torch.full(top.shape, -1.0), torch.zeros(top.shape)
    for quarter in range(27, 38):
        inv = torch.full(top.shape, -quarter / 4) / top  # number / tensor takes the reciprocal
        codes = (x * inv).round().clamp(-8, 7)
        xl, ll = ordered_sum(x * codes), ordered_sum(codes * codes)
        better = (ll > 0) & (xl * xl > best * ll)
        best, scale = torch.where(better, xl * xl / ll, best), torch.where(better, xl / ll, scale)
    return scale


def quantised(w, bits, group):
    """w as it comes back from 4, 8, 16 (bfloat16) or 32 bits, in groups of the last dimension."""
    if bits == 32:
        return w.clone()
    if bits == 16:
        return w.bfloat16().float()
    x = groups_of(w, group)
    at = x.abs().argmax(-1, keepdim=True)
    top = x.gather(-1, at)
    scale = top.abs() / 127 if bits == 8 else scale_q4(x, top)
    scale = torch.where(top.abs() >= 2.0**-100, scale, torch.zeros(())).half().float()
    lo, hi = (-127, 127) if bits == 8 else (-8, 7)
    return (rounded(x, scale, lo, hi) * scale).flatten(-2)[..., : w.shape[-1]]


def stays_float(name):
    """What coli-pack never quantises: vectors, the router, and the indexer's small parts."""
    return name.endswith("mlp.gate.weight") or "weights_proj" in name


def quantise_model(model, bits, dense_bits, group):
    """In place. Only the routed experts are experts; the shared one is dense."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim >= 2 and not stays_float(name):
                p.copy_(quantised(p, bits if ".mlp.experts." in name else dense_bits, group))
