/* SPDX-License-Identifier: Apache-2.0
 *
 * What will be written: the table of dense tensors, the layouts of experts, and where each expert
 * lies on which drive. Made from the checkpoint's headers alone, before the first byte is written;
 * the dry run prints it, model.json records it, the writers follow it.
 */
#ifndef COLI_PACK_PLAN_H
#define COLI_PACK_PLAN_H

#include "engine/quant.h"
#include "tools/coli-pack/placement.h"
#include "tools/coli-pack/source.h"

struct pack_options {
	int bits;       /* of experts: 4, 8, 16, 32 */
	bool keep;      /* experts in MXFP4 stay as they are, whatever bits says */
	int dense_bits; /* 8, 16, 32 */
	int group;      /* 32, 64, 128 */
};

/* Where the drives' speeds come from: --speeds, a measurement, or nowhere (all are 1). */
enum speeds_from { SPEEDS_EQUAL, SPEEDS_MEASURED, SPEEDS_GIVEN };

/* How experts are spread over the drives. */
struct spread {
	enum layout layout;
	unsigned replicas;  /* copies of each expert, 1..drives */
	uint64_t hot_bytes; /* one more copy of the hottest experts, this much at most; 0: none */
	const char *usage;  /* the file that says which are hot; NULL without hot_bytes */
	uint32_t drives;
	const uint64_t *speed; /* a drive, bytes/s */
	enum speeds_from speeds_from;
};

struct plan_dense {
	char *name;
	int dims; /* 1 or 2 */
	struct wfmt fmt;
	uint64_t offset, bytes; /* in dense.bin */
	struct source src;      /* rows and cols as well; a vector is one row */
};

enum { GATE, UP, DOWN, MATRICES };

struct plan_matrix {
	struct wfmt fmt;
	int rows, cols;
	uint64_t offset, bytes; /* in the expert */
};

struct plan_layout {
	struct plan_matrix matrix[MATRICES];
	uint64_t bytes; /* of an expert */
};

/* How the checkpoint has the experts of a layer: three tensors each; all in two tensors, [out, in]
 * or [in, out]; or those in 4 bits (source.h). */
enum expert_form { EXPERTS_SINGLE, EXPERTS_FUSED, EXPERTS_TRANSPOSED, EXPERTS_MXFP4 };

struct plan_layer {
	uint16_t layer;
	uint8_t layout;
	enum expert_form form;
};

#define PLAN_LAYOUTS 64

struct plan {
	const struct checkpoint *ck; /* not owned */
	struct pack_options options;
	size_t dense_count, dense_room;
	struct plan_dense *dense;
	uint64_t dense_bytes; /* size of dense.bin */
	int layouts;
	struct plan_layout layout[PLAN_LAYOUTS];
	int layers; /* with experts */
	struct plan_layer *layer;
	/* Experts are numbered 0, 1, ... in order of layer, then expert: also that of writing. */
	uint32_t experts; /* all of them */
	struct spread spread;
	uint64_t usage_check; /* XXH3 of the usage file */
	uint32_t hot;         /* experts with one copy more */
	struct placement place;
	uint64_t source_bytes; /* to be read from the checkpoint */
	/* Of the matrices of integers (colibri.h), those whose integers the store takes as they are,
	 * and those that are quantised again, with one for an example. */
	uint64_t codes_kept, codes_anew;
	struct source anew;
	struct wfmt anew_as;
};

extern const char *const plan_matrix_name[MATRICES];

/* Finds every tensor that packing needs, with its shape and type, and places the experts. 0, or
 * negative errno with the sentence in why. The plan points into ck, and to what spread points to.
 */
int plan_make(const struct checkpoint *ck, const struct pack_options *o,
	      const struct spread *spread, struct plan **out, char *why);
void plan_free(struct plan *p); /* NULL is fine */

const struct plan_layer *plan_layer_of(const struct plan *p, uint32_t expert);
const struct plan_layout *plan_layout_of(const struct plan *p, uint32_t expert);
/* The expert's number within its layer. */
unsigned plan_number_of(const struct plan *p, uint32_t expert);

/* Where a matrix of an expert comes from. plan_make() has seen that it is there. */
int plan_expert_source(const struct plan *p, uint32_t expert, int matrix, struct source *s,
		       char *why);

/* Appends a tensor to the dense table. A vector has dims 1 and rows 1. */
int plan_add_as(struct plan *p, const char *name, int dims, const struct source *src,
		struct wfmt fmt, char *why);
/* The same in the format that the options ask for; plain: float32 whatever they say. plan_add():
 * from the tensor of that name. */
int plan_add(struct plan *p, const char *name, int dims, int64_t rows, int cols, bool plain,
	     char *why);
int plan_add_source(struct plan *p, const char *name, int dims, const struct source *src,
		    bool plain, char *why);

/* Puts a matrix of an expert behind those that are in the layout. */
void plan_put_matrix(struct plan_layout *l, int matrix, struct wfmt fmt, int rows, int cols);
/* Appends a layer with experts of this layout, which becomes an entry of layout[] unless there is
 * one of the kind. The caller has made room in layer[]. */
int plan_add_layer(struct plan *p, uint16_t layer, enum expert_form form,
		   const struct plan_layout *l, char *why);

#endif
