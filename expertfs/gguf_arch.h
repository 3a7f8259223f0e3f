/* SPDX-License-Identifier: Apache-2.0
 *
 * Architectures of GGUF files that are shown as a Hugging Face family: what each has of its own.
 *
 * An architecture is a row of one table (gguf_arch.c). gguf_config.c reads the metadata that all
 * have with that row at hand, gguf_names.c the names. Source of all rows: llama.cpp,
 * conversion/ and src/models/, constants.py; where a file leaves a key out, the row has what
 * llama.cpp takes then.
 */
#ifndef EXPERTFS_GGUF_ARCH_H
#define EXPERTFS_GGUF_ARCH_H

#include <jansson.h>
#include <stdbool.h>

#include "expertfs/gguf.h"

/* Values of expert_gating_func; 0 is that of the architecture. */
enum gguf_gating { GATING_SOFTMAX = 1, GATING_SIGMOID = 2, GATING_SOFTMAX_CHOSEN = 3 };

/* A name of llama.cpp's and the Hugging Face one: whole, or both without the ending .weight. */
struct gguf_pair {
	const char *gguf, *hf;
};

struct gguf_arch {
	const char *gguf, *model_type;
	const char *width_key; /* how wide an expert is */
	const char *bias_key; /* the switch of the biases of queries, keys and values; NULL: none */
	const struct gguf_pair *names; /* that differ from the common ones, ended by { NULL } */
	enum gguf_gating gating;       /* the only one there is; 0: more() looks */
	bool latent;                   /* MLA; else heads of keys and values */
	bool norm_topk;                /* when expert_weights_norm is not there */
	bool interleave;    /* the converter permutes queries and keys for pairs (2i, 2i+1) */
	bool yarn_truncate; /* when rope.scaling.yarn_truncate is not there */
	/* What only this one has, after all the rest; NULL: nothing. */
	int (*more)(const struct gguf *g, json_t *config, char *why);
};

/* NULL if it is not in the table. */
const struct gguf_arch *gguf_arch_find(const char *name);

/* The pieces of gguf_config(). All return 0 or negative errno with the sentence in why. */

/* Integer key `gguf` into config as `hf`; `absent` if there is no such key, nothing if absent is
 * negative. A list must have the same for each layer. */
int gguf_take_int(const struct gguf *g, const char *gguf, json_t *config, const char *hf,
		  int64_t absent, char *why);
int gguf_put(json_t *config, const char *key, json_t *value, char *why); /* value: taken over */
int64_t gguf_int_of(const json_t *config, const char *key);              /* 0: it is not there */
/* The sentence for a key that a file of this architecture must have: "ARCH.KEY is missing". */
int gguf_missing(const struct gguf *g, const char *key, char *why);
/* Tensor "blk.N.NAME" of the first layer that has it; NULL: none has. */
const struct gguf_tensor *gguf_layer_tensor(const struct gguf *g, const json_t *config,
					    const char *name);
/* gguf_heads.c: the sizes of heads, by either kind of attention; which layers have indexers. */
int gguf_latent_heads(const struct gguf *g, json_t *config, char *why);
int gguf_grouped_heads(const struct gguf *g, json_t *config, char *why);
int gguf_indexers(const struct gguf *g, json_t *config, char *why);
/* gguf_rope.c: how positions are stretched, as "rope_scaling". */
int gguf_rope(const struct gguf *g, const struct gguf_arch *a, json_t *config, char *why);

#endif
