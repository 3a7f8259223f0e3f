/* SPDX-License-Identifier: Apache-2.0
 *
 * The block formats of GGUF files, as wtypes of quant.h: a row is its blocks one after the other,
 * a matrix its rows, a page is used as it lies in the file.
 *
 * Each function turns blocks into floats, exactly: every product and sum is rounded to float32 once,
 * in the order that ggml's reference has it, and nothing is fused. So the bits are those of gguf-py
 * (tests/reference/make_ggml_golden.py) on every processor. ggml.c is compiled once per instruction
 * set, like kernel_isa.c; the formats are drawn there. Source: ggml-common.h and ggml-quants.c of
 * ggml.
 */
#ifndef ENGINE_GGML_H
#define ENGINE_GGML_H

#include <stddef.h>
#include <stdint.h>

#include "engine/quant.h"

/* n floats from src, which needs no alignment; type is W_F16 or later, n a multiple of its block. */
typedef void ggml_row(enum wtype type, const uint8_t *src, float *dst, size_t n);

ggml_row ggml_row_plain; /* for any processor; the others are kernel_isa.c's alone */

#endif
