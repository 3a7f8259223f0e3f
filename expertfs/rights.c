/* SPDX-License-Identifier: Apache-2.0
 *
 * Another user's rights with files; see rights.h.
 */
#include "expertfs/rights.h"

#include <sys/fsuid.h>
#include <unistd.h>

bool rights_take(const struct user *want, struct user *before)
{
	struct user now;

	*before = (struct user){ geteuid(), getegid() };
	if (want->uid == before->uid)
		return true;
	/* There is no other answer to whether it worked than to ask what they are now. */
	before->gid = (gid_t)setfsgid(want->gid);
	before->uid = (uid_t)setfsuid(want->uid);
	now.gid = (gid_t)setfsgid((gid_t)-1);
	now.uid = (uid_t)setfsuid((uid_t)-1);
	return now.uid == want->uid && now.gid == want->gid;
}

void rights_give_back(const struct user *before)
{
	setfsuid(before->uid);
	setfsgid(before->gid);
}
