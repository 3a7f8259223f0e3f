/* SPDX-License-Identifier: Apache-2.0
 *
 * What packing needs of a checkpoint's config.json.
 *
 * The numbers are read and bounded by the engine's own reader, so that coli-pack never makes a
 * store that the engine would refuse; here comes what only a checkpoint has.
 */
#ifndef COLI_PACK_CONFIG_H
#define COLI_PACK_CONFIG_H

#include "engine/config.h"

struct pack_config {
	struct model_config model;
	int mtp_layers;             /* to be packed, behind model.layers */
	int block_rows, block_cols; /* of FP8 scales */
};

/* Takes keys out of the configuration that its family does not have: the engine heeds them in every
 * family, since GGUF files may bring them, transformers ignores them. True if there were any. */
bool pack_config_own(json_t *root);

/* path is for sentences only. 0, or -EINVAL for a model that cannot be packed: an unknown or dense
 * one, a missing key, a number out of bounds. */
int pack_config_parse(const json_t *root, const char *path, struct pack_config *c, char *why);

/* Whether a layer has routed experts, and an indexer of its own. An MTP layer has both. */
static inline bool pack_is_sparse(const struct pack_config *c, int layer)
{
	return layer >= c->model.layers || c->model.sparse[layer];
}

static inline bool pack_has_indexer(const struct pack_config *c, int layer)
{
	return c->model.arch->indexer && (layer >= c->model.layers || c->model.full[layer]);
}

#endif
