/* SPDX-License-Identifier: Apache-2.0
 *
 * Locks on a store; see storelock.h.
 */
#include "expertfs/storelock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "expertfs/fail.h"

#define STEP_MS 20
#define TURN_US 100000 /* far more than anybody's turn takes */

static const char *const busy[] = {
	[STORE_SERVED] = "its catalog is being rebuilt, or its experts moved",
	[STORE_ALONE] = "it is mounted, or being rebuilt; unmount it first",
	[STORE_RECORDED] = "another daemon that serves it records its usage",
};

static int in_use(const char *dir, enum store_lock lock, char *why)
{
	return fail(why, EBUSY, "%s is in use: %s", dir, busy[lock]);
}

/* A lock that changes is given back before the new one is asked for (flock(2)), and then another
 * process might believe itself alone. So who asks to be alone, or changes, does it when no other does.
 * -1: without, as where the file is not there yet. */
static int take_turn(const char *dir)
{
	char path[PATH_MAX];
	int fd;

	if (snprintf(path, sizeof(path), "%s/tokenizer.json", dir) >= (int)sizeof(path))
		return -1;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	for (int us = 0; fd >= 0 && us < TURN_US && flock(fd, LOCK_EX | LOCK_NB) != 0; us += 100)
		usleep(100);
	return fd;
}

/* served: fd holds STORE_SERVED or STORE_ALONE. 0; -EBUSY, with STORE_SERVED if served; -ENOLCK. Where
 * there are no locks, as on some network file systems, all is well. */
static int attempt(int fd, const char *dir, enum store_lock lock, bool served)
{
	int turn = served || lock == STORE_ALONE ? take_turn(dir) : -1, err = 0;

	if (flock(fd, (lock == STORE_SERVED ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0 &&
	    errno == EWOULDBLOCK)
		err = -EBUSY;
	if (err && served && flock(fd, LOCK_SH | LOCK_NB) != 0)
		err = -ENOLCK;
	if (turn >= 0)
		close(turn);
	return err;
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
	for (int ms = 0; (err = attempt(*fd, dir, lock, false)) && ms < STORE_DYING_MS;
	     ms += STEP_MS)
		usleep(STEP_MS * 1000);
	if (!err)
		return 0;
	close(*fd);
	*fd = -1;
	return in_use(dir, lock, why);
}

int store_lock_change(int fd, const char *dir, enum store_lock lock, int wait_ms, char *why)
{
	int err;

	for (; (err = attempt(fd, dir, lock, true)) && wait_ms > 0; wait_ms -= STEP_MS)
		usleep(STEP_MS * 1000);
	if (err == -ENOLCK)
		return fail(why, ENOLCK, "%s: its lock was lost to another process", dir);
	return err ? in_use(dir, lock, why) : 0;
}
