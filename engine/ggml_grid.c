/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables of ggml_grid.h, each point with a byte for each element. They are made of packed words when
 * this is compiled: nothing has to be set up before a row is read.
 */
#include "engine/ggml_grid.h"

#include "engine/ggml_grid_points.h"

/* What element i of the point at bit `at` of w is to be: its place among the grid's values. */
#define OF_8(w, at, i) ((w) >> ((at) + 2 * (i)) & 3)
#define OF_4(w, at, i) ((w) >> ((at) + 4 * (i)) & 15)

/* The values of a place: -1, 0, 1 as said in ggml_grid.h; 8, 25, 43; 4, 12, ... 52, 62; 1, 3, ... 15. */
#define IQ1(w, at, i)     (8 * OF_8(w, at, i))
#define IQ2(w, at, i)     (8 + 17 * OF_8(w, at, i) + OF_8(w, at, i) / 2)
#define IQ3_XXS(w, at, i) (4 + 8 * OF_4(w, at, i) + OF_4(w, at, i) / 7 * 2)
#define IQ3_S(w, at, i)   (1 + 2 * OF_4(w, at, i))

#define FOUR(value, w, at, i)                                                                      \
	(value(w, at, i) | value(w, at, (i) + 1) << 8 | value(w, at, (i) + 2) << 16 |              \
	 value(w, at, (i) + 3) << 24)
#define EIGHT(value, w, at) (FOUR(value, w, at, 0) | FOUR(value, w, at, 4) << 32)

#define POINTS_OF_8(value, w)                                                                      \
	EIGHT(value, w, 0), EIGHT(value, w, 16), EIGHT(value, w, 32), EIGHT(value, w, 48),
#define POINTS_OF_4(value, w)                                                                      \
	FOUR(value, w, 0, 0), FOUR(value, w, 16, 0), FOUR(value, w, 32, 0), FOUR(value, w, 48, 0),

#define IQ1_POINTS(w)    POINTS_OF_8(IQ1, w##u)
#define IQ2_POINTS(w)    POINTS_OF_8(IQ2, w##u)
#define IQ3_XXS_FOURS(w) POINTS_OF_4(IQ3_XXS, w##u)
#define IQ3_S_FOURS(w)   POINTS_OF_4(IQ3_S, w##u)

const uint64_t ggml_iq1_grid[2048] = { IQ1_S_POINTS(IQ1_POINTS) };
const uint64_t ggml_iq2_xxs_grid[256] = { IQ2_XXS_POINTS(IQ2_POINTS) };
const uint64_t ggml_iq2_xs_grid[512] = { IQ2_XS_POINTS(IQ2_POINTS) };
const uint64_t ggml_iq2_s_grid[1024] = { IQ2_S_POINTS(IQ2_POINTS) };
const uint32_t ggml_iq3_xxs_grid[256] = { IQ3_XXS_POINTS(IQ3_XXS_FOURS) };
const uint32_t ggml_iq3_s_grid[512] = { IQ3_S_POINTS(IQ3_S_FOURS) };

/* A byte of ones for each bit of s. */
#define BYTE(s, i) (((uint64_t)(s) >> (i)&1) * 0xff << 8 * (i))
#define SIGNS_1(s)                                                                                 \
	BYTE(s, 0) | BYTE(s, 1) | BYTE(s, 2) | BYTE(s, 3) | BYTE(s, 4) | BYTE(s, 5) | BYTE(s, 6) | \
		BYTE(s, 7),
#define SIGNS_4(s)  SIGNS_1(s) SIGNS_1((s) + 1) SIGNS_1((s) + 2) SIGNS_1((s) + 3)
#define SIGNS_16(s) SIGNS_4(s) SIGNS_4((s) + 4) SIGNS_4((s) + 8) SIGNS_4((s) + 12)
#define SIGNS_64(s) SIGNS_16(s) SIGNS_16((s) + 16) SIGNS_16((s) + 32) SIGNS_16((s) + 48)

const uint64_t ggml_grid_signs[256] = { SIGNS_64(0) SIGNS_64(64) SIGNS_64(128) SIGNS_64(192) };
