/* SPDX-License-Identifier: Apache-2.0
 *
 * Experts by name, as people and engines write them into control files:
 *
 *	3/117     one expert         3/0-15    a range of one layer     3/all    a whole layer
 *	4-7/2     of several layers  all       every one               top 4G   the hottest that
 *	                                                                        fit into 4 GiB
 *
 * Numbers of a range that the store does not have are passed over; a word that names no expert at
 * all is an error. Leading zeros are fine ("003/117", as the mount has them).
 */
#ifndef EXPERTFS_SELECT_H
#define EXPERTFS_SELECT_H

#include "expertfs/hotstore.h"
#include "expertfs/store.h"

/* Calls each() for every expert that the words of text name, in order of the words ("top": hottest
 * first). Words are separated by blanks or newlines. hot: who knows the heat. 0, or -EINVAL,
 * -ENOENT, -ENOMEM and the sentence in why; what came before the wrong word has been called. */
int select_experts(const struct store *s, struct hotstore *hot, const char *text,
		   void (*each)(void *arg, uint32_t index), void *arg, char *why);

#endif
