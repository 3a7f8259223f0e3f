/* SPDX-License-Identifier: Apache-2.0
 *
 * XXH3 by the widest instructions that the processor has, where the library chooses at run time: what
 * a compiler takes by default is a third as fast on bytes that lie in a cache, and every expert's bytes
 * are hashed on their way into memory. The same values.
 */
#ifndef EXPERTFS_XXH3_H
#define EXPERTFS_XXH3_H

#include <xxhash.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#endif

#endif
