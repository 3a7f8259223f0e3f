/* SPDX-License-Identifier: Apache-2.0
 *
 * The chat template of a checkpoint: chat_template.jinja, or what tokenizer_config.json has, with the
 * texts of the begin and end tokens, which templates use.
 */
#ifndef COLI_PACK_CHAT_H
#define COLI_PACK_CHAT_H

#include <jansson.h>

/* *out: {"template": ..., "bos_token": ..., "eos_token": ...} for model.json, without "template" if there
 * is none: the form of another family, which may be asked for, needs the tokens all the same. NULL if
 * neither file is there. 0, or negative errno with the sentence in why. */
int pack_chat_read(const char *dir, json_t **out, char *why);

#endif
