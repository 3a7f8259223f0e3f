/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that somebody asks the daemon to make: with his rights, not with the daemon's, which may be
 * root's. Of this thread alone, and only where files are concerned (setfsuid(2)).
 */
#ifndef EXPERTFS_RIGHTS_H
#define EXPERTFS_RIGHTS_H

#include <stdbool.h>
#include <sys/types.h>

struct user {
	uid_t uid;
	gid_t gid;
};

/* False: this process cannot take these rights. *before: for rights_give_back(), also then. */
bool rights_take(const struct user *want, struct user *before);
void rights_give_back(const struct user *before);

#endif
