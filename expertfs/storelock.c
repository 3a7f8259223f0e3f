/* SPDX-License-Identifier: Apache-2.0
 *
 * Locks on a store; see storelock.h.
 */
#include "expertfs/storelock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "expertfs/fail.h"

/* A daemon that was killed keeps its locks until its memory has been taken back, and who starts the
 * next one does not wait for that. */
#define DYING_MS 2000

static int take(int fd, const char *dir, enum store_lock lock, int wait_ms, char *why)
{
	static const char *const busy[] = {
		[STORE_SERVED] = "its catalog is being rebuilt, or its experts moved",
		[STORE_ALONE] = "it is mounted, or being rebuilt; unmount it first",
		[STORE_RECORDED] = "another daemon that serves it records its usage",
	};

	int how = (lock == STORE_SERVED ? LOCK_SH : LOCK_EX) | LOCK_NB, rc;

	while ((rc = flock(fd, how)) != 0 && errno == EWOULDBLOCK && wait_ms > 0) {
		usleep(20000);
		wait_ms -= 20;
	}
	if (rc == 0)
		return 0;
	if (errno == EWOULDBLOCK)
		return fail(why, EBUSY, "%s is in use: %s", dir, busy[lock]);
	return 0; /* no locks here, as on some network file systems */
}

int store_lock(const char *dir, enum store_lock lock, int *fd, char *why)
{
	char path[PATH_MAX];
	int err;

	if (snprintf(path, sizeof(path), "%s%s", dir,
		     lock == STORE_RECORDED ? "/model.json" : "") >= (int)sizeof(path))
		return fail(why, ENAMETOOLONG, "%s: the path is too long", dir);
	*fd = open(path, O_RDONLY | O_CLOEXEC);
	if (*fd < 0)
		return fail(why, errno, "%s: %s", path, strerror(errno));
	err = take(*fd, dir, lock, DYING_MS, why);
	if (err) {
		close(*fd);
		*fd = -1;
	}
	return err;
}

int store_lock_change(int fd, const char *dir, enum store_lock lock, char *why)
{
	int err = take(fd, dir, lock, 0, why);

	/* The old lock is given back before the new one is asked for: flock(2). */
	if (err && lock == STORE_ALONE && flock(fd, LOCK_SH | LOCK_NB) != 0)
		err = fail(why, ENOLCK, "%s: its lock was lost to another process", dir);
	return err;
}
