/* SPDX-License-Identifier: Apache-2.0
 *
 * A GGUF model as a checkpoint to be packed: its tensors go into the store as they are, nothing is
 * quantised anew, so the store has the numbers of the file, cut over drives and with checksums.
 *
 * It is made to look like a Hugging Face checkpoint (checkpoint.h) by expertfs/gguf_model.h, which
 * a mount of the file uses as well: names, configuration and tokenizer are the same.
 */
#ifndef COLI_PACK_GGUF_H
#define COLI_PACK_GGUF_H

#include "tools/coli-pack/plan.h"

/* Closed by ckpt_close(). 0, or negative errno with the sentence in why: also for an architecture
 * that the engine does not know. */
int gguf_ckpt_open(const char *path, struct checkpoint **out, char *why);
/* For ckpt_close(). NULL is fine. */
struct gguf_source;
void gguf_source_free(struct gguf_source *s);

/* For plan.c, of such a checkpoint: dense tensors, layouts and layers; the source of a matrix. */
int gguf_plan(struct plan *p, char *why);
void gguf_expert_source(const struct plan *p, uint32_t expert, int matrix, struct source *s);

#endif
