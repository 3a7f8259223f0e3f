/* SPDX-License-Identifier: Apache-2.0
 *
 * What config.c leaves to its neighbours. `in` is the configuration completed with the family's
 * defaults; c->arch and the sizes are read. All return 0 or -EINVAL with the sentence.
 */
#ifndef ENGINE_CONFIG_PARTS_H
#define ENGINE_CONFIG_PARTS_H

#include "engine/config.h"
#include "engine/jsonread.h"

#define MAX_POSITIONS (1 << 26)

/* config_rope.c: the object that says how positions turn (out->obj NULL: there is none). */
int config_find_rope(const struct json_in *in, struct json_in *out, char *why);
/* Base, scaling and pairing of the rotation of c->rope numbers; the scale of scores over keys of
 * key_dim numbers. */
int config_read_rope(const struct json_in *in, int key_dim, struct model_config *c, char *why);
/* Whether, of a family with two codes (struct arch), this is a model of transformers' own class. */
bool config_own_class(const struct json_in *in, const struct model_config *c);

/* config_layers.c: which layers have experts, an indexer of their own, a window. */
int config_read_layers(const struct json_in *in, struct model_config *c, char *why);

#endif
