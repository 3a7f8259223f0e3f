/* SPDX-License-Identifier: Apache-2.0
 *
 * The experts of a GGUF model: which tensors they are slices of, and how the file of one expert is
 * composed of its slices.
 *
 * llama.cpp stacks the matrices of a layer's experts: blk.N.ffn_gate_exps.weight is {hidden, width,
 * experts}, and so is ffn_up_exps; ffn_down_exps is {width, hidden, experts}. ffn_gate_up_exps has
 * both of an expert side by side. An expert is three slices, which may lie in different files of a
 * split model and be of different types. Until early 2024 (Mixtral) each slice was a tensor of its own,
 * blk.N.ffn_gate.E.weight and so on, {hidden, width}, in any order.
 *
 * Files are read past the page cache in blocks of 4 KiB, straight to where readers map them, so a
 * slice must lie in the expert's file at the same place within a block as in the GGUF file. With
 * strides that are no multiple of 4 KiB that place differs from expert to expert:
 *
 *	offset of matrix m of expert e = place[m] + (start[m] + e * stride[m]) % 4096
 *
 * which model.json says as "offset" and "skew" (engine/modelfile.h). All experts of a layer have
 * files of the same size; what no slice covers is zero. Tensors of their own must lie as if they had
 * a stride, as far as 4 KiB go: those of real models are whole blocks of 4 KiB.
 */
#ifndef EXPERTFS_GGUF_EXPERTS_H
#define EXPERTFS_GGUF_EXPERTS_H

#include "expertfs/gguf.h"

enum gguf_matrix { GGUF_GATE, GGUF_UP, GGUF_DOWN, GGUF_MATRICES };

struct gguf_slices {
	const struct gguf_type *type;
	const struct gguf_tensor *stack; /* not owned, of the struct gguf */
	const struct gguf_tensor **each; /* if there is no stack: one an expert */
	uint64_t start;                  /* of the first expert's slice in its file */
	uint64_t stride;                 /* from one expert to the next; of `each` modulo 4 KiB */
	uint64_t bytes;                  /* of a slice */
	uint64_t rows, cols;             /* of the matrix, as Hugging Face has them: [out, in] */
	uint64_t place;                  /* in the expert's file: the first block it may touch */
};

struct gguf_layer {
	uint16_t layer;
	uint32_t experts;
	uint64_t bytes; /* of the file of one expert */
	struct gguf_slices matrix[GGUF_MATRICES];
};

struct gguf_experts {
	uint32_t layers;
	struct gguf_layer *layer; /* ascending */
};

/* 0, or negative errno with the sentence in why: a dense model, stacks that do not fit together. What
 * is found points into g. */
int gguf_experts_find(const struct gguf *g, struct gguf_experts *out, char *why);
void gguf_experts_free(struct gguf_experts *x); /* a zeroed one is fine */

/* Where the slice of expert e begins: in the expert's file, and in the GGUF file; and the tensor that
 * it is of, which says which file. */
uint64_t gguf_slice_place(const struct gguf_slices *s, uint32_t e);
uint64_t gguf_slice_offset(const struct gguf_slices *s, uint32_t e);
const struct gguf_tensor *gguf_slice_tensor(const struct gguf_slices *s, uint32_t e);

/* Whether this tensor is such a stack, or a slice by itself: all others are dense. */
bool gguf_is_stack(const struct gguf_tensor *t);
/* What stands behind "blk.N." in a tensor's name; NULL: it is of no layer, and *layer as it was. */
const char *gguf_in_layer(const char *name, uint32_t *layer);
#define GGUF_LAYERS_MAX 1024 /* as many as the engine takes */

#endif
