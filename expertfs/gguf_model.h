/* SPDX-License-Identifier: Apache-2.0
 *
 * What a mounted GGUF model shows beside its experts: model.json (engine/modelfile.h has the form),
 * with tensors and configuration spelled as the model's Hugging Face checkpoint would have them
 * (gguf_names.c, gguf_config.c, gguf_arch.h), and tokenizer.json.
 *
 * A model of an architecture that is not in these tables is mounted all the same, with names as the
 * file has them: its experts can be read, and the engine refuses it by the architecture's name.
 */
#ifndef EXPERTFS_GGUF_MODEL_H
#define EXPERTFS_GGUF_MODEL_H

#include <jansson.h>

#include "expertfs/gguf_experts.h"

/* The texts in new memory. A split model's further files are dense-00002.bin and so on
 * (store_file_name()). 0 or negative errno with the sentence in why. */
int gguf_model_json(const struct gguf *g, const struct gguf_experts *x, char **text, char *why);
int gguf_vocab_json(const struct gguf *g, char **text, char *why);

/* The pieces (gguf_names.c, gguf_config.c, gguf_chat.c). */
#define GGUF_HF_NAME 256
/* The Hugging Face name of a dense tensor of this model; `name` itself if there is none. */
const char *gguf_hf_name(const struct gguf *g, const char *name, char buf[GGUF_HF_NAME]);
/* The "config" object and "eos_token_ids". A new reference, NULL after an error. */
json_t *gguf_config(const struct gguf *g, char *why);
json_t *gguf_eos(const struct gguf *g, char *why);
/* The member "chat", a new reference. What of it cannot be had hinders nobody from mounting: it is left
 * out, and "error" says why, which only chat minds. 0 or -ENOMEM and why. */
int gguf_chat(const struct gguf *g, json_t **out, char *why);

#endif
