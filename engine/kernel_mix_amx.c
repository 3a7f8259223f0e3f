/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of float products for many rows by AMX, which multiplies bfloat16: each number is taken apart
 * into two of those, high + low, and of the four products the three are added up that matter,
 * high * high + high * low + low * high. What is left out of a product is 2^-16 of it at most: a
 * hundredth of what half precision leaves, in which others keep keys and values.
 *
 * Both operands are taken apart a piece at a time: the second once a piece, as lines of pairs, the
 * first sixteen rows at a time. Each row is for itself, and the pieces depend on the matrix alone: a
 * row among others gives the bits that it gives alone.
 */
#include <immintrin.h>
#include <string.h>

#include "engine/kernel_amx.h"
#include "engine/min.h"

#define LINE  16 /* floats, and pairs of bfloat16, in a line of a tile */
#define STEP  32 /* rows of the second operand that one instruction multiplies */
#define STRIP 32 /* columns that are summed up at once, in two tiles */

/* Of a piece of the second operand at most; both parts of it stay in the nearest cache. */
#define PIECE_ROWS    128
#define PIECE_NUMBERS 8192

#define HIGH 0
#define LOW  1

struct piece {
	int rows, columns; /* multiples of STEP and STRIP, 0 beyond the matrix */
	/* [2 parts][rows / 2][columns] pairs: two rows' numbers of a column beside each other */
	_Alignas(64) uint32_t pairs[2][PIECE_NUMBERS / 2];
	/* [2 parts][rows / STEP][16 rows of the first operand][STEP] */
	_Alignas(64) uint16_t first[2][PIECE_ROWS * LINE];
};

/* Tiles: sums of two times 16 columns, both parts of 16 rows of the first operand, and of the second's. */
#define SUM_0    0
#define SUM_1    1
#define P_HIGH   2
#define P_LOW    3
#define Y_0_HIGH 4
#define Y_0_LOW  5
#define Y_1_HIGH 6
#define Y_1_LOW  7

static void configure(int rows)
{
	struct kernel_amx_tile tiles[KERNEL_AMX_TILES];

	for (int i = 0; i < KERNEL_AMX_TILES; i++)
		tiles[i] =
			(struct kernel_amx_tile){ (uint8_t)(i < Y_0_HIGH ? rows : STEP / 2), 64 };
	kernel_amx_load(tiles);
}

#define INLINE static inline __attribute__((always_inline))

/* The high parts of 16 numbers, each in the low half of a word, and what they leave. */
INLINE __m512i take_high(__m512 *x)
{
	__m512i high = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(*x));

	*x = _mm512_sub_ps(*x, _mm512_castsi512_ps(_mm512_slli_epi32(high, 16)));
	return high;
}

/* 16 columns of two rows, as pairs of both parts. */
INLINE void pair(__m512 a, __m512 b, uint32_t *high, uint32_t *low)
{
	__m512i first = take_high(&a), second = take_high(&b);

	_mm512_store_si512(high, _mm512_or_si512(first, _mm512_slli_epi32(second, 16)));
	first = take_high(&a), second = take_high(&b);
	_mm512_store_si512(low, _mm512_or_si512(first, _mm512_slli_epi32(second, 16)));
}

/* ny rows of n columns of the second operand. */
static void take_second(struct piece *p, const float *y, size_t ldy, int ny, int n)
{
	for (int c = 0; c < p->columns; c += LINE) {
		int in = n - c < 0 ? 0 : min_int(n - c, LINE);
		__mmask16 some = (__mmask16)((1u << in) - 1);

		for (int b = 0; b < p->rows; b += 2) {
			const float *at = y + (size_t)b * ldy + c;
			size_t to = (size_t)(b / 2) * (size_t)p->columns + (size_t)c;
			pair(_mm512_maskz_loadu_ps(b < ny ? some : 0, at),
			     _mm512_maskz_loadu_ps(b + 1 < ny ? some : 0, at + ldy),
			     &p->pairs[HIGH][to], &p->pairs[LOW][to]);
		}
	}
}

/* Both parts of STEP numbers. */
INLINE void take_line(__m512 a, __m512 b, uint16_t *high, uint16_t *low)
{
	__m512i h = (__m512i)_mm512_cvtne2ps_pbh(b, a);
	__m512i of_a = _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(h)), 16);
	__m512i of_b =
		_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(h, 1)), 16);

	a = _mm512_sub_ps(a, _mm512_castsi512_ps(of_a));
	b = _mm512_sub_ps(b, _mm512_castsi512_ps(of_b));
	_mm512_store_si512(high, h);
	_mm512_store_si512(low, (__m512i)_mm512_cvtne2ps_pbh(b, a));
}

/* ny numbers of np rows of the first operand. */
static void take_first(struct piece *p, const float *x, size_t ldx, int np, int ny)
{
	for (int b = 0; b < p->rows; b += STEP) {
		int in = min_int(ny - b, STEP);
		__mmask32 some = (__mmask32)((UINT64_C(1) << in) - 1);
		size_t to = (size_t)b * LINE;

		for (int a = 0; a < np; a++, to += STEP) {
			const float *at = x + (size_t)a * ldx + b;
			take_line(_mm512_maskz_loadu_ps((__mmask16)some, at),
				  _mm512_maskz_loadu_ps((__mmask16)(some >> LINE), at + LINE),
				  &p->first[HIGH][to], &p->first[LOW][to]);
		}
	}
}

/* Both tiles of sums, of ldo floats a row at `out`. */
INLINE void add_strip(const struct piece *p, int c, float *out, size_t ldo)
{
	const size_t line = (size_t)p->columns * sizeof(uint32_t);
	const uint32_t *y = p->pairs[HIGH] + c, *y_low = p->pairs[LOW] + c;

	_tile_loadd(SUM_0, out, ldo * sizeof(float));
	_tile_loadd(SUM_1, out + LINE, ldo * sizeof(float));
	for (int b = 0; b < p->rows; b += STEP) {
		const size_t at = (size_t)b / 2 * (size_t)p->columns;
		_tile_loadd(P_HIGH, p->first[HIGH] + b * LINE, STEP * sizeof(uint16_t));
		_tile_loadd(Y_0_HIGH, y + at, line);
		_tile_dpbf16ps(SUM_0, P_HIGH, Y_0_HIGH);
		_tile_loadd(Y_1_HIGH, y + at + LINE, line);
		_tile_dpbf16ps(SUM_1, P_HIGH, Y_1_HIGH);
		_tile_loadd(Y_0_LOW, y_low + at, line);
		_tile_dpbf16ps(SUM_0, P_HIGH, Y_0_LOW);
		_tile_loadd(Y_1_LOW, y_low + at + LINE, line);
		_tile_dpbf16ps(SUM_1, P_HIGH, Y_1_LOW);
		_tile_loadd(P_LOW, p->first[LOW] + b * LINE, STEP * sizeof(uint16_t));
		_tile_dpbf16ps(SUM_0, P_LOW, Y_0_HIGH);
		_tile_dpbf16ps(SUM_1, P_LOW, Y_1_HIGH);
	}
	_tile_stored(SUM_0, out, ldo * sizeof(float));
	_tile_stored(SUM_1, out + LINE, ldo * sizeof(float));
}

/* np rows, 16 at most, of n columns. A strip that ends within a tile goes through one of its own. */
static void add_rows(const struct piece *p, int np, int n, float *out, size_t ldo)
{
	_Alignas(64) float last[LINE * STRIP];
	int c = 0;

	for (; c + STRIP <= n; c += STRIP)
		add_strip(p, c, out + c, ldo);
	if (c == n)
		return;
	for (int a = 0; a < np; a++)
		memcpy(last + (size_t)a * STRIP, out + (size_t)a * ldo + c,
		       (size_t)(n - c) * sizeof(float));
	kernel_amx_settle();
	add_strip(p, c, last, STRIP);
	kernel_amx_settle();
	for (int a = 0; a < np; a++)
		memcpy(out + (size_t)a * ldo + c, last + (size_t)a * STRIP,
		       (size_t)(n - c) * sizeof(float));
}

static void add_piece(struct piece *piece, const float *p, size_t ldp, int np, int ny, int n,
		      float *out, size_t ldo)
{
	for (int a = 0, rows; a < np; a += rows) {
		rows = min_int(np - a, LINE);
		if (a == 0 || rows < LINE)
			configure(rows);
		take_first(piece, p + (size_t)a * ldp, ldp, rows, ny);
		kernel_amx_settle();
		add_rows(piece, rows, n, out + (size_t)a * ldo, ldo);
		kernel_amx_settle();
	}
}

void kernel_mix_amx(const float *p, size_t ldp, int np, const float *y, size_t ldy, int ny, int n,
		    float *out, size_t ldo)
{
	struct piece piece;

	for (int b = 0, rows; b < ny; b += rows) {
		rows = min_int(ny - b, PIECE_ROWS);
		piece.rows = (rows + STEP - 1) / STEP * STEP;
		int most = PIECE_NUMBERS / piece.rows / STRIP * STRIP;
		for (int c = 0, columns; c < n; c += columns) {
			columns = min_int(n - c, most);
			piece.columns = (columns + STRIP - 1) / STRIP * STRIP;
			take_second(&piece, y + (size_t)b * ldy + c, ldy, rows, columns);
			add_piece(&piece, p + b, ldp, np, rows, columns, out + c, ldo);
		}
	}
	_tile_release();
}
