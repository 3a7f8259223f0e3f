/* SPDX-License-Identifier: Apache-2.0
 *
 * model.json: what the engine knows of a model. Written by coli-pack, read here and nowhere else.
 *
 *	{
 *	  "format": "expertfs-model", "version": 2,
 *	  "architecture": "glm_moe_dsa",
 *	  "name": "tale-moe",               for people
 *	  "config": { ... },                the checkpoint's config.json, whole and unchanged
 *	  "eos_token_ids": [0],             from generation_config.json and config.json, joined
 *	  "chat": {"template": "...",       the model's chat template, if it has one, and the tokens
 *	    "bos_token": "<s>",             that it uses; read by chat.h alone
 *	    "eos_token": "</s>"},
 *	  "dense": {
 *	    "file": "dense.bin", "bytes": 5123072,
 *	    "tensors": [
 *	      {"name": "model.embed_tokens.weight", "type": "q8", "group": 64,
 *	       "shape": [2048, 256], "offset": 0, "bytes": 540672}, ... ]
 *	  },
 *	  "experts": {
 *	    "count": 64,                    per layer
 *	    "layouts": [
 *	      {"layers": [1, 2, 3, 4, 5], "bytes": 27648,
 *	       "matrices": [
 *	         {"name": "gate", "type": "q4", "group": 64, "shape": [64, 256],
 *	          "offset": 0, "bytes": 9216},
 *	         {"name": "up", ...}, {"name": "down", ...} ]}, ... ]
 *	  }
 *	}
 *
 * Tensor names are those of the Hugging Face checkpoint (spec: transformers glm_moe_dsa). Shapes
 * are [out, in] or [n]; a vector is f32 and lies like a matrix of one row. Offsets are multiples of
 * 64, sizes those of quant.h. "group" is absent for f32 and bf16. An expert file has exactly its
 * layout's "bytes"; unfilled bytes between matrices are zero. Layers without experts (dense ones)
 * are in no layout. The MTP layer (index num_hidden_layers) is an ordinary layer here.
 */
#ifndef ENGINE_MODELFILE_H
#define ENGINE_MODELFILE_H

#include <stdint.h>

#include "engine/config.h"
#include "engine/quant.h"

/* 2: q8 and q4 are interleaved in blocks of rows (quant.h). 1 had them row after row. */
#define MODEL_VERSION 2

/* A matrix or vector within a file. A vector has rows = 1. */
struct tensor {
	char *name; /* NULL in an expert's layout */
	struct wfmt fmt;
	int rows, cols, dims;
	uint64_t offset, bytes; /* within the file; bytes = wfmt_bytes() */
};

enum expert_matrix { EXPERT_GATE, EXPERT_UP, EXPERT_DOWN, EXPERT_MATRICES };

struct expert_layout {
	uint64_t bytes;
	struct tensor matrix[EXPERT_MATRICES];
};

struct modelfile {
	char *dir; /* as the caller gave it: what sentences name */
	char *name, *dense_file;
	struct model_config config;
	int eos_count;
	int32_t *eos;
	uint64_t dense_bytes, largest_expert;
	size_t tensors;
	struct tensor *tensor; /* sorted by name */
	int layouts;
	struct expert_layout *layout;
	/* Of layer L; NULL for layers without experts. Every sparse layer of the forward pass has
	 * one. */
	const struct expert_layout *layer_layout[MODEL_MAX_LAYERS];
};

/* Reads and checks DIR/model.json; opens no other file. 0 or negative errno with the sentence. */
int modelfile_load(const char *dir, struct modelfile **out, char *why);
/* The same from text in memory; `where` begins the sentences. */
int modelfile_parse(const char *text, size_t bytes, const char *dir, const char *where,
		    struct modelfile **out, char *why);
void modelfile_free(struct modelfile *m); /* NULL is fine */

/* NULL if there is no tensor of this name. */
const struct tensor *modelfile_tensor(const struct modelfile *m, const char *name);

#endif
