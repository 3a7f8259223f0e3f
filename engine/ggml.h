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
#include <string.h>

#include "engine/quant.h"

/* half_to_float() without branches: also good for a row of halves. p needs no alignment. */
static inline __attribute__((always_inline)) float ggml_half(const uint8_t *p)
{
	union {
		uint32_t u;
		float f;
	} x;
	uint16_t h;

	memcpy(&h, p, sizeof(h));
	x.u = (uint32_t)(h & 0x7fff) << 13;
	x.f *= 0x1p112f; /* moves the exponent's bias; exact, subnormals too */
	x.u |= (h & 0x7c00) == 0x7c00 ? 0x7f800000 : 0;
	x.u |= (uint32_t)(h & 0x8000) << 16;
	return x.f;
}

/* n floats from src, which needs no alignment; type is W_F16 or later, n a multiple of its block. */
typedef void ggml_row(enum wtype type, const uint8_t *src, float *dst, size_t n);

ggml_row ggml_row_plain; /* for any processor; the others are kernel_isa.c's alone */

#endif
