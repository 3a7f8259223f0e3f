/* SPDX-License-Identifier: Apache-2.0
 *
 * Which experts of a layer lie in the daemon's memory, as .expertfs/map tells (its format:
 * expertfs/stats.h). One read of that file costs 0.1 ms; an attribute of each expert
 * would cost 0.02 ms apiece. It is a hint: what it says may have changed by the next moment, and only
 * the order of work may follow from it.
 */
#ifndef ENGINE_RESIDENCY_H
#define ENGINE_RESIDENCY_H

#include <stdbool.h>
#include <stddef.h>

/* in_memory[0 .. n) of a layer of the mount dir. False if the daemon does not tell, or tells of fewer
 * experts; then in_memory is not to be used. */
bool residency_read(const char *dir, int layer, bool *in_memory, int n);

/* The same from the text of the file. */
bool residency_parse(const char *text, int layer, bool *in_memory, int n);

#endif
