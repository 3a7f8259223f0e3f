/* SPDX-License-Identifier: Apache-2.0
 *
 * The transposed product of q8 and q4 weights with floats, in the lanes of kernel_lanes.h: part of
 * kernel_int8.c, which alone includes this.
 *
 *	out[c] = sum over rows r of q[r] * w[r][c]
 *
 * Sixteen codes that lie together are 4 columns of 4 rows. They are widened to floats and multiplied
 * with q[r] times the rows' scales, so a column has 4 sums, of rows r with equal r mod 4 (as they lie
 * in their block), ascending; then (0 + 2) + (1 + 3). After ABSORB_BLOCKS blocks the sums go to out
 * and begin anew. Nothing is fused (there is no fast way to do that on a
 * processor that lacks it), so all is the same in every instruction set.
 */
#ifndef ENGINE_KERNEL_ABSORB_H
#define ENGINE_KERNEL_ABSORB_H

#define ABSORB_BLOCKS 16
#define COLUMNS       16 /* that a pass over the rows sums up: 4 vectors of floats for each tile row */

/* q times scale of each row of the blocks, 4 times over, for the rows of a tile. */
struct factors {
	_Alignas(64) float v[ABSORB_BLOCKS][4][ABSORB_TILE][16];
};

/* What a pass works on: rows first .. first + rows - 1 of m, which lie in `blocks` blocks from
 * `block` on; tile rows of q. */
struct absorb {
	const struct wmat *m;
	int first, rows, block, blocks;
	const float *q;
	size_t ldq;
};

static void set_factors(const struct absorb *a, int group, int tile, struct factors *f)
{
	typedef float four_floats __attribute__((vector_size(16)));
	int groups = wfmt_groups(a->m->fmt, a->m->cols);
	float scale[WBLOCK];

	for (int b = 0; b < a->blocks; b++) {
		int row = (a->block + b) * WBLOCK - a->first;
		store_floats(scale,
			     load_scales(a->m->scales +
					 ((size_t)(a->block + b) * (size_t)groups + (size_t)group) *
						 WBLOCK));
		for (int t = 0; t < tile; t++)
			for (int r = 0; r < WBLOCK; r++) {
				float v = 0; /* rows of the block that were not asked for */
				if (row + r >= 0 && row + r < a->rows)
					v = a->q[(size_t)t * a->ldq + (size_t)(row + r)] * scale[r];
				four_floats all = { v, v, v, v };
				memcpy(&f->v[b][r / 4][t][r % 4 * 4], &all, sizeof(all));
			}
	}
}

/* COLUMNS columns; w: their codes in the first block. */
INLINE void absorb_columns(enum wtype type, const uint8_t *w, size_t block_bytes, int blocks,
			   int tile, const struct factors *f, struct floats (*sum)[4])
{
	for (int b = 0; b < blocks; b++, w += block_bytes)
		for (int i = 0; i < 4; i++) {
			struct floats c[4];
			if (type == W_Q8) {
				for (int k = 0; k < 4; k++)
					c[k] = floats_q8(w + 64 * k + 16 * i);
			} else {
				for (int k = 0; k < 2; k++)
					floats_q4(w + 64 * k + 16 * i, &c[2 * k], &c[2 * k + 1]);
			}
			for (int t = 0; t < tile; t++) {
				struct floats q = load_floats(f->v[b][i][t]);
				for (int k = 0; k < 4; k++)
					sum[t][k] = add_product(sum[t][k], c[k], q);
			}
		}
}

/* All columns, of at most ABSORB_BLOCKS blocks; added to out. */
INLINE void absorb_tile(enum wtype type, const struct absorb *a, int tile, float *out, size_t ldo)
{
	const struct wmat *m = a->m;
	const size_t block_bytes = wfmt_row_bytes(m->fmt, m->cols) * WBLOCK;
	const uint8_t *w = (const uint8_t *)m->codes + (size_t)a->block * block_bytes;
	struct factors f;

	for (int c = 0; c < m->cols; c += COLUMNS, w += COLUMNS * WBLOCK / (type == W_Q8 ? 1 : 2)) {
		struct floats sum[ABSORB_TILE][4];
		float y[COLUMNS];
		int n = m->cols - c < COLUMNS ? m->cols - c : COLUMNS;
		if (c % m->fmt.group == 0)
			set_factors(a, c / m->fmt.group, tile, &f);
		for (int t = 0; t < tile; t++)
			for (int k = 0; k < 4; k++)
				sum[t][k] = no_floats();
		absorb_columns(type, w, block_bytes, a->blocks, tile, &f, sum);
		for (int t = 0; t < tile; t++) {
			for (int k = 0; k < 4; k++)
				add_four_rows(sum[t][k], y + 4 * k);
			for (int j = 0; j < n; j++)
				out[(size_t)t * ldo + (size_t)(c + j)] += y[j];
		}
	}
}

INLINE void absorb_rows(enum wtype type, struct absorb a, int n, float *out, size_t ldo)
{
	for (; n >= ABSORB_TILE; n -= ABSORB_TILE, a.q += ABSORB_TILE * a.ldq) {
		absorb_tile(type, &a, ABSORB_TILE, out, ldo);
		out += ABSORB_TILE * ldo;
	}
	for (; ABSORB_TILE > 1 && n > 0; n--, a.q += a.ldq, out += ldo)
		absorb_tile(type, &a, 1, out, ldo);
}

void ABSORB(const struct wmat *m, int first, int rows, const float *q, size_t ldq, int n,
	    float *out, size_t ldo)
{
	for (int t = 0; t < n; t++)
		memset(out + (size_t)t * ldo, 0, (size_t)m->cols * sizeof(float));
	for (int b = first / WBLOCK, end = (first + rows + WBLOCK - 1) / WBLOCK; b < end;
	     b += ABSORB_BLOCKS) {
		int blocks = end - b < ABSORB_BLOCKS ? end - b : ABSORB_BLOCKS;
		struct absorb a = { m, first, rows, b, blocks, q, ldq };
		if (m->fmt.type == W_Q8)
			absorb_rows(W_Q8, a, n, out, ldo);
		else
			absorb_rows(W_Q4, a, n, out, ldo);
	}
}

#endif
