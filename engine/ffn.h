/* SPDX-License-Identifier: Apache-2.0
 *
 * The feed-forward of every kind of layer, down(silu(gate x) * up x), or gpt-oss's form of it: of one
 * network or of several at once, which is how a layer's experts are computed as they arrive.
 *
 * However many there are, four loops are shared out to the threads: rows gathered and quantised,
 * gate and up, activation, down. A loop for each matrix of each expert would cost more than the
 * multiplying where an expert has one row only.
 */
#ifndef ENGINE_FFN_H
#define ENGINE_FFN_H

#include <stdint.h>

#include "engine/arena.h"
#include "engine/compute.h"

enum ffn_matrix { FFN_GATE, FFN_UP, FFN_DOWN };

/* gpt-oss: each matrix has a bias, and the activation is swiglu_clamped(). */
struct ffn_biases {
	const float *gate, *up, *down; /* [width], [width], [hidden] */
	float limit;
};

/* Rows that several tasks take from, each quantised once for all of them. Whoever fills x anew sets n
 * and makes group 0. */
struct ffn_rows {
	const float *x; /* [n][hidden] */
	int n;
	int group;   /* of columns, that codes are of; 0: of none yet */
	char *codes; /* [n][acts_bytes(1, hidden)] */
};

struct ffn_task {
	const struct wmat *matrix[3];
	struct ffn_rows *from; /* the same of all tasks; NULL: x is what is multiplied */
	const int32_t *row;    /* [n], the rows of from that are meant */
	const float *x;        /* [n][hidden] */
	int n;
	float *y;                        /* [n][hidden] */
	const struct ffn_biases *biases; /* NULL: none, and the plain activation */
};

struct ffn_tile;

struct ffn_work {
	int rows;         /* that all tasks together may have */
	float *gate, *up; /* [rows][width] */
	char *input;      /* rows as the matrices want them: gathered floats, or tiles of codes */
	size_t acts_bytes;
	struct ffn_tile *tile;
	struct acts *acts;
	struct product *product;
};

/* Takes the array for up to n rows. */
void ffn_lay_out_rows(struct ffn_rows *r, int n, int hidden, struct arena *a);
/* Takes the arrays. width: that of the widest network. */
void ffn_lay_out(struct ffn_work *w, int rows, int tasks, int hidden, int width, struct arena *a);

/* All tasks have matrices of the same shapes and formats, and each has a row at least. */
void ffn_run(const struct compute *cp, const struct ffn_task *t, int count, struct ffn_work *w);

#endif
