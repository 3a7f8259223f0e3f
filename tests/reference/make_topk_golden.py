#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What torch.topk takes of rows with many equal scores, for tests/unit/test_topk.c.

    make_topk_golden.py >tests/data/topk.txt

A line a case: length visible k : the scores of the visible ones : the indices taken, ascending.
The scores behind the visible ones are masked, as a causal mask does. Needs python3-torch.
"""
import random

import torch

random.seed(1)
torch.manual_seed(1)
for case in range(240):
    length = random.choice([random.randint(1, 40), random.randint(40, 160), random.randint(700, 1100)])
    k = min(length, random.choice([1, 2, 8, 12, 16, 24, 64]))
    visible = random.randint(k, min(length, k + 200))
    x = torch.full((length,), float("-inf"))
    x[:visible] = torch.randint(0, random.choice([2, 4, 20]), (visible,)).float()
    taken = sorted(torch.topk(x, k).indices.tolist())
    print(length, visible, k, ":", *(int(v) for v in x[:visible]), ":", *taken)
