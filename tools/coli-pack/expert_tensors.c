/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the matrices of an expert lie in a checkpoint.
 */
#include <stdio.h>

#include "tools/coli-pack/tensors.h"

#define NAME_MAX_BYTES 128

static const char *full_name(char *buf, int layer, const char *name)
{
	snprintf(buf, NAME_MAX_BYTES, "model.layers.%d.mlp.experts.%s", layer, name);
	return buf;
}

enum expert_form tensors_expert_form(const struct checkpoint *ck, int layer)
{
	char name[NAME_MAX_BYTES];

	if (ckpt_find(ck, full_name(name, layer, "gate_up_proj_blocks")))
		return EXPERTS_MXFP4;
	if (!ckpt_find(ck, full_name(name, layer, "gate_up_proj")))
		return EXPERTS_SINGLE;
	return ck->config.model.arch->transposed ? EXPERTS_TRANSPOSED : EXPERTS_FUSED;
}

static int single(const struct checkpoint *ck, int layer, int e, int matrix, int rows, int cols,
		  struct source *s, char *why)
{
	const struct arch *arch = ck->config.model.arch;
	char name[NAME_MAX_BYTES];

	snprintf(name, sizeof(name), "model.layers.%d.%s.%d.%s.weight", layer, arch->experts, e,
		 arch->expert_matrix[matrix]);
	return source_whole(ck, name, 2, rows, cols, s, why);
}

/* gpt-oss without its 4-bit form: [expert][in][out], where gate and up take turns in out. */
static int transposed(const struct checkpoint *ck, const char *name, int e, int matrix, int rows,
		      int cols, struct source *s, char *why)
{
	uint64_t step = matrix == DOWN ? 1 : 2, width = step * (uint64_t)rows;
	const uint64_t shape[3] = { (uint64_t)ck->config.model.experts, (uint64_t)cols, width };
	const struct source_part part = {
		.first = (uint64_t)e * (uint64_t)cols * width + (matrix == UP),
		.row_step = step,
		.col_step = width,
		.rows = rows,
		.cols = cols,
		.again = matrix == GATE,
	};

	return source_part(ck, name, shape, 3, &part, s, why);
}

int tensors_expert_source(const struct checkpoint *ck, int layer, enum expert_form form, int e,
			  int matrix, struct source *s, char *why)
{
	const struct model_config *c = &ck->config.model;
	int rows = matrix == DOWN ? c->hidden : c->expert_width;
	int cols = matrix == DOWN ? c->expert_width : c->hidden;
	int pair = matrix == DOWN ? 1 : 2; /* matrices in the tensor */
	char name[NAME_MAX_BYTES];

	full_name(name, layer, matrix == DOWN ? "down_proj" : "gate_up_proj");
	switch (form) {
	case EXPERTS_FUSED:
		/* As transformers 5 keeps them; the gate's rows come first. */
		return source_slice(ck, name, c->experts, e, pair * rows, matrix == UP ? rows : 0,
				    rows, cols, s, why);
	case EXPERTS_TRANSPOSED:
		return transposed(ck, name, e, matrix, rows, cols, s, why);
	case EXPERTS_MXFP4:
		/* The rows of gate and up take turns. */
		return source_mxfp4(ck, name, c->experts, e, pair * rows, matrix == UP, pair, rows,
				    cols, s, why);
	case EXPERTS_SINGLE:
		break;
	}
	return single(ck, layer, e, matrix, rows, cols, s, why);
}
