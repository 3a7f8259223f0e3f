/* SPDX-License-Identifier: Apache-2.0
 *
 * Which experts a model has, as model.json says: the one thing in there that storage asks for, to
 * know whether any is missing.
 */
#ifndef EXPERTFS_GEOMETRY_H
#define EXPERTFS_GEOMETRY_H

/* Calls each() for every expert of DIR/model.json, in no order of layers. -ENODATA (and no call): it
 * does not say, or what it says makes no sense. */
int geometry_each(const char *dir, void (*each)(void *arg, unsigned layer, unsigned expert),
		  void *arg);

#endif
