/* SPDX-License-Identifier: Apache-2.0
 *
 * A tokenizer.json from the tokenizer metadata of a GGUF file.
 *
 * The mount shows every model's tokenizer in the one form that its readers know, that of Hugging
 * Face's tokenizers library. What a GGUF has (tokenizer.ggml.*; spec: gguf-and-quants.md,
 * tokenizers.md sections 4 and 5) is the same in another shape:
 *
 *	gpt2    byte-level BPE: vocabulary, merges, and the name of a way to split (gguf_pre.h)
 *	llama   SentencePiece: pieces with scores. Two neighbours are merged if together they are a
 *	        piece, that of the highest score first: each way to cut a piece in two is a merge,
 *	        its rank is the place of the score among all. Pieces of equal score need merges of
 *	        equal rank, which the library's form cannot say: the member "ranks" of the model is
 *	        ours. A reader that does not know it takes the order of the merges, and differs only
 *	        where such pieces overlap.
 *
 * Control tokens (type 3) and the unknown one (2) become special added tokens, user-defined ones
 * (4) added tokens, those of SentencePiece with spaces pieces; unused rows (5) are left out.
 */
#ifndef EXPERTFS_GGUF_TOKENIZER_H
#define EXPERTFS_GGUF_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

/* Not ended by a NUL. */
struct gguf_tokenizer_text {
	const char *at;
	size_t bytes;
};

/* What stands for a key that is not there. */
#define GGUF_TOKENIZER_ABSENT (-1)

/* All of it is the caller's, and from a file that is not trusted. */
struct gguf_tokenizer {
	const char *model; /* tokenizer.ggml.model */
	const char *pre;   /* tokenizer.ggml.pre; NULL if absent */
	size_t tokens;
	const struct gguf_tokenizer_text *token; /* by id */
	const float *score;                      /* by id; NULL if absent */
	const int32_t *type;                     /* by id; NULL if absent */
	size_t merges;
	const struct gguf_tokenizer_text *merge; /* "A B", the first goes first */
	int64_t bos, eos;                        /* ids, or GGUF_TOKENIZER_ABSENT */
	/* tokenizer.ggml.add_*: 0, 1 or GGUF_TOKENIZER_ABSENT */
	int add_bos, add_eos, add_space_prefix;
};

/* *json: the text, allocated, NUL-terminated. 0, or negative errno with the sentence in why (which
 * names no file): -EINVAL for what the engine could not reproduce exactly, another model or
 * pre-tokenizer, texts that are no UTF-8 or too long, ids that are not there; -ENOMEM. */
int gguf_tokenizer_json(const struct gguf_tokenizer *g, char **json, size_t *bytes, char *why);

#endif
