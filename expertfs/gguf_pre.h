/* SPDX-License-Identifier: Apache-2.0
 *
 * What the names in tokenizer.ggml.pre stand for: a GGUF names the way its tokenizer splits text, the
 * regular expressions themselves are known to the readers.
 *
 * Sources: the tokenizer.json files of the models (spec: tokenizers.md, section 2) where there is
 * one at hand, else llama.cpp's src/llama-vocab.cpp. Where the two differ the model's own file is
 * right: llama.cpp approximates o200k and forgets ignore_merges of GLM.
 */
#ifndef EXPERTFS_GGUF_PRE_H
#define EXPERTFS_GGUF_PRE_H

#include <stdbool.h>

#define GGUF_PRE_STEPS 6
#define GGUF_PRE_NAMES 4

struct gguf_pre {
	const char *name[GGUF_PRE_NAMES]; /* as in the metadata; all of one meaning */
	/* Each splits the pieces of the one before it: matches and gaps. In Oniguruma's dialect, as
	 * in tokenizer.json. */
	const char *step[GGUF_PRE_STEPS];
	bool ignore_merges; /* a piece that is a token becomes it, without merging */
	bool nfc;           /* text is brought to NFC first */
	bool add_bos;       /* where add_bos_token is absent */
	bool no_bos;        /* there is none, whatever the metadata says */
};

/* NULL if the name is not known. */
const struct gguf_pre *gguf_pre_find(const char *name);

#endif
