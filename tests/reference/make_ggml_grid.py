#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# The grids of GGUF's i-quants, facts of the format, as gguf-py has them (python3-gguf of Debian sid;
# ggml-org/llama.cpp, gguf-py/gguf/quants.py):
#
#     make_ggml_grid.py >engine/ggml_grid_points.h
#
# A point of 8 elements has two bits each, one of 4 elements four bits each: the element's place among the
# grid's values, which engine/ggml_grid.c has. The first element is in the lowest bits; a word holds four
# points, the first in its lowest bits.
import numpy as np
from gguf import quants

HEAD = """/* SPDX-License-Identifier: Apache-2.0
 *
 * The points of the i-quants' grids, written by tests/reference/make_ggml_grid.py, which says how they lie in
 * these words; for ggml_grid.c. Source: ggml-org/llama.cpp, gguf-py/gguf/quants.py.
 */
#ifndef ENGINE_GGML_GRID_POINTS_H
#define ENGINE_GGML_GRID_POINTS_H

/* clang-format off */"""


def words(kind):
    kind.init_grid()
    grid = kind.grid.reshape(kind.grid_shape)
    place = np.searchsorted(kind.grid_map, grid).astype(np.uint64)
    assert (np.array(kind.grid_map)[place] == grid).all()
    elements = grid.shape[1]
    points = sum(place[:, i] << np.uint64(16 // elements * i) for i in range(elements))
    return sum(points[i::4] << np.uint64(16 * i) for i in range(4))


print(HEAD)
for name in ("IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"):
    w = words(getattr(quants, name))
    print(f"\n/* {4 * len(w)} points */\n#define {name}_POINTS(_)", end="")
    for i in range(0, len(w), 4):
        print(" \\\n\t" + " ".join(f"_(0x{x:016x})" for x in w[i:i + 4]), end="")
    print()
print("/* clang-format on */\n\n#endif")
