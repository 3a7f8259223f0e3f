/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the tensors of a model lie in its checkpoint: their names, and the forms that experts come
 * in. Names and shapes follow from the configuration (engine/config.h) and the family's row
 * (engine/arch.h).
 */
#ifndef COLI_PACK_TENSORS_H
#define COLI_PACK_TENSORS_H

#include "tools/coli-pack/plan.h"

/* dense_tensors.c: adds them all to the plan, in the order of dense.bin. */
int tensors_plan_dense(struct plan *p, char *why);

/* expert_tensors.c: the form that the experts of a layer have in the checkpoint, and where a matrix
 * of one lies. */
enum expert_form tensors_expert_form(const struct checkpoint *ck, int layer);
int tensors_expert_source(const struct checkpoint *ck, int layer, enum expert_form form, int e,
			  int matrix, struct source *s, char *why);

#endif
