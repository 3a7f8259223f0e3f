/* SPDX-License-Identifier: Apache-2.0
 *
 * model.json: what the engine knows of a model. Written by coli-pack, read here and nowhere else.
 *
 *	{
 *	  "format": "expertfs-model", "version": 2,
 *	  "architecture": "glm_moe_dsa",
 *	  "name": "tale-moe",               for people
 *	  "config": { ... },                the checkpoint's config.json, without keys that the
 *	                                    family does not have, tied only if the tensors are
 *	  "eos_token_ids": [0],             from generation_config.json and config.json, joined
 *	  "chat": {"template": "...",       the model's chat template, if it has one, and the tokens
 *	    "bos_token": "<s>",             that templates use; read by chat.h alone
 *	    "eos_token": "</s>"},         "error" is why one of a GGUF file's cannot be had
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
 * Tensor names are those of the Hugging Face checkpoint (spec: transformers' class of the family);
 * biases of experts, which lie here and not in the experts' files, are called
 * model.layers.N.mlp.experts.{gate,up,down}_proj_bias [experts, width]. Shapes are [out, in] or [n];
 * a vector is f32 and lies like a matrix of one row. Offsets are aligned and sizes as quant.h says
 * (wfmt_align(), wfmt_bytes_fit()). "group" is there for q8 and q4 only. An expert file has exactly
 * its layout's "bytes"; unfilled bytes between matrices are zero. Layers without experts (dense
 * ones) are in no layout. The MTP layer (index num_hidden_layers) is an ordinary layer here.
 *
 * A mounted GGUF file is shown as it lies. Its dense.bin is the file itself, of which the tensors in
 * the list are the dense ones; a model of several files has the others in "dense": {"more": [{"file":
 * "dense-00002.bin", "bytes": 512}]}, and tensors in those have "part": 1 and so on. A matrix of an
 * expert may have "skew": in the file of expert e it begins in the same block of 4096 bytes as
 * "offset" does, but at byte (offset + skew * e) % 4096 of that.
 */
#ifndef ENGINE_MODELFILE_H
#define ENGINE_MODELFILE_H

#include <jansson.h>
#include <stdint.h>

#include "engine/config.h"
#include "engine/quant.h"

/* 2: q8 and q4 are interleaved in blocks of rows (quant.h). 1 had them row after row. */
#define MODEL_VERSION 2
#define SKEW_BLOCK    4096

/* Bytes of a model.json, and of its name, at most. */
#define MODEL_TEXT_MAX ((size_t)256 << 20)
#define MODEL_PATH_MAX 4096

/* A matrix or vector within a file. A vector has rows = 1. */
struct tensor {
	char *name; /* NULL in an expert's layout */
	struct wfmt fmt;
	int rows, cols, dims;
	int part;               /* which of the dense files */
	bool extra;             /* of a layer behind the last one: only guesses need it (mtp.h) */
	uint64_t offset, bytes; /* within the file; wfmt_bytes_fit() */
	uint32_t skew;          /* in an expert's layout; see expert_matrix_offset() */
};

struct dense_file {
	char *name;
	uint64_t bytes; /* that it must have */
};

#define DENSE_FILES_MAX 256

enum expert_matrix { EXPERT_GATE, EXPERT_UP, EXPERT_DOWN, EXPERT_MATRICES };

struct expert_layout {
	uint64_t bytes;
	struct tensor matrix[EXPERT_MATRICES];
};

struct modelfile {
	char *dir;     /* as the caller gave it: what sentences name */
	uint64_t hash; /* XXH3 of model.json's text: that it is this model */
	struct model_config config;
	int eos_count;
	int32_t *eos;
	int dense_files;
	struct dense_file *dense_file;
	uint64_t dense_bytes; /* of all dense tensors */
	uint64_t extra_bytes; /* of those that are extra */
	uint64_t largest_expert;
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
/* DIR/model.json as JSON, an object, of which nothing is checked yet; path: its name, for sentences. */
int modelfile_json(const char *dir, char path[MODEL_PATH_MAX], json_t **out, char *why);
/* What modelfile_load() does, from text in memory; `where` begins the sentences. */
int modelfile_parse(const char *text, size_t bytes, const char *dir, const char *where,
		    struct modelfile **out, char *why);
void modelfile_free(struct modelfile *m); /* NULL is fine */

/* Where a matrix of the layout begins in the file of this expert. */
static inline uint64_t expert_matrix_offset(const struct tensor *t, int expert)
{
	uint64_t in_block = (t->offset + (uint64_t)t->skew * (uint64_t)expert) % SKEW_BLOCK;

	return t->skew ? t->offset - t->offset % SKEW_BLOCK + in_block : t->offset;
}

/* NULL if there is no tensor of this name. */
const struct tensor *modelfile_tensor(const struct modelfile *m, const char *name);

#endif
