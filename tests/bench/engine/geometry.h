/* SPDX-License-Identifier: Apache-2.0
 *
 * The sizes of a glm_moe_dsa model without weights: presets, and the texts of its model.json and
 * tokenizer.json.
 */
#ifndef BENCH_GEOMETRY_H
#define BENCH_GEOMETRY_H

#include <stddef.h>

/* Sizes under the names that config.json has for them; options of make_model are named the same. */
enum size {
	SIZE_VOCAB,
	SIZE_HIDDEN,
	SIZE_LAYERS,
	SIZE_FIRST_DENSE,
	SIZE_POSITIONS,
	SIZE_HEADS,
	SIZE_Q_LORA,
	SIZE_KV_LORA,
	SIZE_NOPE,
	SIZE_ROPE,
	SIZE_V_DIM,
	SIZE_INDEX_HEADS,
	SIZE_INDEX_DIM,
	SIZE_INDEX_TOPK,
	SIZE_INDEX_FREQ,
	SIZE_INDEX_OFFSET,
	SIZE_DENSE_WIDTH,
	SIZE_EXPERT_WIDTH,
	SIZE_EXPERTS,
	SIZE_CHOSEN,
	SIZE_SHARED,
	SIZES
};

extern const char *const size_key[SIZES];

struct geometry {
	const char *name, *about;
	int size[SIZES];
	int distinct; /* expert records that are written if nothing else is asked for; 0: all */
};

extern const struct geometry presets[];
extern const size_t preset_count;

/* model.json as coli-pack writes it by default: experts of q4/64, matrices of q8/64, vectors, router
 * and the indexer's weights f32. No token ends a text. New memory; 0 or negative errno and why. */
int geometry_model_json(const struct geometry *g, char **text, char *why);

/* A byte-level tokenizer.json without merges that defines every id of the vocabulary: 0 to 255 are
 * the bytes, id N beyond is the text "<N>". */
int geometry_tokenizer_json(const struct geometry *g, char **text, char *why);

#endif
