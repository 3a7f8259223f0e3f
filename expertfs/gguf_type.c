/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of types; see gguf_type.h. Source: ggml.h (numbers), ggml-common.h (sizes of blocks).
 */
#include "expertfs/gguf_type.h"

#include <stddef.h>

static const struct gguf_type types[] = {
	{ 0, "f32", 1, 4 },         { 1, "f16", 1, 2 },         { 2, "q4_0", 32, 18 },
	{ 3, "q4_1", 32, 20 },      { 6, "q5_0", 32, 22 },      { 7, "q5_1", 32, 24 },
	{ 8, "q8_0", 32, 34 },      { 10, "q2_k", 256, 84 },    { 11, "q3_k", 256, 110 },
	{ 12, "q4_k", 256, 144 },   { 13, "q5_k", 256, 176 },   { 14, "q6_k", 256, 210 },
	{ 16, "iq2_xxs", 256, 66 }, { 17, "iq2_xs", 256, 74 },  { 18, "iq3_xxs", 256, 98 },
	{ 19, "iq1_s", 256, 50 },   { 20, "iq4_nl", 32, 18 },   { 21, "iq3_s", 256, 110 },
	{ 22, "iq2_s", 256, 82 },   { 23, "iq4_xs", 256, 136 }, { 24, "i8", 1, 1 },
	{ 25, "i16", 1, 2 },        { 26, "i32", 1, 4 },        { 27, "i64", 1, 8 },
	{ 28, "f64", 1, 8 },        { 29, "iq1_m", 256, 56 },   { 30, "bf16", 1, 2 },
	{ 34, "tq1_0", 256, 54 },   { 35, "tq2_0", 256, 66 },   { 39, "mxfp4", 32, 17 },
	{ 40, "nvfp4", 64, 36 },
};

const struct gguf_type *gguf_type_find(uint32_t id)
{
	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (types[i].id == id)
			return &types[i];
	return NULL;
}
