/* SPDX-License-Identifier: Apache-2.0
 *
 * The types of tensors in GGUF files: how many elements a block has, and how many bytes. What the
 * bytes mean is the engine's affair (engine/ggml.h).
 */
#ifndef EXPERTFS_GGUF_TYPE_H
#define EXPERTFS_GGUF_TYPE_H

#include <stdint.h>

struct gguf_type {
	uint32_t id;              /* the format's number */
	const char *name;         /* as model.json has it */
	uint32_t elements, bytes; /* of a block */
};

/* NULL: unknown, or a number that is no longer in use. */
const struct gguf_type *gguf_type_find(uint32_t id);

#endif
