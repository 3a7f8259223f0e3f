/* SPDX-License-Identifier: Apache-2.0
 *
 * A Hugging Face checkpoint folder: config.json, tokenizer.json, generation_config.json and a chat
 * template if there are any, and the safetensors files, with all their tensors under one look-up by name.
 *
 * Read whole and checked by ckpt_open(); read-only after that, so that threads share it freely.
 */
#ifndef COLI_PACK_CHECKPOINT_H
#define COLI_PACK_CHECKPOINT_H

#include "tools/coli-pack/config.h"
#include "tools/coli-pack/safetensors.h"

struct ckpt_name {
	const struct st_tensor *tensor;
};

struct gguf_source;

struct checkpoint {
	char *dir;        /* absolute */
	const char *name; /* the last part of dir */
	/* config.json as it is, or without keys of other families, or as ckpt_set_config() made
	 * it; NUL behind it. */
	char *config_text;
	size_t config_bytes;
	struct pack_config config;
	char *tokenizer_path, *tokenizer_text;
	size_t tokenizer_bytes;
	json_t *chat; /* as it goes into model.json; NULL if there is no chat template */
	int64_t *eos; /* config.json's ids, then those that only generation_config.json has */
	size_t eos_count;
	size_t files, tensors;
	struct st_file *file;      /* sorted by path */
	struct ckpt_name *by_name; /* sorted */
	struct gguf_source *gguf;  /* gguf.h; NULL for a folder */
	bool colibri;              /* colibri.h: some matrices have scales */
	bool colibri_fp8;          /* of these, some are said to be fp8-e4m3-b128 */
	json_t *stamps;            /* of those, tensor to format; NULL without */
};

/* 0, or negative errno with the sentence in why. config.mtp_layers is lowered to the MTP layers of
 * which the files hold any tensor (of a container of Colibri's: with their indexers);
 * *mtp_missing gets the number that config.json promised beyond. */
int ckpt_open(const char *dir, struct checkpoint **out, int *mtp_missing, char *why);
void ckpt_close(struct checkpoint *ck); /* NULL is fine */

/* Changes the configuration that goes into model.json; the value is taken over. 0, or -ENOMEM with
 * the sentence in why. */
int ckpt_set_config(struct checkpoint *ck, const char *key, json_t *value, char *why);

/* NULL if there is no such tensor. */
const struct st_tensor *ckpt_find(const struct checkpoint *ck, const char *name);

#endif
