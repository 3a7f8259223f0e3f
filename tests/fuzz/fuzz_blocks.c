/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of GGUF's formats, of which any bytes are some: the first byte is the type, the others a
 * matrix. It is read whole and no byte behind it, as floats and by the products; a product with ones
 * is the sum of the floats, but where minima may take away all but the rounding.
 */
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <string.h>

#include "engine/kernel.h"
#include "engine/quant.h"

#define COLS      512
#define MOST_ROWS 17 /* a whole block of rows, and another's first */

static float x[COLS], row[COLS];

/* What the kernel makes of row r is near the sum of the floats, if both are numbers that floats hold. */
static void expect_near(const struct wmat *m, int r, float y)
{
	double sum = 0, size = 0;

	dequant_row(m, r, row);
	for (int i = 0; i < COLS; i++) {
		sum += (double)row[i];
		size += fabs((double)row[i]);
	}
	if (isfinite(size) && size < 1e30 && !(fabs(sum - (double)y) <= 1e-5 * size + 1e-30))
		abort();
}

static bool has_min(enum wtype t)
{
	return t == W_Q4_1 || t == W_Q5_1 || t == W_Q2_K || t == W_Q4_K || t == W_Q5_K;
}

static void multiply(const struct wmat *m, int rows)
{
	static _Alignas(64) char buf[2][1 << 15];
	static float y[WBLOCK * ACTS_ROWS];
	struct acts a[2];

	for (int n = 0; n < 2; n++) { /* a single row has a path of its own */
		acts_place(&a[n], n + 1, COLS, 32, buf[n]);
		kernel()->quantise(x, 0, &a[n]);
		for (int block = 0; block * WBLOCK < rows; block++) {
			kernel()->multiply(m, block, &a[n], 1, y, WBLOCK);
			for (int r = block * WBLOCK;
			     !has_min(m->fmt.type) && r < rows && r < (block + 1) * WBLOCK; r++)
				expect_near(m, r, y[n * WBLOCK + r % WBLOCK]);
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	const struct wfmt fmt = { (enum wtype)(W_F16 + data[0] % (WTYPES - W_F16)), 0 };
	const size_t bytes = wfmt_row_bytes(fmt, COLS);
	const size_t rows = (size - 1) / bytes < MOST_ROWS ? (size - 1) / bytes : MOST_ROWS;
	uint8_t *copy = malloc(rows * bytes);
	struct wmat m;

	for (int i = 0; i < COLS; i++)
		x[i] = 1;
	if (rows && !copy)
		abort();
	if (rows) {
		memcpy(copy, data + 1, rows * bytes);
		if (wmat_bind(&m, fmt, (int)rows, COLS, copy, rows * bytes) == 0) {
			if (wfmt_acts_group(fmt))
				multiply(&m, (int)rows);
			for (int r = 0; r < (int)rows; r++)
				dequant_row(&m, r, row);
		}
	}
	free(copy);
	return 0;
}
