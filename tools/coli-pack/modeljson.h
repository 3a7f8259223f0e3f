/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes model.json, whose form engine/modelfile.h describes.
 */
#ifndef COLI_PACK_MODELJSON_H
#define COLI_PACK_MODELJSON_H

#include "tools/coli-pack/plan.h"

/* The whole text in new memory. config_text stands in it byte for byte. 0 or negative errno. */
int modeljson_text(const struct plan *p, char **text, char *why);

#endif
